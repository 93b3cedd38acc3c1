"""Turning the dial: a hook that weighs senses before they are summed, without touching a weight of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from backpack_rank.models.ranker import BackpackForRanking


def attach(ranker: BackpackForRanking, weights: Tensor) -> RemovableHandle:
    """Weigh sense l of every text by ``weights[l]`` from now on (eq. 5); ``.remove()`` of the result ends it.

    Weights of 1 leave every score bit for bit as it is, because x * 1.0 == x.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: not one finite weight >= 0 per sense.
    """
    if not isinstance(ranker, BackpackForRanking):
        raise TypeError(f"{type(ranker).__name__} has no sense vectors; alpha needs a Backpack ranker")
    k = ranker.config.num_senses
    if weights.shape != (k,) or not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError(f"need {k} finite weights >= 0, one per sense, got {weights.tolist()}")

    def weigh(_module: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        (senses,) = inputs
        return (senses * weights.to(senses)[:, None],)

    return ranker.sense_sum.register_forward_pre_hook(weigh)


@contextmanager
def reweighted(ranker: BackpackForRanking, weights: Tensor) -> Iterator[BackpackForRanking]:
    """:func:`attach` for the length of a ``with`` block."""
    handle = attach(ranker, weights)
    try:
        yield ranker
    finally:
        handle.remove()
