r"""Aggregation of rankings: Borda and reciprocal rank fusion, and the type of all results.

An aggregate is an order, its cost, and a bound that says how good the order is.

The cost of an order is the sum of its Kendall tau distances to the m rankings (Tang et al., eqs. 2,
5): over all pairs that the order places i before j, the number of rankings W[j, i] that say the
opposite. Pairs that a ranking ties or does not name both of cost nothing. Summing min(W[i, j], W[j,
i]) over all pairs gives a bound that no order can beat.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeAlias, get_args

import numpy as np

from backpack_rank.constructors import Positive
from backpack_rank.position.aggregation.rankings import Item, Rankings

Absent: TypeAlias = Literal["ignored", "last"]
"""What an item means that a ranking leaves out: nothing, or that it stands behind all items of that
ranking.
"""


@dataclass(frozen=True)
class Aggregate(Generic[Item]):
    """A ranking made from several, as every aggregator gives it.

    >>> aggregate = Borda().aggregate(Rankings.of_orders([["a", "b"], ["a", "b"], ["b", "a"]]))
    >>> aggregate.order, aggregate.cost, aggregate.optimal
    (('a', 'b'), 1, True)

    Attributes:
        order: all items, best first.
        scores: one for each item of ``order``, never increasing; what they are depends on the
            method.
        cost: of the order, see the module.
        bound: proven lower bound of the cost of any order.
    """

    order: tuple[Item, ...]
    scores: tuple[float, ...]
    cost: int
    bound: int

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no order has a lower cost."""
        return self.cost <= self.bound


class Aggregator(ABC):
    """What to subclass for a method that makes a ranking from several.

    Attributes:
        exact: whether it looks for the order of least cost, so that a result that is not optimal is
            worth a note.
    """

    exact: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name for tables and files."""

    @abstractmethod
    def aggregate(self, rankings: Rankings[Item]) -> Aggregate[Item]:
        """The common ranking of all items. The same input gives the same result."""


def by_scores(rankings: Rankings[Item], scores: np.ndarray, wins: np.ndarray) -> Aggregate[Item]:
    """In an aggregator that scores items: it sorts them and counts the cost.

    Equal scores stand in the order of the items.

    Args:
        rankings: what was aggregated.
        scores: float64 [n], one for each item.
        wins: W of the rankings that the cost counts, [n, n].
    """
    order = np.argsort(-scores, kind="stable")
    return Aggregate(
        order=tuple(rankings.items[index] for index in order.tolist()),
        scores=tuple(scores[order].tolist()),
        cost=cost_of(order, wins),
        bound=lower_bound(wins),
    )


def cost_of(order: np.ndarray, wins: np.ndarray) -> int:
    """The sum of the distances of an order (indices [n], best first) for W [n, n].

    >>> wins = np.array([[0, 2], [1, 0]])  # two rankings place 0 before 1, and one the other way
    >>> cost_of(np.array([0, 1]), wins), cost_of(np.array([1, 0]), wins)
    (1, 2)
    """
    # Below the diagonal of W in this order: rankings that place a later item before an earlier one.
    return int(np.tril(wins[np.ix_(order, order)], -1).sum())


def lower_bound(wins: np.ndarray) -> int:
    """The cost if every pair stood as its majority wants, for W [n, n].

    >>> lower_bound(np.array([[0, 2], [1, 0]]))
    1
    """
    # Each pair stands twice in W.
    return int(np.minimum(wins, wins.T).sum()) // 2


def check_absent(absent: str) -> None:
    """Raise ``ValueError`` unless it is one of :data:`Absent`."""
    if absent not in get_args(Absent):
        raise ValueError(f"absent={absent!r}: use one of {', '.join(get_args(Absent))}")


class Borda(Aggregator):
    """A quick aggregate: items by mean rank, the lowest first.

    >>> Borda().aggregate(Rankings.of_orders([["a", "b"], ["a", "b"], ["b", "a"]])).order
    ('a', 'b')

    The score is minus the mean rank. Tied items share the middle of their ranks. Of equal means,
    the item that stands earlier among the items comes first.

    Attributes:
        absent: an item that a ranking leaves out is ``ignored`` there (its mean is over the others;
            an item in no ranking comes last), or ``last``: it shares the ranks behind those that
            the ranking names.
    """

    def __init__(self, absent: Absent = "ignored") -> None:
        """Raises ``ValueError`` for another word than ``ignored`` or ``last``."""
        check_absent(absent)
        self.absent = absent

    @property
    def name(self) -> str:
        return "borda"

    def aggregate(self, rankings: Rankings[Item]) -> Aggregate[Item]:
        """The items by mean rank."""
        if self.absent == "last":
            rankings = rankings.absent_last()
        return by_scores(rankings, -rankings.mean_ranks(), rankings.precedence())


class ReciprocalRankFusion(Aggregator):
    """Fuses runs of different systems, whose scores do not compare (RRF).

    >>> fused = ReciprocalRankFusion().aggregate(Rankings.of_orders([["a", "b"], ["b", "c"]]))
    >>> fused.order
    ('b', 'a', 'c')

    The score of an item is the sum over the rankings that name it of 1 / (k + rank), ranks from 1
    (Cormack, Clarke and Buettcher 2009). A ranking that leaves an item out adds nothing to it. Tied
    items share the middle of their ranks. Of equal sums, the item that stands earlier among the
    items comes first.

    Attributes:
        k: 60 in the paper; a larger one makes first ranks count less. Above -1.
    """

    def __init__(self, k: Positive = 60.0) -> None:
        """Raises ``ValueError`` for a k with which a rank would add nothing or less."""
        if not math.isfinite(k) or k <= -1:
            raise ValueError(
                f"k={k} of reciprocal rank fusion must be a finite number above -1, such as 60"
            )
        self.k = k

    @property
    def name(self) -> str:
        return "rrf"

    def aggregate(self, rankings: Rankings[Item]) -> Aggregate[Item]:
        """The items by their sums."""
        parts = np.nan_to_num(1.0 / (self.k + rankings.ranks()), nan=0.0)
        # Sorted before they are added: items with the same ranks in different rankings then have
        # the same sum to the last bit, and tie.
        scores = np.sort(parts, axis=0).sum(axis=0)
        return by_scores(rankings, scores, rankings.precedence())
