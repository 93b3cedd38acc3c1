"""Scores of single rankings of shuffled lists and of their aggregates.

Figures 3, 5 and 6 of Tang et al. show them.

Every list is ranked in m shuffled orders, once. Run j is shuffle j of every list, ranked alone; the
aggregate of the first k is permutation self-consistency with k of these shuffles. So all numbers k
and all aggregators look at the same answers, and differences between them are not those of another
draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


class AggregationStudy:
    """Scores of n lists, from m rankings of each; :func:`study_aggregation` makes it.

    >>> study = AggregationStudy(np.array([[0.2, 0.4], [0.6, 0.8]]), (2,), {})
    >>> study.runs.round(2).tolist()
    [0.3, 0.7]

    Attributes:
        singles: of each run alone. float64 [m, n]
        numbers: k, how many of the runs were aggregated, increasing.
        aggregates: of the aggregates of the first k runs, by name of the aggregator. float64
            [len(numbers), n] each
        not_optimal: aggregates of all lists and numbers that an exact aggregator did not prove to
            be optimal.
    """

    def __init__(
        self,
        singles: np.ndarray,
        numbers: tuple[int, ...],
        aggregates: Mapping[str, np.ndarray],
        not_optimal: int = 0,
    ) -> None:
        self.singles = singles
        self.numbers = numbers
        self.aggregates = aggregates
        self.not_optimal = not_optimal

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
    """Score every run, and what each aggregator makes of the first k of them::

        shuffled = rank_shuffled(ranker, lists, times=20)
        study = study_aggregation(shuffled, ndcg_of(lists, qrels), [Kemeny(), Borda()])
        study.by_number("kemeny")  # mean nDCG@10 of the aggregates of 1, 5, 10, 15 and 20 rankings

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
    rankings_by_list = _by_list(shuffled)
    num_runs = len(rankings_by_list[0])
    increasing = tuple(sorted(set(numbers)))
    if not increasing or increasing[0] < 1 or increasing[-1] > num_runs:
        raise ValueError(
            f"numbers={list(numbers)} of aggregated rankings must lie between 1 and the {num_runs} "
            "there are"
        )
    names = [aggregator.name for aggregator in aggregators]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"aggregators {', '.join(names) or '(none)'}: give at least one, each once"
        )

    singles = []
    for run in range(num_runs):
        rankings_of_run = []
        for numbers_of_list in rankings_by_list:
            # Back from positions of the shuffled list to those of the list.
            order = shuffled.original(numbers_of_list[run])
            rankings_of_run.append(Ranking(order))
        singles.append(score(rankings_of_run))

    aggregates: dict[str, np.ndarray] = {}
    not_optimal = 0
    for aggregator in aggregators:
        scores = []
        for k in increasing:
            first_k = [numbers_of_list[:k] for numbers_of_list in rankings_by_list]
            rankings, unproven = _aggregated(shuffled, first_k, aggregator)
            scores.append(score(rankings))
            not_optimal += unproven
        aggregates[aggregator.name] = np.stack(scores)
    return AggregationStudy(np.stack(singles), increasing, aggregates, not_optimal)


def tau_of(targets: Sequence[Sequence[float] | np.ndarray]) -> ListScores:
    """Score by Kendall's tau to the right order of each list.

    >>> score = tau_of([[0, 1, 2]])  # the passages stand in the right order
    >>> score([Ranking(np.array([0, 2, 1]))]).round(2).tolist()
    [0.33]

    See :mod:`~backpack_rank.position.lists.sorting_scores`.
    """

    def score(rankings: Sequence[Ranking]) -> np.ndarray:
        return sorting_scores(rankings, targets).taus

    return score


def ndcg_of(
    lists: Sequence[PassageList],
    qrels: Mapping[str, Mapping[str, int]],
    measure: str = "nDCG@10",
) -> ListScores:
    """Score by a measure of effectiveness of each list, in their order.

    >>> passages = PassageList("a query", ("text", "other"), ids=("d1", "d2"), query_id="q1")
    >>> score = ndcg_of([passages], {"q1": {"d2": 1}})
    >>> score([Ranking(np.array([1, 0]))]).tolist()
    [1.0]

    What is relevant is taken from all judgements of a query, so a list without all relevant
    passages cannot reach 1.

    Raises:
        ValueError: (when scored) no list, lists without ids, or a list whose query has no relevant
            document.
    """

    def score(rankings: Sequence[Ranking]) -> np.ndarray:
        values = effectiveness_of(lists, rankings, qrels, (measure,)).values[measure]
        scores = []
        for passages in lists:
            if passages.query_id not in values:
                raise ValueError(
                    f"query {passages.query_id!r} has no relevant document, so {measure} has no "
                    "value for its list"
                )
            scores.append(values[passages.query_id])
        return np.array(scores, dtype=np.float64)

    return score


def _by_list(shuffled: ShuffledRankings) -> list[list[int]]:
    """For each list the numbers of its rankings, in order; as many for every list."""
    rankings_by_list: dict[int, list[int]] = {}
    for ranking_number, list_number in enumerate(shuffled.lists):
        rankings_by_list.setdefault(list_number, []).append(ranking_number)
    counts = set(map(len, rankings_by_list.values()))
    if len(counts) != 1:
        raise ValueError(
            "every list must be ranked equally often, at least once: use rank_shuffled"
        )
    return [rankings_by_list[list_number] for list_number in sorted(rankings_by_list)]


def _aggregated(
    shuffled: ShuffledRankings, rankings_by_list: Sequence[Sequence[int]], aggregator: Aggregator
) -> tuple[list[Ranking], int]:
    """The aggregate of the rankings of each list, and how many are not proven to be optimal."""
    rankings = []
    unproven = 0
    for numbers in rankings_by_list:
        answers = []
        for number in numbers:
            # Positions of the list, without those of passages that the answer left out.
            shown, named = shuffled.permutations[number], shuffled.rankings[number].ranked
            answers.append(shown[named])
        aggregate = aggregate_of(aggregator, answers, len(shuffled.permutations[numbers[0]]))
        rankings.append(ranking_of(aggregate, answers))
        if aggregator.exact and not aggregate.optimal:
            unproven += 1
    return rankings, unproven
