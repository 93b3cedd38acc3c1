"""Transitions, reversals, controlled positions, order robustness, sorting scores, first stages, by
hand.
"""

from __future__ import annotations

import math
from itertools import combinations

import ir_measures
import numpy as np
import pytest
from scipy import stats
from small_rankers import RandomRanker, SmallRanker, numbers

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.trec import read_run
from backpack_rank.position.aggregation.aggregate import ReciprocalRankFusion
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.first_stages import first_stage_study
from backpack_rank.position.lists.list_positions import (
    MEASURES,
    controlled_positions,
    order_robustness,
    reversals,
    with_one_relevant,
    wrong_pairs,
)
from backpack_rank.position.lists.list_runs import effectiveness_of, lists_of, run_of
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import PermutationSelfConsistency, rank_shuffled
from backpack_rank.position.lists.propensity import Transitions, transition_counts
from backpack_rank.position.lists.sorting_scores import sorting_scores

KEEPS_ORDER = 1e6
"""Slope of a ranker that gives the input order back."""


def random_rankings(number: int, size: int, seed: int = 0) -> list[Ranking]:
    rng = np.random.default_rng(seed)
    return [Ranking(rng.permutation(size)) for _ in range(number)]


# Transitions


def test_transitions_are_counted_by_hand_and_by_loops():
    # Order [2, 0, 1]: input 2 comes out first, input 0 second, input 1 third.
    assert transition_counts([Ranking(np.array([2, 0, 1]))], 3).tolist() == [
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]
    rankings = random_rankings(50, 6)
    expected = np.zeros((6, 6), dtype=int)
    for ranking in rankings:
        for place, position in enumerate(ranking.order.tolist()):
            expected[position][place] += 1
    counts = transition_counts(rankings, 6)
    assert counts.dtype == np.int64
    assert np.array_equal(counts, expected)
    transitions = Transitions(counts)
    assert transitions.rankings == 50
    assert transitions.shares.sum() == pytest.approx(1)
    assert transitions.given_input == pytest.approx(expected / 50)


def test_the_distance_from_uniform_is_0_for_even_and_1_less_1_of_k_for_fixed_orders():
    lists = [numbers(*np.random.default_rng(n).permutation(5), query_id=str(n)) for n in range(4)]
    kept = Transitions.of(rank_shuffled(SmallRanker(KEEPS_ORDER), lists, 30).rankings, 5)
    assert np.array_equal(kept.counts, 120 * np.eye(5))
    assert kept.total_variation == pytest.approx(1 - 1 / 5)
    every = [Ranking(np.roll(np.arange(5), shift)) for shift in range(5)]
    assert Transitions.of(every, 5).total_variation == pytest.approx(0)


@pytest.mark.parametrize(("number", "size"), [(7, 4), (40, 3), (12, 4), (5, 1)])
def test_the_distance_that_chance_alone_gives_is_that_of_simulations(number: int, size: int):
    simulated = []
    for seed in range(600):
        transitions = Transitions.of(random_rankings(number, size, seed), size)
        simulated.append(transitions.total_variation)
    error = np.std(simulated) / math.sqrt(600)
    chance = Transitions.of(random_rankings(number, size), size).chance
    assert chance == pytest.approx(np.mean(simulated), abs=4 * error)


def test_an_oracle_on_shuffled_lists_is_no_more_than_chance_from_uniform():
    lists = [numbers(*range(8), query_id=str(number)) for number in range(20)]
    blind = Transitions.of(rank_shuffled(SmallRanker(), lists, 20).rankings, 8)
    biased = Transitions.of(rank_shuffled(SmallRanker(slope=1.0), lists, 20).rankings, 8)
    assert blind.total_variation == pytest.approx(blind.chance, rel=0.3)
    assert biased.total_variation > 3 * biased.chance


def test_lists_of_another_size_are_refused():
    rankings = random_rankings(2, 4) + random_rankings(1, 3)
    with pytest.raises(ValueError, match="ranking 3 of 3 is of 3 passages, not of 4"):
        transition_counts(rankings, 4)
    with pytest.raises(ValueError, match="ranking 1 of 3 is of 4 passages, not of 3"):
        transition_counts(rankings, 3)
    with pytest.raises(ValueError, match="no ranking"):
        transition_counts([], 3)


# Shuffles


def test_shuffled_rankings_lead_back_to_the_list():
    lists = [numbers(5, 9, 7, 1), numbers(3, 4, query_id="r")]
    shuffled = rank_shuffled(SmallRanker(), lists, 3)
    assert shuffled.lists == (0, 0, 0, 1, 1, 1)
    originals = [shuffled.original(number).tolist() for number in range(6)]
    assert originals == [[1, 2, 0, 3]] * 3 + [[1, 0]] * 3


