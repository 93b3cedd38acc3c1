"""Names of measures: the short form, ir_measures' own form, mistakes, and both kinds inside
ir_measures.
"""

from __future__ import annotations

import math

import ir_measures
import pandas as pd
import pytest

from backpack_rank.data.collection import MemoryStore
from backpack_rank.evaluation.effectiveness import effectiveness, with_fairness
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.measure_names import (
    Exposure,
    NFaiRR,
    RaB,
    parse_measures,
    split_measures,
)

TEXTS = {"a": "he he", "b": "she", "c": "", "d": "he she"}
RUN = {"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"c": 2.0, "d": 1.0}, "q3": {}}
QRELS = {"q1": {"b": 1}, "q2": {"c": 2}, "q3": {"a": 1}, "q4": {"a": 1}}
LOG2, LOG3 = math.log(2), math.log(3)


def context(query_ids=None) -> FairnessContext:
    settings = FairnessMeasures(tokenizer="whitespace")
    return settings.context(settings.magnitudes(TEXTS, MemoryStore(TEXTS)), RUN, query_ids)


@pytest.mark.parametrize(
    ("short", "long_form"),
    [
        ("RaB(tf)@10", "RaB(magnitude='tf')@10"),
        ("RaB(tf)@10", "RaB@10"),
        ("ARaB(bool)@20", "ARaB(magnitude='bool')@20"),
        ("RaB(tf-paper, male)@5", "RaB(magnitude='tf-paper', of='male')@5"),
        ("RaB(tc,old_minus_young)@5", "RaB(of='old_minus_young', magnitude='tc')@5"),
        ("NFaiRR@10", "NFaiRR()@10"),
        ("Exposure(male)@10", "Exposure(group='male')@10"),
        (" Exposure('neutral') @ 3 ", "Exposure(group='neutral')@3"),
    ],
)
def test_the_short_form_is_the_measure_that_ir_measures_parses(short, long_form):
    parsed = parse_measures([short])[short]
    expected = ir_measures.parse_measure(long_form)
    assert parsed.NAME == expected.NAME
    assert {key: parsed[key] for key in parsed.params} | {"cutoff": parsed["cutoff"]} == {
        key: expected[key] for key in parsed.params
    }
    # What ir_measures prints can be read again by its own parser.
    assert ir_measures.parse_measure(repr(parsed)) == parsed


def test_names_of_both_kinds_stand_next_to_each_other():
    names = ["nDCG@10", "RaB(tf)@10", "RR(rel=2)@10", "Exposure(male)@5", "MRR@10"]
    assert list(parse_measures(names)) == names
    assert split_measures(names) == (
        ["nDCG@10", "RR(rel=2)@10", "MRR@10"],
        ["RaB(tf)@10", "Exposure(male)@5"],
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "RaBB(tf)@10",
            r"measure not found: RaBB.*all names:.* ARaB,.* Exposure,.* FaiRR,.* nDCG,.* NFaiRR,.* RaB,",
        ),
        ("rab@10", "measure not found: rab.*all names"),
        (
            "RaB(log)@10",
            r"magnitude='log'.*parameters of RaB: cutoff, magnitude \(tf, tf-paper, bool, tc\), of",
        ),
        ("RaB(tf)", "cutoff is missing"),
        ("RaB(tf)@0", "cutoff must be a whole number from 1"),
        ("RaB(tf)@1.5", "whole number from 1"),
        ("RaB(tf,male,x)@5", r"RaB takes \(magnitude,of\)"),
        ("RaB(tf,)@5", r"RaB takes \(magnitude,of\)"),
        ("RaB(kind='tf')@5", r"unsupported params.*\['kind'\]"),
        ("Exposure@5", "group is missing"),
        ("FaiRR(male)@5", "no arguments in brackets"),
        ("nDCG(x=1)@5", "parameters of nDCG: cutoff, dcg"),
    ],
)
def test_mistakes_list_what_exists(name, message):
    with pytest.raises(ValueError, match=rf"(?s)measure .* cannot be computed.*{message}"):
        parse_measures([name])


def test_a_measure_of_fairness_without_magnitudes_is_an_error():
    with pytest.raises(ValueError, match=r"RaB\(tf\)@10: measures of fairness need magnitudes"):
        effectiveness(RUN, QRELS, ["nDCG@10", "RaB(tf)@10"])


def test_inside_ir_measures_a_query_without_a_list_does_not_count():
    measures = [ir_measures.nDCG @ 10, RaB @ 1, NFaiRR @ 1, Exposure(group="male") @ 1]
    means = with_fairness(context()).calc_aggregate(measures, QRELS, RUN)
    assert means[RaB @ 1] == pytest.approx(LOG3 / 2)
    assert means[NFaiRR @ 1] == pytest.approx(0.5)  # q1: "he he" has neutrality 0, q2: ideal
    assert means[Exposure(group="male") @ 1] == 0.5
    assert means[ir_measures.nDCG @ 10] == pytest.approx((1 / math.log2(3) + 1) / 4)


def test_inside_ir_measures_a_run_may_be_a_frame_and_queries_may_be_chosen():
    frame = pd.DataFrame([(q, d, s) for q, scores in RUN.items() for d, s in scores.items()])
    frame.columns = ["query_id", "doc_id", "score"]
    provider = with_fairness(context(["q2"]))
    by_query = {
        m.query_id: m.value
        for m in provider.iter_calc([RaB(magnitude="bool") @ 2], {"q2": {"c": 1}}, frame)
    }
    assert by_query == {"q2": 0.0}
    per_query = {m.query_id: m.value for m in provider.iter_calc([RaB @ 2], QRELS, frame)}
    assert per_query.pop("q2") == 0.0
    assert all(math.isnan(value) for value in per_query.values())
