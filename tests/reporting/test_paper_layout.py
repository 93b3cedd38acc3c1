"""One loop for published and measured figures: the three places that say who measured, what a
layout says of columns, figures, sentences and lines of the CSV file.
"""

from __future__ import annotations

from typing import Any

import pytest

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting import layout
from backpack_rank.reporting.layout import layout_of
from backpack_rank.reporting.paper_layout import Figure, PaperRow, lay_out
from backpack_rank.reporting.published import Printed, PublishedTable
from backpack_rank.reporting.table import Group, Table

PAPER = PublishedTable(
    "table1",
    paper="Me et al., Rankings",
    table="Table 1",
    columns=("MRR", "nDCG"),
    shown=("MRR", "nDCG"),
    rows={
        ("BM25", "all"): {"MRR": Printed(".18"), "nDCG": Printed(".21", "a")},
        ("TK", "all"): {"MRR": Printed(".30")},
    },
    file_name="t1",
)
MEASURED = [
    PaperRow(("BM25", "all"), {("", "MRR"): Estimate(0.2, 0.2, 0.1, 0.3)}, record={"seeds": 2}),
    PaperRow(("mine", "all"), {("", "MRR"): -0.00001, ("", "R"): Figure(0.5, marks="†")}),
]


@pytest.fixture
def laid_out(monkeypatch: pytest.MonkeyPatch):
    """A function that lays the rows out as its words say."""

    def with_layout(rows=MEASURED, table: PublishedTable | None = PAPER, **words: Any) -> Table:
        facts = words.pop("facts", {})
        monkeypatch.setattr(layout, "read_yaml", lambda path: words)
        return lay_out("mine", rows, table, facts=facts, notes=["A note."])

    return with_layout


def texts(table: Table) -> list[tuple[str, tuple[str, ...], list[str]]]:
    shown = []
    for section in table.sections:
        for row in section.rows:
            shown.append((section.heading, row.labels, [cell.text for cell in row.cells]))
    return shown


def test_pairs_of_columns_say_who_measured(laid_out) -> None:
    both = PaperRow(("BM25",), {("TF", "RaB"): 0.5}, {("TF", "RaB"): Figure(0.4, text="0.40")}, "A")
    mine = PaperRow(("mine",), {("TF", "RaB"): None})
    table = laid_out([both, mine], None, source_in="columns", labels=["System"])
    assert table.groups == [Group("TF RaB", ("(paper)", "(here)"))]
    assert texts(table) == [("A", ("BM25",), ["0.40", "0.5000"]), ("", ("mine",), ["-", "-"])]


def test_the_last_label_says_who_measured_and_the_paper_comes_first(laid_out) -> None:
    table = laid_out(source_in="labels", labels=["Data", ""], paper_decimals=2, decimals=3)
    assert texts(table) == [
        ("BM25", ("all", "paper"), ["0.18", "0.21", "-"]),
        ("BM25", ("all", "here"), ["0.200", "-", "-"]),
        ("TK", ("all", "paper"), ["0.30", "-", "-"]),
        ("TK", ("all", "here"), ["-", "-", "-"]),
        ("mine", ("all", "here"), ["0.000", "-", "0.500"]),
    ]


def test_sections_say_who_measured_and_short_rows_are_filled(laid_out) -> None:
    rows = [PaperRow(("mine",), {("", "R"): 0.25})]
    table = laid_out(
        rows, sections={"here": "By {who}", "paper": "Printed"}, facts={"who": "me"},
        measured_first=True, leading_zero=False,
    )  # fmt: skip
    assert texts(table) == [
        ("By me", ("mine", ""), [".2500", "-", "-"]),
        ("Printed", ("BM25", "all"), ["-", ".18", ".21"]),
        ("Printed", ("TK", "all"), ["-", ".30", "-"]),
    ]
    assert table.rows[1].cells[2].raised == "a"
    assert (table.name, table.title, table.labels) == ("t1", PAPER.source, ("", ""))


