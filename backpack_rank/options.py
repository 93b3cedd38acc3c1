"""Options of the command line, looked at before Hydra and torch are imported: names, choices, and texts to be quoted.

Hydra itself takes any name behind a ``+``, and ``+alfa=0.5`` would run at alpha 1.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
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
_WARM_UP = ("reconstruct.steps", "model")  # some models have steps by default
WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "train": {
        "training.margin": ("training.loss=pairwise_hinge",),
        "data.rotation_level": ("data.rotation",),
        "data.rotation_seed": ("data.rotation",),
        **{f"reconstruct.{name}": _WARM_UP for name in ("texts", "held_out", "batch_size", "learning_rate")},
    },
    "evaluate": {
        "recalibrate.weight": ("recalibrate.run",),
        "aggregate_depth": ("aggregate",),
        "certificate_pairs": ("certificate",),
        "ties": ("run", "recalibrate.run"),
    },
    "rerank": {
        "executor": ("engine=datatrove",),
        "executor_options": ("engine=datatrove",),
    },
    "retrieve": {},
}
"""Options of each script that do nothing unless another is given too, with any value or with that one."""
TEXTS = tuple(f"explain.{name}" for name in ("query", "document", "query_file", "document_file", "query_id", "doc_id"))
"""Options whose value is any text; see :func:`quoted`."""
_CONFIG_FLAGS = ("--config-path", "--config-name", "--config-dir", "-cp", "-cn", "-cd")
_VALUED_FLAGS = ("--cfg", "--package", "--info", "-c", "-p", "-i", *_CONFIG_FLAGS)
_IN_QUOTES = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|null""", re.DOTALL)
_UNDERSCORE = re.compile(r"(?<![\w.'\"/-])[+-]?\d[\d_]*_[\d_.]*(?![\w.'\"/-])")
_OVERRIDE = re.compile(r"(?P<mark>[+~]*)(?P<key>[A-Za-z][\w./@-]*)(?:=(?P<value>.*))?", re.DOTALL)


def groups_of(script: str) -> dict[str, str]:
    """Config groups of a script, with the comment beside each in its defaults list."""
    text = (resource_folder("conf") / f"{script}.yaml").read_text(encoding="utf-8")
    part = text.partition("defaults:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^  - (\w+): (\S+)[ \t]*(?:# (.*))?$", part, re.MULTILINE)
    return {name: " ".join(filter(None, (f"[{default}]", comment))) for name, default, comment in found}


def choices(group: str) -> dict[str, str]:
    """The choices of a config group, ``{name: first comment line}``; sorted."""
    folder = resource_folder("conf") / group
    return {
        file.relative_to(folder).with_suffix("").as_posix(): _description(file)
        for file in sorted(folder.rglob("*.yaml"))
    }


def check_options(script: str, arguments: Sequence[str]) -> None:
    """Refuse options that do not exist, also behind a ``+``, and those that would do nothing; name the nearest ones.

    Raises:
        UsageError: with one sentence.
    """
    groups, known = groups_of(script), own_options(script)
    if any(argument.startswith(_CONFIG_FLAGS) for argument in arguments):
        return  # files of the user's own
    found_all = [found for argument in arguments if (found := _OVERRIDE.fullmatch(argument))]
    given = {found["key"] for found in found_all}
    given |= {f"{found['key']}={one}" for found in found_all for one in (found["value"] or "").strip("[]").split(",")}
    for argument in arguments:
        found = _OVERRIDE.fullmatch(argument)
        if found is None and "=" in argument and not argument.startswith("-"):
            raise UsageError(f"{argument!r} names no option: write OPTION=VALUE; see --help")
        if found is None or argument.startswith("-") or not (found["mark"] or found["value"] is not None):
            continue
        mark, key, value = found["mark"], found["key"], found["value"]
        key = key.partition("@")[0]
        if key in groups and value is not None:
            _check_choice(key, value)
        elif key not in groups and key.partition(".")[0] not in known and "/" not in key:
            raise UsageError(f"{mark}{key}: {program(script)} has no such option{nearest(key, known)}; see --help")
        elif "." in key and mark != "~":
            _check_nested(script, key, arguments, added="+" in mark)
        others = WITHOUT_EFFECT[script].get(key) or WITHOUT_EFFECT[script].get(key.partition(".")[0])
        if others and not given & {*others, "experiment", "recipe"}:
            needed = " or ".join(other if "=" in other else f"{other}=..." for other in others)
            raise UsageError(f"{key} does nothing without {needed}: add that, or leave {key} out")


def check_files(arguments: Sequence[str]) -> None:
    """Refuse ``run=FILE`` and ``run=[FILE,FILE]`` of files that are not there, before seconds of imports.

    Names in quotes, those that Hydra makes up, and a list without brackets, which is a sweep, are left to the readers.

    Raises:
        UsageError: with the name.
    """
    for argument in arguments:
        option, _, value = argument.partition("=")
        if option not in ("run", "recalibrate.run") or value in ("", "null") or re.search(r"""["'\\$(]""", value):
            continue
        if "," in value and not value.startswith("["):
            continue
        for name in value.strip("[]").split(","):
            if not Path(name.strip()).expanduser().is_file():
                raise UsageError(f"{option}={name.strip()}: there is no such file")