# Reversals


def test_reversed_pairs_by_hand_and_by_loops():
    # Read a b c, answered c a b: c passed a and b, a and b kept their order.
    pairs = reversals([Ranking(np.array([2, 0, 1]))], 3)
    assert pairs.counts.tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert np.isnan(pairs.shares[1, 0])
    rankings = random_rankings(40, 5)
    pairs = reversals(rankings, 5)
    for i, j in combinations(range(5), 2):
        count = 0
        for ranking in rankings:
            order = ranking.order.tolist()
            count += order.index(j) < order.index(i)
        assert pairs.counts[i, j] == count
        assert pairs.shares[i, j] == count / 40
    assert pairs.mean == pairs.counts.sum() / (40 * 10)


def test_a_ranker_that_keeps_the_input_order_reverses_nothing_and_an_oracle_half():
    lists = [numbers(*range(6), query_id=str(number)) for number in range(50)]
    kept = reversals(rank_shuffled(SmallRanker(KEEPS_ORDER), lists, 20).rankings, 6)
    assert kept.mean == 0
    oracle = reversals(rank_shuffled(SmallRanker(), lists, 20).rankings, 6)
    upper = oracle.shares[np.triu_indices(6, 1)]
    assert np.abs(upper - 0.5).max() < 4 * math.sqrt(0.25 / 1000)
    biased = reversals(rank_shuffled(SmallRanker(slope=1.0), lists, 20).rankings, 6)
    # The farther apart two passages are read, the more the first one is ahead.
    assert biased.shares[0, 5] < biased.shares[0, 3] < biased.shares[0, 1] < 0.5
    assert biased.range > oracle.range


def test_wrong_pairs_are_those_that_contradict_the_right_order():
    # Read 30, 10, 20, 10 (smaller first): right is 10, 10, 20, 30. Answered: 10 (position 1), 30,
    # 10 (position 3), 20.
    pairs = wrong_pairs([Ranking(np.array([1, 0, 3, 2]))], [np.array([30.0, 10.0, 20.0, 10.0])], 4)
    assert {(i, j) for i, j in np.argwhere(pairs.counts).tolist()} == {(0, 2), (0, 3)}
    assert pairs.of[1, 3] == 0  # two equal ones have no right order
    assert pairs.of.sum() == 5
    assert pairs.mean == 2 / 5


def test_an_oracle_makes_no_pair_wrong_and_a_blind_ranker_half():
    lists = [numbers(*range(6), query_id=str(number)) for number in range(40)]
    for ranker, low, high in (
        (SmallRanker(), 0, 0),
        (RandomRanker(), 0.45, 0.55),
        (SmallRanker(KEEPS_ORDER), 0.45, 0.55),
    ):
        shuffled = rank_shuffled(ranker, lists, 10)
        # Passages are 0, 1, ... 5, and the largest is the best.
        targets = [-order.astype(float) for order in shuffled.permutations]
        assert low <= wrong_pairs(shuffled.rankings, targets, 6).mean <= high
    with pytest.raises(ValueError, match="a target of 6 places for each of the 400"):
        wrong_pairs(shuffled.rankings, targets[:-1], 6)


# Controlled positions


def test_an_oracle_has_the_same_value_at_every_position():
    lists = [numbers(1, 9, 2, 3), numbers(0, 1, 2, 50)]
    positions = controlled_positions(SmallRanker(), lists, [1, 3])
    assert positions.ranks.tolist() == [[0] * 4] * 2
    for measure in MEASURES:
        curve = positions.curve(measure)
        assert curve.values == (1.0,) * 4
        assert (curve.mean, curve.range, curve.variance) == (1.0, 0.0, 0.0)


def test_a_ranker_that_keeps_the_input_order_has_the_value_of_the_position():
    positions = controlled_positions(SmallRanker(KEEPS_ORDER), [numbers(*range(12))], [3])
    assert positions.ranks.tolist() == [list(range(12))]
    ndcg = positions.curve("nDCG@10")
    assert ndcg.values[:3] == pytest.approx((1.0, 1 / math.log2(3), 0.5))
    assert ndcg.values[9:] == pytest.approx((1 / math.log2(11), 0, 0))
    assert ndcg.range == 1.0
    assert ndcg.variance == pytest.approx(np.var(ndcg.values))
    assert positions.curve("MRR").values == pytest.approx([1 / rank for rank in range(1, 13)])
    assert positions.curve("accuracy@1").values == (1.0,) + (0.0,) * 11
    assert all(math.isnan(error) for error in ndcg.errors)


