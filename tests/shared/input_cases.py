"""Malformed inputs by area, each with what is expected of it; :func:`verdict` tells what became of
one.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from damaged_folders import folder_cases
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from option_values import EVALUATION, NO_COUNT, NO_RATE, TRAINING, read, with_option
from readers_of_files import FILES, FileKind, Mutation

from backpack_rank.checks import UsageError
from backpack_rank.evaluation.alpha_search import parse_budgets
from backpack_rank.options import groups_of, own_options
from backpack_rank.pipelines.errors import MISTAKES, is_mistake, sentence_of
from backpack_rank.pipelines.given import check_names, parsed, quoted

VERDICTS = ("clear", "accepted", "unclear", "traceback", "silently wrong", "wrongly refused")
MOST_LINES = 6
_BYTES = b"\x00\t\r\n \"',:;{}[]\\/01-.eqd\x7f\x80\xc3\xe9\xef\xbb\xbf\xff\x1b"


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes:
        area, name: for the table.
        run: reads it.
        says: words that the sentence must have; None: the input is right, and must be taken.
        right: of what ``run`` gives, for an input that is right.
        either: whether it may be refused too, in a sentence with these words (bytes changed at
            random).
    """

    area: str
    name: str
    run: Callable[[], object]
    says: tuple[str, ...] | None = ()
    right: Callable[[Any], bool] = lambda _: True
    either: tuple[str, ...] | None = None


def verdict(case: Case) -> tuple[str, str]:
    """One of :data:`VERDICTS`, and what was said."""
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            result = case.run()
    except UsageError as error:
        message = str(error)
    except MISTAKES as error:
        message = sentence_of(error)
        if not is_mistake(error):
            return "traceback", f"{type(error).__name__}: {message}"
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    else:
        if case.says is not None:
            return "silently wrong", repr(result)[:200]
        return ("accepted", "") if case.right(result) else ("silently wrong", repr(result)[:200])
    finally:
        logging.disable(logging.NOTSET)
    words = case.says if case.either is None else case.either
    if words is None:
        return "wrongly refused", message
    clear = len(message.splitlines()) <= MOST_LINES and all(word in message for word in words)
    return ("clear" if clear else "unclear"), message


def file_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Every mutation of every kind of file once, then drawn ones, at other lines."""
    listed = [(kind, mutation) for kind in FILES for mutation in kind.mutations]
    folder.mkdir(parents=True)
    number = 0
    while True:
        for kind, mutation in listed if number == 0 else rng.sample(listed, len(listed)):
            number += 1
            yield _file_case(kind, mutation, rng.randrange(len(kind.lines)), folder / str(number))


def _file_case(kind: FileKind, mutation: Mutation, line: int, folder: Path) -> Case:
    name = f"{kind.name}{mutation.suffix}"

    def run() -> object:
        folder.mkdir()
        file = kind.write(folder, name, mutation.make(list(kind.lines), line))
        return kind.read(file)

    says = (
        None
        if mutation.says is None
        else tuple(word.format(line=line + 1, file=name) for word in mutation.says)
    )
    return Case(
        "files",
        f"{name}, {mutation.name}, line {line + 1}",
        run,
        says,
        mutation.right or kind.right,
    )


def byte_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Bytes put in, taken out and changed at random: taken, or refused in a sentence that names the
    file.
    """
    folder.mkdir(parents=True)
    number = 0
    while True:
        number += 1
        kind = rng.choice(FILES)
        raw = bytearray("".join(f"{line}\n" for line in kind.lines).encode())
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(raw))
            raw[place : place + rng.randint(0, 3)] = bytes(
                rng.choice(_BYTES) for _ in range(rng.randint(0, 3))
            )
        packed = rng.random() < 0.2 and kind.name.endswith(("run", "qrels", "tsv", "csv"))
        yield _byte_case(kind, bytes(raw), packed, folder / str(number))


