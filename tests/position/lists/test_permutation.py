"""Permutation self-consistency: what it shuffles, what it makes of the answers, when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from in_process import configured
from small_rankers import RandomRanker, SmallRanker, numbers, shown

from backpack_rank.position.aggregation.aggregate import (
    Aggregate,
    Aggregator,
    Borda,
    ReciprocalRankFusion,
)
from backpack_rank.position.aggregation.kemeny import Kemeny
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import PermutationSelfConsistency
from backpack_rank.position.lists.windows import SlidingWindows

CONF = Path(__file__).resolve().parents[3] / "conf"
METHODS = [Kemeny(), Borda(), ReciprocalRankFusion()]


def answers_of(ranker: SmallRanker, passages: PassageList) -> list[list[str]]:
    """What a ranker answered to the shuffles of a list, as ids, best first."""
    answers = []
    for call in ranker.calls:
        for shuffle in call:
            if set(shuffle.ids) == set(passages.ids):
                named = ranker._rank_list(shuffle).ranked
                answers.append([shuffle.ids[place] for place in named])
    return answers


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_oracle_stays_right_and_the_input_order_no_longer_matters(method: Aggregator):
    passages = numbers(3, 8, 1, 9, 5)
    ranking = PermutationSelfConsistency(SmallRanker(), 5, method).rank([passages])[0]
    assert shown(passages, ranking) == ["9", "8", "5", "3", "1"]
    assert ranking.num_ranked is None


def test_position_bias_that_hides_the_best_passage_is_averaged_out():
    # At the last of 8 positions 100 loses 8.4 > 100 - 92 and comes out behind the passage at the
    # first one.
    passages = numbers(92, *range(1, 7), 100)
    biased = SmallRanker(slope=1.2)
    (single,) = biased.rank([passages])
    (aggregate,) = PermutationSelfConsistency(biased, 20).rank([passages])
    assert shown(passages, single)[0] == "92"
    assert shown(passages, aggregate)[:2] == ["100", "92"]


def test_the_result_is_the_order_closest_to_the_answers_by_brute_force():
    passages = numbers(1, 2, 3, 4, 5)
    ranker = SmallRanker(slope=1.1)
    (aggregate,) = PermutationSelfConsistency(ranker, 7, seed=3).rank([passages])
    answers = answers_of(ranker, passages)
    assert len(set(map(tuple, answers))) > 3

    def cost(order: Sequence[str]) -> int:
        """Pairs in which an answer contradicts the order, over all answers."""
        contradictions = 0
        for answer in answers:
            for better, worse in combinations(order, 2):
                contradictions += answer.index(better) > answer.index(worse)
        return contradictions

    least = min(map(cost, permutations(passages.ids)))
    assert cost([passages.ids[place] for place in aggregate.order]) == least
    assert max(map(cost, answers)) > least


def test_borda_of_partial_answers_is_the_mean_rank_of_those_that_name_a_passage():
    passages = numbers(1, 2, 3, 4, 5, 6)
    ranker = SmallRanker(slope=2.0, keeps=3)
    wrapper = PermutationSelfConsistency(ranker, 9, Borda("ignored"), seed=1)
    (aggregate,) = wrapper.rank([passages])
    answers = answers_of(ranker, passages)
    mean_ranks = []
    for doc_id in passages.ids:
        ranks = [answer.index(doc_id) + 1 for answer in answers if doc_id in answer]
        # A passage that no answer names comes behind all six.
        mean_ranks.append(np.mean(ranks) if ranks else 7.0)
    assert aggregate.scores is not None
    assert aggregate.scores == pytest.approx(-np.array(mean_ranks))
    assert aggregate.order.tolist() == np.argsort(mean_ranks, kind="stable").tolist()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_passages_that_no_answer_names_stand_last_in_input_order_as_left_out(method: Aggregator):
    passages = numbers(3, 8, 1, 9, 5)
    ranking = PermutationSelfConsistency(SmallRanker(keeps=2), 6, method).rank([passages])[0]
    assert ranking.order.tolist() == [3, 1, 0, 2, 4]
    assert ranking.num_ranked == 2
    assert ranking.scores is not None
    assert (np.diff(ranking.scores[ranking.order]) <= 0).all()


def test_answers_that_name_nothing_leave_the_input_order():
    ranking = PermutationSelfConsistency(SmallRanker(keeps=0), 4).rank([numbers(3, 8, 1)])[0]
    assert ranking.order.tolist() == [0, 1, 2]
    assert ranking.num_ranked == 0


def test_one_call_has_all_permutations_of_all_lists():
    ranker = SmallRanker()
    wrapper = PermutationSelfConsistency(ranker, 6)
    wrapper.rank([numbers(1, 2, 3, 4), numbers(5, 6, 7, query_id="r")])
    (call,) = ranker.calls
    assert [shuffle.query_id for shuffle in call] == ["q"] * 6 + ["r"] * 6
    assert len({shuffle.passages for shuffle in call[:6]}) > 3
    assert (wrapper.aggregated, wrapper.ranked, wrapper.not_optimal) == (2, 12, 0)
    assert wrapper.usage.lists == 12


def test_shuffles_depend_on_the_list_and_the_seed_alone():
    first, second = numbers(1, 2, 3, 4, 5), numbers(9, 8, 7, 6, query_id="r")

    def orders(lists, seed=0, permutations=4):
        """The shuffles that the ranker was shown, by query."""
        ranker = SmallRanker()
        PermutationSelfConsistency(ranker, permutations, seed=seed).rank(lists)
        shuffles: dict[str, list[tuple[str, ...]]] = {"q": [], "r": []}
        for shuffle in ranker.calls[0]:
            shuffles[shuffle.query_id].append(shuffle.passages)
        return shuffles

    together = orders([first, second])
    assert orders([second, first]) == together
    assert orders([first])["q"] == together["q"]
    assert orders([first], permutations=9)["q"][:4] == together["q"]
    assert orders([first], seed=1)["q"] != together["q"]
    other_query = PassageList("another question", first.passages, first.ids, "q")
    assert orders([other_query])["q"] != together["q"]
    # Without ids the texts of the passages decide.
    of_first = orders([PassageList("q", first.passages, query_id="q")])["q"]
    of_second = orders([PassageList("q", second.passages, query_id="q")])["q"]
    places_of_first = [passages.index("1") for passages in of_first]
    places_of_second = [passages.index("9") for passages in of_second]
    assert places_of_first != places_of_second


def test_shuffles_are_uniform():
    ranker = SmallRanker()
    PermutationSelfConsistency(ranker, 6000).rank([numbers(1, 2, 3)])
    counts = dict.fromkeys(permutations("123"), 0)
    for shuffle in ranker.calls[0]:
        counts[shuffle.passages] += 1
    assert len(counts) == 6
    # Four standard deviations of a binomial count.
    deviation = np.sqrt(6000 * (1 / 6) * (5 / 6))
    assert max(abs(count - 1000) for count in counts.values()) < 4 * deviation


def test_the_original_order_can_be_the_first_of_them():
    ranker = SmallRanker()
    passages = numbers(4, 1, 3, 2, 5)
    PermutationSelfConsistency(ranker, 3, include_original=True).rank([passages])
    assert ranker.calls[0][0] == passages
    assert len(ranker.calls[0]) == 3
    shuffled_only = SmallRanker()
    PermutationSelfConsistency(shuffled_only, 2).rank([passages])
    assert ranker.calls[0][1:] == shuffled_only.calls[0]


def test_a_list_of_one_passage_is_ranked_once():
    for patience in (None, 2):
        ranker = SmallRanker()
        rankings = PermutationSelfConsistency(ranker, 20, patience=patience).rank([numbers(7)])
        assert rankings[0].order.tolist() == [0]
        assert sum(map(len, ranker.calls)) == 1


def test_a_list_stops_when_its_aggregate_does_not_change_and_others_go_on():
    steady, shaky = numbers(1, 2, 3, 4), numbers(*np.linspace(0, 0.9, 12), query_id="shaky")
    ranker = SmallRanker(slope=0.3)
    wrapper = PermutationSelfConsistency(ranker, 40, patience=2, round_size=4)
    of_steady, of_shaky = wrapper.rank([steady, shaky])
    rounds = [[shuffle.query_id for shuffle in call] for call in ranker.calls]
    # Numbers 1 apart hide no more than neighbours: the first round's order stays, so three rounds
    # are enough.
    assert [call.count("q") for call in rounds[:4]] == [4, 4, 4, 0]
    assert shown(steady, of_steady) == ["4", "3", "2", "1"]
    assert len(rounds) > 3
    assert wrapper.ranked == sum(map(len, rounds)) < 80
    # What a list stops with is what as many permutations in one call give.
    drawn = sum(call.count("shaky") for call in rounds)
    (in_one_call,) = PermutationSelfConsistency(SmallRanker(slope=0.3), drawn).rank([shaky])
    assert of_shaky.order.tolist() == in_one_call.order.tolist()


def test_patience_is_counted_in_rounds_in_a_row():
    passages = numbers(*np.linspace(0, 1, 8))
    for patience in (1, 2, 3):
        ranker = SmallRanker(slope=0.2)
        PermutationSelfConsistency(ranker, 60, patience=patience, round_size=2).rank([passages])
        # The aggregate after each round: that of as many permutations at once.
        orders = []
        for rounds in range(1, len(ranker.calls) + 1):
            wrapper = PermutationSelfConsistency(SmallRanker(slope=0.2), 2 * rounds)
            (aggregate,) = wrapper.rank([passages])
            orders.append(aggregate.order.tolist())
        unchanged = [before == after for before, after in pairwise(orders)]
        assert all(unchanged[-patience:])
        # No earlier rounds in a row were unchanged, or it would have stopped there.
        for start in range(len(unchanged) - patience):
            assert not all(unchanged[start : start + patience])


def test_only_the_front_can_be_watched():
    passages = numbers(100, *np.linspace(0, 1, 14))
    watched_in_full, watched_at_front = SmallRanker(slope=0.4), SmallRanker(slope=0.4)
    options = {"permutations": 40, "patience": 2, "round_size": 2}
    PermutationSelfConsistency(watched_in_full, **options).rank([passages])
    PermutationSelfConsistency(watched_at_front, **options, stable=1).rank([passages])
    assert len(watched_at_front.calls) == 3
    assert len(watched_in_full.calls) > 3


def test_the_last_round_takes_what_is_left():
    ranker = RandomRanker()
    PermutationSelfConsistency(ranker, 7, patience=5, round_size=3).rank([numbers(*range(9))])
    assert [len(call) for call in ranker.calls] == [3, 3, 1]


class Unproven(Borda):
    exact = True

    def aggregate(self, rankings):
        borda = super().aggregate(rankings)
        return Aggregate(borda.order, borda.scores, cost=borda.bound + 1, bound=borda.bound)


def test_results_without_proof_are_counted():
    wrapper = PermutationSelfConsistency(SmallRanker(), 3, Unproven())
    wrapper.rank([numbers(1, 2, 3), numbers(3, 1, query_id="r")])
    wrapper.rank([numbers(1, 2)])
    assert (wrapper.not_optimal, wrapper.aggregated) == (3, 3)
    plain = PermutationSelfConsistency(SmallRanker(slope=0.5), 3, Borda())
    plain.rank([numbers(*range(9))])
    assert plain.not_optimal == 0  # Borda does not look for the least cost


def test_it_composes_with_windows_both_ways():
    passages = numbers(*range(12))
    shuffles_of_windows = SmallRanker(slope=0.7)
    permuted = PermutationSelfConsistency(shuffles_of_windows, 5)
    (ranking,) = SlidingWindows(permuted, 4, 2).rank([passages])
    assert [len(call) for call in shuffles_of_windows.calls] == [5] * 5
    for call in shuffles_of_windows.calls:
        assert {len(window) for window in call} == {4}
    assert shown(passages, ranking)[:2] == ["11", "10"]

    windows_of_shuffles = SmallRanker(slope=0.7)
    wrapper = PermutationSelfConsistency(SlidingWindows(windows_of_shuffles, 4, 2), 5)
    (ranking,) = wrapper.rank([passages])
    assert [len(call) for call in windows_of_shuffles.calls] == [5] * 5
    assert isinstance(ranking, Ranking)
    assert wrapper.name == "small windows 4/2 PSC 5 kemeny"


@pytest.mark.parametrize(
    ("name", "method"), [("kemeny", Kemeny), ("borda", Borda), ("rrf", ReciprocalRankFusion)]
)
def test_the_configuration_makes_one_around_a_ranker(name: str, method: type[Aggregator]):
    chosen = ["permutation=psc", f"permutation/aggregator={name}", "permutation.patience=2"]
    inside = SmallRanker()
    wrapper = instantiate(configured("evaluate", *chosen).permutation)(inside)
    assert isinstance(wrapper, PermutationSelfConsistency)
    assert wrapper.ranker is inside
    assert isinstance(wrapper.aggregator, method)
    # What an answer leaves out says nothing about it, as in the paper.
    assert getattr(wrapper.aggregator, "absent", "ignored") == "ignored"
    assert (wrapper.permutations, wrapper.patience, wrapper.round_size) == (20, 2, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutations": 0}, "permutations=0"),
        ({"patience": 0}, "patience=0"),
        ({"patience": 1, "round_size": 20}, "round_size=20"),
        ({"round_size": 0}, "round_size=0"),
        ({"stable": 10}, "set patience too"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PermutationSelfConsistency(SmallRanker(), **options)
