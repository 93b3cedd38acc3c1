"""Options of the command line, checked before Hydra and torch are imported.

Hydra composes conf/ and would find many of these mistakes as well. It is not asked, for three
reasons: importing it and composing take twice as long as the whole answer here; it knows neither
the nearest name nor the choice of a group that has an option; and it takes any name behind a ``+``,
so that ``+alfa=0.5`` would run at alpha 1.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backpack_rank.checks import UsageError
from backpack_rank.commands import program
from backpack_rank.files import read_yaml, resource_folder

LIBRARIES = ("trainer", "logger", "executor_options")
"""Nodes that are passed to a library as they are."""
_SPLITS = ("train", "dev", "test", "bias")
_ABOUT_DATA = ("first_stage", "bias_queries", "measures", "answers", "requests", "variants")
MORE_OPTIONS = {
    "data": (*_SPLITS, *(f"{split}_first_stage" for split in _SPLITS), *_ABOUT_DATA),
    "model.recommended": ("head_learning_rate", "start_weights", "reconstruct_steps"),
}
"""Options that a file of the group need not have."""
# Some models reconstruct by default: with them these options do something.
_RECONSTRUCTION = ("reconstruct.steps", "model")
WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "train": {
        "training.margin": ("training.loss=pairwise_hinge",),
        "data.rotation_level": ("data.rotation",),
        "data.rotation_seed": ("data.rotation",),
        "reconstruct.texts": _RECONSTRUCTION,
        "reconstruct.held_out": _RECONSTRUCTION,
        "reconstruct.batch_size": _RECONSTRUCTION,
        "reconstruct.learning_rate": _RECONSTRUCTION,
    },
    "evaluate": {
        "recalibrate.weight": ("recalibrate.run",),
        "aggregate_depth": ("aggregate",),
        "certificate_pairs": ("certificate",),
        "ties": ("run", "recalibrate.run"),
        "run_memory": ("run",),
    },
    "rerank": {
        "executor": ("engine=datatrove",),
        "executor_options": ("engine=datatrove",),
    },
    "retrieve": {},
    "calibrate": {},
}
"""Options of each script that do nothing without another, with any value or with that one."""
TEXTS = (
    "explain.query",
    "explain.document",
    "explain.query_file",
    "explain.document_file",
    "explain.query_id",
    "explain.doc_id",
)
"""Options whose value is any text; see :func:`quoted`."""
_CONFIG_FLAGS = ("--config-path", "--config-name", "--config-dir", "-cp", "-cn", "-cd")
_VALUED_FLAGS = ("--cfg", "--package", "--info", "-c", "-p", "-i", *_CONFIG_FLAGS)
# A value that Hydra takes as a text, or null.
_IN_QUOTES = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|null""", re.DOTALL)
# A number with an underscore that is no part of a name, a path or a text.
_UNDERSCORE = re.compile(r"(?<![\w.'\"/-])[+-]?\d[\d_]*_[\d_.]*(?![\w.'\"/-])")
_OVERRIDE = re.compile(r"(?P<mark>[+~]*)(?P<key>[A-Za-z][\w./@-]*)(?:=(?P<value>.*))?", re.DOTALL)


def groups_of(script: str) -> dict[str, str]:
    """Config groups of a script, each with its default in brackets and the comment beside it.

    For help and lists.

    >>> groups_of("evaluate")["bias"]
    '[default] default | rekabsaz2020 | rekabsaz2021: measures of bias'
    """
    texts = {}
    for group, (default, comment) in _defaults_of(script).items():
        texts[group] = f"[{default}] {comment}" if comment else f"[{default}]"
    return texts


