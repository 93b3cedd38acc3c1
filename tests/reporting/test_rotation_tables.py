"""Tables 2 to 5 of paper 001: its printed figures, its layout, and ours below them in every format."""

from __future__ import annotations

import csv
import io
import math

import pytest
from rich.console import Console

from backpack_rank.reporting.layout import Entry, LayoutTable, extreme, print_layout_table, to_latex, to_markdown
from backpack_rank.reporting.published_rotation import TABLE2, TABLE3, TABLE4, TABLE5, BothSets
from backpack_rank.reporting.rotation_alpha import TurnedRow, alpha_table
from backpack_rank.reporting.rotation_records import percent
from backpack_rank.reporting.rotation_tables import RankersOnBoth, effect_table, similarity_table
from backpack_rank.reporting.rows import Figure
from backpack_rank.reporting.tables import csv_text
from backpack_rank.reporting.transfer_table import ChainedRankers, transfer_table

# The relative differences as printed, line by line: nDCG, MRR, Recall.
PRINTED3 = """
-9.4 -10.7 -6.1 | -0.2 -0.6 0.0 | -13.4 -14.5 -11.4 | +0.6 +0.7 -0.2 | -20.8 -22.8 -17.1 | -0.3 -0.7 +0.2
"""
PRINTED4 = "-0.7 -0.9 -0.1 | -0.6 -1.0 -0.3 | +0.4 +0.5 -0.5 | -0.1 -0.1 0.0 | -0.7 -0.9 -0.3 | -0.5 -0.5 -0.1"


@pytest.mark.parametrize(("table", "printed"), [(TABLE3, PRINTED3), (TABLE4, PRINTED4)])
def test_differences_are_those_that_the_paper_prints(table: dict, printed: str) -> None:
    lines = [[float(figure) for figure in line.split()] for line in printed.split("|")]
    for row, line in zip(table.values(), lines, strict=True):
        for tested, figure in zip(row.values(), line, strict=True):
            assert 100 * tested.change == pytest.approx(figure, abs=0.11)  # of figures with three decimals


def test_some_printed_figures() -> None:
    assert TABLE3["BERT_DOT", "Debiased"]["MRR@10"] == BothSets(0.305, 0.307)
    assert TABLE4["TK", "Original"]["R@10"] == BothSets(0.933, 0.930)
    assert TABLE5["BERT_DOT", "c"].values == {"nDCG@10": 0.792, "MRR@10": 0.748, "R@10": 0.927}
    assert TABLE5["BERT_DOT", "c"].letters == {"nDCG@10": "ab", "MRR@10": "ab", "R@10": "b"}
    assert TABLE5["BERT_CAT", "b"].letters["nDCG@10"] == ""
    assert TABLE2["MS MARCO", "Debiased"] == (0.021, 0.006)


def figures(*means: float) -> dict[str, Figure]:
    names = ("nDCG@10", "MRR@10", "R@10")
    return {name: Figure(mean, mean, mean - 0.01, mean + 0.01) for name, mean in zip(names, means, strict=True)}


@pytest.fixture
def effect() -> LayoutTable:
    tk = RankersOnBoth(
        figures(0.5, 0.4, 0.9), figures(0.4, 0.4, 0.88), {"nDCG@10": 0.01, "MRR@10": 1.0, "R@10": 0.2}, 2
    )
    turned = RankersOnBoth(figures(0.45, 0.38, 0.9), figures(0.46, 0.4, 0.9), {})
    knrm = RankersOnBoth(figures(0.3, 0.2, 0.0), figures(0.3, 0.2, 0.0), {})
    measured = {("TK", "Original"): tk, ("TK", "Debiased"): turned, ("knrm", "Original"): knrm}
    return effect_table("table4", measured, "squad/test", ("BM25", figures(0.6, 0.5, 0.8)), ["A note."])


def cells(table: LayoutTable, section: str, *labels: str) -> list[str]:
    (row,) = [entries for name, rows in table.sections if name == section for found, entries in rows if found == labels]
    return [f"{'*' if entry.bold else ''}{entry.text}{entry.raised}" for entry in row]


def test_table_4_has_the_papers_rows_and_ours_below(effect: LayoutTable) -> None:
    assert [name for name, _ in effect.sections] == ["BERT_CAT", "BERT_DOT", "TK", "knrm", "BM25"]
    assert cells(effect, "TK", "Original", "paper") == (
        ["0.846", "0.840", "-0.7%", "0.818", "0.811", "-0.9%", "0.933", "0.930", "-0.3%"]
    )
    # 0.4 - 0.5 over 0.4; the smaller of the two trainings is bold, the significant one is marked
    assert cells(effect, "TK", "Original", "here") == (
        ["0.5000", "0.4000", "-25.0%†", "0.4000", "0.4000", "*0.0%", "0.9000", "0.8800", "-2.3%"]
    )
    assert cells(effect, "TK", "Debiased", "here")[2::3] == ["*+2.2%", "+5.0%", "*0.0%"]
    assert cells(effect, "TK", "Debiased", "paper")[2::3] == ["*-0.5%", "*-0.5%", "*-0.1%"]
    assert cells(effect, "BERT_CAT", "Debiased", "here") == ["-"] * 9
    assert cells(effect, "knrm", "Original", "here")[:6] == ["0.3000", "0.3000", "0.0%", "0.2000", "0.2000", "0.0%"]
    assert cells(effect, "knrm", "Original", "here")[6:] == ["0.0000", "0.0000", "-"]
    assert cells(effect, "BM25", "", "here")[::3] == ["0.6000", "0.5000", "0.8000"]
    assert effect.notes[-1] == "A note."


