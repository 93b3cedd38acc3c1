"""The table of systems by measures: letters, bold figures, and what its files hold."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from read_back import csv_rows
from terminal_text import terminal_text

from backpack_rank.evaluation.significance import ComparedMeasure, Comparison, PairedTest
from backpack_rank.reporting.comparison import (
    better_than,
    comparison_tables,
    describe_comparison,
    distinct_labels,
    print_comparison,
    system_letters,
    write_comparison,
)

THIRD = 1 / 3


def compared(
    measure: str, direction, means: dict[str, float], significant: set[tuple[str, str]]
) -> ComparedMeasure:
    """A measure: p = .01 for the named pairs where figures are decided, .2 for others there, .001
    elsewhere.
    """
    averages = ("mean", "absolute_mean", "mean_absolute") if direction == "zero" else ("mean",)
    tests = []
    for average in averages:
        for first, second in combinations(means, 2):
            decides = average == ("absolute_mean" if direction == "zero" else "mean")
            p_value = (0.01 if (first, second) in significant else 0.2) if decides else 0.001
            difference = means[first] - means[second]
            p_values = (p_value / 2, 0.3, p_value)
            compared_pair = (measure, average, first, second, 9, difference)
            tests.append(PairedTest(*compared_pair, *p_values, THIRD, 0.5))
    return ComparedMeasure(measure, direction, tuple(means.values()), tuple(tests))


def sample() -> list[Comparison]:
    quality = compared(
        "nDCG@10",
        "higher",
        {"BM25": 0.25, "a_b & c": THIRD, "x|y": 0.25},
        {("BM25", "a_b & c"), ("a_b & c", "x|y")},
    )
    bias = compared(
        "RaB(tf)@10",
        "zero",
        {"BM25": -0.02, "a_b & c": 0.05, "x|y": 0.1},
        {("BM25", "x|y"), ("a_b & c", "x|y")},
    )
    share = compared(
        "Exposure(male)@10", "none", {"BM25": 0.5, "a_b & c": 0.5, "x|y": 0.7}, {("a_b & c", "x|y")}
    )
    systems = ("BM25", "a_b & c", "x|y")
    return [
        Comparison(systems, (quality,), 243, "wikiqa/test", {"x|y": ("q1", "q2")}),
        Comparison(systems, (bias, share), 1765, "neutral_set"),
    ]


def printed(comparisons: list[Comparison]) -> str:
    return terminal_text(lambda console: print_comparison(comparisons, console))


def test_letters_stand_behind_the_better_system():
    quality, bias = sample()
    assert better_than(quality, quality.measures[0]) == {
        "BM25": (),
        "a_b & c": ("BM25", "x|y"),
        "x|y": (),
    }
    # Closer to 0 is better, from both sides; the other averages' tests do not count.
    assert better_than(bias, bias.measures[0]) == {"BM25": ("x|y",), "a_b & c": ("x|y",), "x|y": ()}
    # Where neither is better, both carry the letter.
    assert better_than(bias, bias.measures[1]) == {
        "BM25": (),
        "a_b & c": ("x|y",),
        "x|y": ("a_b & c",),
    }


def test_lower_is_better_where_the_goal_says_so():
    lower = compared("|gap|/std", "lower", {"a": 0.1, "b": 0.2}, {("a", "b")})
    comparison = Comparison(("a", "b"), (lower,), 5)
    assert better_than(comparison, lower) == {"a": ("b",), "b": ()}
    assert [row.cells[0].bold for row in comparison_tables([comparison])[0].rows] == [True, False]


def test_a_p_value_at_the_level_is_not_significant():
    measure = compared("nDCG@10", "higher", {"a": 0.1, "b": 0.2}, {("a", "b")})
    assert better_than(Comparison(("a", "b"), (measure,), 5, level=0.0101), measure)["b"] == ("a",)
    assert better_than(Comparison(("a", "b"), (measure,), 5, level=0.01), measure)["b"] == ()


def test_systems_have_letters_in_order_also_beyond_z():
    systems = tuple(f"system {number}" for number in range(705))
    letters = list(system_letters([Comparison(systems, (), 1)]).values())
    assert letters[:3] == ["a", "b", "c"]
    assert letters[25:29] == ["z", "aa", "ab", "ac"]
    assert letters[51:53] == ["az", "ba"]
    assert letters[701:704] == ["zz", "aaa", "aab"]
    assert len(set(letters)) == 705


def test_letters_of_more_than_one_character_are_set_apart():
    names = [f"s{number}" for number in range(28)]
    means = {name: float(number) for number, name in enumerate(names)}
    measure = compared(
        "AP", "higher", means, {("s0", "s27"), ("s25", "s27"), ("s26", "s27"), ("s0", "s1")}
    )
    rows = comparison_tables([Comparison(tuple(names), (measure,), 5)])[0].rows
    assert (rows[27].labels[0], rows[27].cells[0].raised) == ("ab", "a,z,aa")
    assert rows[1].cells[0].raised == "a"


def test_the_terminal_shows_figures_letters_and_how_to_read_them():
    text = printed(sample())
    assert "wikiqa/test (243 queries that every system has)" in text
    assert "neutral_set (1765 queries)" in text
    assert re.search(r"b +a_b & c +0.3333 ac\n", re.sub(" +\n", "\n", text))
    words = " ".join(text.split())
    assert "significantly better than the system of that letter" in words
    assert "Holm-corrected over all pairs of systems, p < 0.05" in words
    assert "Higher is better: nDCG." in words
    assert "Closer to 0 is better (absolute value of the mean): RaB(tf)." in words
    assert (
        "Neither high nor low is better: Exposure(male); a letter says that the systems differ."
        in words
    )
    assert "x|y has no value of 2 queries, left out for every system: q1, q2" in words


def test_the_best_figure_is_marked_and_ties_are_all_marked():
    tie = compared("AP", "higher", {"a": 0.1 + 0.2, "b": 0.3, "c": 0.2}, set())
    rows = comparison_tables([Comparison(("a", "b", "c"), (tie,), 5)])[0].rows
    assert [row.cells[0].bold for row in rows] == [True, True, False]


def test_one_system_is_shown_without_letters_or_bold():
    comparison = Comparison(("only",), (compared("AP", "higher", {"only": 0.3}, set()),), 5)
    (table,) = comparison_tables([comparison])
    assert not table.rows[0].cells[0].bold
    assert describe_comparison([comparison]) == ["Higher is better: AP."]


def test_many_measures_are_shown_by_cut_off():
    measures = [
        compared(f"{name}@{cutoff}", "zero", {"some/long/folder/run.trec": -0.1, "b": 0.2}, set())
        for name in (
            "RaB(tf)",
            "ARaB(tf)",
            "RaB(tf-paper)",
            "ARaB(tf-paper)",
            "RaB(bool)",
            "ARaB(bool)",
            "gap",
        )
        for cutoff in (5, 10)
    ]
    comparison = Comparison(("some/long/folder/run.trec", "b"), tuple(measures), 5)
    shown = [table.groups[0].columns for table in comparison_tables([comparison])]
    assert [len(measures) for measures in shown] == [6, 1, 6, 1]
    assert {name.split("@")[1] for name in shown[0]} == {"5"}


def test_the_csv_is_the_table_with_all_digits(tmp_path: Path):
    write_comparison(tmp_path, sample())
    with open(tmp_path / "comparison.csv", newline="", encoding="utf-8") as handle:
        lines = list(csv.reader(handle))
    measures = ("nDCG@10", "RaB(tf)@10", "Exposure(male)@10")
    header = ["letter", "system"]
    for name in measures:
        header += [name, f"{name} letters"]
    assert lines == [
        header,
        ["a", "BM25", "0.25", "", "-0.02", "c", "0.5", ""],
        ["b", "a_b & c", repr(THIRD), "ac", "0.05", "c", "0.5", "c"],
        ["c", "x|y", "0.25", "", "0.1", "", "0.7", "b"],
    ]


def test_a_measure_of_two_sets_says_in_the_csv_of_which_it_is(tmp_path: Path):
    blocks = [
        Comparison(tuple(means), (compared("AP", "higher", means, set()),), 5, where)
        for where, means in (("dl19", {"a": 0.1, "b": 0.2}), ("dl20", {"b": 0.3}))
    ]
    write_comparison(tmp_path, blocks)
    assert (tmp_path / "comparison.csv").read_text("utf-8").splitlines() == [
        "letter,system,AP on dl19,AP on dl19 letters,AP on dl20,AP on dl20 letters",
        "a,a,0.1,,,",
        "b,b,0.2,,0.3,",
    ]


def test_significance_has_every_test_with_all_digits(tmp_path: Path):
    comparisons = sample()
    (measure,) = comparisons[0].measures
    endless = PairedTest("nDCG@10", "mean", "BM25", "x|y", 9, 0.0, 1.0, 1.0, 1.0, math.inf, 1.0)
    with_endless = replace(measure, tests=(*measure.tests, endless))
    comparisons[0] = replace(comparisons[0], measures=(with_endless,))
    write_comparison(tmp_path, comparisons)
    lines = csv_rows(tmp_path / "significance.csv")
    assert len(lines) == 4 + 9 + 3
    assert lines[0] == {
        "where": "wikiqa/test",
        "measure": "nDCG@10",
        "average": "mean",
        "first": "BM25",
        "second": "a_b & c",
        "queries": "9",
        "difference": repr(0.25 - THIRD),
        "p_randomisation": "0.005",
        "p_wilcoxon": "0.3",
        "p_holm": "0.01",
        "d_z": repr(THIRD),
        "rank_biserial": "0.5",
        "significant": "True",
    }
    assert (lines[3]["d_z"], lines[3]["significant"]) == ("", "False")


def test_the_tables_are_written_as_markdown_and_latex(tmp_path: Path):
    paths = write_comparison(tmp_path, sample())
    assert [path.name for path in paths] == [
        f"comparison.{end}" for end in ("csv", "md", "tex")
    ] + ["significance.csv"]
    for ending, table, row in (
        ("md", "### ", "**0.3333**<sup>ac</sup>"),
        ("tex", r"\begin{table}", "0.3333}\\text"),
    ):
        text = (tmp_path / f"comparison.{ending}").read_text("utf-8")
        assert (text.count(table), text.count("Higher is better: nDCG.")) == (2, 1)
        assert row in text


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["a.trec", "b.trec"], ["a.trec", "b.trec"]),
        (
            ["one/run.trec", "two/run.trec", "two/other.trec"],
            ["one/run.trec", "two/run.trec", "other.trec"],
        ),
        (["x/one/run", "y/one/run", "one/run"], ["x/one/run", "y/one/run", "one/run"]),
        (["/run", "run"], ["/run", "run"]),
        (["a/run", "a/run", "a/run"], ["a/run", "a/run (2)", "a/run (3)"]),
        (["r", "r", "r (2)"], ["r", "r (3)", "r (2)"]),
        ([], []),
    ],
)
def test_runs_of_the_same_name_get_distinct_labels(names, labels):
    assert distinct_labels(names) == labels
    assert len(set(distinct_labels(names))) == len(names)
