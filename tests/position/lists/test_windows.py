"""Sliding windows: their edges, what they can and cannot bring to the front, many lists at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from read_back import orders
from small_rankers import RandomRanker, SmallRanker, numbers, shown

from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.windows import SlidingWindows, window_edges


@pytest.mark.parametrize(
    ("length", "size", "stride", "edges"),
    [
        (50, 20, 10, [(30, 50), (20, 40), (10, 30), (0, 20)]),
        (25, 20, 10, [(5, 25), (0, 15)]),
        (30, 20, 10, [(10, 30), (0, 20)]),
        (21, 20, 10, [(1, 21), (0, 11)]),
        (20, 20, 10, [(0, 20)]),
        (10, 20, 10, [(0, 10)]),
        (1, 20, 10, [(0, 1)]),
        (40, 20, 20, [(20, 40), (0, 20)]),
        (9, 4, 3, [(5, 9), (2, 6), (0, 3)]),
        (100, None, 10, [(0, 100)]),
    ],
)
def test_window_edges_by_hand(length, size, stride, edges):
    assert window_edges(length, size, stride) == edges


@pytest.mark.parametrize(("size", "stride"), [(20, 10), (20, 7), (5, 5), (3, 1)])
def test_windows_are_those_of_the_loop_that_rank_llm_runs(size: int, stride: int):
    # Its conditions: go on while the window has passages and is not a part of the one before, which
    # started at 0.
    for length in range(1, 60):
        start, end, expected = length - size, length, []
        while end > 0 and start != -stride:
            expected.append((max(start, 0), end))
            start, end = max(start, 0) - stride, end - stride
        if length == size - stride:  # which that loop leaves unranked
            expected = [(0, length)]
        assert window_edges(length, size, stride) == expected


def by_hand(values: list[float], size: int, stride: int) -> list[float]:
    """Windows over a list of numbers from its back, one after the other."""
    values, end = list(values), len(values)
    while True:
        start = max(0, end - size)
        values[start:end] = sorted(values[start:end], reverse=True)
        if start == 0:
            return values
        end -= stride


DIFFERENT_NUMBERS = st.lists(st.integers(0, 99), min_size=1, max_size=18, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(DIFFERENT_NUMBERS, min_size=1, max_size=4), st.integers(2, 6), st.data())
def test_lists_of_different_lengths_come_out_as_each_alone_by_hand(lists, size, data):
    stride = data.draw(st.integers(1, size))
    given_lists = [numbers(*values, query_id=f"q{n}") for n, values in enumerate(lists)]
    ranker = SmallRanker()
    rankings = SlidingWindows(ranker, size, stride).rank(given_lists)
    for values, passages, ranking in zip(lists, given_lists, rankings, strict=True):
        assert shown(passages, ranking) == [str(value) for value in by_hand(values, size, stride)]
        assert ranking.scores is None
        assert ranking.num_ranked is None
    # One call for each step, with every list that still has a window there.
    steps = np.array([len(window_edges(len(values), size, stride)) for values in lists])
    still_moving = [int((steps > step).sum()) for step in range(max(steps))]
    assert [len(call) for call in ranker.calls] == still_moving
    assert all(len(passages) <= size for passages in ranker.lists_asked)


def test_windows_of_an_oracle_bring_the_best_to_the_front_and_no_more_than_their_overlap():
    # 12 passages, the best four at the very back; windows of 4 by 2 carry two of them.
    passages = numbers(*range(12))
    ranked = shown(passages, SlidingWindows(SmallRanker(), 4, 2).rank([passages])[0])
    assert ranked[:2] == ["11", "10"]
    assert ranked[2] != "9"


def test_the_ids_and_query_of_a_window_are_those_of_its_passages():
    ranker = SmallRanker()
    SlidingWindows(ranker, 2, 1).rank([numbers(1, 2, 3, query_id="q7")])
    first, second = ranker.calls[0][0], ranker.calls[1][0]
    assert (first.ids, first.query_id) == (("d2", "d3"), "q7")
    assert second.passages == ("1", "3")  # 3 came out first of the window before


def test_a_large_or_open_window_is_the_ranker_itself():
    lists = [numbers(4, 9, 1), numbers(5, 3)]
    expected = orders(SmallRanker(slope=1.5).rank(lists))
    for size in (None, 20):
        ranker = SmallRanker(slope=1.5)
        assert orders(SlidingWindows(ranker, size).rank(lists)) == expected
        assert len(ranker.calls) == 1


def test_what_stays_unnamed_at_the_back_is_named_by_nobody():
    # Each answer names the best of its window. Window (1, 3) names 9, window (0, 2) names 9 again:
    # of the others, 5 stands behind because the first window left it out, 7 because the second did.
    ranking = SlidingWindows(SmallRanker(keeps=1), 2, 1).rank([numbers(7, 5, 9)])[0]
    assert ranking.order.tolist() == [2, 0, 1]
    assert ranking.num_ranked == 1
    # A passage that a window named stays named though unnamed ones stand before it.
    ranking = SlidingWindows(SmallRanker(keeps=1), 2, 2).rank([numbers(7, 5, 1, 9)])[0]
    assert ranking.order.tolist() == [0, 1, 3, 2]
    assert ranking.num_ranked == 3
    alone = SmallRanker(keeps=2).rank([numbers(7, 5, 9)])[0]
    one_window = SlidingWindows(SmallRanker(keeps=2), 5, 2).rank([numbers(7, 5, 9)])[0]
    assert (one_window.order.tolist(), one_window.num_ranked) == (alone.order.tolist(), 2)


def test_any_answers_give_a_permutation():
    lists = [PassageList("q", tuple("x" * (n + 1))) for n in range(30)]
    for ranking in SlidingWindows(RandomRanker(), 5, 3).rank(lists):
        assert isinstance(ranking, Ranking)
        assert np.array_equal(np.sort(ranking.order), np.arange(len(ranking.order)))


def test_no_list_is_no_call():
    ranker = SmallRanker()
    assert SlidingWindows(ranker).rank([]) == []
    assert ranker.calls == []


@pytest.mark.parametrize(
    ("size", "stride", "message"),
    [
        (20, 21, "stride=21 is more than size=20"),
        (20, 0, "stride=0"),
        (1, 1, "size=1"),
        (None, -1, "stride=-1"),
    ],
)
def test_windows_that_miss_passages_are_refused(size, stride, message):
    with pytest.raises(ValueError, match=message):
        SlidingWindows(SmallRanker(), size, stride)


def test_the_name_says_the_windows():
    assert SlidingWindows(SmallRanker(), 20, 10).name == "small windows 20/10"
    assert SlidingWindows(SmallRanker(), None).name == "small one window"
