"""Pairwise ranking: bubble sort and win counts done slowly by hand, what is asked, how it composes."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_rankers import RandomRanker, SmallRanker, numbers, shown

from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.pairwise import AllPairs, PairwiseRanker, SlidingPairs
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import PermutationSelfConsistency
from backpack_rank.position.lists.windows import SlidingWindows

Answers = dict[tuple[int, int], int | None]
"""What is named first, by the two passages in the order in which they are shown; None: no answer.
"""


class TableRanker(SmallRanker):
    """Answers about two passages as a table says, which may depend on the order in which they are
    shown.
    """

    def __init__(self, tables: dict[str, Answers]) -> None:
        super().__init__()
        self.tables = tables

    def _rank_list(self, passages: PassageList) -> Ranking:
        first, second = (int(text) for text in passages.passages)
        answer = self.tables[passages.query_id][first, second]
        if answer is None:
            return Ranking(np.array([0, 1]), num_ranked=0)
        order = [0, 1] if answer == first else [1, 0]
        # Some answers name only the passage that they prefer.
        return Ranking(np.array(order), num_ranked=1 + (first + second) % 2)


def winner(answers: Answers, first: int, second: int) -> int | None:
    """The passage that comes first in both orders."""
    forth, back = answers[first, second], answers[second, first]
    return forth if forth == back else None


def bubbled(answers: Answers, size: int, passes: int) -> tuple[list[int], set[frozenset[int]]]:
    """One pass after the other, one comparison after the other; and which pairs were compared."""
    order, asked = list(range(size)), set()
    for settled in range(passes):
        place = size - 1
        while place > settled:
            above, below = order[place - 1], order[place]
            asked.add(frozenset((above, below)))
            if winner(answers, above, below) == below:
                order[place - 1], order[place] = below, above
            place -= 1
    return order, asked


def points_of(answers: Answers, size: int) -> list[float]:
    """Wins and halves of ties of each passage, against every other."""
    points = [0.0] * size
    for passage, other in permutations(range(size), 2):
        preferred = winner(answers, passage, other)
        if preferred == passage:
            points[passage] += 1.0
        elif preferred is None:
            points[passage] += 0.5
    return points


def named_of(order: list[int], answers: Answers, asked: set[frozenset[int]]) -> int | None:
    """Length of the order up to the last passage that had an answer."""
    answered = set()
    for first, second in map(sorted, asked):
        if answers[first, second] is not None or answers[second, first] is not None:
            answered |= {first, second}
    length = 0
    for place, passage in enumerate(order):
        if passage in answered:
            length = place + 1
    return None if length == len(order) else length


@st.composite
def tables(draw: st.DrawFn) -> dict[str, tuple[int, Answers]]:
    """For some queries a number of passages and an answer to every pair in both orders, consistent
    or not.
    """
    tables_by_query = {}
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 7))
        # By their share of no answers, lists differ in how much of them is left out.
        silent = draw(st.sampled_from([0, 1, 4]))
        answers: Answers = {}
        for pair in permutations(range(size), 2):
            answers[pair] = draw(st.sampled_from([*pair, *pair, *[None] * silent]))
        tables_by_query[f"q{number}"] = (size, answers)
    return tables_by_query


def lists_of(drawn: dict[str, tuple[int, Answers]]) -> tuple[TableRanker, list[PassageList]]:
    ranker = TableRanker({query: answers for query, (_, answers) in drawn.items()})
    return ranker, [numbers(*range(size), query_id=query) for query, (size, _) in drawn.items()]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(1, 8))
def test_sliding_is_a_bubble_sort_of_each_list_alone(drawn, passes):
    ranker, lists = lists_of(drawn)
    wrapper = SlidingPairs(ranker, passes)
    rankings = wrapper.rank(lists)
    compared = tied = 0
    for (size, answers), ranking in zip(drawn.values(), rankings, strict=True):
        order, asked = bubbled(answers, size, passes)
        assert ranking.order.tolist() == order
        assert ranking.scores is None
        assert ranking.num_ranked == (None if size == 1 else named_of(order, answers, asked))
        compared += len(asked)
        tied += sum(winner(answers, *pair) is None for pair in asked)
    assert (wrapper.compared, wrapper.tied) == (compared, tied)
    assert wrapper.usage.lists == 2 * compared
    assert all(len(pair) == 2 for pair in ranker.lists_asked)
    assert all(len(call) > 0 for call in ranker.calls)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(tables())
def test_all_pairs_count_wins_and_halves_of_ties(drawn):
    ranker, lists = lists_of(drawn)
    wrapper = AllPairs(ranker)
    rankings = wrapper.rank(lists)
    for (size, answers), ranking in zip(drawn.values(), rankings, strict=True):
        points = points_of(answers, size)
        assert ranking.scores is not None
        assert ranking.scores.tolist() == points
        assert ranking.order.tolist() == sorted(
            range(size), key=lambda passage: (-points[passage], passage)
        )
        asked = set(map(frozenset, combinations(range(size), 2)))
        # Of one passage there is nothing to ask, and so nothing is left out.
        expected = None if size == 1 else named_of(ranking.order.tolist(), answers, asked)
        assert ranking.num_ranked == expected
    pairs = sum(size * (size - 1) // 2 for size, _ in drawn.values())
    assert wrapper.compared == pairs
    assert wrapper.usage.lists == 2 * pairs
    assert len(ranker.calls) == (1 if pairs else 0)


def test_three_passages_are_ranked_as_by_hand():
    # 0 beats 1 and 1 beats 2 whatever comes first; of 0 and 2 the one that is shown first is
    # preferred.
    answers: Answers = {(0, 1): 0, (1, 0): 0, (1, 2): 1, (2, 1): 1, (0, 2): 0, (2, 0): 2}
    passages = PassageList("which", ("2", "1", "0"), query_id="q")
    ranker = TableRanker({"q": answers})
    # From the back: 0 passes 1; 2 and 0 are tied and stay. Then 1 stays behind 0, and 2 is at the
    # front for good.
    assert shown(passages, SlidingPairs(ranker, 1).rank([passages])[0]) == ["2", "0", "1"]
    ranking = AllPairs(ranker).rank([passages])[0]
    assert ranking.scores.tolist() == [0.5, 1.0, 1.5]
    assert shown(passages, ranking) == ["0", "1", "2"]


def test_passes_settle_as_many_places_at_the_front_and_no_more():
    passages = numbers(*np.random.default_rng(3).permutation(30))
    largest_first = [str(number) for number in range(29, -1, -1)]

    def ranked(passes: int) -> list[str]:
        return shown(passages, SlidingPairs(SmallRanker(), passes).rank([passages])[0])

    for passes in (1, 4, 10):
        assert ranked(passes)[:passes] == largest_first[:passes]
        assert ranked(passes) != largest_first
    assert ranked(29) == largest_first


@pytest.mark.parametrize(
    ("size", "passes", "calls"), [(10, 1, 9), (10, 10, 17), (100, 10, 108), (2, 10, 1), (1, 10, 0)]
)
def test_passes_follow_one_another_closely(size, passes, calls):
    ranker = SmallRanker()
    wrapper = SlidingPairs(ranker, passes)
    wrapper.rank([numbers(*range(size))])
    # Rising numbers: every comparison is of a new pair, so nothing comes from memory.
    most = min(passes, size - 1)
    assert wrapper.compared == sum(size - 1 - number for number in range(most))
    assert len(ranker.calls) == calls


def test_a_ranker_that_prefers_a_place_leaves_the_order_and_a_pair_is_asked_once():
    ranker = SmallRanker(slope=100)  # the first of two, whatever they are
    passages = numbers(3, 8, 1, 9, 5)
    wrapper = SlidingPairs(ranker, 4)
    ranking = wrapper.rank([passages])[0]
    assert ranking.order.tolist() == [0, 1, 2, 3, 4]
    # Every pass compares the same neighbours again.
    assert (wrapper.compared, wrapper.tied, wrapper.usage.lists) == (4, 4, 8)
    neighbours = list(pairwise("38195"))
    in_both_orders = [*neighbours, *((back, front) for front, back in neighbours)]
    assert sorted(pair.passages for pair in ranker.lists_asked) == sorted(in_both_orders)
    everything = AllPairs(ranker).rank([passages])[0]
    assert everything.scores.tolist() == [2.0] * 5
    assert everything.order.tolist() == [0, 1, 2, 3, 4]


def test_the_step_of_all_lists_is_one_call_of_the_ranker():
    ranker = SmallRanker()
    lists = [numbers(1, 2, 3, query_id="a"), numbers(4, 5, query_id="b"), numbers(6, query_id="c")]
    SlidingPairs(ranker, 1).rank(lists)
    first_call, second_call = ranker.calls
    assert [pair.query_id for pair in first_call] == ["a", "a", "b", "b"]
    assert [pair.query_id for pair in second_call] == ["a", "a"]
    assert ranker.calls[0][0].ids == ("d2", "d3")


def test_calls_are_of_limited_size(monkeypatch):
    monkeypatch.setattr("backpack_rank.position.lists.pairwise._PAIRS_PER_CALL", 4)
    ranker = SmallRanker()
    passages = numbers(3, 8, 1, 9, 5)
    assert shown(passages, AllPairs(ranker).rank([passages])[0]) == ["9", "8", "5", "3", "1"]
    assert [len(call) for call in ranker.calls] == [8, 8, 4]


@pytest.mark.parametrize("make", [AllPairs, SlidingPairs])
def test_no_answer_at_all_leaves_the_input_order_as_left_out(make):
    rankings = make(SmallRanker(keeps=0)).rank([numbers(3, 8, 1), numbers(2)])
    assert [ranking.order.tolist() for ranking in rankings] == [[0, 1, 2], [0]]
    assert [ranking.num_ranked for ranking in rankings] == [0, None]
    assert make(SmallRanker()).rank([]) == []


@pytest.mark.parametrize("make", [AllPairs, SlidingPairs])
def test_it_stands_inside_of_windows_and_permutations(make):
    passages = numbers(4, 9, 2, 7, 1, 8)
    ranker = SmallRanker()
    inner = make(ranker)
    outer = SlidingWindows(PermutationSelfConsistency(inner, 2), 4, 2)
    # Windows of 4 by 2: the best two of 2 7 1 8 meet 4 and 9.
    assert shown(passages, outer.rank([passages])[0]) == ["9", "8", "7", "4", "2", "1"]
    assert outer.name == f"small {inner.label} PSC 2 kemeny windows 4/2"
    # Two windows of 6 pairs, two shuffles of each.
    assert inner.compared == (24 if make is AllPairs else outer.usage.lists // 2)
    assert outer.usage.lists == 2 * inner.compared


def test_random_answers_still_give_rankings_and_the_counts_add_up():
    inner = AllPairs(RandomRanker(1))
    lists = [numbers(*range(9), query_id=f"q{number}") for number in range(20)]
    rankings = inner.rank(lists)
    assert inner.compared == 20 * 36
    # Both orders agree by chance in half of the comparisons.
    assert abs(inner.tied - 360) < 4 * np.sqrt(720 / 4)
    assert all(ranking.scores.sum() == 36 for ranking in rankings)
    inner.rank(lists[:1])
    assert inner.compared == 21 * 36


def test_labels_say_the_way_of_ranking_and_no_pass_is_refused():
    assert SlidingPairs(SmallRanker()).name == "small PRP sliding 10"
    assert AllPairs(SmallRanker()).name == "small PRP all pairs"
    assert issubclass(SlidingPairs, PairwiseRanker)
    assert issubclass(AllPairs, PairwiseRanker)
    with pytest.raises(
        ValueError, match=r"pairwise\.passes=0 must be a whole number of at least 1"
    ):
        SlidingPairs(SmallRanker(), 0)