def _byte_case(kind: FileKind, raw: bytes, packed: bool, folder: Path) -> Case:
    name = f"{kind.name}.gz" if packed else kind.name

    def run() -> object:
        folder.mkdir()
        return kind.read(kind.write(folder, name, gzip.compress(raw) if packed else raw))

    return Case("changed bytes", f"{name}, {raw!r}", run, None, either=(str(folder),))


def value_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Wrong values of every option, then drawn ones."""
    tables = {"evaluate": EVALUATION, "train": TRAINING}
    listed = []
    for script, table in tables.items():
        for option, values in table.items():
            listed += [(script, option, value) for value in values]
    yield from (_value_case(*arguments) for arguments in listed)
    while True:
        script = rng.choice(list(tables))
        option = rng.choice(list(tables[script]))
        kinds = tables[script][option]
        if set(NO_COUNT) <= set(kinds) or "1.5" in kinds:
            drawn = [
                str(-rng.randint(1, 10**9)),
                f"{rng.random() + 0.01:.4f}",
                _word(rng),
                "{a: 1}",
                "1e999",
            ]
        elif set(NO_RATE) <= set(kinds):
            drawn = [str(-rng.random() - 0.001), _word(rng), "{a: 1}", "[0.1,0.2]", "1e999", "0x10"]
        else:
            drawn = [rng.choice(kinds)]
        yield _value_case(script, option, rng.choice(drawn))


def _value_case(script: str, option: str, value: str) -> Case:
    word = option.removeprefix("reconstruct.")
    return Case(
        "option values",
        f"{script} {option}={value}",
        lambda: read(script, with_option(script, option, value)),
        (word,),
    )


def name_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Names of options with a slip of the keyboard, bare, behind a + and behind ++."""
    while True:
        script = rng.choice(("train", "evaluate"))
        known = [name for name in own_options(script) if len(name) > 3]
        nested = {
            "train": ("training.epochs", "lists.size", "trainer.devices"),
            "evaluate": ("explain.query", "cache.folder"),
        }
        name = rng.choice([*known, *nested[script]])
        first, _, last = name.rpartition(".")
        slip = _slip(rng, last)
        wrong = f"{first}.{slip}" if first else slip
        mark = rng.choice(("", "+", "++"))
        if wrong in known or slip.partition(".")[0] in known or (first == "trainer" and mark):
            continue
        argument = f"{mark}{wrong}={rng.choice(('1', 'true', 'x'))}"
        yield Case(
            "option names",
            f"{script} {argument}",
            lambda s=script, a=argument: check_names(s, [a]),
            (slip, "no"),
        )


def choice_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Choices that do not exist."""
    while True:
        script = rng.choice(("train", "evaluate"))
        group = rng.choice([name for name in groups_of(script) if name != "experiment"])
        wrong = _slip(rng, _word(rng) + "x")
        yield Case(
            "choices",
            f"{script} {group}={wrong}",
            lambda s=script, a=f"{group}={wrong}": check_names(s, [a]),
            (wrong, "no such choice"),
        )


def grammar_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """What Hydra's grammar does not read."""
    shapes = (
        "alpha=[{}",
        "alpha={}]",
        "run=[{}",
        "policy={{{}",
        "scoring.device='{}",
        'measures="{}',
        "alpha={}=1",
        "{}",
    )
    while True:
        argument = rng.choice(shapes).format(_word(rng))
        yield Case(
            "grammar",
            argument,
            lambda a=argument: parsed([a]),
            ("cannot be read as OPTION=VALUE",),
        )


