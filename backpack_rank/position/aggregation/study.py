"""Scores of single rankings of shuffled lists and of their aggregates.

Figures 3, 5 and 6 of Tang et al. show them.

Every list is ranked in m shuffled orders, once. Run j is shuffle j of every list, ranked alone; the
aggregate of the first k is permutation self-consistency with k of these shuffles. So all numbers k
and all aggregators look at the same answers, and differences between them are not those of another
draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.list_runs import effectiveness_of
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import ShuffledRankings, aggregate_of, ranking_of
from backpack_rank.position.lists.sorting_scores import sorting_scores

NUMBERS = (1, 5, 10, 15, 20)
ListScores = Callable[[Sequence[Ranking]], np.ndarray]
"""Gives a score for each list from a ranking of each list: [n] rankings -> float64 [n]."""


@dataclass(frozen=True, eq=False)
class AggregationStudy:
    """Scores of n lists, from m rankings of each.

    Attributes:
        singles: of each run alone. float64 [m, n]
        numbers: k, how many of the runs were aggregated, increasing.
        aggregates: of the aggregates of the first k runs, by name of the aggregator. float64
            [len(numbers), n] each
        not_optimal: aggregates of all lists and numbers that an exact aggregator did not prove to
            be optimal.
    """

    singles: np.ndarray
    numbers: tuple[int, ...]
    aggregates: Mapping[str, np.ndarray]
    not_optimal: int = 0

    @property
    def runs(self) -> np.ndarray:
        """Mean score of each run over the lists. float64 [m]"""
        return self.singles.mean(axis=1)

    def by_number(self, aggregator: str) -> np.ndarray:
        """Mean score of the aggregates over the lists. float64 [len(numbers)]"""
        return self.aggregates[aggregator].mean(axis=1)


def study_aggregation(
    shuffled: ShuffledRankings,
    score: ListScores,
    aggregators: Sequence[Aggregator],
    numbers: Sequence[int] = NUMBERS,
) -> AggregationStudy:
    """Use it to score every run, and what each aggregator makes of the first k of them.

    Passages that an answer leaves out count for a single run where the answer's ranking puts them,
    behind the others in the order in which they were shown; aggregators take them as permutation
    self-consistency does.

    Args:
        shuffled: rankings of the lists, as many of each, as of
            :func:`~backpack_rank.position.lists.permutation.rank_shuffled`.
        score: of the lists, for example :func:`tau_of` or :func:`ndcg_of`.
        aggregators: of different names.
        numbers: k; in any order, each from 1 to the number of shuffles.

    Raises:
        ValueError: lists with different numbers of rankings, a k that there are too few of, two
            aggregators of one name, or none.
    """
    rankings_of_list = _by_list(shuffled)
    times = len(rankings_of_list[0])
    chosen = tuple(sorted(set(numbers)))
    if not chosen or chosen[0] < 1 or chosen[-1] > times:
        raise ValueError(
            f"numbers={list(numbers)} of aggregated rankings must lie between 1 and the {times} "
            "there are"
        )
    names = [aggregator.name for aggregator in aggregators]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"aggregators {', '.join(names) or '(none)'}: give at least one, each once"
        )
    singles = []
    for run in range(times):
        rankings = [Ranking(shuffled.original(of_list[run])) for of_list in rankings_of_list]
        singles.append(score(rankings))
    aggregates: dict[str, np.ndarray] = {}
    not_optimal = 0
    for aggregator in aggregators:
        scores = []
        for number in chosen:
            first = [of_list[:number] for of_list in rankings_of_list]
            rankings, unproven = _aggregated(shuffled, first, aggregator)
            scores.append(score(rankings))
            not_optimal += unproven
        aggregates[aggregator.name] = np.stack(scores)
    return AggregationStudy(np.stack(singles), chosen, aggregates, not_optimal)


def tau_of(targets: Sequence[Sequence[float] | np.ndarray]) -> ListScores:
    """Use it to score by Kendall's tau to the right order of each list.

    See :mod:`~backpack_rank.position.lists.sorting_scores`.
    """
    return lambda rankings: sorting_scores(rankings, targets).taus


def ndcg_of(
    lists: Sequence[PassageList],
    qrels: Mapping[str, Mapping[str, int]],
    measure: str = "nDCG@10",
) -> ListScores:
    """Use it to score by a measure of effectiveness of each list, in their order.

    What is relevant is taken from all judgements of a query, so a list without all relevant
    passages cannot reach 1.

    Raises:
        ValueError: (when scored) no list, lists without ids, or a list whose query has no relevant
            document.
    """

    def scored(rankings: Sequence[Ranking]) -> np.ndarray:
        values = effectiveness_of(lists, rankings, qrels, (measure,)).values[measure]
        query_ids = [passages.query_id for passages in lists]
        if missing := [query_id for query_id in query_ids if query_id not in values]:
            raise ValueError(
                f"query {missing[0]!r} has no relevant document, so {measure} has no value for its "
                "list"
            )
        return np.array([values[query_id] for query_id in query_ids], dtype=np.float64)

    return scored


def _by_list(shuffled: ShuffledRankings) -> list[list[int]]:
    """For each list the numbers of its rankings, in order; as many for every list."""
    rankings_of_list: dict[int, list[int]] = {}
    for number, owner in enumerate(shuffled.lists):
        rankings_of_list.setdefault(owner, []).append(number)
    if len({len(numbers) for numbers in rankings_of_list.values()}) != 1:
        raise ValueError(
            "every list must be ranked equally often, at least once: use rank_shuffled"
        )
    return [rankings_of_list[owner] for owner in sorted(rankings_of_list)]


def _aggregated(
    shuffled: ShuffledRankings, rankings_of_list: Sequence[Sequence[int]], aggregator: Aggregator
) -> tuple[list[Ranking], int]:
    """The aggregate of the rankings of each list, and how many are not proven to be optimal."""
    rankings, unproven = [], 0
    for numbers in rankings_of_list:
        # Passages by their numbers in the list, without those that an answer left out.
        given = [shuffled.permutations[n][shuffled.rankings[n].ranked] for n in numbers]
        aggregate = aggregate_of(aggregator, given, len(shuffled.permutations[numbers[0]]))
        rankings.append(ranking_of(aggregate, given))
        unproven += aggregator.exact and not aggregate.optimal
    return rankings, unproven