def _check_choice(group: str, value: str) -> None:
    if value == "null":
        raise UsageError(f"{group}=null: use one of list={group}, or leave {group} out")
    found = choices(group)
    for name in value.strip("[]").split(","):
        name = name.strip().removesuffix(".yaml")
        if name and name != "null" and re.fullmatch(r"[\w./-]+", name) and name not in found:
            listed = f"; list={group} shows all" if len(found) > 6 else f" (choices: {', '.join(found)})"
            raise UsageError(f"{group}={name}: there is no such choice{nearest(name, found)}{listed}")


def _check_nested(script: str, key: str, arguments: Sequence[str], added: bool) -> None:
    """Whether a dotted option is in the files that the command line chooses; what they interpolate is not followed."""
    first, _, rest = key.partition(".")
    chosen = {argument.lstrip("+").partition("=")[0]: argument.partition("=")[2] for argument in arguments}
    if chosen.keys() & {"experiment", "recipe"} or first == "hydra":
        return  # these bring options of their own
    node: Any = own_options(script).get(first)
    if first in groups_of(script):
        chosen_name = name = chosen.get(first) or groups_of(script)[first].partition("]")[0].strip("[")
        if name == "null" and not (isinstance(node, Mapping) and rest.partition(".")[0] in node):
            raise UsageError(f"{key}: no {first} is chosen; add {first}=..., one of those of list={first}")
        content = {} if name == "null" else _content(first, name)
        if content is None:
            return  # several choices, or a file that is made of others
        node = {**dict.fromkeys(MORE_OPTIONS.get(first, ())), **content, **(node or {})}
    part = first
    for name in rest.split("."):
        if not isinstance(node, Mapping):
            return
        if name not in node:
            library = part in LIBRARIES or "_target_" in node
            if added and library:
                return  # what is called with it knows its own options
            hint = f"; +{key}=... passes it on all the same" if library else ""
            known = [*node, *MORE_OPTIONS.get(part, ())]
            if added and name in known:
                return
            if part == first and first in groups_of(script):
                others = _choices_with(first, name)
                if others:
                    raise UsageError(
                        f"{key}: {first}={chosen_name} has no option {name}; add {' or '.join(others[:3])}"
                    )
                known += _options_of_all(first)
            raise UsageError(f"{key}: {part} has no option {name}{nearest(name, known)}{hint}")
        node, part = node[name], f"{part}.{name}"


def _choices_with(group: str, option: str) -> list[str]:
    """The choices of a group that have an option, as they are given."""
    return [f"{group}={name}" for name in choices(group) if option in (_content(group, name) or {})]


def _options_of_all(group: str) -> list[str]:
    """Options of any choice of a group."""
    found: dict[str, None] = {}
    for name in choices(group):
        found |= dict.fromkeys(_content(group, name) or {})
    return list(found)


def _content(group: str, name: str) -> dict[str, Any] | None:
    """The content of a choice's file, with that of files beside it that it begins with; None where that is not all."""
    file = resource_folder("conf") / group / f"{name.removesuffix('.yaml')}.yaml"
    if not file.is_file():
        return None
    content: dict[str, Any] = read_yaml(file) or {}
    base: dict[str, Any] = {}
    for other in content.pop("defaults", ()):
        below = _content(group, other) if isinstance(other, str) and other != "_self_" else None
        if below is None:
            return None
        base |= below
    return base | content


def own_options(script: str) -> dict[str, Any]:
    """Options of a script's own file, and its groups; texts of the file as they are."""
    content = read_yaml(resource_folder("conf") / f"{script}.yaml")
    known = {name: value for name, value in content.items() if name != "defaults"}
    return {**dict.fromkeys(groups_of(script)), **known, "hydra": None, "list": None, "prompt": None}


def quoted(arguments: Sequence[str]) -> list[str]:
    """The arguments with the values of :data:`TEXTS` in Hydra's quotes, so that any sentence is a text.

    A value that is in quotes already, or ``null``, stays as it is.
    """
    return [_quoted(argument) for argument in arguments]


def _quoted(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if key.lstrip("+") not in TEXTS or not equals or _IN_QUOTES.fullmatch(value):
        return argument
    value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # OmegaConf would look the name up
    value = re.sub(r"(\\*)('|$)", lambda found: 2 * found[1] + ("\\'" if found[2] else ""), value)
    return f"{key}='{value}'"


def check_grammar(arguments: Sequence[str]) -> None:
    """Refuse what Hydra's grammar does not read.

    Raises:
        UsageError: with one sentence.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("-") or before in _VALUED_FLAGS:
            continue
        try:
            _refuse_underscores(argument, parser.parse_override(argument).value())
        except HydraException as error:
            shown = argument if len(argument) <= 80 else f"{argument[:77]}..."
            raise UsageError(
                f"{shown!r} cannot be read as OPTION=VALUE: a value with brackets, quotes, commas or = in it is put in "
                "two pairs of quotes, \"OPTION='VALUE'\""
            ) from error


def _refuse_underscores(argument: str, value: Any) -> None:
    """``alpha=1_0`` is 10 to Hydra, and no number to anything else that reads it."""
    values = value if isinstance(value, list) else [value]
    found = _UNDERSCORE.search(argument.partition("=")[2])
    if found is not None and any(isinstance(one, int | float) for one in values):
        raise UsageError(f"{argument}: {found[0]} is no number; write it without _")


def nearest(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def _description(file: Path) -> str:
    """The first sentence of a file's comment, without the command in it."""
    comments = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    return re.split(r"(?<=[.;])\s|: python ", " ".join(comments), maxsplit=1)[0].rstrip(":;")
