"""Options as they were given: read once, by Hydra's grammar, and looked at before Hydra composes.

What Hydra refuses by itself is not looked for. These are what it takes without a word: an unknown
name behind a ``+``, an option that does nothing without another, a file that is not there. The
same look names the nearest option where Hydra has refused one (:func:`check_names`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from backpack_rank.checks import UsageError, is_missing_path
from backpack_rank.commands import allow_function
from backpack_rank.files import read_text, read_yaml, resource_folder
from backpack_rank.options import (
    BRING_OPTIONS,
    OWN_FILES,
    VALUED_FLAGS,
    check_choice,
    choices,
    groups_of,
    nearest,
    no_such_option,
    own_options,
)

LIBRARIES = ("trainer", "logger")
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
}
"""Options of each script that do nothing without another, with any value or with that one."""
TEXTS = re.compile(r"\+*explain\.(query|document)(_file|_id)?|\+*explain\.doc_id")
"""Options whose value is any text; see :func:`quoted`."""
FIRST_STAGE = "first_stage"
"""In place of a file of ``run=``: the candidates of the data, as they are."""
FILES = re.compile(
    r"run|recalibrate\.run|data\.(\w+\.)?(file|folder|collection|topics|qrels|path)|"
    r"first_stage\.path|explain\.(query|document)_file|policy\.texts"
)
"""Options whose value is a path and nothing else."""
PATHS_OR_NAMES = re.compile(
    r"checkpoint|first_stage\.checkpoint|data\.(\w+\.)?(candidates|bias_queries|answers|requests)|"
    r"bias\.(lexicon|groups)|attribute\.\w+|contrast|certificate_pairs|model\.ranker\.name|"
    r"teacher\.\w+|listwise\.ranker\.name"
)
"""Options whose value may also name what is no file: a hub id, a list of ours, a field."""
# A value that Hydra takes as a text, or null.
_IN_QUOTES = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|null""", re.DOTALL)
# Signs that Hydra's grammar has no place for outside quotes.
_NO_SIGN = re.compile(r"[^\x00-\x7f]|[~!#;<>&^`{}]")
# A number with an underscore that is no part of a name, a path or a text.
_UNDERSCORE = re.compile(r"(?<![\w.'\"/-])[+-]?\d[\d_]*_[\d_.]*(?![\w.'\"/-])")


def check(script: str, arguments: Sequence[str]) -> list[str]:
    """Refuse options that Hydra would take, and that do nothing.

    Returns:
        The arguments as Hydra reads them.

    Raises:
        UsageError: with one sentence, which names the option.
    """
    arguments = [with_signs_quoted(quoted(argument)) for argument in arguments]
    given = parsed(arguments)
    # Hydra takes any name behind a +, and makes the folder of a sweep before it looks at names. The
    # others it refuses itself; one that is known to be wrong need not be composed to be refused.
    marked = any(re.match(r"[+~]", str(override.input_line)) for override in given)
    wrong = {override.key_or_group.partition(".")[0] for override in given} - own_options(
        script
    ).keys()
    if marked or wrong or {"-m", "--multirun"} & set(arguments):
        check_names(script, arguments)
    check_effects(script, given)
    check_needs(given)
    check_files(given)
    for override in given:
        if override.key_or_group.endswith("policy.write"):
            for name in values_of(override):
                allow_function(str(name))
    return arguments


def parsed(arguments: Sequence[str]) -> list[Override]:
    """The options among the arguments, read by Hydra's grammar.

    Raises:
        UsageError: one cannot be read; also ``alpha=1_0``, which is 10 to Hydra, and no number to
            anything else that reads it.
    """
    parser = OverridesParser.create()
    given = []
    for previous, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("-") or previous in VALUED_FLAGS:
            continue
        if argument.startswith("="):
            raise UsageError(f"{argument!r} names no option: write OPTION=VALUE; see --help")
        try:
            override = parser.parse_override(argument)
        except HydraException as error:
            shown = argument if len(argument) <= 80 else f"{argument[:77]}..."
            sign = _NO_SIGN.search(argument.partition("=")[2])
            raise UsageError(
                f"{shown!r} cannot be read as OPTION=VALUE: a value with brackets, quotes, commas, "
                f"{f'{sign[0]} ' if sign else ''}or = in it is put in two pairs of quotes, "
                "\"OPTION='VALUE'\""
            ) from error
        number = _UNDERSCORE.search(argument.partition("=")[2])
        if number and any(isinstance(value, int | float) for value in values_of(override)):
            raise UsageError(f"{argument}: {number[0]} is no number; write it without _")
        given.append(override)
    return given


