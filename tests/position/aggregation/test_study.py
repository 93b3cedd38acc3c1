"""Single runs and aggregates of the first k rankings, against permutation self-consistency and slow
loops.
"""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats
from small_rankers import RandomRanker, SmallRanker, numbers

from backpack_rank.position.aggregation.aggregate import Borda, ReciprocalRankFusion
from backpack_rank.position.aggregation.kemeny import Kemeny
from backpack_rank.position.aggregation.study import ndcg_of, study_aggregation, tau_of
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import (
    PermutationSelfConsistency,
    ShuffledRankings,
    rank_shuffled,
)

AGGREGATORS = (Kemeny(), Borda(), ReciprocalRankFusion())


@pytest.fixture
def lists() -> list[PassageList]:
    rng = np.random.default_rng(0)
    return [numbers(*rng.permutation(20)[:6], query_id=f"q{n}") for n in range(5)]


def targets_of(lists) -> list[np.ndarray]:
    """The largest number belongs first."""
    return [-np.array(passages.passages, dtype=float) for passages in lists]


def slow_tau(order, places) -> float:
    """Concordant minus discordant pairs; there are no ties."""
    signs = [np.sign(places[b] - places[a]) for a, b in combinations(order, 2)]
    return sum(signs) / len(signs)


def counted(times: int, lists, ranker):
    """The ranker's answers in positions of the lists, by list and shuffle, and how it was called."""
    shuffled = rank_shuffled(ranker, lists, times, seed=3)
    answers = [[None] * times for _ in lists]
    for number, owner in enumerate(shuffled.lists):
        shown = shuffled.permutations[number]
        answers[owner][number % times] = [
            int(shown[place]) for place in shuffled.rankings[number].order
        ]
    return shuffled, answers


def test_runs_are_the_same_shuffle_of_every_list(lists):
    shuffled, answers = counted(4, lists, RandomRanker())
    targets = targets_of(lists)
    study = study_aggregation(shuffled, tau_of(targets), AGGREGATORS, [1, 3])
    expected = np.empty((4, 5))
    for run in range(4):
        for number in range(5):
            expected[run, number] = slow_tau(answers[number][run], targets[number])
    assert study.singles == pytest.approx(expected)
    assert study.runs == pytest.approx(np.mean(expected, axis=1))
    assert study.numbers == (1, 3)
    # The aggregate of a single ranking is that ranking, whatever the method.
    for name in ("kemeny", "borda", "rrf"):
        assert study.aggregates[name].shape == (2, 5)
        assert study.aggregates[name][0] == pytest.approx(expected[0])


def test_kemeny_of_the_first_rankings_is_that_of_a_search_of_all_orders(lists):
    """Where several orders are closest, each list's score is that of one of them."""
    lists = [passages.select(range(5)) for passages in lists]
    targets = targets_of(lists)
    shuffled, answers = counted(5, lists, RandomRanker(1))
    study = study_aggregation(shuffled, tau_of(targets), [Kemeny()], [3, 5])
    assert study.not_optimal == 0
    for row, number in enumerate([3, 5]):
        for n in range(len(lists)):
            costs = {}
            for order in permutations(range(5)):
                costs[order] = 0
                for answer in answers[n][:number]:
                    for better, worse in combinations(order, 2):
                        costs[order] += answer.index(better) > answer.index(worse)
            least = min(costs.values())
            closest = [order for order, cost in costs.items() if cost == least]
            possible = {round(slow_tau(order, targets[n]), 9) for order in closest}
            assert round(float(study.aggregates["kemeny"][row, n]), 9) in possible


def test_borda_and_rrf_are_those_of_loops(lists):
    targets = targets_of(lists)
    shuffled, answers = counted(4, lists, SmallRanker(slope=2.5))
    study = study_aggregation(shuffled, tau_of(targets), AGGREGATORS, [2, 4])
    for row, number in enumerate([2, 4]):
        for n in range(len(lists)):
            rank_sums = [0] * 6
            reciprocal_sums = [0.0] * 6
            for answer in answers[n][:number]:
                for rank, item in enumerate(answer, start=1):
                    rank_sums[item] += rank
                    reciprocal_sums[item] += 1 / (60 + rank)
            # Sums that differ in the last bits only are ties, which the earlier passage wins.
            borda = sorted(range(6), key=lambda item: (rank_sums[item], item))
            rrf = sorted(range(6), key=lambda item: (-round(reciprocal_sums[item], 12), item))
            assert study.aggregates["borda"][row, n] == pytest.approx(slow_tau(borda, targets[n]))
            assert study.aggregates["rrf"][row, n] == pytest.approx(slow_tau(rrf, targets[n]))


@pytest.mark.parametrize("keeps", [None, 3])
@pytest.mark.parametrize("number", [2, 6])
def test_aggregates_are_those_of_permutation_self_consistency(lists, keeps, number):
    """Answers that leave passages out too; and the model is asked once for all numbers and
    aggregators.
    """
    ranker = SmallRanker(slope=3.0, keeps=keeps)
    targets = targets_of(lists)
    shuffled = rank_shuffled(ranker, lists, 6, seed=3)
    study = study_aggregation(shuffled, tau_of(targets), AGGREGATORS, [number])
    assert len(ranker.calls) == 1
    for aggregator in AGGREGATORS:
        psc = PermutationSelfConsistency(
            SmallRanker(slope=3.0, keeps=keeps), number, aggregator, seed=3
        )
        expected = []
        for ranking, target in zip(psc.rank(lists), targets, strict=True):
            expected.append(stats.kendalltau(ranking.ranks(), target).statistic)
        assert study.aggregates[aggregator.name][0] == pytest.approx(np.array(expected))
        assert study.by_number(aggregator.name)[0] == pytest.approx(np.mean(expected))


def test_ndcg_is_that_of_a_formula_and_needs_a_relevant_document(lists):
    lists = lists[:2]
    qrels = {
        "q0": {lists[0].ids[4]: 2, lists[0].ids[1]: 1, "elsewhere": 1},
        "q1": {lists[1].ids[0]: 1},
    }
    orders = [np.array([3, 4, 0, 1, 2, 5]), np.array([5, 4, 3, 2, 1, 0])]
    log = np.log2(np.arange(2, 12))
    # Gains are grades; the document that is not in the list counts for the best order.
    expected = [(2 / log[1] + 1 / log[3]) / (2 / log[0] + 1 / log[1] + 1 / log[2]), 1 / log[5]]
    assert ndcg_of(lists, qrels)([Ranking(order) for order in orders]) == pytest.approx(
        np.array(expected)
    )
    with pytest.raises(
        ValueError, match="query 'q1' has no relevant document, so nDCG@10 has no value"
    ):
        ndcg_of(lists, {"q0": qrels["q0"]})([Ranking(order) for order in orders])


def test_what_does_not_fit_is_named(lists):
    shuffled, score = rank_shuffled(SmallRanker(), lists, 3), tau_of(targets_of(lists))
    for wrong in ([0], [1, 4], []):
        with pytest.raises(
            ValueError, match="of aggregated rankings must lie between 1 and the 3 there are"
        ):
            study_aggregation(shuffled, score, AGGREGATORS, wrong)
    for aggregators in ([], [Borda(), Borda(absent="last")]):
        with pytest.raises(ValueError, match="give at least one, each once"):
            study_aggregation(shuffled, score, aggregators, [1])
    uneven = ShuffledRankings(
        shuffled.rankings[:-1], shuffled.permutations[:-1], shuffled.lists[:-1]
    )
    with pytest.raises(ValueError, match="every list must be ranked equally often"):
        study_aggregation(uneven, score, AGGREGATORS, [1])
