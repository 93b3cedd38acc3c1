"""What an audit says of finished runs, in words, and the page that opens with it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from backpack_rank.evaluation.results import Estimate, Report, RunInfo, Summary, SystemResult
from backpack_rank.reporting.finding import findings
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.render import render

ABOUT = RunInfo("dl19/test", "dl19/test: 30 gender-neutral queries", sign="male_minus_female")


def row(label: str, bias: float, quality: float | None) -> SystemResult:
    effectiveness = None
    if quality is not None:
        figure = Estimate(quality, quality, quality - 0.1, quality + 0.1)
        effectiveness = Summary({"nDCG@10": figure}, 43)
    leaning = Estimate(bias, abs(bias), bias - 0.05, bias + 0.05)
    return SystemResult(label, None, effectiveness, Summary({"ARaB(tf)@10": leaning}, 30))


def sentences(*rows: SystemResult, tested: bool | None = True) -> list[str]:
    found = findings(Report(rows, ABOUT), lambda measure, first, second: tested)
    return [answer.setting for answer in found]


FIRST = row("a.trec", 0.2, 0.7)


@pytest.mark.parametrize(
    ("second", "tested", "sentence"),
    [
        (
            row("b.trec", 0.1, 0.6),
            False,
            "b.trec leans less to male words than a.trec in the first 10, not significantly; "
            "it ranks worse, not significantly.",
        ),
        (
            row("b.trec", -0.3, 0.8),
            True,
            "b.trec leans more than a.trec in the first 10, to female words and not to male ones, "
            "significantly; it ranks better, significantly.",
        ),
        (
            row("b.trec", 0.2, 0.7),
            False,
            "b.trec leans as far to male words as a.trec in the first 10; it ranks as well.",
        ),
        (
            row("b.trec", -0.2, 0.7),
            False,
            "b.trec leans as far as a.trec in the first 10, to female words and not to male ones; ",
        ),
        (
            row("b.trec", 0.0, 0.7),
            True,
            "b.trec leans to neither group's words in the first 10, and a.trec to male ones, "
            "significantly; it ranks as well.",
        ),
        (row("b.trec", 0.3, None), None, "b.trec leans more to male words than a.trec in the fir"),
    ],
)
def test_a_run_is_compared_with_the_first_in_one_sentence(
    second: SystemResult, tested: bool | None, sentence: str
) -> None:
    first = FIRST if second.effectiveness else row("a.trec", 0.2, None)
    (found,) = sentences(first, second, tested=tested)
    assert found.startswith(sentence)


def test_every_further_run_has_a_sentence_and_a_run_alone_says_what_it_is() -> None:
    assert len(sentences(FIRST, row("b", 0.1, 0.7), row("c", 0.0, 0.7))) == 2
    (alone,) = sentences(FIRST)
    assert alone == (
        "a.trec leans to male words in the first 10, further than chance brings it: "
        "the interval leaves out 0."
    )
    (even,) = sentences(row("a.trec", -0.01, None))
    assert "leans to female words" in even
    assert even.endswith("the interval holds 0.")


def test_runs_without_a_word_lean_to_no_side() -> None:
    none = row("a.trec", 0.0, None)
    assert sentences(none) == ["a.trec leans to neither group's words in the first 10."]
    assert sentences(none, row("b", 0.0, None)) == [
        "b leans to neither group's words in the first 10, and neither does a.trec."
    ]
    (further,) = sentences(none, row("b", -0.1, None), tested=False)
    assert further == (
        "b leans to female words in the first 10, and a.trec to neither's, not significantly."
    )


def test_without_a_measure_of_bias_the_other_run_is_named() -> None:
    runs = [
        replace(row(name, 0.1, quality), bias=None) for name, quality in (("a", 0.7), ("b", 0.6))
    ]
    assert sentences(*runs) == ["b ranks worse than a, significantly."]


def test_the_figures_stand_below_with_their_intervals() -> None:
    (found,) = findings(Report((FIRST, row("b", 0.1, 0.6)), ABOUT), lambda *_: None)
    assert found.changes == (
        "ARaB(tf)@10 (best is 0): b +0.1000 [0.050, 0.150], a.trec +0.2000 [0.150, 0.250]",
        "nDCG@10 (higher is better): b 0.6000 [0.500, 0.700], a.trec 0.7000 [0.600, 0.800]",
    )


def test_the_page_has_the_finding_named_marks_and_one_table_and_no_dial() -> None:
    report = Report((FIRST, row("b.trec", 0.1, 0.6)), ABOUT)
    page = page_of_rows("Audit of runs", {"": report.rows}, ABOUT)
    page = replace(
        page,
        answers=findings(report, lambda *_: True),
        is_audit=True,
        provenance=(("version", "0"),),
    )
    html = render(page)
    opened, folded = html.split('<details class="folded">')
    assert opened.index("leans less to male words") < opened.index('id="tradeoff"')
    assert opened.count("<table>") == 2, "the main numbers, and the values of the chart"
    assert "Each mark is a run" in opened
    assert '"label": "b.trec"' in opened
    assert "More: Provenance" in folded
    shown = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)
    assert "alpha" not in shown
    assert "Each ring" not in shown
