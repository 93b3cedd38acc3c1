"""Every measure that ir_measures parses: a value, or a refusal before anything is ranked."""

from __future__ import annotations

import itertools
import math

import ir_measures
import pytest

from backpack_rank.evaluation.effectiveness import check_labels, effectiveness
from backpack_rank.evaluation.measure import FairnessMeasure

# Ids as collections have them, and labels as far as 5.
RUN = {
    "q1": {"d-1": 3.0, "d/2": 2.0, "d3": 1.0, "d9": 0.5},
    "PLAIN-2": {"d-1": 1.0, "d/2": 2.0},
    "3": {"d3": 1.0},
}
QRELS = {
    "q1": {"d-1": 0, "d/2": 1, "d3": 5, "d4": 2},
    "PLAIN-2": {"d-1": 3, "d/2": 0},
    "3": {"d3": 4},
}
VALUES = {
    "rel": (2, 5, 6),
    "judged_only": (True,),
    "max_rel": (5,),
    "min_rel": (1,),
    "recall": (0.4,),
    "gains": ({0: 0, 1: 1, 2: 3, 5: 7},),
}
NAMES = [
    name
    for name, measure in ir_measures.measures.registry.items()
    if not isinstance(measure, FairnessMeasure)
]


def spellings(name: str) -> list[str]:
    """A name with each of its parameters, with pairs of them, and with and without a cut-off."""
    given = []
    for key, info in ir_measures.measures.registry[name].SUPPORTED_PARAMS.items():
        if key == "cutoff":
            continue
        choices = VALUES.get(key, (0.5,) if info.dtype is float else (True,))
        if isinstance(info.choices, (list, tuple)):
            choices = info.choices
        given.append([f"{key}={value!r}" for value in choices])
    brackets = [()]
    for number in (1, 2):
        for keys in itertools.combinations(given, number):
            brackets += itertools.product(*keys)
    found = []
    for arguments in brackets:
        inside = f"({','.join(arguments)})" if arguments else ""
        found += [f"{name}{inside}", f"{name}{inside}@3", f"{name}{inside}@10"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_ir_measures_has_a_value_or_is_refused_before_ranking(name):
    for spelling in spellings(name):
        refusal = ""
        try:
            check_labels([spelling], QRELS, "mine/test")
        except ValueError as error:
            refusal = str(error)
        if refusal:
            assert spelling in refusal
            continue
        result = effectiveness(RUN, QRELS, [spelling])
        assert set(result.values[spelling]) == set(QRELS)
        assert all(map(math.isfinite, result.values[spelling].values())), spelling


def test_err_and_ndcg_of_gdeval_are_computed_for_ids_of_letters():
    qrels = {query_id: dict(labels) for query_id, labels in QRELS.items()}
    qrels["q1"]["d3"] = 4
    check_labels(["ERR@10", "nDCG(dcg='exp-log2')@10"], qrels, "mine/test")
    values = effectiveness(RUN, qrels, ["ERR@10", "nDCG(dcg='exp-log2')@10"]).values
    # Chapelle et al. 2009 by hand, R = (2^g - 1) / 16: 0, 1/16 at rank 2, 15/16 at rank 3.
    expected = 1 / 2 * 1 / 16 + 1 / 3 * (1 - 1 / 16) * 15 / 16
    assert values["ERR@10"]["q1"] == pytest.approx(expected, abs=1e-5)
    assert values["ERR@10"]["3"] == pytest.approx(15 / 16, abs=1e-5)
    gained = 1 / math.log2(3) + 15 / math.log2(4)
    ideal = 15 / math.log2(2) + 3 / math.log2(3) + 1 / math.log2(4)
    found = values["nDCG(dcg='exp-log2')@10"]["q1"]
    assert found == pytest.approx(gained / ideal, abs=1e-5)


@pytest.mark.parametrize("measure", ["ERR@10", "nDCG(dcg='exp-log2')@10"])
def test_labels_that_a_tool_does_not_know_are_refused(measure):
    with pytest.raises(ValueError, match=r"labels of mine/test, 0 to 5"):
        check_labels([measure], QRELS, "mine/test")


@pytest.mark.parametrize("measure", ["ERR@10", "nDCG(dcg='exp-log2')@10"])
def test_a_measure_whose_tool_is_not_there_is_refused(measure, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # no Perl
    with pytest.raises(ValueError, match=r"cannot be computed.*perl"):
        check_labels([measure], {"q": {"d": 1}}, "mine/test")
