"""The report of a multirun: every job in it, changes against alpha=1, failed jobs named."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import pytest
from read_back import csv_rows
from rich.console import Console
from terminal_text import terminal_text

from backpack_rank.evaluation.results import Estimate, Report, RunInfo, Summary, SystemResult
from backpack_rank.reporting.measure_files import write_report
from backpack_rank.reporting.sweep import collect_sweep
from backpack_rank.reporting.sweep_report import write_sweep_report

KINDS = ("tf", "tf-paper", "bool")


def row(label: str, alpha: float | None, effectiveness: float, bias: float) -> SystemResult:
    quality = {name: Estimate(effectiveness, effectiveness) for name in ("MRR@10", "nDCG@10")}
    measures = {
        f"{name}({kind})@10": Estimate(bias, 0.2) for kind in KINDS for name in ("RaB", "ARaB")
    }
    return SystemResult(label, alpha, Summary(quality, 10), Summary(measures, 20))


def job(
    folder: Path, name: str, overrides: list[str], *rows: SystemResult, about: RunInfo | None = None
) -> None:
    (folder / name / ".hydra").mkdir(parents=True)
    text = "".join(f"- {override}\n" for override in overrides)
    (folder / name / ".hydra" / "overrides.yaml").write_text(text or "[]\n", "utf-8")
    if rows:
        write_report(
            folder / name,
            Report(rows, about or RunInfo("wikiqa/test", "wikiqa/test", rows[-1].alpha)),
        )


@pytest.fixture
def multirun(tmp_path: Path) -> Path:
    """Three alphas with the same BM25, in folders whose names do not sort by alpha; one job failed."""
    bm25 = row("BM25", None, 0.3, 0.06)
    job(
        tmp_path, "alpha=0.5", ["alpha=0.5", "data=wikiqa"], bm25, row("alpha=0.5", 0.5, 0.36, 0.03)
    )
    job(tmp_path, "alpha=1", ["alpha=1", "data=wikiqa"], bm25, row("alpha=1", 1.0, 0.4, 0.05))
    job(tmp_path, "alpha=0", ["alpha=0", "data=wikiqa"], bm25, row("alpha=0", 0.0, 0.2, -0.01))
    job(tmp_path, "alpha=0.1", ["alpha=0.1", "data=wikiqa"])
    return tmp_path


def report_of(folder: Path, width: int = 100) -> str:
    return terminal_text(lambda console: write_sweep_report(folder, console), width)


def test_systems_come_reference_first_then_by_falling_alpha(multirun: Path):
    sweep = collect_sweep(multirun)
    assert [entry.row.label for entry in sweep.entries] == [
        "BM25",
        "alpha=1",
        "alpha=0.5",
        "alpha=0",
    ]
    assert sweep.settings == ("",)
    assert [entry.label for entry in sweep.rows("")] == ["BM25", "alpha=1", "alpha=0.5", "alpha=0"]


def test_changes_are_of_the_absolute_mean_against_alpha_one(multirun: Path):
    sweep = collect_sweep(multirun)
    bm25, at_one, at_half, at_zero = sweep.entries
    assert sweep.change(at_half, "nDCG@10") == pytest.approx(-10.0)
    assert sweep.change(at_half, "RaB(tf)@10") == pytest.approx(-40.0)
    assert sweep.change(at_zero, "RaB(tf)@10") == pytest.approx(-80.0)  # from 0.05 to |-0.01|
    assert sweep.change(at_one, "nDCG@10") == 0.0
    assert sweep.change(bm25, "nDCG@10") is None
    assert sweep.change(at_half, "unknown") is None


@pytest.mark.slow
def test_a_failed_job_is_named_everywhere(multirun: Path):
    text = report_of(multirun)
    assert collect_sweep(multirun).failed == ("alpha=0.1",)
    sentence = "Without measures (failed or not finished): alpha=0.1"
    assert sentence in text
    assert sentence in (multirun / "sweep.md").read_text("utf-8")
    assert json.loads((multirun / "sweep.json").read_text("utf-8"))["failed"] == ["alpha=0.1"]


@pytest.mark.slow
def test_the_terminal_tables_have_the_ranker_as_it_is_once_and_fit_80_columns(multirun: Path):
    text = report_of(multirun, 80)
    assert max(len(line) for line in text.splitlines() if not line.startswith("plot: ")) <= 80
    lines = [line.split() for line in text.splitlines() if line.startswith(("BM25", "alpha"))]
    assert lines[0] == ["BM25", "0.3000", "+0.0600", "+0.0600", "0.3000"]
    assert lines[1] == ["alpha", "1", "(as", "is)", "0.4000", "+0.0500", "+0.0500", "0.4000"]
    assert lines[3] == [
        "alpha",
        "0",
        "0.2000",
        "-50.0%",
        "-0.0100",
        "-80.0%",
        "-0.0100",
        "-80.0%",
        "0.2000",
        "-50.0%",
    ]
    assert f"plot: {multirun / 'tradeoff.png'}" in text


@pytest.mark.slow
def test_policies_are_blocks_below_the_ranker_as_it_is(tmp_path: Path):
    for policy, bias in (("paired_tokens", 0.01), ("uniform", 0.05)):
        for alpha in (1.0, 0.5):
            ranker_row = row(f"alpha={alpha:g}", alpha, 0.4, 0.05 if alpha == 1 else bias)
            job(tmp_path, f"{alpha},{policy}", [f"alpha={alpha}", f"policy={policy}"], ranker_row)
    lines = [line.strip() for line in report_of(tmp_path, 80).splitlines()]
    first = [line.partition("  ")[0] for line in lines[2 : lines.index("uniform") + 2] if line]
    assert first == ["alpha 1 (as is)", "paired_tokens", "alpha 0.5", "uniform", "alpha 0.5"]
    sweep = collect_sweep(tmp_path)
    assert [sweep.is_repeated(entry) for entry in sweep.entries] == [False, False, True, False]
    base = sweep.base("policy=uniform")
    assert base is not None
    assert base.row.label == "alpha=1"


def test_where_the_base_may_be_zero_changes_are_no_percentages(tmp_path: Path):
    for alpha, bias in (
        (1.0, Estimate(0.01, 0.2, -0.05, 0.07)),
        (0.0, Estimate(0.002, 0.2, -0.06, 0.06)),
    ):
        quality = Summary({"nDCG@10": Estimate(0.4, 0.4, 0.3, 0.5)}, 10)
        ranker_row = SystemResult(
            f"alpha={alpha:g}", alpha, quality, Summary({"RaB(tf)@10": bias}, 10)
        )
        job(tmp_path, f"{alpha}", [f"alpha={alpha}"], ranker_row)
    line = next(line for line in report_of(tmp_path).splitlines() if line.startswith("alpha 0"))
    assert line.split() == ["alpha", "0", "0.4000", "+0.0%", "+0.0020", "-0.008"]


@pytest.mark.slow
def test_all_files_are_written_and_named(multirun: Path):
    paths = write_sweep_report(multirun, Console(file=io.StringIO()))
    names = ["sweep.csv", "sweep.json", "sweep.md", "sweep.tex", "tradeoff.png", "tradeoff.svg"]
    assert [path.name for path in paths] == names
    assert all(path.is_file() for path in paths)


@pytest.mark.slow
def test_the_csv_has_every_measure_with_its_change(multirun: Path):
    report_of(multirun)
    lines = csv_rows(multirun / "sweep.csv")
    assert len(lines) == 4 * (2 + 6)
    of_alpha = {"system": "alpha=0", "measure": "ARaB(tf-paper)@10"}
    (line,) = csv_rows(multirun / "sweep.csv", **of_alpha)
    assert (float(line["mean"]), float(line["absolute_mean"]), line["job"]) == (
        -0.01,
        0.01,
        "alpha=0",
    )
    assert float(line["change_percent"]) == pytest.approx(-80.0)
    assert {x["change_percent"] for x in lines if x["system"] == "BM25"} == {""}


@pytest.mark.slow
def test_the_markdown_table_has_signed_values_with_changes_of_the_absolute_ones(multirun: Path):
    report_of(multirun)
    text = (multirun / "sweep.md").read_text("utf-8")
    bias, quality = "-0.0100 (-80.0%)", "0.2000 (-50.0%)"
    cells = [quality, bias, bias, quality, bias, bias]
    assert f"| alpha 0 | {' | '.join(cells)} |" in text.splitlines()
    assert "![tradeoff](tradeoff.png)" in text


def test_a_bar_in_the_name_of_a_measure_begins_no_column_of_the_markdown_table(tmp_path: Path):
    gap = {"wordings": Summary({"|gap|/std": Estimate(0.1, 0.1)}, 10)}
    job(tmp_path, "0", ["alpha=1"], SystemResult("alpha=1", 1.0, None, None, gap))
    report_of(tmp_path)
    header = (tmp_path / "sweep.md").read_text("utf-8").splitlines()[2]
    assert header == r"|  | \|gap\|/std |"


@pytest.mark.slow
def test_the_report_can_be_written_again(multirun: Path):
    assert report_of(multirun) == report_of(multirun)


def test_without_alpha_one_there_are_no_changes(tmp_path: Path):
    job(tmp_path, "0", ["alpha=0.5"], row("alpha=0.5", 0.5, 0.4, 0.1))
    job(tmp_path, "1", ["alpha=0.3"], row("alpha=0.3", 0.3, 0.4, 0.1))
    text = report_of(tmp_path)
    assert "%" not in text.replace("in %", "")


def test_a_change_from_zero_is_not_a_number_in_percent(tmp_path: Path):
    job(tmp_path, "0", ["alpha=1"], row("alpha=1", 1.0, 0.4, 0.0))
    job(tmp_path, "1", ["alpha=0"], row("alpha=0", 0.0, 0.4, 0.1))
    sweep = collect_sweep(tmp_path)
    assert sweep.change(sweep.entries[1], "RaB(tf)@10") is None
    assert "inf" not in report_of(tmp_path)


@pytest.mark.slow
def test_other_overrides_that_vary_are_settings_with_their_own_baseline_and_plot(tmp_path: Path):
    for data, bm25, at_one in (("dl19", 0.3, 0.4), ("dl20", 0.2, 0.8)):
        for alpha, factor in ((1.0, 1.0), (0.5, 0.75)):
            about = RunInfo(f"{data}/test", f"{data}/test", alpha)
            rows = (
                row("BM25", None, bm25, 0.05),
                row(f"alpha={alpha:g}", alpha, at_one * factor, 0.1),
            )
            overrides = [f"alpha={alpha}", f"data={data}", "checkpoint=/some/where"]
            job(
                tmp_path,
                f"checkpoint=/some/where,data={data},{alpha}",
                overrides,
                *rows,
                about=about,
            )
    sweep = collect_sweep(tmp_path)
    entries = [(entry.setting, entry.row.label) for entry in sweep.entries]
    settings = ("data=dl19", "data=dl20")
    assert entries == list(itertools.product(settings, ("BM25", "alpha=1", "alpha=0.5")))
    changes = [sweep.change(entry, "nDCG@10") for entry in sweep.entries if entry.row.alpha == 0.5]
    assert changes == pytest.approx([-25.0, -25.0])
    assert sweep.about.effectiveness_set == "dl19/test / dl20/test"
    assert "data=dl19" in report_of(tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == ["tradeoff-data=dl19.png", "tradeoff-data=dl20.png"]


def test_a_reference_that_is_equal_in_every_setting_stands_once(tmp_path: Path):
    for seed in (0, 1):
        rows = (row("BM25", None, 0.3, 0.05), row("alpha=1", 1.0, 0.4 + seed / 10, 0.1))
        job(tmp_path, str(seed), ["alpha=1", f"seed={seed}"], *rows)
    sweep = collect_sweep(tmp_path)
    assert [(entry.setting, entry.row.label) for entry in sweep.entries] == [
        ("", "BM25"),
        ("seed=0", "alpha=1"),
        ("seed=1", "alpha=1"),
    ]
    assert [entry.label for entry in sweep.rows("seed=1")] == ["BM25", "alpha=1"]


def test_without_the_bias_measures_the_report_says_why_there_is_no_plot(tmp_path: Path):
    job(
        tmp_path,
        "0",
        ["alpha=1"],
        SystemResult("alpha=1", 1.0, Summary({"nDCG@10": Estimate(0.4, 0.4)}, 3)),
    )
    text = " ".join(report_of(tmp_path).split())
    assert "No plot: the plot needs RaB(tf)@10; alpha=1 has no value of it." in text
    assert not list(tmp_path.glob("*.png"))


def test_a_folder_without_jobs_or_with_failed_ones_only_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        collect_sweep(tmp_path / "absent")
    with pytest.raises(ValueError, match="none of the 0 jobs"):
        collect_sweep(tmp_path)
    job(tmp_path, "alpha=1", ["alpha=1"])
    with pytest.raises(ValueError, match=r"none of the 1 jobs .* wrote measures\.json: alpha=1"):
        collect_sweep(tmp_path)
