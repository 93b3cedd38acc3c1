"""How word-embedding rankers compare query and document: one module for each name in options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from backpack_rank.checks import one_of
from backpack_rank.constructors import check_arguments
from backpack_rank.models.interactions.base import Interaction
from backpack_rank.models.interactions.knrm import ConvKnrm, Knrm
from backpack_rank.models.interactions.match_pyramid import MatchPyramid
from backpack_rank.models.interactions.pacrr import Pacrr
from backpack_rank.models.interactions.tk import Tk

INTERACTIONS: dict[str, type[Interaction]] = {
    "knrm": Knrm,
    "conv_knrm": ConvKnrm,
    "match_pyramid": MatchPyramid,
    "pacrr": Pacrr,
    "tk": Tk,
}
"""A module is made as ``module(embedding_size, **sizes)``."""


def check_sizes(name: str, sizes: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for sizes that an interaction does not have, or of a wrong value."""
    _, *arguments = inspect.signature(INTERACTIONS[name]).parameters  # the first: embedding_size
    known = [*arguments, "term_weights"]
    for size in sizes:
        if size not in known:
            raise ValueError(
                f"model.ranker.sizes: {name} has no {size!r}; it has {', '.join(known)}"
            )
    values = {size: value for size, value in sizes.items() if size != "term_weights"}
    options = {size: f"model.ranker.sizes.{size}" for size in values}
    check_arguments(INTERACTIONS[name], values, options)


def new_interaction(name: str, embedding_size: int, sizes: Mapping[str, Any]) -> Interaction:
    """Make an interaction by its name, with random weights.

    >>> new_interaction("knrm", 300, {"kernels": 5}).score
    Linear(in_features=5, out_features=1, bias=True)

    Raises:
        ValueError: there is none of that name, or it has no such size.
    """
    one_of("model.ranker.interaction", name, INTERACTIONS)
    check_sizes(name, sizes)
    return INTERACTIONS[name](embedding_size, **sizes)
