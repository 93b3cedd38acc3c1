"""Seeded shuffles of passage lists: what permutation self-consistency and the instruments read in place of a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from backpack_rank.data.passages import PassageList
from backpack_rank.listwise.base import ListwiseRanker, Ranking, list_rng


@dataclass(frozen=True, eq=False)
class ShuffledRankings:
    """Rankings of shuffled lists.

    Attributes:
        rankings: those of the first list's shuffles, then those of the second's. Positions are those of the shuffled
            lists.
        permutations: for each ranking the positions of the list as given, in the order in which they were shown.
            int64 [m] each
        lists: for each ranking the number of its list.
    """

    rankings: tuple[Ranking, ...]
    permutations: tuple[np.ndarray, ...]
    lists: tuple[int, ...]

    def original(self, number: int) -> np.ndarray:
        """The order of a ranking in positions of the list as given, best first. int64 [m]"""
        return self.permutations[number][self.rankings[number].order]


def shuffles(passages: PassageList, seed: int) -> Iterator[np.ndarray]:
    """Uniformly random orders of a list's positions, without end. int64 [m] each

    They depend on the seed and the list alone (:func:`~backpack_rank.listwise.base.list_rng`).
    """
    generator = list_rng(passages, seed)
    while True:
        yield generator.permutation(len(passages))


def rank_shuffled(ranker: ListwiseRanker, lists: Sequence[PassageList], times: int, seed: int = 0) -> ShuffledRankings:
    """Rank every list in ``times`` shuffled orders, in one call of the ranker.

    Raises:
        ValueError: ``times`` below 1, or no list.
    """
    if times < 1:
        raise ValueError(f"times={times}: lists must be shuffled at least once")
    if not lists:
        raise ValueError("there is no list to shuffle")
    drawn = [order for one in lists for order in islice(shuffles(one, seed), times)]
    owners = [number for number in range(len(lists)) for _ in range(times)]
    shown = [lists[number].select(order) for number, order in zip(owners, drawn, strict=True)]
    return ShuffledRankings(tuple(ranker.rank(shown)), tuple(drawn), tuple(owners))