def test_a_ranker_that_prefers_early_positions_by_a_known_amount():
    # 10 against 9.5, 7.5, 4 with a loss of 1 per position: ahead of all at the first, behind 9.5 at
    # the second (9 against 9.5), behind it at the third (8 against 9.5 and 6.5), and behind 9.5
    # alone at the last (7 against 9.5, 6.5, 2).
    positions = controlled_positions(SmallRanker(slope=1.0), [numbers(9.5, 10, 7.5, 4)], [1])
    assert positions.ranks.tolist() == [[0, 1, 1, 1]]
    assert positions.curve("accuracy@1").values == (1.0, 0.0, 0.0, 0.0)
    assert positions.curve("MRR").mean == pytest.approx(2.5 / 4)


def test_the_others_keep_their_order_and_all_lists_are_one_call_for_each_position():
    ranker = SmallRanker()
    controlled_positions(ranker, [numbers(1, 9, 2), numbers(7, 3, 4, query_id="r")], [1, 0])
    shown = [[passages.passages for passages in call] for call in ranker.calls]
    assert shown == [
        [("9", "1", "2"), ("7", "3", "4")],
        [("1", "9", "2"), ("3", "7", "4")],
        [("1", "2", "9"), ("3", "4", "7")],
    ]


def test_values_are_those_of_ir_measures():
    lists = [numbers(*np.random.default_rng(n).permutation(15), query_id=str(n)) for n in range(20)]
    positions = controlled_positions(SmallRanker(slope=1.5), lists, [n % 15 for n in range(20)])
    references = [ir_measures.nDCG @ 10, ir_measures.RR, ir_measures.P @ 1]
    for measure, reference in zip(("nDCG@10", "MRR", "accuracy@1"), references, strict=True):
        # A query for each list and position. The relevant passage stands behind as many of the 14
        # others as its rank says.
        others = {f"other {rank}": -rank - 0.5 for rank in range(14)}
        run = {}
        for number in range(20):
            for position in range(15):
                rank = float(positions.ranks[number, position])
                run[f"{number} {position}"] = {"relevant": -rank, **others}
        qrels = {query_id: {"relevant": 1} for query_id in run}
        expected = np.empty((20, 15))
        for metric in ir_measures.iter_calc([reference], qrels, run):
            number, position = map(int, metric.query_id.split())
            expected[number, position] = metric.value
        assert positions.values(measure) == pytest.approx(expected)
        curve = positions.curve(measure)
        assert curve.errors == pytest.approx(stats.sem(expected, axis=0))


def test_permutation_self_consistency_lowers_the_range():
    lists = [numbers(8, 7, 6, 5, 4, 3, 2, 1, query_id=str(number)) for number in range(8)]
    biased = SmallRanker(slope=0.9)
    permuted = PermutationSelfConsistency(biased, 20)
    plain = controlled_positions(biased, lists, [0] * 8).curve("MRR")
    remedied = controlled_positions(permuted, lists, [0] * 8).curve("MRR")
    assert plain.range > 0.4
    assert remedied.range < plain.range / 2
    assert remedied.mean > plain.mean


def test_one_relevant_passage_is_kept_and_the_size_is_even():
    lists = [
        numbers(10, 11, 12, 13, 14, 15, query_id="several"),
        numbers(20, 21, 22, 23, 24, query_id="late"),
        numbers(30, 31, 32, 33, query_id="none"),
        numbers(40, 41, 42, query_id="short"),
    ]
    relevance = [[0, 2, 0, 1, 0, 3], [0, 0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0]]
    one_relevant = with_one_relevant(lists, relevance, size=3)
    chosen = [passages.passages for passages in one_relevant.lists]
    assert chosen == [("10", "11", "12"), ("20", "21", "24")]
    assert one_relevant.relevant == (1, 2)
    assert one_relevant.removed == 2
    assert (one_relevant.without_relevant, one_relevant.too_short) == (("none",), ("short",))
    strict = with_one_relevant(lists[:1], relevance[:1], size=3, minimum=3)
    (passages,) = strict.lists
    assert passages.passages == ("10", "12", "15")  # 11 and 13 are neither relevant nor not
    with pytest.raises(ValueError, match="1 have no relevant one, 1 too few others"):
        with_one_relevant(lists[2:], relevance[2:], size=3)
    with pytest.raises(ValueError, match="query several: 6 passages but 2 judgements"):
        with_one_relevant(lists[:1], [[0, 1]], size=3)