def test_lines_of_the_csv_file_are_fields_of_rows_and_figures(laid_out) -> None:
    table = laid_out(
        label_fields=["model", "data"], column_fields=["measure"], only_in_table=["R"],
        csv=["source", "model", "measure", "mean", "low", "letters", "seeds"],
        csv_fields={"mean": "value", "letters": "marks"}, csv_names={"MRR": "reciprocal rank"},
    )  # fmt: skip
    assert table.columns == ("source", "model", "measure", "mean", "low", "letters", "seeds")
    assert table.records == [
        ("here", "BM25", "reciprocal rank", 0.2, 0.1, "", 2),
        ("here", "mine", "reciprocal rank", -0.00001, None, "", None),
        ("paper", "BM25", "reciprocal rank", 0.18, None, "", None),
        ("paper", "BM25", "nDCG", 0.21, None, "a", None),
        ("paper", "TK", "reciprocal rank", 0.3, None, "", None),
    ]


def test_a_line_may_be_a_row_and_a_label_several_fields(laid_out) -> None:
    rows = [PaperRow(("GPT-4 (PSC)",), {("", "MRR"): 0.5, ("", "R"): 0.25})]
    table = laid_out(
        rows, None, label_fields=["model (kind)"], lines="row", csv=["kind", "model", "R", "MRR"]
    )
    assert table.records == [("PSC", "GPT-4", 0.25, 0.5)]


def test_the_best_of_a_section_is_bold_where_there_are_several(laid_out) -> None:
    rows = [
        PaperRow(("a",), {("", "x"): 0.5, ("", "y"): -0.2}, section="1"),
        PaperRow(("b",), {("", "x"): 0.50001, ("", "y"): 0.1}, section="1"),
        PaperRow(("c",), {("", "x"): 0.9, ("", "y"): 0.9}, section="2"),
    ]
    words = {"bold": {"x": "largest", "y": "smallest"}}
    table = laid_out(rows, None, **words)
    assert [[cell.bold for cell in row.cells] for row in table.rows] == [
        [True, False],
        [True, True],
        [False, False],
    ]
    assert laid_out(rows, None, bold_alone=True, **words).rows[2].cells[0].bold


def test_neighbours_of_one_group_share_its_heading(laid_out) -> None:
    rows = [PaperRow(("r",), {("G", "x"): 1, ("G", "y"): 2, ("", "z"): 0.5})]
    table = laid_out(rows, None, headings={"G": "Group", "y": "why"}, forms={"G": "+.1%"})
    assert table.groups == [Group("Group", ("x", "why")), Group("", ("z",))]
    assert texts(table) == [("", ("r",), ["+100.0%", "+200.0%", "0.5000"])]


def test_a_sentence_whose_fact_is_missing_is_left_out(laid_out) -> None:
    sentences = ["{source} on {data}.", "Better than {base}.", "{notes}", "p < {significance}"]
    table = laid_out(sentences=sentences, facts={"data": "all", "base": None})
    assert list(table.notes) == ["Me et al., Rankings, Table 1 on all.", "A note.", "p < 0.05"]


def test_a_published_table_may_look_otherwise_and_names_what_layouts_lack() -> None:
    paper = PublishedTable("t", "Me et al.", "Table 1", layout={"decimals": 2})
    assert layout_of("sorting", paper).decimals == 2
    assert layout_of("sorting", paper).lines == "figure"
    unknown = PublishedTable("t", "Me et al.", "Table 1", layout={"digits": 2})
    with pytest.raises(ValueError, match="layout has digits in the published table t; it may have"):
        layout_of("sorting", unknown)
    wrong = PublishedTable("t", "Me et al.", "Table 1", layout={"source_in": "rows"})
    with pytest.raises(ValueError, match=r"layout.source_in=rows of the published table t must be"):
        layout_of("sorting", wrong)
