"""Several rankings of every query as one system: means, both kinds of spread, EE of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from backpack_rank.data.collection import MemoryStore
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.evaluation.result_table import ResultTable, SystemMetrics
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.several_rankings import mean_over_rankings
from backpack_rank.reporting.ranking_spread import spread_table

TEXTS = {"a": "he he", "b": "she"}
QRELS = {"q": {"a": 1, "b": 1}}
FIRST, SECOND = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1.0, "b": 2.0}}


def context() -> FairnessContext:
    chosen = FairnessMeasures()
    return chosen.context(chosen.magnitudes(TEXTS, MemoryStore(TEXTS)), qrels=QRELS)


def test_every_value_is_the_mean_over_rankings_and_expected_exposure_is_of_all_of_them():
    measures = parse_measures(["RaB(tc)@1", "AWRF_JS@1", "EE-L@1", "EE-D@1"])
    alone = context().measure(FIRST, measures)
    both = context().measure_rankings([FIRST, SECOND], measures)
    assert both.measures == alone.measures
    assert both.mean("RaB(tc)@1") == (2 - 1) / 2
    assert both.mean("AWRF_JS@1") == alone.mean("AWRF_JS@1")
    # Over both rankings each group has half of the first place, as the target wants it.
    assert (alone.mean("EE-L@1"), both.mean("EE-L@1")) == (0.5, 0)
    assert (alone.mean("EE-D@1"), both.mean("EE-D@1")) == (1, 0.5)


def test_one_ranking_is_the_run_itself():
    measures = parse_measures(["RaB(tc)@1", "EE-L@2"])
    assert context().measure_rankings([FIRST], measures) == context().measure(FIRST, measures)


def test_queries_that_not_every_ranking_has():
    first = PerQuery({"AP": {"q1": 0.2, "q2": 0.4}}, left_out=("q3", "q4"))
    second = PerQuery({"AP": {"q1": 0.6, "q2": 0.0, "q3": 0.5}}, left_out=("q4",), missing=("q2",))
    means = mean_over_rankings([first, second])
    assert means.values["AP"] == pytest.approx({"q1": 0.4, "q2": 0.2, "q3": 0.5})
    assert (means.left_out, means.missing) == (("q4",), ("q2",))


def test_the_table_has_the_spread_over_rankings_beside_that_over_queries():
    rng = np.random.default_rng(0)
    drawn = rng.random((3, 20))
    rankings = {}
    for number, values in enumerate(drawn):
        of_query = {f"q{place}": value for place, value in enumerate(values.tolist())}
        rankings[f"seed{number}"] = {"bias": PerQuery({"NDKL@5": of_query, "EE-L@5": of_query})}
    together = mean_over_rankings([sets["bias"] for sets in rankings.values()])
    system = SystemMetrics("a", None, {"bias": together}, rankings)
    table = spread_table(ResultTable((SystemMetrics("b", None, {"bias": together}), system)))
    ndkl, expected = table.rows
    means = drawn.mean(axis=1)
    low, high = together.interval("NDKL@5")
    numbers = [drawn.mean(), means.std(ddof=1), means.min(), means.max(), low, high]
    assert [cell.text for cell in ndkl.cells] == [f"{value:.4f}" for value in numbers]
    assert [cell.text for cell in expected.cells[1:4]] == ["-", "-", "-"]
    assert [record[3:] for record in table.records[:3]] == [
        (f"seed{number}", pytest.approx(mean)) for number, mean in enumerate(means)
    ]
    assert spread_table(ResultTable((SystemMetrics("b", None, {"bias": together}),))) is None
