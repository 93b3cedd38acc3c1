"""The table, files and picture of term similarity."""

from __future__ import annotations

import io
import json
import math
import xml.etree.ElementTree as ElementTree

from read_back import csv_rows
from rich.console import Console

from backpack_rank.position.passages.term_similarity_report import (
    AtDistance,
    SimilarityCurve,
    TermSimilarityReport,
    print_term_similarity,
    write_term_similarity,
)


def report(**curves: list[float]) -> TermSimilarityReport:
    made = []
    for name, values in curves.items():
        distances = []
        for distance, value in enumerate(values):
            pairs = 0 if math.isnan(value) else 1000 + distance
            distances.append(AtDistance(distance, value, 0.1, 3, pairs, 5000))
        made.append(SimilarityCurve(name, 0.1234, 0.05, math.nan, tuple(distances), 40, 60))
    meaning = {name: f"what {name} are" for name in curves}
    sizes = (300, 20, 90, "", 4, 7)
    return TermSimilarityReport("folder", "squad/test", *sizes, tuple(made), meaning)


def printed(term_similarity: TermSimilarityReport) -> str:
    text = io.StringIO()
    print_term_similarity(term_similarity, Console(file=text, width=100))
    return text.getvalue()


def test_the_table_has_a_column_per_representation_and_says_how_much_was_sampled():
    text = printed(report(contextual=[0.9, 0.8, 0.7, 0.6, 0.5, 0.4], senses=[1.0] * 6))
    lines = [line.split() for line in text.splitlines()]
    for line in (
        ["ATS(5)", "0.400", "1.000"],
        ["MATS", "0.123", "0.123"],
        ["MATS", "within", "terms", "-", "-"],
    ):
        assert line in lines
    assert "ATS(10)" not in text
    flat = " ".join(text.split())
    sample = "from 40 of 60 occurrences (at most 4 of a term at each position)"
    assert f"6,015 of 30,000 pairs compared, {sample}" in flat
    assert "20 of 90 terms that stand in two documents or more; seed 7" in flat
    assert "senses: what senses are" in flat


def test_a_difference_of_equal_vectors_is_not_shown_as_minus_zero():
    equal = report(senses=[1.0, 1.0])
    curve = equal.curves[0]
    none = SimilarityCurve("senses", -1e-9, 0.0, -0.0, curve.distances, 1, 1)
    text = printed(TermSimilarityReport("f", "c", 2, 1, 1, "", 2, 0, (none,), equal.meaning))
    assert "-0.000" not in text


def test_missing_figures_are_null_and_empty(tmp_path):
    write_term_similarity(tmp_path, report(contextual=[0.9, math.nan, 0.7]))
    written = json.loads((tmp_path / "term_similarity.json").read_text())
    assert [at["ats"] for at in written["curves"][0]["distances"]] == [0.9, None, 0.7]
    assert written["curves"][0]["mats_within_terms"] is None
    rows = csv_rows(tmp_path / "term_similarity.csv")
    columns = "representation distance ats std terms pairs pairs_in_documents"
    assert list(rows[0]) == columns.split()
    assert [row["ats"] for row in rows] == ["0.9", "", "0.7"]
    text = printed(report(contextual=[0.9, math.nan, 0.7]))
    assert "No pair at 1 of the distances" in " ".join(text.split())


def test_the_picture_names_every_representation_with_its_mats(tmp_path):
    write_term_similarity(tmp_path, report(contextual=[0.9, 0.8, 0.7], senses=[1.0] * 3))
    svg = (tmp_path / "term_similarity.svg").read_text()
    ElementTree.fromstring(svg)
    assert "contextual, MATS 0.123" in svg
    assert "senses, MATS 0.123" in svg
    assert (tmp_path / "term_similarity.png").stat().st_size > 5000