def test_lists_of_several_sizes_do_not_compare():
    with pytest.raises(ValueError, match="query r has 2 passages, query q has 3"):
        controlled_positions(SmallRanker(), [numbers(1, 2, 3), numbers(1, 2, query_id="r")], [0, 0])
    with pytest.raises(ValueError, match="no position 3 in a list of 3"):
        controlled_positions(SmallRanker(), [numbers(1, 2, 3)], [3])
    with pytest.raises(ValueError, match="no list"):
        controlled_positions(SmallRanker(), [], [])
    with pytest.raises(ValueError, match="use one of nDCG@10"):
        controlled_positions(SmallRanker(), [numbers(1, 2)], [0]).values("P@5")


# Order robustness

QRELS = {"q": {"d9": 2, "d8": 1, "d1": 0}, "r": {"d4": 1}, "unranked": {"d1": 1}}


TWO_LISTS = [numbers(1, 9, 3, 8), numbers(4, 2, query_id="r")]


def test_an_oracle_gives_one_ranking_whatever_the_order():
    robustness = order_robustness(SmallRanker(), TWO_LISTS, QRELS, shuffled=2)
    assert robustness.orders == ("original", "reversed", "shuffled 1", "shuffled 2")
    assert robustness.taus.tolist() == np.ones((2, 4, 4)).tolist()
    assert [part.mean("nDCG@10") for part in robustness.effectiveness] == [1.0] * 4
    assert robustness.effectiveness[0].query_ids == ("q", "r")


def test_the_input_order_given_back_is_the_reverse_of_that_reversed():
    robustness = order_robustness(SmallRanker(KEEPS_ORDER), TWO_LISTS, QRELS, shuffled=0)
    assert robustness.tau.tolist() == [[1, -1], [-1, 1]]
    assert [ranking.order.tolist() for ranking in robustness.rankings[1]] == [[3, 2, 1, 0], [1, 0]]
    # q as given: 1 9 3 8 with gains 0 2 0 1; reversed: 1 0 2 0. Ideal: 2 1.
    ideal = 2 + 1 / math.log2(3)
    original, reverse = (part.values["nDCG@10"] for part in robustness.effectiveness)
    assert original["q"] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert reverse["q"] == pytest.approx((1 + 2 / math.log2(4)) / ideal)
    assert (original["r"], reverse["r"]) == pytest.approx((1, 1 / math.log2(3)))


def test_taus_are_those_of_counted_pairs():
    lists = [numbers(*np.random.default_rng(n).permutation(7), query_id=str(n)) for n in range(5)]
    robustness = order_robustness(SmallRanker(slope=1.2), lists, shuffled=2)
    assert robustness.effectiveness == ()
    for first, second in combinations(range(4), 2):
        for number in range(5):
            first_places = np.argsort(robustness.rankings[first][number].order)
            second_places = np.argsort(robustness.rankings[second][number].order)
            agree = 0
            for i, j in combinations(range(7), 2):
                ahead = first_places[i] < first_places[j]
                agree += ahead == (second_places[i] < second_places[j])
            tau = 2 * agree / 21 - 1
            assert robustness.taus[number, first, second] == pytest.approx(tau)
            assert robustness.taus[number, second, first] == pytest.approx(tau)


def test_all_orders_are_one_call():
    ranker = SmallRanker()
    order_robustness(ranker, [numbers(1, 2, 3), numbers(4, 5, query_id="r")], shuffled=3)
    assert [len(call) for call in ranker.calls] == [10]
    with pytest.raises(ValueError, match="has one passage"):
        order_robustness(ranker, [numbers(1)])


# Sorting scores


def test_sorting_scores_by_hand():
    # The right order, its reverse, and the right one with two passages swapped.
    rankings = [Ranking(np.array(order)) for order in ([1, 2, 0], [0, 2, 1], [2, 1, 0])]
    target = [3.5, -1.0, 2.0]  # positions 1, 2, 0 in this order
    scores = sorting_scores(rankings, [target] * 3)
    assert scores.taus == pytest.approx([1, -1, 1 / 3])
    assert scores.exact.tolist() == [True, False, False]
    assert scores.tau == pytest.approx(1 / 9)
    assert scores.exact_share == pytest.approx(1 / 3)


def test_equal_items_may_come_in_any_order():
    rankings = [Ranking(np.array(order)) for order in ([0, 2, 1], [2, 0, 1])]
    scores = sorting_scores(rankings, [[1.0, 2.0, 1.0]] * 2)
    assert scores.exact.tolist() == [True, True]
    with pytest.raises(ValueError, match="list 1: its 2 items have one place"):
        sorting_scores([Ranking(np.array([0, 1]))], [[4, 4]])
    with pytest.raises(ValueError, match="2 items were ranked, 3 have a place"):
        sorting_scores([Ranking(np.array([0, 1]))], [[4, 4, 5]])