def quoted(argument: str) -> str:
    """An argument, with the value of one of :data:`TEXTS` in Hydra's quotes.

    A value that is in quotes already, or ``null``, stays as it is.

    >>> quoted("explain.query=who's on duty?")
    "explain.query='who\\\\'s on duty?'"
    """
    key, equals, value = argument.partition("=")
    if not TEXTS.fullmatch(key) or not equals or _IN_QUOTES.fullmatch(value):
        return argument
    return f"{key}={_in_quotes(value)}"


def with_signs_quoted(argument: str) -> str:
    """An argument with a value that Hydra's grammar has no signs for, such as a path, in quotes.

    >>> with_signs_quoted("run=/home/jürgen/~r#1.trec")
    "run='/home/jürgen/~r#1.trec'"
    >>> with_signs_quoted("run=[jürgen.trec,b.trec]")
    "run=['jürgen.trec',b.trec]"

    What Hydra reads stays as it is, and so does what it cannot be told for sure what is meant.
    """
    key, equals, value = argument.partition("=")
    if argument.startswith("-") or not equals or _reads(argument):
        return argument
    is_list = re.fullmatch(r"\[[^\[\]'\"]*\]", value) is not None
    if not is_list and re.search(r"[\[\](),'\"=]|\$\{|^\{", value):
        return argument
    if not is_list:
        return f"{key}={_in_quotes(value)}"
    entries = []
    for entry in value[1:-1].split(","):
        entries.append(entry if _reads(f"{key}={entry}") else _in_quotes(entry))
    return f"{key}=[{','.join(entries)}]"


def _reads(argument: str) -> bool:
    """Whether Hydra's grammar reads it."""
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return False
    return True


def _in_quotes(value: str) -> str:
    """A text in Hydra's quotes, with nothing in it that means more than itself."""
    # OmegaConf would look up what stands in ${...}: a backslash keeps it a text. Backslashes in
    # front of it, of a quote or of the end would be read as escapes, so they are doubled.
    value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    value = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), value)
    return f"'{value}'"


def values_of(override: Override) -> list[Any]:
    """The value of an option; the entries of a list, and those that a sweep goes over."""
    value = override.value() if override.value_type is not None else None
    values = value.list if isinstance(value, ChoiceSweep) else value
    if not isinstance(values, list):
        return [values]
    return [each.text if isinstance(each, QuotedString) else each for each in values]


def composed(script: str, options: Sequence[str], hydra: bool = False) -> DictConfig:
    """What conf/ says with these options; ``hydra``: with what Hydra says of itself.

    Raises:
        HydraException, OmegaConfBaseException: it cannot be composed.
    """
    # Hydra has one configuration at a time, and the script that is running needs its own again.
    running = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
            return compose(script, overrides=list(options), return_hydra_config=hydra)
    finally:
        GlobalHydra.instance().hydra = running


def check_names(script: str, arguments: Sequence[str]) -> None:
    """Refuse options and choices that conf/ does not have, also behind a ``+``.

    Raises:
        UsageError: with one sentence, which names the nearest that it has.
    """
    if any(argument.startswith(OWN_FILES) for argument in arguments):
        return  # files of the user's own may have any option
    given = parsed(arguments)
    conf, groups = resource_folder("conf"), []
    for override in given:
        if not (conf / override.key_or_group).is_dir() or override.is_delete():
            continue
        for value in values_of(override):
            check_choice(override.key_or_group, value)
        # A sweep has the options of its first choice.
        line, _, value = str(override.input_line).partition("=")
        groups.append(f"{line}={value.partition(',')[0]}")
    try:
        config = composed(script, groups, hydra=True)
    except HydraException:
        return  # a choice for a place that it is not for: Hydra says so
    chosen = dict(config.hydra.runtime.choices)
    node = OmegaConf.to_container(config, resolve=False)
    assert isinstance(node, dict)
    for override in given:
        if "/" not in override.key_or_group:
            _check_name(script, override, node, chosen)


