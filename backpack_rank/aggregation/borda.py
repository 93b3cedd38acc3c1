"""Borda: items by their mean rank."""

from __future__ import annotations

from dataclasses import dataclass

from backpack_rank.aggregation.aggregate import Absent, Aggregate, Aggregator, by_scores, check_absent
from backpack_rank.aggregation.rankings import Item, Rankings


@dataclass(frozen=True)
class Borda(Aggregator):
    """Items by mean rank, the lowest first; the score is minus the mean rank.

    Tied items share the middle of their ranks. Equal means: the item that stands earlier among the items.

    Attributes:
        absent: an item that a ranking leaves out is ``ignored`` there (its mean is over the others; an item in no
            ranking comes last), or ``last``: it shares the ranks behind those that the ranking names.
    """

    absent: Absent = "ignored"

    def __post_init__(self) -> None:
        check_absent(self.absent)

    @property
    def name(self) -> str:
        return "borda"

    def aggregate(self, rankings: Rankings[Item]) -> Aggregate[Item]:
        """The items by mean rank."""
        if self.absent == "last":
            rankings = rankings.absent_last()
        return by_scores(rankings, -rankings.mean_ranks(), rankings.precedence())
