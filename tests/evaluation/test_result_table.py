"""The table of results and the values by query that it is made of."""

from __future__ import annotations

import pytest

from backpack_rank.evaluation.result_table import ResultTable, SystemMetrics
from backpack_rank.evaluation.results import PerQuery, shared_measures

QUALITY = PerQuery(
    {"nDCG@10": {"q1": 0.5, "q2": 1.0}, "AP": {"q1": 0.25, "q2": 0.75}}, ("q3",), ("q1",)
)
SWAPS = PerQuery({"swap tau": {"q1": 1.0, "q2": 0.5}})
TABLE = ResultTable(
    (
        SystemMetrics("BM25", None, {"effectiveness": QUALITY}),
        SystemMetrics("alpha=0", 0.0, {"effectiveness": QUALITY, "swap": SWAPS}),
    )
)


def test_a_part_has_the_values_of_its_queries_in_their_order() -> None:
    part = QUALITY.part(["q3", "q2", "q1"])
    assert part == QUALITY
    assert list(part.values["AP"]) == ["q1", "q2"]
    assert QUALITY.part(["q2", "nobody"]) == PerQuery({"nDCG@10": {"q2": 1.0}, "AP": {"q2": 0.75}})


def test_measures_are_kept_in_the_order_in_which_they_stand() -> None:
    assert QUALITY.with_measures(["AP", "nDCG@10", "P@5"]).measures == ("nDCG@10", "AP")
    assert QUALITY.with_measures(["AP"]) == PerQuery(
        {"AP": {"q1": 0.25, "q2": 0.75}}, ("q3",), ("q1",)
    )


def test_rows_are_the_long_form() -> None:
    assert list(SWAPS.rows()) == [("swap tau", "q1", 1.0), ("swap tau", "q2", 0.5)]


def test_values_of_a_measure_come_in_the_order_asked_for() -> None:
    assert QUALITY.array("AP").tolist() == [0.25, 0.75]
    assert QUALITY.array("AP", ["q2", "q1"]).tolist() == [0.75, 0.25]


def test_shared_measures_are_those_of_every_system() -> None:
    assert shared_measures([QUALITY, QUALITY.with_measures(["AP"])]) == ["AP"]
    assert shared_measures([QUALITY, SWAPS]) == shared_measures([]) == []


def test_a_table_gives_the_part_with_some_systems_sets_and_measures() -> None:
    assert TABLE.select() == TABLE
    (only,) = TABLE.select(systems=["alpha=0"]).systems
    assert only == TABLE.systems[1]
    first, second = TABLE.select(sets=["swap"]).systems
    assert (first.values, second.values) == ({}, {"swap": SWAPS})  # a first stage takes no swaps
    first, second = TABLE.select(systems=["alpha=0", "BM25"], measures=["AP"]).systems
    assert (first.label, second.label) == ("alpha=0", "BM25")
    assert first.values == second.values == {"effectiveness": QUALITY.with_measures(["AP"])}


def test_a_table_names_the_systems_and_sets_that_there_are() -> None:
    with pytest.raises(KeyError, match="no system 'LM' here; there are: BM25, alpha=0"):
        TABLE.select(systems=["BM25", "LM"])
    with pytest.raises(KeyError, match="no query set 'bias' here; there are: effectiveness, swap"):
        TABLE.select(sets=["bias"])


def test_a_table_compares_the_systems_that_have_a_set() -> None:
    (comparison,) = TABLE.compare(["AP", "swap tau"])
    assert comparison.systems == ("BM25", "alpha=0")
    assert [measure.measure for measure in comparison.measures] == ["AP"]


def test_the_long_form_of_a_table_has_a_row_for_each_value() -> None:
    frame = TABLE.select(sets=["swap"]).frame()
    assert frame.values.tolist() == [
        ["alpha=0", 0.0, "swap", "swap tau", "q1", 1.0],
        ["alpha=0", 0.0, "swap", "swap tau", "q2", 0.5],
    ]
