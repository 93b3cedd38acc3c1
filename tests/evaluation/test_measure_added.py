"""A measure is one class: a new one is parsed, computed, described and shown without other code."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from read_back import csv_rows
from terminal_text import terminal_text

from backpack_rank.data.collection import MemoryStore
from backpack_rank.evaluation.document_groups import DocumentGroups
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.group_exposure import GroupExposure
from backpack_rank.evaluation.measure import Direction, FairnessMeasure
from backpack_rank.evaluation.measure_names import GroupMeasure, measure_of, parse_measures
from backpack_rank.evaluation.results import (
    Estimate,
    PerQuery,
    Report,
    RunInfo,
    Summary,
    SystemResult,
)
from backpack_rank.evaluation.significance import compare
from backpack_rank.reporting.comparison import better_than
from backpack_rank.reporting.main_table import main_measures, main_table
from backpack_rank.reporting.measure_files import write_report
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.render import render
from backpack_rank.reporting.sweep import collect_sweep
from backpack_rank.reporting.sweep_report import write_sweep_report
from backpack_rank.reporting.writers import to_latex

MEASURE = "MinSkew@10"
GROUPS = DocumentGroups.of({"f": "female", "m1": "male", "m2": "male", "m3": "male"})
RUN = {"q": {"m1": 4.0, "m2": 3.0, "f": 2.0, "m3": 1.0}}


@pytest.fixture(autouse=True)
def _added() -> Iterator[None]:
    """All that somebody writes who adds a measure is the class; then it is forgotten again."""

    class MinSkew(GroupMeasure):
        """Skew of the group that is worst off: ln(share of the first places / target)."""

        NAME = "MinSkew"
        PRETTY_NAME = "Smallest Skew"
        SHORT_DESC = "Log ratio of the worst-off group's share of the first places and the target."
        direction = Direction.HIGHER
        best = 0.0
        words = "skew of the group that is worst off"
        explained = "ln of the worst-off group's share of the first places over its target"

        def of_ranking(self, shares, relevant, target):
            seen = shares[: self["cutoff"]].sum(axis=0)
            # As Geyik et al. do, a group that nobody sees counts a little.
            ratios = (seen / seen.sum() + 1e-3) / (target + 1e-3)
            return float(np.log(ratios.min()))

    measure_of.cache_clear()
    yield
    del ir_measures.measures.registry["MinSkew"], FairnessMeasure.known["MinSkew"]
    measure_of.cache_clear()


def test_it_is_parsed_and_computed() -> None:
    """Of the first four one is of a woman, of the first two none; the target is one half."""
    measures = parse_measures(["MinSkew@4", "MinSkew@2"])
    values = GroupExposure({"gender": GROUPS}).measure([RUN], measures).values
    assert values["MinSkew@4"]["q"] == pytest.approx(math.log(0.251 / 0.501))
    assert values["MinSkew@2"]["q"] == pytest.approx(math.log(0.001 / 0.501))
    assert FairnessMeasures(extra=[MEASURE]).measures[MEASURE].name == MEASURE


def test_tests_between_systems_know_what_is_better() -> None:
    even = {f"q{n}": {"m1": 4.0, "f": 3.0} for n in range(10)}
    one_sided = {f"q{n}": {"m1": 4.0, "m2": 3.0, "f": 2.0} for n in range(10)}
    exposure = GroupExposure({"gender": GROUPS})
    measures = parse_measures(["MinSkew@2"])
    systems = {"even": even, "one-sided": one_sided}
    comparison = compare(
        {label: exposure.measure([run], measures) for label, run in systems.items()}
    )
    assert better_than(comparison, comparison.measures[0]) == {
        "even": ("one-sided",),
        "one-sided": (),
    }


def system(label: str, alpha: float, mean: float, low: float, high: float) -> SystemResult:
    figures = {MEASURE: Estimate(mean, abs(mean), low, high)}
    quality = {"nDCG@10": Estimate(0.5, 0.5)}
    return SystemResult(label, alpha, Summary(quality, 10), Summary(figures, 20))


@pytest.fixture
def multirun(tmp_path: Path) -> Path:
    """At alpha=0 the worst-off group has more than at alpha=1, and still too little."""
    for label, alpha, mean in (("alpha=1", 1.0, -0.5), ("alpha=0", 0.0, -0.2)):
        folder = tmp_path / label
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "overrides.yaml").write_text(f"- {label}\n", encoding="utf-8")
        rows = (system(label, alpha, mean, mean - 0.1, mean + 0.1),)
        write_report(folder, Report(rows, RunInfo("wikiqa/test", "wikiqa/test", alpha)))
    return tmp_path


def test_it_is_in_every_place_that_shows_measures(multirun: Path) -> None:
    """A rise from -0.5 to -0.2 is a rise: +60% of 0.5, in every place."""
    terminal = terminal_text(lambda console: write_sweep_report(multirun, console), width=120)
    sweep = collect_sweep(multirun)
    assert MEASURE in main_measures(sweep)
    latex = to_latex(main_table(sweep, [MEASURE]))
    texts = {"terminal": terminal, "LaTeX": latex.replace(r"\%", "%")}
    texts["sweep.md"] = (multirun / "sweep.md").read_text("utf-8")
    texts["page"] = html.unescape(render(page_of_rows("Sweep", {"": sweep.rows("")}, sweep.about)))
    for place, text in texts.items():
        assert MEASURE in text, place
        assert "+60.0%" in text, place
        assert "ln of the worst-off group's share" in " ".join(text.split()), place
    lines = csv_rows(multirun / "sweep.csv", measure=MEASURE)
    assert [float(line["change_percent"]) for line in lines] == pytest.approx([0, 60])


def test_a_measure_of_no_known_kind_is_refused() -> None:
    """It has no value, in place of another measure's value under its name."""

    class Unheard(FairnessMeasure):
        __name__ = "Unheard"

    magnitudes = FairnessMeasures().magnitudes(["d"], MemoryStore({"d": "he"}))
    context = FairnessContext(magnitudes)
    with pytest.raises(ValueError, match="Unheard@10 is no measure of groups"):
        context.measure({"q": {"d": 1.0}}, {"Unheard@10": Unheard() @ 10})


def test_a_name_that_nobody_knows_says_who_differs_and_not_who_is_better(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low = PerQuery({"clicks": {f"q{n}": 0.0 for n in range(10)}})
    high = PerQuery({"clicks": {f"q{n}": 1.0 for n in range(10)}})
    comparison = compare({"low": low, "high": high})
    assert comparison.measures[0].direction is Direction.NONE
    assert better_than(comparison, comparison.measures[0]) == {"low": ("high",), "high": ("low",)}
    assert "clicks: nobody said what is better" in caplog.text
