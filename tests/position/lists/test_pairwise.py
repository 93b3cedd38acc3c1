"""Pairwise ranking: bubble sort and win counts done slowly by hand, what is asked, how it composes."""

from __future__ import annotations

from itertools import combinations, permutations

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

    def _one(self, passages: PassageList) -> Ranking:
        first, second = (int(text) for text in passages.passages)
        answer = self.tables[passages.query_id][first, second]
        if answer is None:
            return Ranking(np.array([0, 1]), num_ranked=0)
        return Ranking(
            np.array([0, 1] if answer == first else [1, 0]), num_ranked=1 + (first + second) % 2
        )


def winner(answers: Answers, one: int, other: int) -> int | None:
    """The passage that comes first in both orders."""
    forth, back = answers[one, other], answers[other, one]
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
    found = []
    for one in range(size):
        results = [winner(answers, one, other) for other in range(size) if other != one]
        found.append(sum(1.0 if w == one else 0.5 if w is None else 0.0 for w in results))
    return found


def named_of(order: list[int], answers: Answers, asked: set[frozenset[int]]) -> int | None:
    """Length of the order up to the last passage that had an answer."""
    answered = set()
    for one, other in map(sorted, asked):
        if answers[one, other] is not None or answers[other, one] is not None:
            answered |= {one, other}
    length = max(
        (place + 1 for place, passage in enumerate(order) if passage in answered), default=0
    )
    return None if length == len(order) else length


@st.composite
def tables(draw: st.DrawFn) -> dict[str, tuple[int, Answers]]:
    """For some queries a number of passages and an answer to every pair in both orders, consistent
    or not.
    """
    found = {}
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 7))
        # By their share of no answers, lists differ in how much of them is left out.
        silent = draw(st.sampled_from([0, 1, 4]))
        answers = {
            pair: draw(st.sampled_from([*pair, *pair, *[None] * silent]))
            for pair in permutations(range(size), 2)
        }
        found[f"q{number}"] = (size, answers)
    return found


def lists_of(drawn: dict[str, tuple[int, Answers]]) -> tuple[TableRanker, list[PassageList]]:
    ranker = TableRanker({query: answers for query, (_, answers) in drawn.items()})
    return ranker, [numbers(*range(size), query_id=query) for query, (size, _) in drawn.items()]


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
    assert all(len(one) == 2 for call in ranker.calls for one in call)
    assert all(call for call in ranker.calls)


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
        assert ranking.order.tolist() == sorted(range(size), key=lambda one: (-points[one], one))
        asked = {frozenset(pair) for pair in combinations(range(size), 2)}
        assert ranking.num_ranked == (
            None if size == 1 else named_of(ranking.order.tolist(), answers, asked)
        )
    pairs = sum(size * (size - 1) // 2 for size, _ in drawn.values())
    assert wrapper.compared == pairs
    assert wrapper.usage.lists == 2 * pairs
    assert len(ranker.calls) == (1 if pairs else 0)


def test_by_hand():
    # 0 beats 1 and 1 beats 2 whatever comes first; of 0 and 2 the one that is shown first is
    # preferred.
    answers: Answers = {(0, 1): 0, (1, 0): 0, (1, 2): 1, (2, 1): 1, (0, 2): 0, (2, 0): 2}
    passages = PassageList("which", ("2", "1", "0"), query_id="q")
    ranker = TableRanker({"q": answers})
    # From the back: 0 passes 1; 2 and 0 are tied and stay. Then 1 stays behind 0, and 2 is at the
    # front for good.
    assert shown(passages, SlidingPairs(ranker, 1).rank([passages])[0]) == ["2", "0", "1"]
    found = AllPairs(ranker).rank([passages])[0]
    assert found.scores.tolist() == [0.5, 1.0, 1.5]
    assert shown(passages, found) == ["0", "1", "2"]


def test_passes_settle_as_many_places_at_the_front_and_no_more():
    values = list(np.random.default_rng(3).permutation(30))
    passages, ordered = numbers(*values), sorted(values, reverse=True)
    for passes in (1, 4, 10):
        found = [
            int(text)
            for text in shown(passages, SlidingPairs(SmallRanker(), passes).rank([passages])[0])
        ]
        assert found[:passes] == ordered[:passes]
        assert found != ordered
    assert [
        int(text) for text in shown(passages, SlidingPairs(SmallRanker(), 29).rank([passages])[0])
    ] == ordered


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
    found = wrapper.rank([passages])[0]
    assert found.order.tolist() == [0, 1, 2, 3, 4]
    # Every pass compares the same neighbours again.
    assert (wrapper.compared, wrapper.tied, wrapper.usage.lists) == (4, 4, 8)
    asked = [one.passages for call in ranker.calls for one in call]
    assert sorted(asked) == sorted(
        [*zip("3819", "8195", strict=True), *zip("8195", "3819", strict=True)]
    )
    everything = AllPairs(ranker).rank([passages])[0]
    assert everything.scores.tolist() == [2.0] * 5
    assert everything.order.tolist() == [0, 1, 2, 3, 4]


def test_the_step_of_all_lists_is_one_call_of_the_ranker():
    ranker = SmallRanker()
    lists = [numbers(1, 2, 3, query_id="a"), numbers(4, 5, query_id="b"), numbers(6, query_id="c")]
    SlidingPairs(ranker, 1).rank(lists)
    assert [[one.query_id for one in call] for call in ranker.calls] == [
        ["a", "a", "b", "b"],
        ["a", "a"],
    ]
    assert ranker.calls[0][0].ids == ("d2", "d3")


def test_calls_are_of_limited_size(monkeypatch):
    monkeypatch.setattr("backpack_rank.position.lists.pairwise._PAIRS_PER_CALL", 4)
    ranker = SmallRanker()
    passages = numbers(3, 8, 1, 9, 5)
    assert shown(passages, AllPairs(ranker).rank([passages])[0]) == ["9", "8", "5", "3", "1"]
    assert [len(call) for call in ranker.calls] == [8, 8, 4]


@pytest.mark.parametrize("make", [AllPairs, SlidingPairs])
def test_no_answer_at_all_leaves_the_input_order_as_left_out(make):
    found = make(SmallRanker(keeps=0)).rank([numbers(3, 8, 1), numbers(2)])
    assert [one.order.tolist() for one in found] == [[0, 1, 2], [0]]
    assert [one.num_ranked for one in found] == [0, None]
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
    found = inner.rank(lists)
    assert inner.compared == 20 * 36
    # Both orders agree by chance in half of the comparisons.
    assert abs(inner.tied - 360) < 4 * np.sqrt(720 / 4)
    assert all(ranking.scores.sum() == 36 for ranking in found)
    inner.rank(lists[:1])
    assert inner.compared == 21 * 36


def test_labels_and_mistakes():
    assert SlidingPairs(SmallRanker()).name == "small PRP sliding 10"
    assert AllPairs(SmallRanker()).name == "small PRP all pairs"
    assert issubclass(SlidingPairs, PairwiseRanker)
    assert issubclass(AllPairs, PairwiseRanker)
    with pytest.raises(
        ValueError, match=r"pairwise\.passes=0 must be a whole number of at least 1"
    ):
        SlidingPairs(SmallRanker(), 0)
