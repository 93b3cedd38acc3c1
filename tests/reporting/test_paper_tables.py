"""The paper's tables: its printed figures, its order, and ours beside them in every format."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from backpack_rank.reporting.paper_formats import (
    print_paper_table,
    to_csv,
    to_latex,
    to_markdown,
    write_paper_table,
)
from backpack_rank.reporting.paper_tables import PaperTable, figure2, measured_of, table1, table2
from backpack_rank.reporting.published import TABLE1, TABLE2
from backpack_rank.reporting.rows import Figure, Summary, SystemRow

SIGN = "male minus female: positive values lean towards male words, negative ones towards female words"
BIAS = [
    f"{name}({kind})@{cutoff}" for cutoff in (10, 20, 30, 40) for kind in ("tf", "bool") for name in ("RaB", "ARaB")
]
MODELS = ["BM25", "PACRR", "MP", "KNRM", "ConvKNRM", "Ours (alpha = 1)", "Ours (alpha = 0.5)"]

# Copied from the paper's page by hand, line by line: cut-off, model, TF RaB, TF ARaB, Boolean RaB, Boolean ARaB.
PRINTED = """
10 BM25 .062 .063 .048 .044 | 10 PACRR .080 .084 .062 .063 | 10 MP .065 .072 .052 .056 | 10 KNRM .067 .064 .051 .051
10 ConvKNRM .080 .077 .064 .060 | 10 1 .064 .064 .047 .047 | 10 0.5 .053 .056 .039 .042
20 BM25 .060 .062 .048 .046 | 20 PACRR .073 .081 .058 .061 | 20 MP .063 .068 .052 .054 | 20 KNRM .068 .066 .054 .052
20 ConvKNRM .071 .075 .058 .059 | 20 1 .058 .062 .045 .046 | 20 0.5 .051 .053 .040 .041
30 BM25 .058 .060 .048 .047 | 30 PACRR .070 .078 .057 .060 | 30 MP .059 .066 .049 .053 | 30 KNRM .068 .067 .055 .053
30 ConvKNRM .069 .074 .057 .059 | 30 1 .061 .061 .048 .046 | 30 0.5 .052 .053 .041 .041
40 BM25 .057 .060 .048 .047 | 40 PACRR .066 .076 .055 .059 | 40 MP .055 .064 .045 .051 | 40 KNRM .067 .067 .056 .054
40 ConvKNRM .068 .073 .056 .059 | 40 1 .059 .061 .048 .047 | 40 0.5 .053 .053 .043 .041
"""


def bias(shift: float = 0.0) -> dict[str, Figure]:
    """A figure of its own for every measure."""
    return {name: Figure(shift + index / 100, 0.5, shift - 0.01, shift + 0.5) for index, name in enumerate(BIAS)}


def measured() -> dict[str, dict[str, Figure | float]]:
    return {
        "alpha=0": {"nDCG@10": 0.31, **bias(-0.9)},
        "BM25": {"MRR@10": 0.21, "nDCG@10": 0.25, **bias(0.5)},
        "alpha=1": {"MRR@10": 0.3141592, "nDCG@5": 0.4, "nDCG@10": Figure(0.35, 0.35, 0.33, 0.37), **bias(0.1)},
        "GPT2ForRanking": {"nDCG@10": 0.29},
    }


def cell(table: PaperTable, cutoff: int | None, label: str, measure: str):
    (found,) = [
        cell
        for block in table.blocks
        if block.cutoff == cutoff
        for line in block.lines
        if line.label == label
        for cell in line.cells
        if cell.measure == measure
    ]
    return found


def printed(table: PaperTable, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_paper_table(table, console)
    return console.file.getvalue()


def body(markdown: str) -> list[list[str]]:
    return [[part.strip() for part in line.strip("|").split("|")] for line in markdown.splitlines() if line[:1] == "|"]


def test_table1_holds_the_printed_figures_in_the_papers_order():
    assert [(row.label, tuple(row.values.values())) for row in TABLE1.rows] == [
        ("GPT-2", (0.3156, 0.3448, 0.3843)),
        ("Backpack (alpha = 0.5)", (0.3252, 0.3563, 0.3947)),
        ("Backpack (alpha = 0.7)", (0.3298, 0.3601, 0.3985)),
        ("Backpack (alpha = 1.0)", (0.3343, 0.3640, 0.4025)),
    ]
    assert all(list(row.values) == ["MRR@10", "nDCG@5", "nDCG@10"] for row in TABLE1.rows)


def test_table2_holds_the_printed_figures_in_the_papers_order():
    entries = [entry.split() for entry in PRINTED.replace("\n", "|").split("|") if entry.strip()]
    assert len(entries) == 28
    assert [row.label for row in TABLE2.rows] == MODELS
    rows = {row.label: row.values for row in TABLE2.rows}
    for cutoff, model, *values in entries:
        label = model if model in rows else f"Ours (alpha = {model})"
        names = [f"{name}@{cutoff}" for name in ("RaB(tf)", "ARaB(tf)", "RaB(bool)", "ARaB(bool)")]
        assert [rows[label][name] for name in names] == [float(value) for value in values]
    assert sum(len(values) for values in rows.values()) == 28 * 4


def test_table1_has_our_figures_beside_the_papers_in_its_rows_and_others_below():
    table = table1(measured(), "msmarco_dev600 (600 queries)")
    assert [line.label for line in table.blocks[0].lines] == [row.label for row in TABLE1.rows] + ["alpha=0", "BM25"]
    assert [line.system for line in table.blocks[0].lines] == [
        "GPT2ForRanking",
        None,
        None,
        "alpha=1",
        "alpha=0",
        "BM25",
    ]
    own = cell(table, None, "Backpack (alpha = 1.0)", "MRR@10")
    assert (own.published, own.value) == (0.3343, 0.3141592)
    assert cell(table, None, "GPT-2", "nDCG@10").value == 0.29
    assert cell(table, None, "GPT-2", "MRR@10").value is None
    assert cell(table, None, "BM25", "MRR@10").published is None


def test_table2_has_a_block_per_cutoff_with_every_model_of_the_paper():
    table = table2(measured(), "dl19", SIGN)
    assert [block.cutoff for block in table.blocks] == [10, 20, 30, 40]
    for block in table.blocks:
        assert [line.label for line in block.lines] == [*MODELS, "alpha=0"]
        assert [line.system for line in block.lines] == ["BM25", None, None, None, None, "alpha=1", None, "alpha=0"]
    assert cell(table, 30, "KNRM", "RaB(bool)@30").published == 0.055
    assert cell(table, 20, "BM25", "ARaB(tf)@20").value == pytest.approx(0.5 + BIAS.index("ARaB(tf)@20") / 100)


def test_bias_is_shown_as_absolute_values_and_a_mean_below_zero_is_marked():
    table = table2(
        {"BM25": {"RaB(tf)@10": Figure(-0.02, 0.3, -0.05, 0.01), "ARaB(tf)@10": Figure(0.03, 0.3)}}, "x", SIGN
    )
    below, above = cell(table, 10, "BM25", "RaB(tf)@10"), cell(table, 10, "BM25", "ARaB(tf)@10")
    assert (below.value, below.interval, below.turned) == (0.02, (0.0, 0.05), True)
    assert (above.value, above.interval, above.turned) == (0.03, None, False)
    text = printed(table)
    assert "0.0200*" in text
    assert "0.0300*" not in text
    assert "* The mean is below 0" in text
    assert "mean is below 0" not in printed(table2({"BM25": {"RaB(tf)@10": 0.1}}, "x", SIGN))
    assert cell(table1({"BM25": {"nDCG@10": -0.1}}, "x"), None, "BM25", "nDCG@10").value == -0.1


def test_the_terminal_shows_both_figures_within_100_columns():
    text = printed(table2(measured(), "dl19 (30 queries)", SIGN))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    lines = [line.replace("│", " ").split() for line in text.splitlines() if line.startswith("│ BM25")]
    assert len(lines) == 4
    assert lines[0] == ["BM25", "0.062", "0.5000", "0.063", "0.5100", "0.048", "0.5200", "0.044", "0.5300"]
    pacrr = next(line for line in text.splitlines() if line.startswith("│ PACRR"))
    assert pacrr.replace("│", " ").split() == ["PACRR", "0.080", "-", "0.084", "-", "0.062", "-", "0.063", "-"]


def test_the_notes_say_what_was_measured_where_and_the_sign():
    text = " ".join(printed(table2(measured(), "dl19 (30 queries)", SIGN)).split())
    assert "MS MARCO, the 1,765 gender-neutral queries" in text
    assert "Measured figures: dl19 (30 queries). They are comparable with the published ones only where" in text
    assert "Absolute values of means over queries" in text
    assert SIGN in text
    first = " ".join(printed(table1(measured(), "msmarco_dev600")).split())
    assert "Table 1" in first
    assert "BM25 top 100" in first
    assert "Absolute" not in first


def test_markdown_has_rows_of_one_length_and_the_intervals():
    text = to_markdown(table2(measured() | {"a|b": {"RaB(tf)@10": -0.5}}, "dl19", SIGN))
    rows = body(text.replace("\\|", "/"))
    assert {len(row) for row in rows} == {9}
    assert rows[0][:4] == ["Model", "TF RaB (paper)", "TF RaB (here)", "TF ARaB (paper)"]
    assert sum(row[0].startswith("**Cut-off") for row in rows) == 4
    bm25 = next(row for row in rows if row[0] == "BM25")
    assert bm25[1:3] == ["0.062", "0.5000 [0.4900, 1.0000]"]
    assert next(row for row in rows if row[0] == "a/b")[2] == "0.5000\\*"
    assert "confidence intervals" in text
    assert "confidence intervals" not in to_markdown(table1({"BM25": {"nDCG@10": 0.1}}, "x"))


def test_csv_has_all_digits_with_and_without_signs():
    lines = list(csv.DictReader(io.StringIO(to_csv(table2(measured(), "dl19", SIGN)))))
    assert len(lines) == 4 * 8 * 4
    chosen = next(line for line in lines if (line["system"], line["measure"]) == ("alpha=0", "RaB(tf)@20"))
    mean = -0.9 + BIAS.index("RaB(tf)@20") / 100
    assert (float(chosen["mean"]), float(chosen["measured"])) == (mean, -mean)
    assert (float(chosen["low"]), float(chosen["high"])) == (-0.91, -0.4)
    assert (chosen["table"], chosen["cutoff"], chosen["published"]) == ("table2", "20", "")
    only = next(line for line in lines if line["row"] == "PACRR")
    assert (only["published"], only["measured"], only["mean"], only["system"]) == ("0.08", "", "", "")


def columns(row: str) -> int:
    """Columns that a LaTeX row takes."""
    spans = [int(count) for count in re.findall(r"\\multicolumn\{(\d+)\}", row)]
    return len(re.split(r"(?<!\\)&", row)) + sum(spans) - len(spans)


@pytest.mark.parametrize("build", [table1, lambda m, on: table2(m, on, SIGN), lambda m, on: figure2(m, on, SIGN)])
def test_latex_rows_fill_the_columns_and_rules_are_booktabs(build):
    systems = {key: value for key, value in measured().items() if "GPT" not in key}
    text = to_latex(build(systems | {"my_run & 5%": {"nDCG@10": 0.3, "RaB(tf)@10": 0.1}}, "dev_600 & more"))
    count = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) >= 4
    assert {columns(row) for row in rows} == {count}
    assert all(text.count(rule) == 1 for rule in (r"\toprule", r"\bottomrule", r"\begin{table}", r"\end{table}"))
    assert r"my\_run \& 5\%" in text
    assert r"dev\_600 \& more" in text
    assert not re.search(r"\\midrule\n\\midrule", text)
    assert text.count("{") == text.count("}")


def test_latex_writes_alpha_as_a_letter():
    text = to_latex(table2(measured(), "dl19", SIGN))
    assert r"Ours ($\alpha = 0.5$) & 0.053 & -" in text
    assert r"$\alpha = 0$ &" in text
    assert r"\multicolumn{9}{c}{Cut-off: 30}" in text


def test_latex_escapes_a_backslash_once():
    text = to_latex(table1({r"a\b{c}^~": {"nDCG@10": 0.1}}, "x"))
    assert r"a\textbackslash{}b\{c\}\textasciicircum{}\textasciitilde{} &" in text


def test_figure2_goes_from_the_largest_alpha_to_the_smallest_after_the_references():
    systems = {f"alpha={alpha}": {"nDCG@10": alpha, "RaB(tf)@10": -alpha} for alpha in (0.5, 1, 0, 0.7)}
    table = figure2({**systems, "BM25": {"nDCG@10": 0.2}}, "dl19", SIGN)
    assert [line.label for line in table.blocks[0].lines] == [
        "BM25",
        "alpha = 1",
        "alpha = 0.7",
        "alpha = 0.5",
        "alpha = 0",
    ]
    assert cell(table, None, "alpha = 0.7", "RaB(tf)@10").value == 0.7
    assert not table.compared
    text = " ".join(printed(table).split())
    assert "without printing its values, so only our own figures are shown" in text
    assert "paper ┃" not in text
    assert "comparable" not in text


def test_figure2_takes_another_cutoff_and_alphas_by_name():
    systems = {"soft": {"nDCG@10": 0.3, "RaB(bool)@20": 0.4}, "none": {"nDCG@10": 0.35, "RaB(bool)@20": 0.5}}
    table = figure2(systems, "dl19", SIGN, cutoff=20, alphas={"soft": 0.25, "none": 1.0})
    assert [(line.label, line.system) for line in table.blocks[0].lines] == [
        ("alpha = 1", "none"),
        ("alpha = 0.25", "soft"),
    ]
    assert cell(table, None, "alpha = 0.25", "RaB(bool)@20").value == 0.4
    with pytest.raises(ValueError, match="none of the systems"):
        figure2(systems, "dl19", SIGN)
    with pytest.raises(ValueError, match=r"other.*measured are"):
        figure2(systems, "dl19", SIGN, alphas={"other": 1.0})


def test_systems_may_be_named_and_wrong_names_are_said():
    names = {"Backpack (alpha = 0.7)": "alpha=0"}
    table = table1(measured(), "x", names)
    assert cell(table, None, "Backpack (alpha = 0.7)", "nDCG@10").value == 0.31
    assert [line.label for line in table.blocks[0].lines][-1] == "BM25"
    with pytest.raises(ValueError, match=r"names has \['Backpack'\], but the rows of the paper are \['GPT-2'"):
        table1(measured(), "x", {"Backpack": "alpha=0"})
    with pytest.raises(ValueError, match=r"systems \['alpha=3'\], but measured are"):
        table1(measured(), "x", {"GPT-2": "alpha=3"})


def test_the_papers_own_row_labels_are_recognised():
    table = table2({"MP": {"RaB(tf)@10": 0.2}, "Ours (alpha = 0.5)": {"RaB(tf)@10": 0.3}}, "x", SIGN)
    assert cell(table, 10, "MP", "RaB(tf)@10").value == 0.2
    assert cell(table, 10, "Ours (alpha = 0.5)", "RaB(tf)@10").value == 0.3


def test_without_any_measured_system_the_published_table_is_left():
    text = printed(table2({}, "nothing yet", SIGN))
    assert text.count("ConvKNRM") == 4
    assert "0.0710" not in text


def test_figures_that_are_not_finite_are_a_dash():
    table = table1({"BM25": {"nDCG@10": Figure(math.nan, math.nan, math.nan, math.nan)}}, "x")
    assert cell(table, None, "BM25", "nDCG@10").value is None
    assert "nan" not in to_markdown(table) + to_csv(table) + to_latex(table) + printed(table)


def test_figures_of_a_report_are_taken_by_label():
    row = SystemRow(
        "BM25", None, Summary({"nDCG@10": Figure(0.1, 0.1)}, 3), Summary({"RaB(tf)@10": Figure(0.2, 0.3)}, 3)
    )
    assert measured_of([row, SystemRow("empty")]) == {
        "BM25": {"nDCG@10": Figure(0.1, 0.1), "RaB(tf)@10": Figure(0.2, 0.3)},
        "empty": {},
    }


def test_files_are_written_under_the_tables_name(tmp_path: Path):
    table = table2(measured(), "dl19", SIGN)
    paths = write_paper_table(tmp_path / "new", table)
    assert [path.name for path in paths] == ["table2.md", "table2.csv", "table2.tex"]
    texts = [to_markdown(table), to_csv(table), to_latex(table)]
    assert [path.read_text("utf-8") for path in paths] == texts
