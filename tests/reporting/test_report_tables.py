"""A report in the terminal: every measure of every system, and the sentences that say how they came
about.
"""

from __future__ import annotations

from shown import sample_report as sample
from terminal_text import lines_with, terminal_text

from backpack_rank.evaluation.results import Estimate, Report, Summary, SystemResult
from backpack_rank.reporting.report_tables import print_report, report_tables


def printed(report: Report) -> str:
    return terminal_text(lambda console: print_report(report, console))


def test_the_terminal_shows_means_with_four_decimals():
    text = printed(sample())
    assert "Effectiveness on wikiqa/test (243 queries)" in text
    (line,) = lines_with(text, "BM25", "0.3333")
    assert line.split() == ["BM25", "0.3333", "0.5000", "0.2500", "0.8000"]


def test_bias_has_one_block_per_cutoff_with_all_conventions_within_100_columns():
    text = printed(sample())
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text
    for cutoff, value in (
        (5, "-0.0050"),
        (10, "-0.0100"),
        (20, "-0.0200"),
        (30, "-0.0300"),
        (40, "-0.0400"),
    ):
        (line,) = [
            line for line in lines_with(text, "BM25", value) if line.split()[0] == str(cutoff)
        ]
        assert line.split() == [str(cutoff), "BM25", *[value] * 6]
    for heading in ("TF", "eq.6", "Boolean"):
        assert heading in text


def test_the_sign_the_settings_and_what_is_left_out_are_said_in_words():
    text = printed(sample())
    assert "male minus female: positive values lean towards male words" in " ".join(text.split())
    assert "alpha 0.5, policy 2 lowest senses" in text
    assert "preset default, word list gender_words, tokenizer word" in text
    assert "every system: 390 queries left out: no relevant document" in text
    assert "every system: 1 query missing from the run, counted as 0" in text
    assert "A note [bold]in brackets[/bold]." in text


def test_a_value_that_a_system_does_not_have_is_a_dash_and_not_zero():
    reference = SystemResult("run", None, Summary({"MRR@10": Estimate(0.5, 0.5)}, 3))
    text = printed(Report((reference, sample().rows[1])))
    (line,) = lines_with(text, "run", "0.5000")
    assert line.split() == ["run", "0.5000", "-", "-", "-"]
    assert "(3 to 243 queries)" in text


def test_tables_of_nothing_are_left_out():
    report = Report((SystemResult("run", None, Summary({"MRR@10": Estimate(0.5, 0.5)}, 3)),))
    (table,) = report_tables(report)
    assert table.title == "Effectiveness (3 queries)"
    assert report_tables(Report(())) == []


def test_a_measure_of_another_name_gets_its_own_column():
    bias = {
        "NFaiRR@5": Estimate(0.9, 0.9),
        "NFaiRR@10": Estimate(0.8, 0.8),
        "exposure": Estimate(0.1, 0.1),
    }
    text = printed(Report((SystemResult("run", None, None, Summary(bias, 4)),)))
    assert lines_with(text, "NFaiRR", "exposure")
    assert [line.split() for line in lines_with(text, "run")] == [
        ["5", "run", "0.9000", "-"],
        ["10", "run", "0.8000", "-"],
        ["run", "-", "0.1000"],
    ]
