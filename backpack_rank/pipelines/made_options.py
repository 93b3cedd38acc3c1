"""Options that are made into objects on their way to a constructor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.constructors import made
from backpack_rank.files import cache_dir
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.nodes import build
from backpack_rank.pipelines.pair_to_explain import PairToExplain
from backpack_rank.senses.cache import SenseCache


class Recalibration:
    """``recalibrate``: a run that is moved by what alpha changes, and how far.

    Attributes:
        run: file of the run.
        weight: in standard deviations of its scores.
    """

    def __init__(self, run: str, weight: float) -> None:
        self.run = run
        self.weight = weight

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Recalibration | None:
        """None where no run is given."""
        return None if options["run"] is None else cls(str(options["run"]), options["weight"])


def _texts(value: Any) -> tuple[str, ...] | None:
    """One path or several."""
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _cache(options: Mapping[str, Any]) -> SenseCache:
    folder = options["folder"]
    path = Path(folder).expanduser() if folder else cache_dir() / "senses"
    return SenseCache(path, options["max_gb"])


MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "attribute": lambda node: made(Attribute, node, "attribute"),
    "policy": lambda node: build(node, "policy"),
    "bias": lambda node: build(node, "bias"),
    "template": lambda node: build(node, "template"),
    "scoring": lambda node: build(node, "scoring"),
    "variants": lambda node: None if node is None else dataset_of(node),
    "cache": _cache,
    "recalibrate": Recalibration.of,
    "explain": PairToExplain.of,
    "run": _texts,
    "certificate_pairs": lambda value: _texts(value) or (),
}
"""What options are made into; all others are handed over as they are."""


def made_options(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The options of these names as a constructor takes them: nodes have become objects."""
    arguments = {}
    for name in names:
        if name in values:
            make = MAKERS.get(name)
            arguments[name] = values[name] if make is None else make(values[name])
    return arguments