def test_lines_have_all_digits_and_say_how_many_rankers(effect: LayoutTable) -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(effect.columns, effect.records))))
    ours = [line for line in lines if line["source"] == "here" and line["model"] == "TK"]
    assert len(ours) == 2 * 3 * 3
    first = next(line for line in ours if (line["test"], line["measure"]) == ("rotated", "R@10"))
    assert (first["value"], first["low"], first["rankers"]) == ("0.88", "0.87", "2")
    change = next(line for line in ours if (line["test"], line["measure"]) == ("change", "nDCG@10"))
    assert float(change["value"]) == pytest.approx(-0.25)
    assert change["p_wilcoxon"] == "0.01"
    paper = [line for line in lines if line["source"] == "paper"]
    assert len(paper) == 6 * 9


def test_every_format_has_the_figures(effect: LayoutTable) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    print_layout_table(effect, console)
    shown = console.file.getvalue()
    line = next(line for line in shown.splitlines() if "-25.0%†" in line)
    assert line.split()[:5] == ["Original", "here", "0.5000", "0.4000", "-25.0%†"]
    markdown = to_markdown(effect)
    assert "| Original | here | 0.5000 | 0.4000 | -25.0%<sup>†</sup> |" in markdown
    assert "| **BERT\\_CAT** |" in markdown
    widths = {text.count(" | ") for text in markdown.splitlines() if text.startswith("| ")}
    assert widths == {10}
    latex = to_latex(effect)
    assert r"-25.0\%\textsuperscript{†} & 0.4000 & 0.4000 & \textbf{0.0\%}" in latex
    assert latex.count(r"\multicolumn{3}{c}") == 3


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"t: row \('a',\) has 1 figures, the table has 2"):
        LayoutTable("t", "T", ("",), (("", ("x", "y")),), (("", ((("a",), (Entry("1"),)),)),), (), (), ())


def test_table_5_marks_what_is_better() -> None:
    chains = {
        "a": ChainedRankers(figures(0.5, 0.4, 0.9)),
        "c": ChainedRankers(figures(0.52, 0.39, 0.9), {"nDCG@10": "a"}, rankers=3),
    }
    table = transfer_table({"TK": chains, "knrm": {"a": chains["a"]}}, "squad", "nq", "squad/test")
    assert cells(table, "TK", "MS(Debiased) -> SQuAD(Original)", "c", "paper") == ["*0.857ab", "*0.832ab", "*0.937"]
    assert cells(table, "TK", "nq(Debiased) -> squad(Original)", "c", "here") == ["*0.5200a", "0.3900", "*0.9000"]
    assert cells(table, "TK", "nq(Original) -> squad(Original)", "b", "here") == ["-"] * 3
    assert cells(table, "knrm", "squad(Original)", "a", "here") == ["0.5000", "0.4000", "0.9000"]
    assert cells(table, "BERT_CAT", "MS(Original) -> SQuAD(Original)", "b", "paper") == ["*0.913", "*0.898", "0.957"]
    letters = [
        line[10] for line in table.records if line[:4] == ("table5", "TK", "nq(Debiased) -> squad(Original)", "here")
    ]
    assert letters == ["a", "", ""]


def test_table_2_has_a_column_for_every_collection() -> None:
    measured = {("TK", "SQuAD", "Original"): (0.06, 0.01), ("TK", "nq", "Debiased"): (0.0123, 0.004)}
    table = similarity_table(measured)
    assert [name for name, _ in table.groups] == ["MS MARCO", "SQuAD", "nq"]
    assert cells(table, "TK", "Original", "paper") == ["0.176", "0.046", "0.056", "0.014", "-", "-"]
    assert cells(table, "TK", "Original", "here") == ["-", "-", "0.060", "0.010", "-", "-"]
    assert cells(table, "TK", "Debiased", "here") == ["-", "-", "-", "-", "0.012", "0.004"]


def test_both_biases_stand_in_one_row() -> None:
    bias = {"RaB(tf)@10": Figure(-0.02, 0.1), "swap change/std": Figure(0.3, 0.3)}
    both = {"original": figures(0.5, 0.4, 0.9) | bias, "rotated": figures(0.45, 0.4, 0.9)}
    thirds = {"original": {"first": (Figure(0.42, 0.42), 5), "last": (Figure(0.31, 0.31), 4)}}
    table = alpha_table([TurnedRow("backpack", "Original", 0.5, both, thirds)], "c", "b", "male minus female")
    assert cells(table, "backpack", "Original", "0.5") == (
        ["0.5000", "0.4500", "-11.1%", "0.4200", "0.3100", "-0.0200", "-", "-", "-", "0.3000", "-"]
    )
    assert ("backpack", "Original", 0.5, "original", "MRR@10 last third", 0.31, None, None, 4, 1) in table.records


def test_extremes_and_percents() -> None:
    assert extreme([0.2, None, math.nan, 0.1], smallest=True) == 0.1
    assert extreme([None], smallest=False) is None
    assert [percent(value) for value in (-0.0004, 0.0123, math.nan)] == ["0.0%", "+1.2%", "-"]
    assert math.isnan(BothSets(0.1, 0.0).change)


def test_groups_that_do_not_fit_stand_below_each_other(effect: LayoutTable) -> None:
    def printed(width: int) -> list[str]:
        console = Console(file=io.StringIO(), width=width, color_system=None)
        print_layout_table(effect, console)
        return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]

    assert sum(line == "nDCG MRR Recall" for line in printed(80)) == 1
    narrow = printed(60)
    assert [line for line in narrow if line in ("nDCG MRR", "Recall")] == ["nDCG MRR", "Recall"]
    assert "Original here 0.5000 0.4000 -25.0%† 0.4000 0.4000 0.0%" in narrow
    assert "Original here 0.9000 0.8800 -2.3%" in narrow
