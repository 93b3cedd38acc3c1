"""Rankings as places, Borda and reciprocal rank fusion by hand, and runs fused query by query."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.collection import Run
from backpack_rank.data.trec import ranking, read_run, write_run
from backpack_rank.position.aggregation.aggregate import Borda, ReciprocalRankFusion
from backpack_rank.position.aggregation.kemeny import Kemeny
from backpack_rank.position.aggregation.rankings import Rankings
from backpack_rank.position.aggregation.runs import fuse

SCORES = [
    {"a": 3.0, "b": 1.0, "c": 1.0},
    {"c": 9.0, "d": 8.0},
    {"b": 0.5, "a": 0.25, "c": -1.0, "d": -2.0},
]
"""Ranks: a 1, b and c 2.5; c 1, d 2; b 1, a 2, c 3, d 4."""


FIVE_PLACES = st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=5, max_size=5)


@settings(max_examples=50, deadline=None)
@given(st.lists(FIVE_PLACES, min_size=1, max_size=6))
def test_precedence_and_ranks_are_those_of_loops(profile: list[list[int | None]]) -> None:
    # As floats, None is NaN.
    rankings = Rankings(tuple("abcde"), np.array(profile, dtype=float))
    wins, ranks = rankings.precedence(), rankings.ranks()
    for i, j in itertools.product(range(5), repeat=2):
        before = 0
        for row in profile:
            if row[i] is not None and row[j] is not None and row[i] < row[j]:
                before += 1
        assert wins[i, j] == before
    for row, ranks_of_row in zip(profile, ranks.tolist(), strict=True):
        named_places = [place for place in row if place is not None]
        for place, rank in zip(row, ranks_of_row, strict=True):
            if place is None:
                assert math.isnan(rank)
            else:
                ahead = sum(other < place for other in named_places)
                assert rank == ahead + (named_places.count(place) + 1) / 2


def test_borda_is_the_mean_rank_over_the_rankings_that_name_an_item() -> None:
    aggregate = Borda().aggregate(Rankings.of_scores(SCORES))
    assert aggregate.scores == (-3 / 2, -3.5 / 2, -6.5 / 3, -6 / 2)
    # Against a, b, c, d: the second ranking has nothing, the third b before a.
    assert aggregate.order == ("a", "b", "c", "d")
    assert aggregate.cost == 1


def test_borda_with_absent_items_last_shares_their_ranks() -> None:
    aggregate = Borda("last").aggregate(Rankings.of_scores(SCORES))
    # a: 1, 3.5, 2; b: 2.5, 3.5, 1; c: 2.5, 1, 3; d: 4, 2, 4
    assert aggregate.order == ("a", "c", "b", "d")
    assert aggregate.scores == pytest.approx((-6.5 / 3, -6.5 / 3, -7 / 3, -10 / 3))


def test_equal_scores_keep_the_sequence_of_the_items() -> None:
    rankings = Rankings.of_orders([["x", "y"], ["y", "x"]], items=["y", "x", "never"])
    for method in (Borda(), ReciprocalRankFusion()):
        assert method.aggregate(rankings).order == ("y", "x", "never")
    assert Borda().aggregate(rankings).scores == (-1.5, -1.5, -4.0)


def test_reciprocal_rank_fusion_is_the_sum_of_reciprocal_ranks() -> None:
    aggregate = ReciprocalRankFusion().aggregate(Rankings.of_scores(SCORES))
    expected = {
        "c": 1 / 62.5 + 1 / 61 + 1 / 63,
        "a": 1 / 61 + 1 / 62,
        "b": 1 / 62.5 + 1 / 61,
        "d": 1 / 62 + 1 / 64,
    }
    assert aggregate.order == tuple(expected)
    assert aggregate.scores == pytest.approx(list(expected.values()), abs=1e-15)
    sharp = ReciprocalRankFusion(k=0).aggregate(Rankings.of_scores(SCORES))
    assert dict(zip(sharp.order, sharp.scores, strict=True))["d"] == 0.75


def test_reciprocal_ranks_in_another_sequence_of_rankings_sum_to_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(40).tolist() for _ in range(7)]
    forward = ReciprocalRankFusion().aggregate(Rankings.of_orders(orders, items=range(40)))
    backward = ReciprocalRankFusion().aggregate(Rankings.of_orders(orders[::-1], items=range(40)))
    assert forward == backward


def test_a_result_says_when_it_is_proven_optimal() -> None:
    agreeing = Rankings.of_orders([["a", "b", "c"], ["a", "b", "c"]])
    split = Rankings.of_orders([["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]])
    for method in (Borda(), ReciprocalRankFusion(), Kemeny()):
        assert method.aggregate(agreeing).optimal
        assert method.aggregate(agreeing).cost == 0
    assert Kemeny().aggregate(split).optimal
    assert (Borda().aggregate(split).optimal, Borda().aggregate(split).bound) == (False, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rankings.of_orders([]), "there is no ranking"),
        (lambda: Rankings.of_orders([[], []]), "there is no item"),
        (lambda: Rankings.of_orders([["a"], ["b", "a", "b"]]), "ranking 2 of 2 names 'b' twice"),
        (
            lambda: Rankings.of_orders([["a", "z"]], items=["a", "b"]),
            "ranking 1 of 1 names 'z', which is not among the items",
        ),
        (lambda: Rankings.of_orders([["a"]], items=["a", "b", "a"]), "the items name 'a' twice"),
        (lambda: Rankings.of_orders(["abc", "bca"]), "a sequence of items, not a text"),
        (
            lambda: Rankings.of_scores([{"a": 1.0}, {"b": math.nan}]),
            "ranking 2 of 2: the score of 'b' is nan",
        ),
        (lambda: Rankings(("a", "b"), np.zeros((1, 3))), "by 2 items, got"),
        (lambda: Borda("first"), "absent='first'"),  # type: ignore[arg-type]
        (lambda: ReciprocalRankFusion(k=-1), "k=-1 of reciprocal rank fusion"),
        (lambda: ReciprocalRankFusion(k=math.inf), "k=inf"),
    ],
)
def test_what_cannot_be_aggregated_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_rankings_without_an_item_count_for_nothing() -> None:
    with_empty = Rankings.of_orders([["a", "b", "c"], [], ["b", "a"]])
    without = Rankings.of_orders([["a", "b", "c"], ["b", "a"]])
    for absent in ("ignored", "last"):
        for method in (Borda(absent), Kemeny(absent)):
            assert method.aggregate(with_empty).order == method.aggregate(without).order


RUNS = [
    {"q1": {"d1": 3.0, "d2": 2.0, "d3": 1.0}, "q2": {"d9": 1.0}},
    {"q1": {"d2": 30.0, "d4": 20.0, "d1": 10.0}, "q3": {"d5": 2.0, "d4": 2.0}},
]


def three_random_runs() -> list[Run]:
    """Four queries of twelve documents each; scores have one decimal, so that some are equal."""
    rng = np.random.default_rng(1)
    runs = []
    for _ in range(3):
        run: Run = {}
        for query in range(4):
            scores = rng.random(12).round(1).tolist()
            run[f"q{query}"] = {f"d{number}": score for number, score in enumerate(scores)}
        runs.append(run)
    return runs


def test_runs_are_fused_query_by_query_to_a_depth() -> None:
    fused = fuse(RUNS, ReciprocalRankFusion(), depth=2)
    assert fused.run == {
        "q1": {"d2": 1 / 62 + 1 / 61, "d1": 1 / 61, "d4": 1 / 62},
        "q2": {"d9": 1 / 61},
        "q3": {"d4": 1 / 61.5, "d5": 1 / 61.5},
    }
    sizes = [(query.query_id, query.runs, query.documents) for query in fused.queries]
    assert sizes == [("q1", 2, 3), ("q2", 1, 1), ("q3", 1, 2)]
    assert set(fuse(RUNS, ReciprocalRankFusion()).run["q1"]) == {"d1", "d2", "d3", "d4"}
    with pytest.raises(ValueError, match="depth=0 must be at least 1"):
        fuse(RUNS, Borda(), depth=0)
    with pytest.raises(ValueError, match="there is no run"):
        fuse([], Borda())


@pytest.mark.parametrize(
    "method", [Kemeny("last"), Kemeny(), Borda("last"), ReciprocalRankFusion()]
)
def test_the_sequence_of_runs_and_writing_them_change_no_order(method, tmp_path) -> None:
    runs = three_random_runs()
    fused, fused_backward = fuse(runs, method, depth=8), fuse(runs[::-1], method, depth=8)
    assert fused.run == fused_backward.run
    for query, query_backward in zip(fused.queries, fused_backward.queries, strict=True):
        assert (query.cost, query.bound) == (query_backward.cost, query_backward.bound)
    write_run(tmp_path / "fused.run", fused.run, "fused")
    written = read_run(tmp_path / "fused.run")
    assert set(written) == set(fused.run)
    for query_id, scores in fused.run.items():
        assert ranking(written[query_id]) == list(scores)


def test_one_run_keeps_its_order() -> None:
    scores = {f"d{number}": float(-number) for number in range(30)}
    for method in (Kemeny(), Borda(), ReciprocalRankFusion()):
        assert list(fuse([{"q": scores}], method).run["q"]) == list(scores)


@pytest.mark.slow
def test_real_runs_fused_beat_each_run(real_data) -> None:
    """nDCG@10 of BM25, SPLADE++ and TAS-B is .506, .731, .721.

    The unions of the first 20 have up to 51 documents and are solved; those of the first 100 have
    122 to 278, whose larger components are left to local search.
    """
    ir_measures = pytest.importorskip("ir_measures")
    runs = []
    for name in ("bm25", "splade_pp_ed", "tasb"):
        runs.append(read_run(real_data / "dl19" / "candidates" / f"{name}.trec"))
    qrels = {}
    for line in (real_data / "trec_dl" / "qrels.dl19-passage.txt").read_text().splitlines():
        query_id, _, doc_id, relevance = line.split()
        if query_id in runs[0]:
            qrels.setdefault(query_id, {})[doc_id] = int(relevance)
    measure = ir_measures.parse_measure("nDCG@10")

    def ndcg(run) -> float:
        return ir_measures.calc_aggregate([measure], qrels, run)[measure]

    first_20 = fuse(runs, Kemeny("last", time_limit=100), depth=20)
    assert all(query.optimal for query in first_20.queries)
    assert ndcg(first_20.run) > max(map(ndcg, runs))

    first_100 = fuse(runs, Kemeny("last", time_limit=100), depth=100)
    assert max(query.documents for query in first_100.queries) > 200
    cost = sum(query.cost for query in first_100.queries)
    bound = sum(query.bound for query in first_100.queries)
    assert bound <= cost <= 1.01 * bound
    assert ndcg(first_100.run) > max(map(ndcg, runs))
    assert ndcg(fuse(runs, Borda("last"), depth=20).run) > max(map(ndcg, runs))
