"""Measures of effectiveness: which queries count, ties, names, and published figures."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.trec import read_qrels, read_run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.evaluation.results import PerQuery

DATA = os.environ.get("BACKPACK_RANK_DATA")


def slow_ndcg(ranked: list[str], judged: dict[str, int], cutoff: int) -> float:
    gains = [max(judged.get(doc_id, 0), 0) for doc_id in ranked[:cutoff]]
    ideal = sorted((max(grade, 0) for grade in judged.values()), reverse=True)[:cutoff]
    dcg = sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))
    return dcg / sum(gain / math.log2(place + 2) for place, gain in enumerate(ideal))


def slow_reciprocal_rank(ranked: list[str], judged: dict[str, int], cutoff: int) -> float:
    for place, doc_id in enumerate(ranked[:cutoff]):
        if judged.get(doc_id, 0) > 0:
            return 1 / (place + 1)
    return 0.0


def test_values_worked_by_hand():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    qrels = {"q": {"b": 1, "c": 2, "x": 1, "a": 0}}
    values = effectiveness(run, qrels, ["nDCG@10", "MRR@10", "R@2", "RR(rel=2)@10", "AP"]).values
    dcg = 1 / math.log2(3) + 2 / math.log2(4)
    ideal = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    assert values["nDCG@10"]["q"] == pytest.approx(dcg / ideal)
    assert values["MRR@10"]["q"] == pytest.approx(1 / 2)
    assert values["R@2"]["q"] == pytest.approx(1 / 3)
    assert values["RR(rel=2)@10"]["q"] == pytest.approx(1 / 3)
    assert values["AP"]["q"] == pytest.approx((1 / 2 + 2 / 3) / 3)


def test_names_stay_as_given_and_synonyms_agree():
    result = effectiveness({"q": {"a": 1.0}}, {"q": {"a": 1}}, ["MRR@10", "RR@10", "Recall@100"])
    assert result.measures == ("MRR@10", "RR@10", "Recall@100")
    assert result.mean("MRR@10") == result.mean("RR@10") == 1.0


def test_a_judged_query_missing_from_the_run_counts_zero():
    run = {"q1": {"a": 1.0}, "q3": {}, "unjudged": {"a": 1.0}}
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}}
    result = effectiveness(run, qrels, ["nDCG@10"])
    assert result.values["nDCG@10"] == {"q1": 1.0, "q2": 0.0, "q3": 0.0}
    assert result.missing == ("q2", "q3")
    assert result.mean("nDCG@10") == pytest.approx(1 / 3)


def test_queries_without_a_relevant_document_are_left_out_and_counted():
    result = effectiveness(
        {"q1": {"a": 1.0}, "q2": {"a": 1.0}}, {"q1": {"a": 2}, "q2": {"a": 0}}, ["MRR@10"]
    )
    assert result.values["MRR@10"] == {"q1": 1.0}
    assert result.left_out == ("q2",)
    summary = result.summary()
    assert (summary.queries, summary.left_out, summary.missing) == (1, 1, 0)


def test_a_run_without_any_judged_query_is_all_zero():
    result = effectiveness({"other": {"a": 1.0}}, {"q": {"a": 1}}, ["nDCG@10", "MRR@10"])
    assert result.values == {"nDCG@10": {"q": 0.0}, "MRR@10": {"q": 0.0}}


def test_no_relevant_document_anywhere_is_an_error():
    with pytest.raises(ValueError, match="none of the 1 judged queries has a relevant document"):
        effectiveness({"q": {"a": 1.0}}, {"q": {"a": 0}}, ["MRR@10"])


@pytest.mark.parametrize("scores", [{"a": 1.0, "b": 1.0}, {"a": 1.0 + 1e-12, "b": 1.0}])
def test_ties_go_to_the_smaller_document_id_in_every_provider(scores):
    result = effectiveness({"q": scores}, {"q": {"a": 1}}, ["RR@10", "RR", "nDCG@10", "P@1"])
    assert [result.mean(measure) for measure in result.measures] == [1.0, 1.0, 1.0, 1.0]
    result = effectiveness({"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 1}}, ["RR@10", "RR", "P@1"])
    assert [result.mean(measure) for measure in result.measures] == [0.5, 0.5, 0.0]


def test_scores_apart_by_less_than_float32_keep_their_order():
    result = effectiveness(
        {"q": {"a": 1.0, "b": 1.0 + 1e-12}}, {"q": {"b": 1}}, ["RR@10", "RR", "nDCG@10"]
    )
    assert [result.mean(measure) for measure in result.measures] == [1.0, 1.0, 1.0]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_random_runs_with_ties_agree_with_an_obvious_version(seed):
    source = random.Random(seed)
    doc_ids = [f"d{number}" for number in range(15)]
    run, qrels = {}, {}
    for query_id in ("q1", "q2", "q3"):
        run[query_id] = {
            d: float(source.randint(0, 4)) for d in source.sample(doc_ids, source.randint(1, 15))
        }
        qrels[query_id] = {d: source.randint(0, 3) for d in source.sample(doc_ids, 6)} | {
            "relevant": 1
        }
    result = effectiveness(run, qrels, ["nDCG@5", "MRR@10"])
    for query_id, scores in run.items():
        ranked = sorted(sorted(scores), key=lambda doc_id: scores[doc_id], reverse=True)
        assert result.values["nDCG@5"][query_id] == pytest.approx(
            slow_ndcg(ranked, qrels[query_id], 5)
        )
        expected = slow_reciprocal_rank(ranked, qrels[query_id], 10)
        assert result.values["MRR@10"][query_id] == pytest.approx(expected)


@pytest.mark.parametrize(
    "name",
    [
        "foo@10",
        "nDCG@",
        "nDCG@0",
        "nDCG@-1",
        "P",
        "P(rel=0)@5",
        "nDCG(x=1)@5",
        "nDCG@1.5",
        "RBP@10",
        "",
    ],
)
def test_a_measure_that_cannot_be_computed_is_an_error_with_examples(name):
    with pytest.raises(ValueError, match=r"cannot be computed.*examples: nDCG@10, MRR@10"):
        parse_measures([name])


def test_measures_must_be_a_list_that_is_not_empty():
    with pytest.raises(ValueError, match="give a list"):
        parse_measures("nDCG@10")
    with pytest.raises(ValueError, match="no measure is named"):
        parse_measures([])


def test_a_score_that_is_no_number_is_an_error_that_names_it():
    with pytest.raises(ValueError, match=r"'q', document 'a' is nan"):
        effectiveness({"q": {"a": math.nan}}, {"q": {"a": 1}}, ["MRR@10"])


def test_averages_worked_by_hand():
    result = PerQuery({"m": {"q1": 0.5, "q2": -0.1, "q3": 0.2}})
    assert result.mean("m") == pytest.approx(0.2)
    assert result.mean_absolute("m") == pytest.approx(0.8 / 3)
    assert PerQuery({"m": {"q1": -0.5}}).absolute_mean("m") == 0.5


def test_a_measure_that_is_not_defined_for_a_query_is_averaged_over_its_own():
    result = PerQuery({"a": {"q1": 1.0, "q2": -3.0, "q3": 5.0}, "b": {"q1": -0.5, "q3": 0.25}})
    assert result.query_ids == ("q1", "q2", "q3")
    figures = result.summary().figures
    assert list(figures) == ["a", "b"]
    assert (figures["a"].mean, figures["a"].mean_absolute) == (1.0, 3.0)
    assert (figures["b"].mean, figures["b"].mean_absolute) == (-0.125, 0.375)
    # The intervals are those of the measure alone.
    assert figures["b"] == PerQuery({"b": {"q1": -0.5, "q3": 0.25}}).summary().figures["b"]
    part = result.select_queries(["q2", "q3"])
    assert part.values == {"a": {"q2": -3.0, "q3": 5.0}, "b": {"q3": 0.25}}


def test_an_unknown_measure_of_a_result_names_those_that_there_are():
    with pytest.raises(KeyError, match="there are: m"):
        PerQuery({"m": {"q1": 1.0}}).mean("n")


@pytest.mark.parametrize(("name", "expected"), [("dl19", 0.506), ("dl20", 0.480)])
def test_bm25_on_trec_deep_learning_gives_the_published_figure(name, expected):
    if not DATA:
        pytest.skip("set BACKPACK_RANK_DATA to the folder with dl19, dl20 and trec_dl")
    run = read_run(Path(DATA, name, "candidates", "bm25.trec"))
    qrels = read_qrels(Path(DATA, "trec_dl", f"qrels.{name}-passage.txt"))
    result = effectiveness(run, qrels, ["nDCG@10"])
    assert result.mean("nDCG@10") == pytest.approx(expected, abs=0.001)
    assert not result.missing
