"""One layout for published and measured figures: the three places that say who measured, groups,
CSV lines.
"""

from __future__ import annotations

from backpack_rank.reporting.paper_layout import Column, PaperRow, beside_published
from backpack_rank.reporting.published import PublishedTable
from backpack_rank.reporting.table import Cell, Group, Table

PAPER = PublishedTable(
    "table1", paper="Me et al., Rankings", table="Table 1", labels=("System",), file_name="t1"
)
COLUMNS = [Column("MRR", "MRR@10"), Column("tf", "RaB", "TF"), Column("bool", "RaB", "Boolean")]
BOTH = PaperRow(("BM25",), "A", {"MRR": Cell("0.18")}, {"tf": Cell("0.04")}, [("BM25", 1)])
MEASURED = PaperRow(("mine",), "B", measured={}, records=[("mine", 2), ("mine", 3)])


def laid_out(source_in, **more) -> Table:
    return beside_published(
        PAPER, COLUMNS, [BOTH, MEASURED], source_in, csv_columns=("row", "number"), **more
    )


def texts(table: Table) -> list[tuple[tuple[str, ...], list[str]]]:
    return [(row.labels, [cell.text for cell in row.cells]) for row in table.rows]


def test_pairs_of_columns_say_who_measured() -> None:
    table = laid_out("columns")
    assert [name for name, _ in table.groups] == ["MRR@10", "TF RaB", "Boolean RaB"]
    assert texts(table) == [
        (("BM25",), ["0.18", "-", "-", "0.04", "-", "-"]),
        (("mine",), ["-"] * 6),
    ]


def test_the_last_label_says_who_measured_and_the_paper_comes_first() -> None:
    table = laid_out("labels", labels=("System", ""))
    assert texts(table) == [
        (("BM25", "paper"), ["0.18", "-", "-"]),
        (("BM25", "here"), ["-", "0.04", "-"]),
        (("mine", "here"), ["-"] * 3),
    ]
    assert table.groups == [
        Group("", ("MRR@10",)),
        Group("TF", ("RaB",)),
        Group("Boolean", ("RaB",)),
    ]


def test_sections_say_who_measured_and_stand_even_when_they_are_empty() -> None:
    table = laid_out("sections", sections=["none", "B"])
    assert [(section.heading, len(section.rows)) for section in table.sections] == [
        ("none", 0),
        ("B", 1),
        ("A", 2),
    ]
    assert table.records == [("BM25", 1), ("mine", 2), ("mine", 3)]
    assert (table.name, table.title, table.labels) == (
        "t1",
        "Me et al., Rankings, Table 1",
        ("System",),
    )


def test_neighbours_of_one_group_share_its_heading() -> None:
    columns = [Column(("a", 1), "x", "G"), Column(("a", 2), "y", "G"), Column("b", "z")]
    table = beside_published(
        PAPER,
        columns,
        [PaperRow(("r",), measured={("a", 2): Cell("1")})],
        "sections",
        csv_columns=(),
    )
    assert table.groups == [Group("G", ("x", "y")), Group("", ("z",))]
    assert texts(table) == [(("r",), ["-", "1", "-"])]
