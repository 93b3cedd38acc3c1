"""What conf/ offers, read without Hydra: help and lists, and what it lacks, come at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from backpack_rank.checks import UsageError
from backpack_rank.commands import program
from backpack_rank.files import read_yaml, resource_folder

OWN_FILES = ("--config-path", "--config-name", "--config-dir", "-cp", "-cn", "-cd")
"""Flags for files of the user's own, which may have any option."""
VALUED_FLAGS = ("--cfg", "--package", "--info", "-c", "-p", "-i", *OWN_FILES)
BRING_OPTIONS = ("experiment", "recipe")
"""Groups whose files have options that a script does not have."""


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


def check_first_names(script: str, arguments: Sequence[str]) -> None:
    """Refuse, before Hydra is imported, first names and choices that a script does not have.

    Names below them are looked at later, and so are those that an experiment or a recipe brings.

    Raises:
        UsageError: with the nearest name or choice that it has.
    """
    given = {}
    for previous, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith(OWN_FILES) or "hydra.searchpath" in argument:
            return
        if previous in VALUED_FLAGS:
            continue
        marked, equals, value = argument.partition("=")
        is_option = equals or marked.startswith("~")
        if is_option and re.fullmatch(r"[+~]*\w+([.@/][\w.@/-]+)?", marked):
            given[marked] = value

    known = own_options(script)
    brings_options = not given.keys().isdisjoint(BRING_OPTIONS)
    for marked, value in given.items():
        key = marked.lstrip("+~")
        first = re.split("[.@/]", key)[0]
        if first not in known and not brings_options:
            raise no_such_option(script, marked, known)
        if value not in ("", "null") and (resource_folder("conf") / key).is_dir():
            check_choice(key, value)


def check_choice(group: str, value: Any) -> None:
    """Refuse a value that is none of a group's choices; what is no plain name is for Hydra.

    Raises:
        UsageError: with the nearest that there is.
    """
    if value is None:
        raise UsageError(f"{group}=null: use one of list={group}, or leave {group} out")
    known = choices(group)
    name = str(value).removesuffix(".yaml")
    # Such as ${model}, of which Hydra makes a name.
    if name in known or not re.fullmatch(r"[\w./-]+", name):
        return
    listed = f" (choices: {', '.join(known)})" if len(known) <= 6 else f"; list={group} shows all"
    raise UsageError(f"{group}={name}: there is no such choice{nearest(name, known)}{listed}")


def no_such_option(script: str, marked: str, known: Iterable[str]) -> UsageError:
    """The error for a name, perhaps behind ``+`` or ``~``, that is none of those known."""
    near = nearest(marked.lstrip("+~"), known)
    return UsageError(f"{marked}: {program(script)} has no such option{near}; see --help")


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
