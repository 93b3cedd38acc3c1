r"""Permutation self-consistency (Tang et al., section 2.2): one ranking from rankings of the
shuffled list.

A list is shuffled m times, uniformly (eq. 4), each order is ranked, and the ranking closest to the
m answers is
returned: the one with the smallest sum of Kendall tau distances to them (eq. 5), or what another
aggregator makes of them. What the ranker owes to the order in which it read the passages differs
from answer to answer and cancels out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Annotated

import numpy as np

from backpack_rank.checks import whole
from backpack_rank.constructors import Count, Note, Seed, checked
from backpack_rank.position.aggregation.aggregate import Aggregate, Aggregator
from backpack_rank.position.aggregation.kemeny import Kemeny
from backpack_rank.position.aggregation.rankings import Rankings
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking, list_rng
from backpack_rank.position.lists.passages import PassageList


@checked("permutation")
@dataclass
class PermutationSelfConsistency(RankerWrapper):
    """Aggregates a ranker's answers to shuffles of the list.

    The shuffles of a list depend on the seed, its query and its passages alone. Passages that an
    answer leaves out are absent from it, as the aggregator takes it; passages that every answer
    leaves out stand last, as left out. Ties that the aggregator leaves open go to the earlier input
    position. Scores are the aggregator's.

    By default there is one call of the ranker with all shuffles of all lists. With ``patience``
    they are drawn in rounds, and a list whose aggregate has stayed the same for so many rounds gets
    no more of them.

    Attributes:
        ranker: ranks one order of a list; it may be a
            :class:`~backpack_rank.position.lists.windows.SlidingWindows` (whole lists are
            shuffled), or this ranker may be inside of one (each window is shuffled, as in the
            paper).
        permutations: m, orders of a list that are ranked, at most; 20 in the paper. A list of one
            passage is ranked once.
        aggregator: makes one ranking of the answers.
        seed: of the shuffles.
        include_original: the first order is the list as it is, in place of a shuffle.
        patience: rounds without change after which a list is done; None: all permutations in one
            round.
        round_size: permutations of a round.
        stable: places at the front of the aggregate that must stay the same; None: all.
        aggregated: lists (or windows) that were aggregated so far.
        ranked: orders that were ranked for them.
        not_optimal: those of ``aggregated`` for which an exact aggregator did not prove its result
            to be optimal.
    """

    permutations: Count = 20
    aggregator: Aggregator = field(default_factory=Kemeny)
    seed: Seed = 0
    include_original: bool = False
    patience: Count | Annotated[None, Note("to ask for all permutations")] = None
    round_size: Count = 5
    stable: Count | None = None
    aggregated: int = field(default=0, init=False)
    ranked: int = field(default=0, init=False)
    not_optimal: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.patience is not None and self.round_size >= self.permutations:
            raise ValueError(
                f"round_size={self.round_size}: with patience there must be several rounds, so it "
                f"must be below permutations={self.permutations}"
            )
        if self.patience is None and self.stable is not None:
            raise ValueError(f"stable={self.stable} says when to stop early: set patience too")
        early = (
            f", stops after {self.patience}x{self.round_size} unchanged"
            if self.patience is not None
            else ""
        )
        self.label = f"PSC {self.permutations} {self.aggregator.name}{early}"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list."""
        drawn = [self._orders(one) for one in lists]
        answers: list[list[np.ndarray]] = [[] for _ in lists]
        found: dict[int, Aggregate[int]] = {}
        unchanged = [0] * len(lists)
        going = list(range(len(lists)))
        while going:
            self._next_round(lists, going, drawn, answers)
            for number in going:
                aggregate = aggregate_of(self.aggregator, answers[number], len(lists[number]))
                same = (
                    number in found
                    and found[number].order[: self.stable] == aggregate.order[: self.stable]
                )
                unchanged[number] = unchanged[number] + 1 if same else 0
                found[number] = aggregate
            if self.patience is None:
                break
            going = [
                number
                for number in going
                if unchanged[number] < self.patience
                and len(answers[number]) < self._most(lists[number])
            ]
        self.aggregated += len(lists)
        self.ranked += sum(map(len, answers))
        self.not_optimal += self.aggregator.exact * sum(
            not aggregate.optimal for aggregate in found.values()
        )
        return [ranking_of(found[number], answers[number]) for number in range(len(lists))]

    def _orders(self, passages: PassageList) -> Iterator[np.ndarray]:
        """The orders of a list that are ranked, one after the other."""
        original = [np.arange(len(passages))] if self.include_original else []
        return islice(chain(original, shuffles(passages, self.seed)), self._most(passages))

    def _most(self, passages: PassageList) -> int:
        return self.permutations if len(passages) > 1 else 1

    def _next_round(
        self,
        lists: Sequence[PassageList],
        going: Sequence[int],
        drawn: Sequence[Iterator[np.ndarray]],
        answers: Sequence[list[np.ndarray]],
    ) -> None:
        """Rank further orders of the lists that go on, in one call, and add the answers in
        positions of the lists.
        """
        size = self.permutations if self.patience is None else self.round_size
        jobs = [(number, order) for number in going for order in islice(drawn[number], size)]
        ranked = self.ranker.rank([lists[number].select(order) for number, order in jobs])
        for (number, order), ranking in zip(jobs, ranked, strict=True):
            answers[number].append(order[ranking.ranked])


def aggregate_of(
    aggregator: Aggregator, answers: Sequence[np.ndarray], size: int
) -> Aggregate[int]:
    """The common order of a list of ``size`` passages, from the positions [named] that each answer
    names.
    """
    return aggregator.aggregate(
        Rankings.of_orders([answer.tolist() for answer in answers], range(size))
    )


def ranking_of(aggregate: Aggregate[int], answers: Sequence[np.ndarray]) -> Ranking:
    """The aggregate, with passages that no answer names behind all others."""
    order = np.array(aggregate.order)
    named = np.isin(order, np.concatenate(answers))
    scores = np.empty(len(order))
    scores[order] = aggregate.scores
    if named.all():
        return Ranking(order, scores)
    # Aggregators have no ground to place them; among themselves they keep the input order.
    scores[order[~named]] = np.min(scores)
    return Ranking(np.concatenate([order[named], np.sort(order[~named])]), scores, int(named.sum()))


@dataclass(frozen=True, eq=False)
class ShuffledRankings:
    """Rankings of shuffled lists.

    Attributes:
        rankings: those of the first list's shuffles, then those of the second's. Positions are
            those of the shuffled lists.
        permutations: for each ranking the positions of the list as given, in the order in which
            they were shown. int64 [m] each
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

    They depend on the seed and the list alone
    (:func:`~backpack_rank.position.lists.base.list_rng`).
    """
    generator = list_rng(passages, seed)
    while True:
        yield generator.permutation(len(passages))


def rank_shuffled(
    ranker: ListwiseRanker, lists: Sequence[PassageList], times: int, seed: int = 0
) -> ShuffledRankings:
    """Rank every list in ``times`` shuffled orders, in one call of the ranker.

    Raises:
        ValueError: ``times`` below 1, or no list.
    """
    whole("times", times, 1)
    if not lists:
        raise ValueError("there is no list to shuffle")
    drawn = [order for one in lists for order in islice(shuffles(one, seed), times)]
    owners = [number for number in range(len(lists)) for _ in range(times)]
    shown = [lists[number].select(order) for number, order in zip(owners, drawn, strict=True)]
    return ShuffledRankings(tuple(ranker.rank(shown)), tuple(drawn), tuple(owners))