def explain_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Sentences with anything in them are texts."""
    letters = (
        string.ascii_letters
        + " '\",.;:!?()[]{}=$\\/%&#@+-*~^<>|\t\u00e9\u00df\u65e5\u0639\U0001f600"
        + "${a}"
    )
    while True:
        text = "".join(rng.choice(letters) for _ in range(rng.randint(1, 40)))
        if text[0] in "'\"" and text[-1] == text[0]:
            continue  # in quotes of Hydra's own
        option = rng.choice(("query", "document", "query_file", "doc_id"))
        yield Case(
            "texts to explain",
            f"explain.{option}={text}",
            lambda o=option, t=text: _explained(o, t),
            None,
            lambda result, t=text: result == t,
        )


def _explained(option: str, text: str) -> object:
    argument = quoted(f"explain.{option}={text}")
    parsed([argument])
    config = OmegaConf.create({"explain": {option: None}})
    override = OverridesParser.create().parse_override(argument)
    OmegaConf.update(config, override.key_or_group, override.value())
    return config.explain[option]


BUDGETS = {
    **dict.fromkeys(("nDCG@10 loss<=1", "nDCG@10 loss<=0.01", "R@100 loss<=5"), "give it in %"),
    **dict.fromkeys(
        ("nDCG@10 loss<=-1%", "nDCG@10 loss<=101%", "AP loss<=1e9%"), "a loss lies from 0% to 100%"
    ),
    **dict.fromkeys(("nDCG@10", "nDCG@10 loss", "0.3", "<=", "nDCG@10 = 0.3"), "examples:"),
    **dict.fromkeys(
        ("gap<=1_0", "gap<=\uff11", "gap<=nan", "gap<=inf", "gap<=1e999", "gap<=x", "gap<="),
        "is no number",
    ),
    **dict.fromkeys(("gap<0.3", "gap>0.3", "gap==1", "gap=<1", "gap=>1"), "use <= or >="),
    "|nDCG@10| loss<=1%": "without bars",
    "|gap|<=-1": "no absolute value",
    "0<=gap<=1": "cannot be read",
    "nDCG@10 loss>=1%": "bounded by <=",
    **dict.fromkeys(("RaB(tf)@10 loss<=1%", "gap/std loss<=5%"), "less bias is no loss"),
}


def budget_cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Budgets that are none, and right ones."""
    for text, message in BUDGETS.items():
        yield Case("budgets", text, lambda t=text: parse_budgets(t), (message,))
    while True:
        bound, measure = (
            round(rng.random(), 3),
            rng.choice(("nDCG@10", "gap/std", "RaB(tf)@10", "NFaiRR@10")),
        )
        forms = [f"{measure}<={bound}", f"|{measure}| <= {bound}"]
        if measure in ("nDCG@10", "NFaiRR@10"):  # of nDCG and NFaiRR alone more is better
            forms.append(f"{measure} loss<={100 * bound:g}%")
        text = rng.choice(forms)
        yield Case(
            "budgets",
            text,
            lambda t=text: parse_budgets(t),
            None,
            lambda budgets, b=bound: abs(budgets[0].bound - b) < 1e-9,
        )
        text = rng.choice(
            (
                f"{measure} loss<={bound + 0.001}",
                f"{measure}<={_word(rng)}",
                f"{measure}{bound}",
                f"{measure}<<{bound}",
            )
        )
        yield Case("budgets", text, lambda t=text: parse_budgets(t), ("budget",))


def folder_area(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Folders of rankers: see :mod:`damaged_folders`."""
    for name, run, says in folder_cases(rng, folder):
        yield Case("ranker folders", name, run, says)


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 8)))


def _slip(rng: random.Random, word: str) -> str:
    place = rng.randrange(len(word) - 1)
    return rng.choice(
        (
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
            word[:place] + word[place + 1 :],
            word[:place] + rng.choice(string.ascii_lowercase) + word[place:],
        )
    )


AREAS: dict[str, Callable[[random.Random, Path], Iterator[Case]]] = {
    "option values": value_cases,
    "option names": name_cases,
    "choices": choice_cases,
    "grammar": grammar_cases,
    "texts to explain": explain_cases,
    "budgets": budget_cases,
    "files": file_cases,
    "changed bytes": byte_cases,
    "ranker folders": folder_area,
}
