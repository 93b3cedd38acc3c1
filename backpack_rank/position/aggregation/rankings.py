"""Several rankings of the same items, with ties and items left out, as an array of places."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

import numpy as np

Item = TypeVar("Item", bound=Hashable)


class Rankings(Generic[Item]):
    """m rankings of n items, for an aggregator.

    >>> rankings = Rankings.of_orders([["a", "b", "c"], ["b", "a"]])  # the second leaves c out
    >>> rankings.ranks()
    array([[ 1.,  2.,  3.],
           [ 2.,  1., nan]])

    Attributes:
        items: all items, each once; ties that nothing else breaks go to the item that stands
            earlier here.
        places: float64 [m, n]; a smaller value is a better place, equal values in a row are a tie,
            NaN is an item that the ranking leaves out. Only comparisons within a row count.
    """

    def __init__(self, items: tuple[Item, ...], places: np.ndarray) -> None:
        """See the class; mostly made by :meth:`of_orders` or :meth:`of_scores`.

        Raises:
            ValueError: an item that stands twice, no item, no ranking, or places of another shape.
        """
        if not items:
            raise ValueError("there is no item to rank")
        if len(set(items)) != len(items):
            raise ValueError(f"the items name {_first_repeated(items)!r} twice")
        if places.ndim != 2 or places.shape[1] != len(items) or not len(places):
            raise ValueError(
                f"places must be an array of at least one ranking by {len(items)} items, got "
                f"{places.shape}"
            )
        self.items = items
        self.places = places

    @classmethod
    def of_orders(
        cls, orders: Sequence[Sequence[Item]], items: Iterable[Item] | None = None
    ) -> Rankings[Item]:
        """From lists of items, best first, without ties.

        An item that a list lacks is left out of that ranking.

        Args:
            orders: the rankings; an empty one counts for nothing.
            items: all items, some of which may be in no ranking; None: those of the rankings, by
                first appearance.

        Raises:
            ValueError: no ranking or no item, a ranking that names an item twice or one that is not
                in ``items``.
        """
        if isinstance(orders, str) or any(isinstance(order, str) for order in orders):
            raise ValueError("a ranking is a sequence of items, not a text")
        for number, order in enumerate(orders, start=1):
            if len(set(order)) != len(order):
                raise ValueError(
                    f"ranking {number} of {len(orders)} names {_first_repeated(order)!r} twice"
                )
        places_of_rankings = []
        for order in orders:
            places_of_rankings.append({item: float(place) for place, item in enumerate(order)})
        return cls._of(places_of_rankings, items)

    @classmethod
    def of_scores(
        cls, scores: Sequence[Mapping[Item, float]], items: Iterable[Item] | None = None
    ) -> Rankings[Item]:
        """From scores, higher is better; equal scores are a tie.

        Args:
            scores: one mapping for each ranking.
            items: as in :meth:`of_orders`.

        Raises:
            ValueError: as in :meth:`of_orders`, or a score that is no finite number.
        """
        places_of_rankings = []
        for number, ranking in enumerate(scores, start=1):
            places = {}
            for item, score in ranking.items():
                if not math.isfinite(score):
                    raise ValueError(
                        f"ranking {number} of {len(scores)}: the score of {item!r} is {score}"
                    )
                places[item] = -score
            places_of_rankings.append(places)
        return cls._of(places_of_rankings, items)

    @classmethod
    def _of(
        cls, rankings: Sequence[Mapping[Item, float]], items: Iterable[Item] | None
    ) -> Rankings[Item]:
        """From the place of each item that a ranking names."""
        if not rankings:
            raise ValueError("there is no ranking to aggregate")
        if items is None:
            items = dict.fromkeys(chain.from_iterable(rankings))
        known = tuple(items)
        columns = {item: column for column, item in enumerate(known)}
        places = np.full((len(rankings), len(known)), np.nan)
        for row, ranking in enumerate(rankings):
            for item, place in ranking.items():
                if item not in columns:
                    raise ValueError(
                        f"ranking {row + 1} of {len(rankings)} names {item!r}, which is not among "
                        "the items"
                    )
                places[row, columns[item]] = place
        return cls(known, places)

    def absent_last(self) -> Rankings[Item]:
        """The same rankings with what they leave out behind all that they name, in one tie.

        For lists that were cut at a depth: what is not in them is known to be behind them. A
        ranking without any item stays one that counts for nothing, because all its items tie.
        """
        return Rankings(self.items, np.where(np.isnan(self.places), np.inf, self.places))

    def precedence(self) -> np.ndarray:
        """W[i, j], the number of rankings that place item i before item j. int64 [n, n]

        A ranking counts for neither side of a pair that it ties, or of which it leaves out an item.
        """
        wins = np.zeros((len(self.items), len(self.items)), dtype=np.int64)
        for row in self.places:  # one at a time: [m, n, n] would be large for long runs
            wins += row[:, None] < row[None, :]  # comparisons with NaN are False
        return wins

    def ranks(self) -> np.ndarray:
        """Rank of each item among those that the ranking names, from 1. float64 [m, n]

        Ties share the middle of their ranks; NaN for items left out.
        """
        ranks = np.full(self.places.shape, np.nan)
        for row, places in enumerate(self.places):
            named = ~np.isnan(places)
            values = np.sort(places[named])
            better = np.searchsorted(values, places[named], side="left")
            not_worse = np.searchsorted(values, places[named], side="right")
            # Tied items have the ranks better + 1 to not_worse.
            ranks[row, named] = (better + 1 + not_worse) / 2
        return ranks

    def mean_ranks(self) -> np.ndarray:
        """Mean of :meth:`ranks` over the rankings that name the item. float64 [n]

        It is n + 1 for an item in none.
        """
        ranks = self.ranks()
        named = ~np.isnan(ranks)
        count = named.sum(axis=0)
        total = np.where(named, ranks, 0.0).sum(axis=0)
        means = np.full(len(self.items), len(self.items) + 1.0)
        return np.divide(total, count, out=means, where=count > 0)


def _first_repeated(items: Sequence[Item]) -> Item:
    return next(item for item, count in Counter(items).items() if count > 1)
