r"""Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009): the sum over rankings of 1 / (k + rank)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backpack_rank.aggregation.aggregate import Aggregate, Aggregator, by_scores
from backpack_rank.aggregation.rankings import Item, Rankings


@dataclass(frozen=True)
class ReciprocalRankFusion(Aggregator):
    """Items by the sum over the rankings that name them of 1 / (k + rank), ranks from 1; that sum is the score.

    A ranking that leaves an item out adds nothing to it. Tied items share the middle of their ranks. Equal sums: the
    item that stands earlier among the items.

    Attributes:
        k: 60 in the paper; a larger one makes first ranks count less. Above -1.
    """

    k: float = 60.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.k) or self.k <= -1:
            raise ValueError(f"k={self.k} of reciprocal rank fusion must be a finite number above -1, such as 60")

    @property
    def name(self) -> str:
        return "rrf"

    def aggregate(self, rankings: Rankings[Item]) -> Aggregate[Item]:
        """The items by their sums."""
        parts = np.nan_to_num(1.0 / (self.k + rankings.ranks()), nan=0.0)
        # In one order of summation, so that the same ranks in other rankings give the same sum to the last bit.
        return by_scores(rankings, np.sort(parts, axis=0).sum(axis=0), rankings.precedence())
