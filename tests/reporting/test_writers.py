"""The writers of tables: every format shows every figure, mark, heading and note, and reads them as
text.
"""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from shown import printed
from terminal_text import lines_with

from backpack_rank.reporting.table import (
    Cell,
    Group,
    Row,
    Section,
    Table,
    extreme,
    number,
    percent,
    signed,
)
from backpack_rank.reporting.writers import (
    csv_text,
    dump_json,
    latex_escape,
    print_table,
    read_cell,
    safe_cell,
    to_latex,
    to_markdown,
    write_table,
)

TABLE = Table(
    "results",
    "Remedies <of> a_b",
    ("system", ""),
    (Group("nDCG@10", ("Orig.", "Δ")), Group("", ("RaB(tf)@10", "first tenth"))),
    (
        Section(
            "BERT_CAT",
            (
                Row(
                    ("alpha = 0.5", "here"),
                    (Cell("0.50", bold=True), Cell("-25.0%", raised="†"), *[Cell()] * 2),
                ),
            ),
        ),
        Section(
            "",
            (
                Row(
                    ("x|y & 5%", "here"),
                    (
                        Cell("0.20", interval="[0.10, 0.30]"),
                        Cell("0.0%"),
                        Cell("-0.10"),
                        Cell("0.3"),
                    ),
                ),
                Row(
                    ("b", "paper"),
                    (
                        Cell("0.857", True, "ab"),
                        Cell("+2.0%", True),
                        Cell("0.25", raised="*"),
                        Cell("1"),
                    ),
                ),
            ),
        ),
    ),
    ("p < 0.05, alpha=0.7 & a_note.",),
    ("system", "value"),
    (("b", 1 / 3), ("x|y", math.nan), ("none", None)),
)


def test_the_terminal_shows_headings_figures_marks_and_notes() -> None:
    text = printed(TABLE)
    (line,) = lines_with(text, "alpha = 0.5")
    assert line.split() == ["alpha", "=", "0.5", "here", "0.50", "-25.0%†", "-", "-"]
    (line,) = lines_with(text, "paper")
    assert line.split() == ["b", "paper", "0.857", "ab", "+2.0%", "0.25*", "1"]
    for words in ("Remedies <of> a_b", "BERT_CAT", "nDCG@10", "p < 0.05, alpha=0.7 & a_note."):
        assert words in text
    headings = [line.split() for line in text.splitlines()[2:5]]
    assert headings[0] == ["RaB"]
    assert headings[1:] == [["nDCG@10", "(tf)", "first"], ["system", "Orig.", "Δ", "@10", "tenth"]]


def test_figures_of_a_column_stand_below_each_other_whatever_stands_behind_them() -> None:
    first, second = (
        line for word in ("0.857 ab", "0.20") for line in lines_with(printed(TABLE), word)
    )
    assert first.index("0.857") + len("0.857") == second.index("0.20") + len("0.20")


def test_bold_figures_are_bold_without_their_marks() -> None:
    text = printed(TABLE, force_terminal=True, color_system="standard")
    assert re.findall(r"\x1b\[1m(\S*\d[\d%]+)\x1b", text) == ["0.50", "0.857", "+2.0%"]


