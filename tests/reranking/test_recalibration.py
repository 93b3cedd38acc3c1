"""Recalibrated scores against hand-worked values and an obvious version with the statistics module."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.trec import ranking
from backpack_rank.reranking.recalibration import deltas, recalibrate, standardised

numbers = st.integers(-50, 50).map(lambda value: value / 8)
lists = st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(numbers, numbers), min_size=1)


def slow_z(values: list[float]) -> list[float]:
    spread = statistics.pstdev(values)
    return [0.0 if spread == 0 else (value - statistics.mean(values)) / spread for value in values]


def test_deltas_are_after_minus_before():
    before = {"q1": {"a": 1.0, "b": 2.0}, "q2": {"a": 0.0}}
    after = {"q1": {"b": 1.5, "a": 1.25}, "q2": {"a": -1.0}}
    assert deltas(before, after) == {"q1": {"a": 0.25, "b": -0.5}, "q2": {"a": -1.0}}


def test_recalibrated_scores_worked_by_hand():
    # Scores 1, 2, 3: mean 2, variance 2/3. Changes 0, 0, 3: mean 1, variance 2.
    recalibrated = recalibrate(
        {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": 0.0, "b": 0.0, "c": 3.0}}, 0.5
    )
    half = math.sqrt(1.5)
    expected = {
        "a": half - 0.5 / math.sqrt(2),
        "b": -0.5 / math.sqrt(2),
        "c": -half + 0.5 * 2 / math.sqrt(2),
    }
    assert recalibrated["q"] == pytest.approx(expected)
    assert ranking(recalibrated["q"]) == ["a", "b", "c"]


def test_a_large_weight_ranks_by_the_changes_alone():
    recalibrated = recalibrate(
        {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": -1.0, "b": 0.5, "c": 0.0}}, 100
    )
    assert ranking(recalibrated["q"]) == ["b", "c", "a"]


def test_the_lists_of_two_queries_are_standardised_apart():
    run = {"q1": {"a": 1.0, "b": 0.0}, "q2": {"a": 1000.0, "b": 500.0}}
    recalibrated = recalibrate(run, {"q1": {"a": 0.0, "b": 0.0}, "q2": {"a": 0.0, "b": 0.0}}, 1)
    assert recalibrated["q1"] == pytest.approx({"a": 1.0, "b": -1.0})
    assert recalibrated["q2"] == pytest.approx({"a": 1.0, "b": -1.0})


@pytest.mark.parametrize("values", [[0.1] * 3, [0.1] * 10, [1e300] * 7, [-2.5], [0.0, 0.0]])
def test_equal_values_have_z_exactly_zero(values):
    assert standardised(np.array(values)).tolist() == [0.0] * len(values)


@pytest.mark.parametrize(
    "values", [[0.0, 5e-324], [1e308, -1e308], [1e16, 1e16 + 2], [1.0, 1.0 + 2**-52]]
)
def test_two_different_values_have_z_of_one_and_minus_one(values):
    assert sorted(standardised(np.array(values))) == pytest.approx([-1.0, 1.0])


def test_lists_of_one_document_get_zero_and_empty_lists_stay_empty():
    assert recalibrate({"q": {"a": 7.0}, "none": {}}, {"q": {"a": -3.0}}, 2.0) == {
        "q": {"a": 0.0},
        "none": {},
    }


def test_changes_of_documents_that_the_run_does_not_have_play_no_part():
    run = {"q": {"a": 3.0, "b": 1.0}}
    wide = {"q": {"a": 1.0, "b": 2.0, "far": 500.0}, "other": {"x": 1.0}}
    assert recalibrate(run, wide, 1.0) == recalibrate(run, {"q": {"a": 1.0, "b": 2.0}}, 1.0)


@given(lists, st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_equal_to_the_obvious_version(scores, weight):
    run = {"q": {doc_id: pair[0] for doc_id, pair in scores.items()}}
    change = {"q": {doc_id: pair[1] for doc_id, pair in scores.items()}}
    standardised, moved = slow_z(list(run["q"].values())), slow_z(list(change["q"].values()))
    expected = [first + weight * second for first, second in zip(standardised, moved, strict=True)]
    assert list(recalibrate(run, change, weight)["q"].values()) == pytest.approx(expected, abs=1e-9)


@given(lists)
@settings(max_examples=60, deadline=None)
def test_weight_zero_keeps_the_order(scores):
    run = {"q": {doc_id: pair[0] for doc_id, pair in scores.items()}}
    change = {"q": {doc_id: pair[1] for doc_id, pair in scores.items()}}
    assert ranking(recalibrate(run, change, 0)["q"]) == ranking(run["q"])


@given(lists, st.sampled_from([0.25, 2.0, 1024.0]), st.integers(-5, 5))
@settings(max_examples=60, deadline=None)
def test_only_the_shape_of_either_list_matters(scores, factor, offset):
    run = {"q": {doc_id: pair[0] for doc_id, pair in scores.items()}}
    change = {"q": {doc_id: pair[1] for doc_id, pair in scores.items()}}
    other_run = {"q": {doc_id: factor * score + offset for doc_id, score in run["q"].items()}}
    other_change = {"q": {doc_id: factor * score - offset for doc_id, score in change["q"].items()}}
    assert recalibrate(other_run, other_change, 0.7)["q"] == pytest.approx(
        recalibrate(run, change, 0.7)["q"], abs=1e-9
    )


def test_missing_changes_are_named():
    with pytest.raises(ValueError, match=r"1 queries \('q2'\)"):
        recalibrate({"q1": {"a": 1.0}, "q2": {"a": 1.0}}, {"q1": {"a": 1.0}}, 1)
    with pytest.raises(ValueError, match=r"2 documents \('b', 'c'\) of query 'q'"):
        recalibrate({"q": {"a": 1.0, "b": 2.0, "c": 3.0}}, {"q": {"a": 1.0}}, 1)
    many = {f"d{number}": 1.0 for number in range(9)}
    with pytest.raises(ValueError, match="and 4 more"):
        recalibrate({"q": many}, {"q": {}}, 1)


@pytest.mark.parametrize("weight", [math.nan, math.inf, True, "1"])
def test_the_weight_is_a_finite_number(weight):
    with pytest.raises(ValueError, match="weight of a recalibration"):
        recalibrate({"q": {"a": 1.0}}, {"q": {"a": 1.0}}, weight)


def test_deltas_need_the_same_candidates_on_both_sides():
    with pytest.raises(ValueError, match=r"after the change lacks 1 queries \('q2'\)"):
        deltas({"q1": {"a": 1.0}, "q2": {"a": 1.0}}, {"q1": {"a": 1.0}})
    with pytest.raises(
        ValueError, match=r"before the change lacks 1 documents of query 'q' \('b'\)"
    ):
        deltas({"q": {"a": 1.0}}, {"q": {"a": 1.0, "b": 1.0}})


def test_scores_that_are_not_finite_are_named():
    with pytest.raises(ValueError, match="query 'q', document 'a'"):
        deltas({"q": {"a": math.nan}}, {"q": {"a": 1.0}})
    with pytest.raises(ValueError, match="query 'q', document 'a'"):
        recalibrate({"q": {"a": 1.0}}, {"q": {"a": math.inf}}, 1)
