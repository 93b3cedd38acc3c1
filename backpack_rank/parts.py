"""Add-ons of the package, its parts: the core looks them up here, and imports none of them by name.

A part is a folder with a file ``registers.py``, whose constants say what it adds. Places are texts,
``module:name``, so that nothing is imported before it is used::

    EVALUATIONS = {"listwise": "backpack_rank.position.lists.evaluate:ListEvaluation"}
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import backpack_rank


@dataclass(frozen=True)
class FolderKind:
    """Rankers whose folders a part loads.

    Attributes:
        name: what such a ranker is called, in a sentence.
        marker: file that its folder has, and no other.
        advice: how to rank with it, shown where its folder is given in place of a core ranker's.
        loader: place of ``load(folder, device=..., dtype=...)``, which gives a ``Reranker``.
    """

    name: str
    marker: str
    advice: str
    loader: str


@lru_cache(maxsize=1)
def _parts() -> tuple[ModuleType, ...]:
    parts = []
    for module in pkgutil.iter_modules(backpack_rank.__path__):
        name = f"backpack_rank.{module.name}.registers"
        if module.ispkg and find_spec(name) is not None:
            parts.append(import_module(name))
    return tuple(parts)


def evaluations() -> Mapping[str, str]:
    """Options of evaluate.py that choose a task of a part, and the places of these tasks."""
    return _joined("EVALUATIONS")


def option_types(script: str) -> list[type]:
    """Types of the options that parts add to a script."""
    types = []
    for part in _parts():
        for place in getattr(part, "OPTION_TYPES", {}).get(script, ()):
            types.append(imported(place))
    return types


def folder_kinds() -> tuple[FolderKind, ...]:
    """Kinds of rankers that parts load."""
    kinds: list[FolderKind] = []
    for part in _parts():
        kinds += getattr(part, "FOLDERS", ())
    return tuple(kinds)


def folder_kind(folder: str | Path) -> FolderKind | None:
    """The kind of the ranker in a folder; None for the core's, and for what is no ranker."""
    for kind in folder_kinds():
        if (Path(folder) / kind.marker).is_file():
            return kind
    return None


def served_classes() -> Mapping[str, str]:
    """Classes of rerankers that parts serve, and the places of what answers their requests."""
    return _joined("SERVED")


def at_load() -> tuple[str, ...]:
    """Places of functions without arguments that ``backpack_rank.load`` calls first."""
    places: list[str] = []
    for part in _parts():
        places += getattr(part, "AT_LOAD", ())
    return tuple(places)


def sharing(name: str) -> Any:
    """A function of a part that shares a ranker: ``save_pretrained`` or ``push_to_hub``.

    Raises:
        ValueError: the part that has it is not installed.
    """
    places = _joined("SHARING")
    if name not in places:
        raise ValueError(f"{name} is of backpack_rank.integrations, which is not installed")
    return imported(places[name])


def imported(place: str) -> Any:
    """The object of a place, such as ``backpack_rank.position.lists.saved:load_listwise``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _joined(table: str) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for part in _parts():
        entries.update(getattr(part, table, {}))
    return entries
