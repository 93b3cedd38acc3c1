"""Attributes, published settings and wordings as a user gets them."""

from __future__ import annotations

import csv
import math
import os
import re
from pathlib import Path

import pytest
from in_process import evaluated, inline
from workplace import Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import read_run
from backpack_rank.evaluation.results import Report

RELIGION = {
    "mosque": "The muslims met at the mosque, and muslims from the village came.",
    "church": "The church stood by the river.",
    "river": "The river was low.",
}


@pytest.mark.slow
def test_another_attribute_is_measured_with_its_own_words(
    trained: Workplace, tmp_path: Path
) -> None:
    data = inline({"q": "where did they meet?"}, RELIGION, qrels={"q": {"mosque": 1}})
    report = evaluated(trained, tmp_path, "attribute=religion", data=data)
    assert report is not None
    assert report.rows[0].bias is not None
    # Three words of one group, one of the other, over the three documents that there are.
    expected = (math.log(1 + 3) - math.log(1 + 1)) / 3
    assert report.rows[0].bias.figures["RaB(tf)@5"].mean == pytest.approx(expected, abs=1e-12)
    assert report.about.bias_set == "inline: 1 religion-neutral query"
    assert "muslim minus christian" in report.about.sign_in_words


@pytest.mark.slow
@pytest.mark.parametrize(
    "attribute",
    ["age", *(pytest.param(name, marks=pytest.mark.slow) for name in ("religion", "ethnicity"))],
)
def test_every_attribute_runs_through_and_says_when_no_document_has_its_words(
    trained: Workplace, tmp_path: Path, attribute: str, caplog: pytest.LogCaptureFixture
) -> None:
    documents = {"a": "The engine stops.", "b": "The lamp is broken."}
    data = inline({"q": "what is wrong?"}, documents, qrels={"q": {"a": 1}})
    report = evaluated(trained, tmp_path, f"attribute={attribute}", "alpha=0.5", data=data)
    assert report is not None
    assert report.rows[-1].bias is not None
    assert report.rows[-1].bias.figures["RaB(tf)@10"].mean == 0
    assert f"none of the 2 ranked documents has a word of {attribute}_words" in caplog.text


@pytest.mark.slow
def test_the_published_presets_take_their_own_measures_and_words(
    trained: Workplace, tmp_path: Path
) -> None:
    reports: dict[str, Report] = {}
    for preset in ("rekabsaz2020", "rekabsaz2021"):
        report = evaluated(trained, tmp_path / preset, f"bias={preset}")
        assert report is not None
        reports[preset] = report
        assert (report.about.preset, report.about.tokenizer) == (preset, "whitespace")
    names = {
        preset: list(report.rows[-1].bias.figures)
        for preset, report in reports.items()
        if report.rows[-1].bias
    }
    assert "RaB(tf,female)@10" in names["rekabsaz2020"]
    assert "NFaiRR@10" not in names["rekabsaz2020"]
    assert "NFaiRR(tf)@50" in names["rekabsaz2021"] or "NFaiRR@50" in names["rekabsaz2021"]
    assert "163 female + 163 male" in reports["rekabsaz2021"].about.lexicon


@pytest.mark.slow
@pytest.mark.skipif(
    "BACKPACK_RANK_DATA" not in os.environ, reason="set BACKPACK_RANK_DATA to the data folder"
)
def test_wordings_of_grep_biasir_are_scored_and_shared_out_for_alpha_auto(
    trained: Workplace, tmp_path: Path
) -> None:
    report = evaluated(trained, tmp_path / "whole", "variants=grep_biasir", "alpha=0.5")
    assert report is not None
    of_all_queries = report.rows[-1].further["wordings"]
    shares = [
        of_all_queries.figures[f"prefers {group}"].mean for group in ("male", "female", "neither")
    ]
    assert sum(shares) == pytest.approx(1)
    assert of_all_queries.figures["|gap|/std"].mean > 0
    rows = list(csv.DictReader((tmp_path / "whole" / "gaps_by.csv").open()))
    labels = {row["label"]: int(row["queries"]) for row in rows if row["attribute"] == "stereotype"}
    assert labels == {"female": 20, "male": 9, "none": 88}
    by_topic = [
        row for row in rows if row["attribute"] == "topic" and row["measure"] == "|gap|/std"
    ]
    of_system = [row for row in by_topic if row["system"] == "alpha=0.5"]
    weighted = (
        sum(float(row["mean"]) * int(row["queries"]) for row in of_system) / of_all_queries.queries
    )
    assert weighted == pytest.approx(of_all_queries.figures["|gap|/std"].mean)
    options = ["variants=grep_biasir", "alpha=auto", "budget='|gap|/std<=9'"]
    half = evaluated(trained, tmp_path / "half", *options)
    assert half is not None
    assert half.about.alpha == 1
    assert 0 < half.rows[-1].further["wordings"].queries < of_all_queries.queries


@pytest.mark.slow
def test_words_of_the_classes_are_counted_in_the_candidates(
    trained: Workplace, tmp_path: Path
) -> None:
    report = evaluated(trained, tmp_path, "policy=paired_tokens", "alpha=0")
    assert report is not None
    rows = {row["word"]: row for row in csv.DictReader((tmp_path / "word_classes.csv").open())}
    run = read_run(tmp_path / "runs" / "BM25__synthetic-test.run")
    documents = load_synthetic("test", test_queries=12, documents=80).documents
    texts = documents.get_many({doc_id for scores in run.values() for doc_id in scores})
    for word in ("he", "her", "man"):
        assert int(rows[word]["count"]) == sum(
            len(re.findall(rf"\b{word}\b", t.lower())) for t in texts.values()
        )
    assert int(rows["she"]["count"]) > 0
    assert {row["token"] for row in rows.values()} <= {"yes", "no", "alone", "spaced"}
    assert any(
        re.fullmatch(r"Swap: \d+ of \d+ candidates change, .*", note) for note in report.about.notes
    )