def _check_name(
    script: str, override: Override, node: Mapping[Any, Any], chosen: Mapping[str, Any]
) -> None:
    """Refuse an option that is none of those in ``node``, which is composed of the choices."""
    mark = re.match(r"[+~]*", str(override.input_line))[0]  # type: ignore[index]
    key = override.key_or_group
    top, *parts = key.split(".")
    groups = groups_of(script)
    if top not in node and top not in groups and top != "prompt":
        raise no_such_option(script, f"{mark}{key}", {*node, *groups})
    path, below = top, node.get(top)
    if parts and top in groups and chosen.get(top) is None and parts[0] not in (below or {}):
        raise UsageError(f"{key}: no {top} is chosen; add {top}=..., one of those of list={top}")
    for name in parts:
        if not isinstance(below, Mapping) or top == "hydra" or mark == "~":
            return
        if name not in below:
            break
        below, path = below[name], f"{path}.{name}"
    else:
        return

    # `below`, at `path`, has no `name`.
    known = [*below, *MORE_OPTIONS.get(path, ())]
    # What is called with these options knows them itself.
    is_passed_on = path in LIBRARIES or "_target_" in below
    if mark and (is_passed_on or name in known):
        return
    if path == top and top in groups:
        others = []
        for other in choices(top):
            content = read_yaml(resource_folder("conf") / top / f"{other}.yaml") or {}
            known += content
            if name in content:
                others.append(f"{top}={other}")
        if others:
            raise UsageError(
                f"{key}: {top}={chosen.get(top)} has no option {name}; add "
                f"{' or '.join(others[:3])}"
            )
    hint = f"; +{key}=... passes it on all the same" if is_passed_on else ""
    raise UsageError(f"{key}: {path} has no option {name}{nearest(name, known)}{hint}")


def check_effects(script: str, given: Sequence[Override]) -> None:
    """Refuse an option that does nothing without another that is not given.

    Raises:
        UsageError: with both.
    """
    names = {override.key_or_group for override in given}
    if not names.isdisjoint(BRING_OPTIONS):
        return  # it may bring the option that is needed
    for override in given:
        names |= {f"{override.key_or_group}={value}" for value in values_of(override)}
    rules = WITHOUT_EFFECT.get(script, {})
    for key in (override.key_or_group for override in given):
        others = rules.get(key) or rules.get(key.partition(".")[0])
        if others and not names.intersection(others):
            needed = " or ".join(other if "=" in other else f"{other}=..." for other in others)
            raise UsageError(f"{key} does nothing without {needed}: add that, or leave {key} out")


def check_files(given: Sequence[Override]) -> None:
    """Refuse a file or folder that is not there, before seconds of imports.

    Raises:
        UsageError: with the option and the name.
    """
    for override in given:
        option = override.key_or_group
        from_here = FILES.fullmatch(option)
        if not from_here and not PATHS_OR_NAMES.fullmatch(option):
            continue
        for name in values_of(override):
            if not isinstance(name, str) or not name or "${" in name or "://" in name:
                continue
            if (option, name) == ("run", FIRST_STAGE):
                continue
            is_missing = from_here and not Path(name).expanduser().exists()
            if is_missing or is_missing_path(name):
                kind = "folder" if option.endswith(("folder", "checkpoint", ".name")) else "file"
                raise UsageError(f"{option}={name}: there is no such {kind}")


def check_needs(given: Sequence[Override]) -> None:
    """Refuse data without the options that say where they are, before seconds of imports.

    Raises:
        UsageError: with these options and the first line of the file in conf/, which shows them.
    """
    names = {override.key_or_group.rpartition(".")[2] for override in given}
    for override in given:
        file = resource_folder("conf") / "data" / f"{override.value()}.yaml"
        if override.key_or_group != "data" or not file.is_file():
            continue
        missing = []
        for option, value in read_yaml(file).items():
            # What is not there may also be given further below: data.test.collection=...
            if value == "???" and option not in names:
                missing.append(f"data.{option}")
        if missing:
            usage = read_text(file).partition("\n")[0].lstrip("# ")
            raise UsageError(f"data={override.value()} needs {', '.join(missing)}. {usage}")