# Runs and first stages


def numbered(qrels: dict[str, dict[str, int]]) -> Collection:
    """Documents d0 to d6, which are their numbers, and the queries of these judgements."""
    documents = MemoryStore({f"d{number}": str(number) for number in range(7)})
    return Collection("numbers", documents, dict.fromkeys(qrels, "which"), qrels)


def test_rankings_become_a_run_and_back():
    collection = numbered({"a": {"d5": 1}, "b": {"d0": 0}, "c": {}})
    run = {"a": {"d1": 0.5, "d5": 0.5, "d3": 2.0}, "b": {"d0": 1.0}, "other": {"d1": 1.0}}
    lists = lists_of(run, collection, depth=2)
    assert [(passages.query_id, passages.ids, passages.passages) for passages in lists] == [
        ("a", ("d3", "d1"), ("3", "1")),
        ("b", ("d0",), ("0",)),
    ]
    assert [passages.query_id for passages in lists_of(run, collection, judged=True)] == ["a"]
    lists = lists_of(run, collection, None)
    assert run_of(lists, SmallRanker().rank(lists)) == {
        "a": {"d5": 3.0, "d3": 2.0, "d1": 1.0},
        "b": {"d0": 1.0},
    }
    with pytest.raises(ValueError, match="none of the queries of numbers"):
        lists_of({"other": {"d1": 1.0}}, collection)


def test_lists_that_no_run_can_hold_are_refused():
    passages = numbers(1, 2)
    ranking = Ranking(np.array([0, 1]))
    with pytest.raises(ValueError, match="'q' has two lists"):
        run_of([passages, passages], [ranking] * 2)
    with pytest.raises(ValueError, match="needs ids"):
        run_of([PassageList("q", ("a", "b"))], [ranking])
    twice = PassageList("q", ("a", "a"), ("d1", "d1"), "q")
    with pytest.raises(ValueError, match="document 'd1' stands 2 times"):
        effectiveness_of([twice], [ranking], {"q": {"d1": 1}})


def test_every_first_stage_and_their_fusion_before_and_after():
    collection = numbered({"a": {"d6": 1}, "b": {"d1": 0}})
    runs = {
        "low first": {"a": {"d1": 3.0, "d2": 2.0, "d6": 1.0}, "b": {"d1": 1.0}},
        "without": {"a": {"d3": 3.0, "d2": 2.0, "d6": 1.0}},
    }
    fusions = [ReciprocalRankFusion()]
    study = first_stage_study(SmallRanker(), collection, runs, depth=3, fusions=fusions)
    assert [stage.name for stage in study] == ["low first", "without", "rrf of low first, without"]
    assert [stage.queries for stage in study] == [1, 1, 1]
    # d2 and d6 are in both runs and lead the fusion, d2 ahead: its ranks are 2 and 2, those of d6 3
    # and 3.
    before = [stage.before.mean("nDCG@10") for stage in study]
    assert before == pytest.approx([0.5, 0.5, 1 / math.log2(3)])
    assert [stage.after.mean("nDCG@10") for stage in study] == [1.0] * 3
    assert study[0].run == {"a": {"d6": 3.0, "d2": 2.0, "d1": 1.0}}
    cut = first_stage_study(SmallRanker(), collection, runs, depth=2)
    assert [stage.after.mean("nDCG@10") for stage in cut] == [0.0, 0.0]
    with pytest.raises(ValueError, match="a first stage"):
        first_stage_study(SmallRanker(), collection, {})


class InputOrder(SmallRanker):
    """Gives the input order back, of any texts."""

    def _rank_list(self, passages: PassageList) -> Ranking:
        return Ranking(np.arange(len(passages)))


def test_first_stages_of_dl19_have_the_figures_of_tang_et_al(real_data):
    folder = real_data / "dl19"
    collection = load_beir(folder, "test", qrels=real_data / "trec_dl" / "qrels.dl19-passage.txt")
    runs = {}
    for name in ("bm25", "splade_pp_ed"):
        runs[name] = read_run(folder / "candidates" / f"{name}.trec", depth=20)
    study = first_stage_study(InputOrder(), collection, runs, depth=20)
    assert [stage.queries for stage in study] == [43, 43]
    before = [stage.before.mean("nDCG@10") for stage in study]
    # Table 4, rows 1 and 2.
    assert before == pytest.approx([0.5058, 0.7308], abs=0.001)
    assert [stage.after.mean("nDCG@10") for stage in study] == before
