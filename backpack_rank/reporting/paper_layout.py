"""One layout for the tables of all papers: published figures, and beside them those measured here.

A row of a paper may be measured here or not, and a system measured here may stand in no row of the
paper. A reader sees who measured a figure at one of three places: in a pair of columns, in the last
label of the row, or in the heading of the section.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from backpack_rank.reporting.published import PublishedTable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table

PAPER, HERE = "paper", "here"
"""Who measured a figure."""
Figures: TypeAlias = Mapping[Any, Cell]
"""Cells by key of the column; a column without one shows a dash."""


class Column(NamedTuple):
    """A column of figures: the key of its cells, its heading, and the group that it stands in.

    Neighbours of the same group share the group's heading.
    """

    key: Hashable
    heading: str
    group: str = ""


@dataclass(frozen=True)
class PaperRow:
    """What a paper prints in one row, what was measured for it, or both.

    Attributes:
        labels: of the row, without the one that says who measured.
        section: heading that it stands under.
        published: figures of the paper; None where it has no such row.
        measured: figures of here; None where there is no such row, empty where it has only dashes.
        records: lines of the CSV file.
    """

    labels: tuple[str, ...]
    section: str = ""
    published: Figures | None = None
    measured: Figures | None = None
    records: Sequence[tuple[Any, ...]] = ()


def beside_published(
    table: PublishedTable,
    columns: Sequence[Column],
    rows: Iterable[PaperRow],
    source_in: Literal["columns", "labels", "sections"],
    *,
    csv_columns: Sequence[str],
    notes: Sequence[str] = (),
    labels: tuple[str, ...] | None = None,
    sections: Iterable[str] = (),
) -> Table:
    """Every table that shows what a paper prints and what was measured here.

    >>> paper = PublishedTable("table1", paper="Me et al., Rankings", table="Table 1")
    >>> row = PaperRow(("BM25",), published={"MRR": Cell("0.18")}, measured={"MRR": Cell("0.21")})
    >>> columns = [Column(key="MRR", heading="MRR@10")]
    >>> table = beside_published(
    ...     paper, columns, [row], "columns", csv_columns=(), labels=("System",)
    ... )
    >>> table.groups
    [Group(name='MRR@10', columns=('(paper)', '(here)'))]
    >>> [cell.text for cell in table.rows[0].cells]
    ['0.18', '0.21']

    Args:
        table: gives title and name of the files.
        columns: in their order.
        rows: in their order; each goes to the end of its section.
        source_in: where a reader sees who measured. ``columns``: every column becomes two, headed
            (paper) and (here). ``labels``: the paper's figures are a row of their own above the
            measured ones, and the last label says whose they are. ``sections``: a row has the
            figures of one of both, and the heading of its section says whose.
        csv_columns: headings of the CSV file.
        notes: sentences below the table.
        labels: headings of the leading columns, by default those of the published table.
        sections: headings that come first, in this order, even if no row stands under them.
    """
    rows_by_section: dict[str, list[Row]] = {heading: [] for heading in sections}
    records: list[tuple[Any, ...]] = []
    for row in rows:
        shown = rows_by_section.setdefault(row.section, [])
        if source_in == "columns":
            shown.append(Row(row.labels, _in_pairs(columns, row)))
        else:
            shown.extend(_below_each_other(columns, row, with_source=source_in == "labels"))
        records += row.records
    return Table(
        name=table.file_name,
        title=table.title or table.source,
        labels=table.labels if labels is None else labels,
        groups=_pairs(columns) if source_in == "columns" else _groups(columns),
        sections=[Section(heading, shown) for heading, shown in rows_by_section.items()],
        notes=notes,
        columns=csv_columns,
        records=records,
    )


def _in_pairs(columns: Sequence[Column], row: PaperRow) -> list[Cell]:
    cells = []
    for column in columns:
        for figures in (row.published, row.measured):
            cells.append((figures or {}).get(column.key, Cell()))
    return cells


def _below_each_other(columns: Sequence[Column], row: PaperRow, with_source: bool) -> list[Row]:
    rows = []
    for source, figures in ((PAPER, row.published), (HERE, row.measured)):
        if figures is not None:
            labels = (*row.labels, source) if with_source else row.labels
            rows.append(Row(labels, [figures.get(column.key, Cell()) for column in columns]))
    return rows


def _pairs(columns: Sequence[Column]) -> list[Group]:
    pair = (f"({PAPER})", f"({HERE})")
    return [Group(f"{column.group} {column.heading}".strip(), pair) for column in columns]


def _groups(columns: Sequence[Column]) -> list[Group]:
    groups: list[Group] = []
    for column in columns:
        if groups and groups[-1].name == column.group:
            groups[-1] = Group(column.group, (*groups[-1].columns, column.heading))
        else:
            groups.append(Group(column.group, (column.heading,)))
    return groups
