r"""Permutation self-consistency: a ranking aggregated from rankings of the shuffled list.

A list is shuffled m times, uniformly (Tang et al., section 2.2, eq. 4), and each order is ranked.
The ranking closest to the m answers is returned: the one with the smallest sum of Kendall tau
distances to them (eq. 5), or what another aggregator makes of them. What the ranker owes to the
order in which it read the passages differs from answer to answer and cancels out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated

import numpy as np

from backpack_rank.checks import whole_number
from backpack_rank.constructors import Count, Note, Seed, checked
from backpack_rank.position.aggregation.aggregate import Aggregate, Aggregator
from backpack_rank.position.aggregation.kemeny import Kemeny
from backpack_rank.position.aggregation.rankings import Rankings
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking, list_rng
from backpack_rank.position.lists.passages import PassageList

_KEMENY = Kemeny()  # aggregators keep no state, so all rankers may share it


@checked("permutation")
class PermutationSelfConsistency(RankerWrapper):
    """Where a ranker's answer depends on the order in which it reads the passages::

        ranker = PermutationSelfConsistency(CausalLmRanker(model, pair_tokenizer), permutations=20)
        rankings = ranker.rank(lists)

    It aggregates the ranker's answers to shuffles of the list.

    The shuffles of a list depend on the seed, its query and its passages alone. Passages that an
    answer leaves out are absent from it, as the aggregator takes it; passages that every answer
    leaves out stand last, as left out. Ties that the aggregator leaves open go to the earlier input
    position. Scores are the aggregator's.

    By default there is one call of the ranker with all shuffles of all lists. With ``patience``
    they are drawn in rounds, and a list whose aggregate has stayed the same for so many rounds gets
    no more of them.

    Attributes:
        ranker: ranks one order of a list; it may be a
            :class:`~backpack_rank.position.lists.windows.SlidingWindows` (then the long lists are
            shuffled), or this ranker may be inside of one (each window is shuffled, as in the
            paper).
        permutations: m, the most orders of a list that are ranked; 20 in the paper. A list of one
            passage is ranked once.
        aggregator: makes a ranking of the answers.
        seed: of the shuffles.
        include_original: the first order is that of the list, in place of a shuffle.
        patience: rounds without change after which a list is done; None: all permutations in one
            round.
        round_size: permutations of a round.
        stable: places at the front of the aggregate that must stay the same; None: all.
        aggregated: lists (or windows) that were aggregated so far.
        ranked: orders that were ranked for them.
        not_optimal: those of ``aggregated`` for which an exact aggregator did not prove its result
            to be optimal.
    """

    def __init__(
        self,
        ranker: ListwiseRanker,
        permutations: Count = 20,
        aggregator: Aggregator = _KEMENY,
        seed: Seed = 0,
        include_original: bool = False,
        patience: Count | Annotated[None, Note("to ask for all permutations")] = None,
        round_size: Count = 5,
        stable: Count | None = None,
    ) -> None:
        """See the class.

        Raises:
            ValueError: an option below its least value, a round of all permutations with
                ``patience``, or ``stable`` without ``patience``.
        """
        if patience is not None and round_size >= permutations:
            raise ValueError(
                f"round_size={round_size}: with patience there must be several rounds, so it "
                f"must be below permutations={permutations}"
            )
        if patience is None and stable is not None:
            raise ValueError(f"stable={stable} says when to stop early: set patience too")
        super().__init__(ranker)
        self.permutations = permutations
        self.aggregator = aggregator
        self.seed = seed
        self.include_original = include_original
        self.patience = patience
        self.round_size = round_size
        self.stable = stable
        self.aggregated = 0
        self.ranked = 0
        self.not_optimal = 0
        self.label = f"PSC {permutations} {aggregator.name}"
        if patience is not None:
            self.label += f", stops after {patience}x{round_size} unchanged"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list."""
        tallies = [_Tally(passages, self._orders(passages)) for passages in lists]
        unfinished = tallies
        while unfinished:
            self._rank_round(unfinished)
            for tally in unfinished:
                tally.update(self.aggregator, self.stable)
            if self.patience is None:
                break  # the first round had all permutations
            still_changing = []
            for tally in unfinished:
                has_orders_left = len(tally.answers) < self._limit(tally.passages)
                if has_orders_left and tally.unchanged < self.patience:
                    still_changing.append(tally)
            unfinished = still_changing
        self.aggregated += len(lists)
        self.ranked += sum(len(tally.answers) for tally in tallies)
        rankings = []
        for tally in tallies:
            assert tally.aggregate is not None
            if self.aggregator.exact and not tally.aggregate.optimal:
                self.not_optimal += 1
            rankings.append(ranking_of(tally.aggregate, tally.answers))
        return rankings

    def _orders(self, passages: PassageList) -> Iterator[np.ndarray]:
        """The orders of a list that are ranked, one after the other."""
        orders = shuffles(passages, self.seed)
        if self.include_original:
            orders = chain([np.arange(len(passages))], orders)
        return islice(orders, self._limit(passages))

    def _limit(self, passages: PassageList) -> int:
        """The most orders of a list that are ranked: a list of one passage has one order."""
        return self.permutations if len(passages) > 1 else 1

    def _rank_round(self, tallies: Sequence[_Tally]) -> None:
        """Rank further orders of these lists, in one call of the ranker."""
        size = self.permutations if self.patience is None else self.round_size
        asked = []
        shown = []
        for tally in tallies:
            for order in islice(tally.orders, size):
                asked.append((tally, order))
                shown.append(tally.passages.select(order))
        for (tally, order), ranking in zip(asked, self.ranker.rank(shown), strict=True):
            # Back from positions of the shuffled list to those of the list.
            tally.answers.append(order[ranking.ranked])


