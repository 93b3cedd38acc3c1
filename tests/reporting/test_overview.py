"""The first screen of an evaluation: measures by systems at one cut-off, on 80 columns."""

from __future__ import annotations

import pytest
from shown import sample_report
from terminal_text import terminal_text

from backpack_rank.evaluation.results import Estimate, PerQuery, Report, Summary, SystemResult
from backpack_rank.evaluation.significance import Comparison, compare
from backpack_rank.reporting.overview import overview_table, print_overview
from backpack_rank.reporting.page.build import page_of_rows


def printed(report: Report, comparisons=()) -> str:
    return terminal_text(lambda console: print_overview(report, comparisons, console), width=80)


def result(label: str, **values: float) -> SystemResult:
    figures = {name.replace("_", "@"): Estimate(mean, mean) for name, mean in values.items()}
    return SystemResult(label, effectiveness=Summary(figures, 3))


def test_two_systems_with_every_measure_fit_on_one_screen() -> None:
    lines = printed(sample_report()).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_of_the_measures_of_bias_those_at_10_are_shown_and_variants_that_were_asked_for() -> None:
    def shown(*asked: str) -> list[str]:
        rows = overview_table(sample_report(), asked=asked).rows
        names = [row.labels[0] for row in rows]
        return [name for name in names if name.startswith(("RaB", "ARaB"))]

    assert shown() == ["RaB(tf)@10", "ARaB(tf)@10"]
    assert shown("RaB(bool)@10") == ["RaB(tf)@10", "ARaB(tf)@10", "RaB(bool)@10"]


def test_the_terminal_has_the_farther_end_of_each_interval_beside_its_mean() -> None:
    figures = {"nDCG@10": Estimate(0.7, 0.7, 0.62, 0.75), "R@100": Estimate(0.4, 0.4)}
    report = Report((SystemResult("run", effectiveness=Summary(figures, 3)),))
    lines = printed(report).splitlines()
    assert any("0.7000 ±0.080" in line for line in lines)
    (without,) = [line for line in lines if "R@100" in line]
    assert "±" not in without
    assert any("the farther end of the 95% interval" in line for line in lines)


def test_without_a_cut_off_of_10_the_first_one_is_shown() -> None:
    figures = {name: Estimate(0.1, 0.1) for name in ("RaB(tf)@5", "RaB(tf)@20", "EE-L")}
    report = Report((SystemResult("run", bias=Summary(figures, 3)),))
    assert [row.labels[0] for row in overview_table(report).rows] == ["RaB(tf)@5", "EE-L"]


def test_a_figure_that_a_system_lacks_is_a_dash() -> None:
    table = overview_table(Report((result("a", RR_10=0.5), result("b", P_5=0.25))))
    figures = {row.labels[0]: [cell.text for cell in row.cells] for row in table.rows}
    assert figures == {"RR@10": ["0.5000", "-"], "P@5": ["-", "0.2500"]}


@pytest.fixture
def compared() -> tuple[Report, list[Comparison]]:
    """Two systems of which the second is better for each of 30 queries."""
    values = {}
    for label, value in (("first", 0.1), ("second", 0.9)):
        values[label] = PerQuery({"RR@10": {f"q{number}": value for number in range(30)}})
    report = Report((result("first", RR_10=0.1), result("second", RR_10=0.9)))
    return report, [compare(values)]


def test_a_letter_says_which_system_is_significantly_worse(compared) -> None:
    report, tests = compared
    (row,) = overview_table(report, tests).rows
    assert [cell.raised for cell in row.cells] == ["", "a"]
    text = printed(report, tests)
    assert "a letter behind a figure" in text.lower()
    assert "A letter" not in printed(report)


def test_the_page_has_the_figures_and_the_letters_of_the_terminal(compared) -> None:
    report, tests = compared
    headline = page_of_rows("t", {"": report.rows}, report.about, comparisons=tests).headline
    assert headline is not None
    assert [row.labels for row in headline.rows] == [("a first",), ("b second",)]
    (turned,) = overview_table(report, tests).rows
    of_page = [(row.cells[0].text, row.cells[0].raised) for row in headline.rows]
    assert of_page == [(cell.text, cell.raised) for cell in turned.cells]
    assert of_page == [("0.1000", ""), ("0.9000", "a")]
    assert headline.notes[0].startswith("A letter behind a figure")