@pytest.mark.parametrize("width", [100, 50, 34, 28])
def test_columns_that_do_not_fit_stand_below_each_other_and_none_is_cut(width: int) -> None:
    text = printed(TABLE, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for figure in ("0.50", "-25.0%†", "-0.10", "0.857 ab", "0.25*"):
        assert text.count(f" {figure} ") == 1
    parts = len(lines_with(text, "Orig.")) + len(lines_with(text, "tenth")) if width < 50 else 1
    assert text.count("BERT_CAT") == parts
    assert lines_with(text, "Orig.", "Δ")  # a group that has a name stays together


def test_markdown_has_rows_of_one_length_and_every_character_as_it_is() -> None:
    text = to_markdown(TABLE)
    lines = text.splitlines()
    assert lines[:7] == [
        r"### Remedies \<of\> a\_b",
        "",
        "| system |  | nDCG@10 Orig. | nDCG@10 Δ | RaB(tf)@10 | first tenth |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        r"| **BERT\_CAT** |  |  |  |  |  |",
        "| alpha = 0.5 | here | **0.50** | -25.0%<sup>†</sup> | - | - |",
        r"| x\|y & 5% | here | 0.20 [0.10, 0.30] | 0.0% | -0.10 | 0.3 |",
    ]
    assert lines[7] == r"| b | paper | **0.857**<sup>ab</sup> | **+2.0%** | 0.25<sup>\*</sup> | 1 |"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")} == {7}
    assert r"p \< 0.05, alpha=0.7 & a\_note." in text
    assert "confidence intervals of the measured means" in text
    without = replace(TABLE, sections=TABLE.sections[:1])
    assert "confidence intervals" not in to_markdown(without)


def test_latex_is_a_whole_environment_whose_rows_fill_the_columns() -> None:
    text = to_latex(TABLE)
    (places,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert places == "lllllr"  # marks behind a figure do not shift the others
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    for row in rows:
        spans = [int(count) for count in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.split(r"(?<!\\)&", row)) + sum(spans) - len(spans) == len(places)
    for part in (
        r"\toprule",
        r"\bottomrule",
        r"\begin{table}",
        r"\end{table}",
        r"\label{tab:results}",
    ):
        assert text.count(part) == 1
    assert text.count(r"\midrule") == 2
    assert text.count("{") == text.count("}")
    assert r"\multicolumn{2}{c}{nDCG@10}" in text
    assert r"$\alpha = 0.5$ & here & \textbf{0.50} & $-$25.0\%\textsuperscript{†} & - & -" in text
    assert r"x\textbar{}y \& 5\% & here & 0.20 & \phantom{$-$}0.0\% & $-$0.10 & 0.3" in text
    assert r"\par\footnotesize p \textless{} 0.05, alpha=0.7 \& a\_note." in text


def test_latex_escapes_every_character_once() -> None:
    assert latex_escape("a&b%c$d#e_f{g}") == r"a\&b\%c\$d\#e\_f\{g\}"
    assert latex_escape("\\x~y^z|<u>\n v") == (
        r"\textbackslash{}x\textasciitilde{}y\textasciicircum{}z\textbar{}\textless{}u\textgreater{} v"
    )
    assert latex_escape("naïve, 日本") == "naïve, 日本"


def test_three_files_are_written_under_the_tables_name(tmp_path: Path) -> None:
    paths = write_table(tmp_path / "new", TABLE)
    assert [path.name for path in paths] == ["results.md", "results.tex", "results.csv"]
    assert [path.read_text("utf-8") for path in paths[:2]] == [to_markdown(TABLE), to_latex(TABLE)]
    rows = list(csv.reader(io.StringIO(paths[2].read_text("utf-8"))))
    assert rows == [["system", "value"], ["b", repr(1 / 3)], ["x|y", ""], ["none", ""]]


def test_csv_keeps_digits_and_json_refuses_what_is_not_finite() -> None:
    assert (
        csv_text(("a",), [(0.1 + 0.2,), (math.inf,), ("x,y",)])
        == 'a\n0.30000000000000004\n""\n"x,y"\n'
    )
    assert (
        dump_json({"a": [0.1 + 0.2, "ö"]})
        == '{\n  "a": [\n    0.30000000000000004,\n    "ö"\n  ]\n}\n'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json({"a": math.nan})


def test_a_terminal_without_utf8_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    print_table(
        replace(TABLE, groups=(Group("", ("a", "b", "c", "d")),), sections=TABLE.sections[1:]),
        Console(file=file),
    )


def test_more_columns_than_fit_a_page_stand_in_parts_of_a_latex_table() -> None:
    names = [f"measure {number}" for number in range(9)]
    rows = []
    for label in ("alpha 1", "alpha 0"):
        rows.append(Row((label,), [Cell(f"{label[-1]}.{number}") for number in range(9)]))
    table = Table(
        name="sweep",
        title="",
        labels=("",),
        groups=[Group("", names)],
        sections=[Section("", rows)],
    )
    text = to_latex(table)
    assert re.findall(r"begin\{tabular\}\{(\w+)\}", text) == ["lrrrr", "lrrrr", "lr"]
    assert re.findall(r"[01]\.\d", text) == [
        *("1.0", "1.1", "1.2", "1.3", "0.0", "0.1", "0.2", "0.3"),
        *("1.4", "1.5", "1.6", "1.7", "0.4", "0.5", "0.6", "0.7"),
        *("1.8", "0.8"),
    ]
    assert [text.count(name) for name in names] == [1] * 9
    grouped = replace(table, groups=[Group("published", names[:5]), Group("here", names[5:])])
    assert to_latex(grouped).count("begin{tabular}") == 1


def test_a_table_without_rows_has_its_headings() -> None:
    empty = replace(TABLE, sections=())
    assert "nDCG@10" in printed(empty)
    assert "| system |" in to_markdown(empty)
    assert r"\begin{tabular}{llrrrr}" in to_latex(empty)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"t: row \('a',\) has 1 figures, the table has 2"):
        Table(
            "t", "T", ("",), (Group("", ("x", "y")),), (Section("", (Row(("a",), (Cell("1"),)),)),)
        )


def test_figures_are_rounded_without_a_minus_before_nothing() -> None:
    assert [number(value) for value in (1 / 3, -0.00001, None, math.nan, math.inf)] == [
        "0.3333",
        "0.0000",
        *"---",
    ]
    assert number(0.1234, 3) == "0.123"
    assert [percent(value) for value in (-0.0004, 0.0123, math.nan)] == ["0.0%", "+1.2%", "-"]
    assert [signed(value) for value in (-1e-9, 0.5)] == ["+0.0000", "+0.5000"]
    assert extreme([0.2, None, math.nan, 0.1], smallest=True) == 0.1
    assert extreme([None], smallest=False) is None


FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "'=1",
    " =1",
    ";=1",
    "|=1",
    "\n=1",
    "\uff1d1+1",
    "\uff0bcmd",
    "\uff0d2",
    "\uff20SUM",
)


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_that_a_spreadsheet_would_run_begins_with_an_apostrophe(text: str) -> None:
    (_, row) = csv.reader(io.StringIO(csv_text(("id", "value"), [(text, -0.5)])))
    assert row == [f"'{text}", "-0.5"]
    assert read_cell(row[0]) == text


@pytest.mark.parametrize("text", ["-5", "+1.5", "-1e-3", "-", "q=1", "'quoted'", "", "caf\u00e9"])
def test_numbers_and_other_texts_stay_as_they_are(text: str) -> None:
    assert safe_cell(text) == text == read_cell(text)


@given(text=st.text())
def test_a_cell_is_read_as_it_was_written(text: str) -> None:
    assert read_cell(safe_cell(text)) == text


def test_escape_sequences_of_labels_do_not_reach_the_terminal() -> None:
    row = Row(("\x1b[2Jrun", "here"), [Cell("1")] * 4)
    table = replace(
        TABLE, title="\x1b]0;x\x07", sections=(Section("\x9b2J", (row,)),), notes=("\x1bc",)
    )
    out = io.StringIO()
    print_table(table, Console(file=out, width=100))
    out.write(csv_text(("system",), [("\x9b2J", "\x07")]))
    assert not {"\x1b", "\x9b", "\x07"} & set(out.getvalue())
    assert "\\x1b[2Jrun" in out.getvalue()