def choices(group: str) -> dict[str, str]:
    """The choices of a config group in alphabetical order, each with its file's first sentence."""
    folder = resource_folder("conf") / group
    descriptions = {}
    for file in sorted(folder.rglob("*.yaml")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        descriptions[name] = _description(file)
    return descriptions


def own_options(script: str) -> dict[str, Any]:
    """Options of a script's own file, and its groups; texts of the file as they are."""
    content = read_yaml(resource_folder("conf") / f"{script}.yaml")
    del content["defaults"]
    groups = dict.fromkeys(_defaults_of(script))
    return {**groups, **content, "hydra": None, "list": None, "prompt": None}


def check_options(script: str, arguments: Sequence[str]) -> None:
    """Refuse options that do not exist, also behind a ``+``, and those that would do nothing.

    Raises:
        UsageError: with one sentence, which names the nearest option.
    """
    groups, known = _defaults_of(script), own_options(script)
    if any(argument.startswith(_CONFIG_FLAGS) for argument in arguments):
        return  # files of the user's own may have any option
    given = _given(arguments)
    for argument in arguments:
        override = _OVERRIDE.fullmatch(argument)
        if override is None:
            if "=" in argument and not argument.startswith("-"):
                raise UsageError(f"{argument!r} names no option: write OPTION=VALUE; see --help")
            continue
        mark, key, value = override["mark"], override["key"], override["value"]
        if value is None and not mark:
            continue  # a word alone: `check_grammar` says what is wrong with it
        # group@package=choice puts a choice in another place.
        key = key.partition("@")[0]
        top = key.partition(".")[0]
        if key in groups and value is not None:
            _check_choice(key, value)
        elif key not in groups and top not in known and "/" not in key:
            raise UsageError(
                f"{mark}{key}: {program(script)} has no such option{nearest(key, known)}; "
                "see --help"
            )
        elif "." in key and mark != "~":
            _check_nested(script, key, arguments, added="+" in mark)

        others = WITHOUT_EFFECT[script].get(key) or WITHOUT_EFFECT[script].get(top)
        # An experiment or a recipe may give the option that is needed.
        if others and not given & {*others, "experiment", "recipe"}:
            needed = " or ".join(other if "=" in other else f"{other}=..." for other in others)
            raise UsageError(f"{key} does nothing without {needed}: add that, or leave {key} out")


def check_files(arguments: Sequence[str]) -> None:
    """Refuse ``run=FILE`` and ``run=[FILE,FILE]`` of missing files, before seconds of imports.

    Names in quotes, those that Hydra makes up, and a list without brackets, which is a sweep, are
    left to the readers.

    Raises:
        UsageError: with the name.
    """
    for argument in arguments:
        option, _, value = argument.partition("=")
        if option not in ("run", "recalibrate.run") or value in ("", "null"):
            continue
        quoted_or_made_up = re.search(r"""["'\\$(]""", value)
        is_sweep = "," in value and not value.startswith("[")
        if quoted_or_made_up or is_sweep:
            continue
        for name in value.strip("[]").split(","):
            if not Path(name.strip()).expanduser().is_file():
                raise UsageError(f"{option}={name.strip()}: there is no such file")


def quoted(arguments: Sequence[str]) -> list[str]:
    """The arguments with the values of :data:`TEXTS` in Hydra's quotes: any sentence is a text.

    A value that is in quotes already, or ``null``, stays as it is.

    >>> quoted(["explain.query=who's on duty?", "alpha=0.5"])
    ["explain.query='who\\\\'s on duty?'", 'alpha=0.5']
    """
    return [_quoted(argument) for argument in arguments]


def check_grammar(arguments: Sequence[str]) -> None:
    """Refuse what Hydra's grammar does not read. Imports Hydra.

    Raises:
        UsageError: with one sentence.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    for previous, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("-") or previous in _VALUED_FLAGS:
            continue
        try:
            _refuse_underscores(argument, parser.parse_override(argument).value())
        except HydraException as error:
            shown = argument if len(argument) <= 80 else f"{argument[:77]}..."
            raise UsageError(
                f"{shown!r} cannot be read as OPTION=VALUE: a value with brackets, quotes, commas "
                "or = in it is put in two pairs of quotes, \"OPTION='VALUE'\""
            ) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the most similar of the known names; empty without one."""
    similar = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {similar[0]}?" if similar else ""


def _defaults_of(script: str) -> dict[str, tuple[str, str]]:
    """Config groups of a script, each with its default and the comment beside it."""
    text = (resource_folder("conf") / f"{script}.yaml").read_text(encoding="utf-8")
    # The help is in the comments, which no reader of YAML keeps.
    defaults_list = text.partition("defaults:\n")[2].partition("\n\n")[0]
    lines = re.findall(r"^  - (\w+): (\S+)[ \t]*(?:# (.*))?$", defaults_list, re.MULTILINE)
    return {group: (default, comment) for group, default, comment in lines}


def _given(arguments: Sequence[str]) -> set[str]:
    """Names of the options that are given, and each of their values as ``name=value``."""
    given = set()
    for argument in arguments:
        override = _OVERRIDE.fullmatch(argument)
        if override is None:
            continue
        given.add(override["key"])
        for value in (override["value"] or "").strip("[]").split(","):
            given.add(f"{override['key']}={value}")
    return given


def _check_choice(group: str, value: str) -> None:
    if value == "null":
        raise UsageError(f"{group}=null: use one of list={group}, or leave {group} out")
    known = choices(group)
    for part in value.strip("[]").split(","):
        name = part.strip().removesuffix(".yaml")
        # What is no plain name, such as ${model}, is for Hydra to make a name of.
        if name in ("", "null") or name in known or not re.fullmatch(r"[\w./-]+", name):
            continue
        listed = f" (choices: {', '.join(known)})"
        if len(known) > 6:
            listed = f"; list={group} shows all"
        raise UsageError(f"{group}={name}: there is no such choice{nearest(name, known)}{listed}")


def _check_nested(script: str, key: str, arguments: Sequence[str], added: bool) -> None:
    """Refuse a dotted option that is in none of the files that the command line chooses.

    Interpolations in these files are not followed; what stands behind one passes.

    Args:
        key: the option, such as ``policy.count``.
        arguments: all of the command line.
        added: with a ``+``, so that the file need not have it.
    """
    values = {}
    for argument in arguments:
        option, _, value = argument.lstrip("+").partition("=")
        values[option] = value
    top, _, rest = key.partition(".")
    if values.keys() & {"experiment", "recipe"} or top == "hydra":
        return  # these bring options of their own

    defaults = _defaults_of(script)
    node = own_options(script).get(top)
    choice = ""
    if top in defaults:
        choice = values.get(top) or defaults[top][0]
        first = rest.partition(".")[0]
        if choice == "null" and not (isinstance(node, Mapping) and first in node):
            raise UsageError(
                f"{key}: no {top} is chosen; add {top}=..., one of those of list={top}"
            )
        content = {} if choice == "null" else _content(top, choice)
        if content is None:
            return  # several choices, or a file that is made of others
        node = {**dict.fromkeys(MORE_OPTIONS.get(top, ())), **content, **(node or {})}

    path = top
    for name in rest.split("."):
        if not isinstance(node, Mapping):
            return
        if name not in node:
            break
        node, path = node[name], f"{path}.{name}"
    else:
        return

    # `node`, at `path`, has no `name`.
    known = [*node, *MORE_OPTIONS.get(path, ())]
    # What is called with these options knows them itself.
    is_passed_on = path in LIBRARIES or "_target_" in node
    if added and (is_passed_on or name in known):
        return
    if path == top and top in defaults:
        others = [
            f"{top}={other}" for other in choices(top) if name in (_content(top, other) or {})
        ]
        if others:
            raise UsageError(
                f"{key}: {top}={choice} has no option {name}; add {' or '.join(others[:3])}"
            )
        for other in choices(top):
            known += _content(top, other) or {}
    hint = f"; +{key}=... passes it on all the same" if is_passed_on else ""
    raise UsageError(f"{key}: {path} has no option {name}{nearest(name, known)}{hint}")


def _content(group: str, name: str) -> dict[str, Any] | None:
    """What a choice's file says, with the files beside it that its defaults list names.

    None where that is not all: the name is none of a file, or the file is made of other groups'.
    """
    file = resource_folder("conf") / group / f"{name.removesuffix('.yaml')}.yaml"
    if not file.is_file():
        return None
    content: dict[str, Any] = read_yaml(file) or {}
    merged: dict[str, Any] = {}
    for base in content.pop("defaults", ()):
        is_beside = isinstance(base, str) and base != "_self_"
        base_content = _content(group, base) if is_beside else None
        if base_content is None:
            return None
        merged |= base_content
    return merged | content


def _quoted(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if key.lstrip("+") not in TEXTS or not equals or _IN_QUOTES.fullmatch(value):
        return argument
    # OmegaConf would look up what stands in ${...}: a backslash keeps it a text. Backslashes in
    # front of it, of a quote or of the end would be read as escapes, so they are doubled.
    value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    value = re.sub(r"(\\*)('|$)", _escaped, value)
    return f"{key}='{value}'"


def _escaped(match: re.Match[str]) -> str:
    """Backslashes twice, and one more in front of a quote."""
    backslashes, quote = match.groups()
    return 2 * backslashes + ("\\'" if quote else "")


def _refuse_underscores(argument: str, value: Any) -> None:
    """``alpha=1_0`` is 10 to Hydra, and no number to anything else that reads it."""
    values = value if isinstance(value, list) else [value]
    has_number = any(isinstance(item, int | float) for item in values)
    number = _UNDERSCORE.search(argument.partition("=")[2])
    if number is not None and has_number:
        raise UsageError(f"{argument}: {number[0]} is no number; write it without _")


def _description(file: Path) -> str:
    """The first sentence of a file's comment, without the command in it."""
    comments = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    # "et al." ends no sentence.
    sentences = re.split(r"(?<=[.;])(?<!et al\.)\s|:? python ", " ".join(comments), maxsplit=1)
    return sentences[0].rstrip(":;")