class _Tally:
    """A list with its answers and their aggregate after some rounds.

    Attributes:
        passages: the list.
        orders: that are still to be ranked.
        answers: positions of the list that each answer names, best first. int64 [named] each
        aggregate: of the answers; None before the first round.
        unchanged: rounds since the aggregate changed.
    """

    def __init__(self, passages: PassageList, orders: Iterator[np.ndarray]) -> None:
        self.passages = passages
        self.orders = orders
        self.answers: list[np.ndarray] = []
        self.aggregate: Aggregate[int] | None = None
        self.unchanged = 0

    def update(self, aggregator: Aggregator, stable: int | None) -> None:
        """Aggregate all answers; ``stable`` places at the front decide whether that is a change."""
        before = self.aggregate
        self.aggregate = aggregate_of(aggregator, self.answers, len(self.passages))
        if before is not None and before.order[:stable] == self.aggregate.order[:stable]:
            self.unchanged += 1
        else:
            self.unchanged = 0


def aggregate_of(
    aggregator: Aggregator, answers: Sequence[np.ndarray], size: int
) -> Aggregate[int]:
    """Aggregate answers to the same list, given as input positions.

    >>> from backpack_rank.position.aggregation.aggregate import Borda
    >>> answers = [np.array([0, 1]), np.array([0, 1]), np.array([1, 0])]
    >>> aggregate_of(Borda(), answers, size=2).order
    (0, 1)

    Args:
        aggregator: makes the order.
        answers: the positions that each answer names, best first. int64 [named] each
        size: of the list.
    """
    orders = [answer.tolist() for answer in answers]
    return aggregator.aggregate(Rankings.of_orders(orders, range(size)))


def ranking_of(aggregate: Aggregate[int], answers: Sequence[np.ndarray]) -> Ranking:
    """Make a ranking of an aggregate; passages that no answer names stand last.

    >>> from backpack_rank.position.aggregation.aggregate import Borda
    >>> answers = [np.array([2, 1])]  # of three passages
    >>> ranking_of(aggregate_of(Borda(), answers, size=3), answers).order
    array([2, 1, 0])

    Scores are the aggregate's; a passage that no answer names has the lowest of them.
    """
    order = np.array(aggregate.order)
    named = np.isin(order, np.concatenate(answers))
    scores = np.empty(len(order))
    scores[order] = aggregate.scores
    if named.all():
        return Ranking(order, scores)
    # Aggregators have no ground to place them; among themselves they keep the input order.
    left_out = np.sort(order[~named])
    scores[left_out] = np.min(scores)
    return Ranking(np.concatenate([order[named], left_out]), scores, int(named.sum()))


@dataclass(frozen=True, eq=False)
class ShuffledRankings:
    """Rankings of shuffled lists, as :func:`rank_shuffled` gives them.

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
    """Show a list in random orders: uniformly drawn, without end. int64 [m] each

    >>> passages = PassageList("a query", ("first", "second", "third"))
    >>> [order.tolist() for order in islice(shuffles(passages, seed=0), 2)]
    [[2, 0, 1], [0, 2, 1]]

    They depend on the seed and the list alone
    (:func:`~backpack_rank.position.lists.base.list_rng`).
    """
    rng = list_rng(passages, seed)
    while True:
        yield rng.permutation(len(passages))


def rank_shuffled(
    ranker: ListwiseRanker, lists: Sequence[PassageList], times: int, seed: int = 0
) -> ShuffledRankings:
    """What a ranker makes of ``times`` shuffled orders of every list::

        shuffled = rank_shuffled(ranker, lists, times=20)
        shuffled.original(0)  # ranking of the first shuffle, in positions of the list

    The ranker is called once, with all of them.

    Raises:
        ValueError: ``times`` below 1, or no list.
    """
    whole_number("times", times, 1)
    if not lists:
        raise ValueError("there is no list to shuffle")
    shown = []
    permutations = []
    numbers = []
    for number, passages in enumerate(lists):
        for order in islice(shuffles(passages, seed), times):
            shown.append(passages.select(order))
            permutations.append(order)
            numbers.append(number)
    return ShuffledRankings(tuple(ranker.rank(shown)), tuple(permutations), tuple(numbers))
