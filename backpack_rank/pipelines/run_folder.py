"""What a run's folder says of the run: names of conf/ and plain values, to be composed anew.

A folder with weights may come from anybody. Nothing found in it is instantiated or interpolated: of
``overrides.yaml`` only names that conf/ has and plain values are taken, of ``config.yaml`` only
plain values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from backpack_rank.files import read_yaml, resource_folder, write_text
from backpack_rank.pipelines.given import composed

CONFIG = "config.yaml"
OVERRIDES = "overrides.yaml"
_KEY = re.compile(r"[A-Za-z][\w-]*(?:[./][A-Za-z][\w-]*)*")
_LONGEST, _BRACKETS = 10_000, 200
"""Characters and opening brackets of an option."""
_CHOICE = re.compile(r"\w[\w-]*(?:/\w[\w-]*)*")


def save_overrides(folder: Path, overrides: Sequence[str]) -> None:
    """Write the options that a run was started with; Hydra writes its own file anew on resuming."""
    write_text(folder / OVERRIDES, yaml.safe_dump(list(overrides), allow_unicode=True))


def run_config(folder: Path, only: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration of a training run anew from its folder.

    It is that of conf/ with the options that the folder names.

    Args:
        folder: of the run.
        only: first parts of the names of options that count, such as ``data``; empty: all.

    Raises:
        ValueError: the folder does not name its options, or one of them is no name of conf/ and no
            plain value.
    """
    try:
        return composed("train", _overrides(folder / OVERRIDES, only))
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(f"{folder / OVERRIDES}: {str(error).splitlines()[0]}") from error


def plain_values(folder: Path) -> dict[str, Any]:
    """The plain values of a run's ``config.yaml``: numbers, texts, null, lists.

    Without the file there are none. Nodes that name code (``_target_``) and texts with an
    interpolation are left out.

    Raises:
        ValueError: the file is not YAML, or no mapping.
    """
    file = folder / CONFIG
    if not file.is_file():
        return {}
    config = read_yaml(file)
    if not isinstance(config, dict):
        raise ValueError(f"{file} is not the configuration of a run")
    return _plain_part(config)


def _plain_part(node: dict) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in node.items():
        if isinstance(value, dict):
            kept[str(name)] = _plain_part(value)
        elif _is_plain(value) and not str(name).startswith("_"):
            kept[str(name)] = value
    return kept


def comparable(options: Iterable[str]) -> list[str]:
    """Compare two command lines: sorted, without the folders of a run.

    >>> comparable(["seed=1", "output=runs", "alpha=0"])
    ['alpha=0', 'seed=1']
    """
    where_to = ("resume=", "output=")
    return sorted(option for option in options if not option.lstrip("+").startswith(where_to))


def saved_overrides(folder: Path) -> list[str]:
    """The options that a run was started with.

    Raises:
        ValueError: :func:`run_config` would refuse them.
    """
    return _overrides(folder / OVERRIDES, ())


def _overrides(file: Path, only: Sequence[str]) -> list[str]:
    if not file.is_file():
        raise ValueError(f"{file} is missing")
    given = read_yaml(file)
    if not isinstance(given, list) or not all(isinstance(option, str) for option in given):
        raise ValueError(f"{file} is no list of options")
    return safe_options(given, str(file), only)


def safe_options(given: Sequence[str], where: str, only: Sequence[str] = ()) -> list[str]:
    """Options of a folder that may come from anybody.

    They are given back if all of them only choose files of conf/ and plain values.

    Args:
        given: as they stood on a command line.
        where: they were found; begins the sentence of an error.
        only: as for :func:`run_config`.

    Raises:
        ValueError: one of them does more, or is no option.
    """
    for text in given:
        # Nesting would cost the parser its stack.
        brackets = sum(map(text.count, "[{("))
        if len(text) > _LONGEST or brackets > _BRACKETS:
            raise ValueError(
                f"{where}: {text[:40]}... is too long or has too many brackets for an option"
            )
    try:
        parsed = OverridesParser.create().parse_overrides(list(given))
    except HydraException as error:
        raise ValueError(f"{where}: {str(error).splitlines()[0]}") from error
    kept = []
    for option in parsed:
        first = re.split(r"[./@]", option.key_or_group, maxsplit=1)[0]
        # A recipe brings options of several kinds.
        if only and first not in (*only, "recipe"):
            continue
        if not _is_safe(option):
            raise ValueError(
                f"{where}: {option.input_line} is neither a name of conf/ nor a plain value"
            )
        kept.append(str(option.input_line))
    return kept


def _is_safe(option: Override) -> bool:
    """Whether an option only chooses a file of conf/ or sets a plain value."""
    keys = [key for key in (option.key_or_group, option.package) if key is not None]
    if any(_KEY.fullmatch(key) is None or key.partition(".")[0] == "hydra" for key in keys):
        return False
    value = None if option.is_delete() else option.value()
    group = resource_folder("conf") / option.key_or_group
    values: list[Any] = [value]
    # Of a multirun: several values.
    if option.is_sweep_override():
        if not isinstance(value, ChoiceSweep):
            # Intervals and ranges are numbers; a glob looks for files.
            return not isinstance(value, Glob)
        values = value.list
    if not group.is_dir():
        return all(map(_is_plain, values))
    return all(value is None or _is_choice(group, value) for value in values)


def _is_choice(group: Path, value: Any) -> bool:
    """Whether a value is the name of a file of a group of conf/, and no way out of it."""
    if not isinstance(value, str) or _CHOICE.fullmatch(value) is None:
        return False
    return (group / f"{value}.yaml").is_file()


def _is_plain(value: Any) -> bool:
    """Numbers, texts without an interpolation, null; lists and mappings of them, without code."""
    if isinstance(value, QuotedString):
        value = value.text
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        for name, entry in value.items():
            # "_target_" and the like name code.
            if not isinstance(name, str) or name.startswith("_") or not _is_plain(entry):
                return False
        return True
    if isinstance(value, str):
        return "${" not in value
    return value is None or isinstance(value, (bool, int, float))
