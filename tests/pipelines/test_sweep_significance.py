"""After a multirun: every alpha is tested against alpha=1 of its setting, and the report marks what
is significant.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from backpack_rank.evaluation.results import PerQuery, Report, RunInfo, SystemResult
from backpack_rank.evaluation.significance import compare
from backpack_rank.pipelines.sweep import with_tests
from backpack_rank.reporting.measure_files import write_per_query, write_report
from backpack_rank.reporting.sweep import collect_sweep
from backpack_rank.reporting.sweep_report import write_sweep_report

BASE = np.random.default_rng(0)
QUALITY = BASE.uniform(0.3, 0.7, 40)
BIAS = BASE.normal(0.2, 0.1, 50)
NOISE = BASE.normal(0, 0.01, 40)


def values(measure: str, numbers: np.ndarray) -> PerQuery:
    return PerQuery({measure: {f"q{number}": float(value) for number, value in enumerate(numbers)}})


def job(folder: Path, alpha: float, quality: np.ndarray, bias: np.ndarray, *overrides: str) -> Path:
    """A job as evaluate.py leaves it: BM25 and a dial."""
    name = ",".join([f"alpha={alpha:g}", *overrides])
    (folder / name / ".hydra").mkdir(parents=True)
    text = "".join(f"- {override}\n" for override in (f"alpha={alpha}", *overrides))
    (folder / name / ".hydra" / "overrides.yaml").write_text(text, "utf-8")
    blocks = {
        "BM25": (values("nDCG@10", QUALITY / 2), values("RaB(tf)@10", BIAS / 2)),
        f"alpha={alpha:g}": (values("nDCG@10", quality), values("RaB(tf)@10", bias)),
    }
    rows = [
        SystemResult(label, alpha if label != "BM25" else None, *(of.summary() for of in both))
        for label, both in blocks.items()
    ]
    write_report(folder / name, Report(tuple(rows), RunInfo("wikiqa/test", "wikiqa/test", alpha)))
    per_query = [(label, of.values) for label, both in blocks.items() for of in both]
    write_per_query(folder / name / "per_query.csv", per_query)
    return folder / name


@pytest.fixture
def multirun(tmp_path: Path) -> Path:
    """alpha=0.5 lowers bias and keeps nDCG; alpha=0 turns bias round and lowers nDCG."""
    job(tmp_path, 1, QUALITY, BIAS)
    job(tmp_path, 0.5, QUALITY + NOISE, BIAS / 2)
    job(tmp_path, 0, QUALITY / 2, -BIAS)
    return tmp_path


def sweep_of(folder: Path):
    return with_tests(collect_sweep(folder), folder)


def report_of(folder: Path) -> str:
    buffer = io.StringIO()
    write_sweep_report(folder, Console(file=buffer, width=100, color_system=None), sweep_of(folder))
    return buffer.getvalue()


def test_every_alpha_is_tested_against_alpha_one_and_corrected_for_the_number_of_alphas(
    multirun: Path,
):
    bm25, at_one, at_half, at_zero = sweep_of(multirun).entries
    assert [entry.row.label for entry in (bm25, at_one, at_half, at_zero)] == [
        "BM25",
        "alpha=1",
        "alpha=0.5",
        "alpha=0",
    ]
    assert bm25.tests == at_one.tests == ()
    both = {"half": values("nDCG@10", QUALITY / 2), "whole": values("nDCG@10", QUALITY)}
    (alone,) = compare(both).measures[0].tests
    test = at_zero.test("nDCG@10")
    assert (test.first, test.second, test.average, test.queries) == (
        "alpha=0",
        "alpha=1",
        "mean",
        40,
    )
    assert test.difference == pytest.approx(-QUALITY.mean() / 2)
    assert test.p_randomisation == pytest.approx(alone.p_randomisation)
    assert test.p_holm == pytest.approx(2 * alone.p_randomisation)
    assert at_half.test("nDCG@10").p_holm > 0.05
    assert at_half.test("unknown") is None


def test_bias_is_tested_for_its_distance_from_zero(multirun: Path):
    _, _, half, zero = sweep_of(multirun).entries
    assert {test.average for test in half.tests if test.measure == "RaB(tf)@10"} == {
        "mean",
        "absolute_mean",
        "mean_absolute",
    }
    assert half.test("RaB(tf)@10").average == "absolute_mean"
    assert (half.test("RaB(tf)@10").queries, half.test("RaB(tf)@10").p_holm < 0.001) == (50, True)
    # Turned round, it is as far from 0 as before.
    assert zero.test("RaB(tf)@10").p_holm == 1.0
    (signed,) = [
        test for test in zero.tests if (test.measure, test.average) == ("RaB(tf)@10", "mean")
    ]
    assert signed.p_holm < 0.001


def test_the_report_marks_significant_changes_and_says_what_the_star_means(multirun: Path):
    text = report_of(multirun)
    zero, half = (
        next(line.split() for line in text.splitlines() if line[:10].rstrip() == f"alpha {alpha}")
        for alpha in ("0", "0.5")
    )
    assert (zero[3], zero[5]) == ("-50.0%*", "+0.0%")
    assert half[5] == "-50.0%*"
    assert "*" not in half[3]
    assert "* marks significant changes: two-sided paired randomisation test" in " ".join(
        text.split()
    )
    markdown = (multirun / "sweep.md").read_text("utf-8")
    assert r"(-50.0%\*)" in markdown
    assert r"\* marks significant changes" in markdown


def test_a_paper_gets_a_row_for_each_alpha_with_letters(multirun: Path):
    report_of(multirun)
    latex = (multirun / "sweep.tex").read_text("utf-8")
    assert r"\usepackage{booktabs}" in latex
    rows = [
        line.split(" & ") for line in latex.splitlines() if r"\alpha" in line or "alpha" in line
    ]
    labels = [row[0] for row in rows if row[0].startswith(("a alpha", "alpha"))]
    assert labels == ["a alpha 1 (as is)", "alpha 0.5", "alpha 0"]
    half, zero = (list(row[1:]) for row in rows if row[0] in ("alpha 0.5", "alpha 0"))
    # As in the terminal: at 0 nDCG@10 is half, and at 0.5 bias is.
    assert zero[0].endswith("\\textsuperscript{†}")
    assert r"\textsuperscript{a}" in half[1]
    assert "textsuperscript" not in half[0]


def test_csv_and_json_hold_the_tests(multirun: Path):
    report_of(multirun)
    entry = sweep_of(multirun).entries[3]
    with open(multirun / "sweep.csv", newline="", encoding="utf-8") as handle:
        lines = {(line["system"], line["measure"]): line for line in csv.DictReader(handle)}
    line, test = lines["alpha=0", "nDCG@10"], entry.test("nDCG@10")
    assert (line["tested"], line["queries_tested"]) == ("mean", "40")
    assert float(line["p_randomisation"]) == test.p_randomisation
    assert float(line["p_holm"]) == test.p_holm
    assert float(line["p_wilcoxon"]) == test.p_wilcoxon
    assert float(line["d_z"]) == test.d_z
    assert float(line["rank_biserial"]) == -1.0
    assert lines["alpha=0", "RaB(tf)@10"]["tested"] == "absolute_mean"
    assert {lines[system, "nDCG@10"]["p_holm"] for system in ("BM25", "alpha=1")} == {""}
    systems = {
        system["label"]: system
        for system in json.loads((multirun / "sweep.json").read_text())["systems"]
    }
    assert systems["BM25"]["tests"] == []
    assert len(systems["alpha=0"]["tests"]) == 1 + 3
    assert systems["alpha=0"]["tests"][0]["p_holm"] == test.p_holm


def test_settings_are_tested_apart(tmp_path: Path):
    for seed, shift in (("seed=0", 0.0), ("seed=1", 0.1)):
        job(tmp_path, 1, QUALITY + shift, BIAS, seed)
        job(tmp_path, 0, QUALITY, BIAS, seed)
    sweep = sweep_of(tmp_path)
    tests = {
        entry.setting: entry.test("nDCG@10") for entry in sweep.entries if entry.row.alpha == 0
    }
    assert tests["seed=0"].difference == 0.0
    assert tests["seed=1"].difference == pytest.approx(-0.1)
    assert tests["seed=1"].p_holm == tests["seed=1"].p_randomisation < 0.001


def test_a_job_without_per_query_values_is_named_and_the_others_are_tested(multirun: Path):
    (multirun / "alpha=0.5" / "per_query.csv").unlink()
    sweep = sweep_of(multirun)
    assert [bool(entry.tests) for entry in sweep.entries] == [False, False, False, True]
    assert (
        sweep.entries[3].test("nDCG@10").p_holm == sweep.entries[3].test("nDCG@10").p_randomisation
    )
    assert "No tests without alpha=0.5/per_query.csv." in " ".join(report_of(multirun).split())
    (multirun / "alpha=1" / "per_query.csv").unlink()
    assert not any(entry.tests for entry in sweep_of(multirun).entries)


def test_without_alpha_one_nothing_is_tested(tmp_path: Path):
    job(tmp_path, 0.5, QUALITY, BIAS)
    job(tmp_path, 0, QUALITY, BIAS)
    assert not any(entry.tests for entry in sweep_of(tmp_path).entries)
    assert "marks significant" not in report_of(tmp_path)


def test_per_query_values_that_do_not_fit_the_measures_are_an_error_that_names_the_file(
    multirun: Path,
):
    path = multirun / "alpha=0" / "per_query.csv"
    path.write_text(path.read_text().replace("RaB(tf)@10", "RaB(tf)@11"))
    with pytest.raises(ValueError, match=r"alpha=0/per_query\.csv has no values of RaB\(tf\)@10"):
        sweep_of(multirun)
