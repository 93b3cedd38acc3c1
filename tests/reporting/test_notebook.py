"""What notebooks show: HTML of rerankers, rankings, sweeps, explanations, results, collections."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from in_process import configured
from small_training import ONE_EPOCH

import backpack_rank
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.evaluation.result_table import ResultTable
from backpack_rank.pipelines.train import train
from backpack_rank.reporting.notebook import Chart
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import AlphaSweep

QUERY = "who can <b>rewire</b> a house?"
DOCUMENTS = ["She is an electrician.", "He sells <i>flowers</i>.", "They rewire houses."]
ALPHAS = [1.0, 0.5, 0.0]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> PointwiseReranker:
    folder = tmp_path_factory.mktemp("small")
    train(configured("train", *ONE_EPOCH), folder, ONE_EPOCH)
    return backpack_rank.load(folder / "ranker")


def cells(html: str) -> list[list[str]]:
    """The texts of the rows of a table."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    return [
        [unescape(text) for text in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows
    ]


@pytest.mark.slow
def test_a_ranking_is_its_rows_and_shows_the_texts_best_first(reranker) -> None:
    ranking = reranker.rank(QUERY, DOCUMENTS)
    assert json.loads(json.dumps(ranking)) == ranking
    html = ranking._repr_html_()
    header, *rows = cells(html)
    assert header == ["rank", "score", "corpus_id", "document"]
    for row, shown in zip(ranking, rows, strict=True):
        assert shown[1:] == [
            f"{row['score']:.4f}",
            str(row["corpus_id"]),
            DOCUMENTS[row["corpus_id"]],
        ]
    assert "<i>" not in html
    assert "<b>" not in html


def test_a_long_ranking_is_cut_and_what_is_left_is_counted(reranker) -> None:
    html = reranker.rank(QUERY, [f"text {number}" for number in range(50)])._repr_html_()
    assert len(cells(html)) == 21
    assert "30 more documents" in html


def test_a_sweep_is_an_array_and_shows_a_column_for_each_alpha(reranker) -> None:
    sweep = reranker.sweep(QUERY, DOCUMENTS, ALPHAS)
    expected = np.stack(
        [reranker.predict([(QUERY, text) for text in DOCUMENTS], alpha=alpha) for alpha in ALPHAS]
    )
    np.testing.assert_allclose(sweep, expected, atol=1e-5)
    header, *rows = cells(sweep._repr_html_())
    assert header == ["alpha 1", "alpha 0.5", "alpha 0", "document"]
    assert [row[-1] for row in rows] == DOCUMENTS
    assert rows[0][0] == f"{sweep[0, 0]:.4f}"


def test_parts_of_a_sweep_and_sums_are_ordinary(reranker) -> None:
    sweep = reranker.sweep(QUERY, DOCUMENTS, ALPHAS)
    assert sweep[0]._repr_html_() is None
    assert type(sweep - sweep[0]) is np.ndarray
    assert isinstance(sweep.sum(), np.float32)
    with pytest.raises(ValueError, match="a part of a sweep has no alphas"):
        sweep[:, 1:].plot()


def test_a_sweep_is_drawn_with_a_line_for_each_document(reranker, tmp_path: Path) -> None:
    chart = reranker.sweep(QUERY, DOCUMENTS, ALPHAS).plot()
    points = chart.spec["datasets"].values()
    names = {row["series"] for rows in points for row in rows}
    assert names == set(DOCUMENTS)
    shown = chart._repr_mimebundle_()
    assert shown["image/svg+xml"].startswith("<svg")
    chart.save(tmp_path / "chart.svg")
    chart.save(tmp_path / "chart.png")
    chart.save(tmp_path / "chart.json")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "chart.json").read_text()) == chart.spec
    with pytest.raises(ValueError, match=r"chart.gif: a chart is saved as .svg, .png or .json"):
        chart.save(tmp_path / "chart.gif")


def test_a_reranker_shows_its_policy_and_those_that_fit(reranker) -> None:
    shown = dict(cells(reranker.with_policy("uniform", 0.5)._repr_html_()))
    assert (shown["policy"], shown["alpha"]) == ("uniform", "0.5")
    assert shown["policies that fit"].split(", ") == list(reranker.policies)


def test_an_explanation_shows_its_words(reranker) -> None:
    html = reranker.explain("who?", "She cooks.")._repr_html_()
    assert 'title="' in html
    assert "She" in html


def test_a_collection_is_counted_and_shows_its_first_query() -> None:
    texts = MemoryStore({"d1": "She repairs roofs.", "d2": "He sells flowers."})
    collection = Collection(
        "trades", texts, {"q1": "roofer <x>", "q2": "florist"}, {"q1": {"d1": 1}}
    )
    shown = dict(cells(collection._repr_html_()))
    assert shown["documents"] == "2"
    assert shown["queries"] == "2, 1 of them judged"
    assert shown["first query"] == "q1: roofer <x>"
    assert "<x>" not in collection._repr_html_()


def test_results_show_measures_by_systems_and_their_tradeoff(reranker) -> None:
    documents = {f"d{number}": text for number, text in enumerate(DOCUMENTS)}
    queries = {"q1": "who can rewire a house?", "q2": "flowers"}
    qrels = {"q1": {"d2": 1}, "q2": {"d1": 1}}
    candidates = {query_id: {"d0": 3.0, "d1": 2.0, "d2": 1.0} for query_id in queries}
    collection = Collection("trades", MemoryStore(documents), queries, qrels, candidates)
    dials = [reranker.with_policy("lowest_senses", alpha) for alpha in (1, 0)]
    table = backpack_rank.evaluate(dials, collection, measures=["nDCG@10", "RaB(tf)@10"])
    rows = {row[0]: row for row in cells(table._repr_html_())}
    mean = table.select(systems=["alpha=0"]).summary().set_index("measure")["mean"]["nDCG@10"]
    assert rows["nDCG@10"][-1].split()[0] == f"{mean:.4f}"
    chart = table.plot(measure="nDCG@10", bias="RaB(tf)@10")
    assert isinstance(chart, Chart)
    with pytest.raises(ValueError, match=r"name them as plot\(measure=..., bias=...\)"):
        table.plot(bias="nothing")


def test_texts_of_collections_and_results_are_short() -> None:
    texts = MemoryStore({f"d{number}": "A long text. " * 100 for number in range(50)})
    assert (
        repr(Collection("trades", texts, {}, {})) == "Collection('trades', 50 documents, 0 queries)"
    )
    assert repr(ResultTable(())) == "ResultTable(no system)"


def test_results_of_nothing_are_shown_and_not_drawn() -> None:
    assert "no system" in ResultTable(())._repr_html_()
    with pytest.raises(ValueError, match="no system has both"):
        ResultTable(()).plot()


def test_an_array_keeps_what_it_is_scores_of() -> None:
    sweep = AlphaSweep.of(np.zeros((1, 2), dtype=np.float32), "q", ["a", "b"], [1])
    assert sweep.alphas == (1.0,)
    assert sweep.dtype == np.float32
