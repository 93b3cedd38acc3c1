"""One loop that lays out the tables of all papers: published figures, and beside them those
measured here.

A row of a paper may be measured here or not, and a system measured here may stand in no row of the
paper. How a table looks is a file: :class:`~backpack_rank.reporting.layout.Layout`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, NamedTuple, TypeAlias

from backpack_rank.evaluation.results import Estimate
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.reporting.layout import ColumnKey, Layout, layout_of
from backpack_rank.reporting.published import PublishedTable
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table, extreme

PAPER, HERE = "paper", "here"
"""Who measured a figure."""
_ORIGINS = {PAPER: "published", HERE: "measured"}
_NOTES = "{notes}"
"""A sentence of a layout that the notes of the measurement stand in place of."""


@dataclass(frozen=True)
class Figure:
    """A figure of a table.

    Attributes:
        value: None where there is none.
        text: as it is shown, where the layout shall not say so.
        marks: behind it in superscript.
        bold: whether it is bold, whatever the layout says.
        interval: its confidence interval.
        record: fields of its line in the CSV file that other figures of the row do not have.
    """

    value: Estimate | float | None
    text: str = ""
    marks: str = ""
    bold: bool = False
    interval: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """The value as a number; None where there is none or it is not finite."""
        mean = self.value.mean if isinstance(self.value, Estimate) else self.value
        return mean if mean is not None and math.isfinite(mean) else None


Figures: TypeAlias = Mapping[ColumnKey, "Figure | Estimate | float | None"]
"""Figures of a row; a column without one, or with None, shows a dash."""


@dataclass(frozen=True)
class PaperRow:
    """What was measured for a row, what a paper prints in it, or both.

    Attributes:
        labels: of the row, without the one that says who measured.
        measured: figures of here; None where there is no such row, empty where it has only dashes.
        published: figures of the paper, where :func:`lay_out` does not take them from its table.
        section: heading that it stands under, where the layout does not say so.
        record: fields of the CSV file that all its figures have.
    """

    labels: tuple[str, ...]
    measured: Figures | None = None
    published: Figures | None = None
    section: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Who measured, where the row is not of both."""
        return PAPER if self.measured is None else HERE

    def figures(self, source: str) -> dict[ColumnKey, Figure]:
        """What the paper or the measurement has, by column."""
        given = self.published if source == PAPER else self.measured
        figures = {}
        for key, figure in (given or {}).items():
            if figure is not None:
                figures[key] = figure if isinstance(figure, Figure) else Figure(figure)
        return figures


_Place: TypeAlias = tuple[str, str, ColumnKey]
"""Section, source and column of figures that are compared."""


class _Line(NamedTuple):
    """A row of the table that is written, and whose figures stand in it."""

    section: str
    labels: tuple[str, ...]
    row: PaperRow
    sources: tuple[str, ...]


def lay_out(
    name: str,
    rows: Iterable[PaperRow],
    table: PublishedTable | None = None,
    *,
    columns: Sequence[ColumnKey] = (),
    facts: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    records: Sequence[tuple[Any, ...]] | None = None,
) -> Table:
    """The table of what was measured here, beside what a paper prints or alone.

    >>> from backpack_rank.reporting.published import published
    >>> row = PaperRow(("Base",), {("", "DL19"): 0.5058})
    >>> table = lay_out(
    ...     "reranking_grid",
    ...     [row],
    ...     published("capcal_table2"),
    ...     facts={"ranker": "my ranker", "baseline": None},
    ... )
    >>> [(section.heading, len(section.rows)) for section in table.sections]
    [('Measured: my ranker', 1), ('Published', 6)]
    >>> table.rows[0].labels, table.rows[0].cells[0].text
    (('Base', ''), '50.58')

    Args:
        name: of a file of ``conf/published/layouts``.
        rows: what was measured. Rows with the same first and last label as one of the paper belong
            to it.
        table: the published figures.
        columns: that were measured, where their order is not that of the rows' figures.
        facts: for the braces in texts of the layout.
        notes: sentences below the table.
        records: lines of the CSV file, by default made of the figures.
    """
    table = table or PublishedTable(name, paper="", table="")
    layout = layout_of(name, table)
    words = {
        "source": table.source,
        "data": table.data,
        "table_notes": " ".join(table.notes),
        "significance": f"{SIGNIFICANCE:g}",
        **(facts or {}),
    }
    lines = _lines(layout, table, list(rows), words)
    keys = _columns(layout, table, lines, columns)
    best = _best(layout, lines)
    rows_by_section: dict[str, list[Row]] = {}
    for line in lines:
        figures = {source: line.row.figures(source) for source in line.sources}
        cells = []
        for key, source in itertools.product(keys, line.sources):
            figure = figures[source].get(key)
            if figure is None:
                cells.append(Cell())
                continue
            bold = figure.bold
            place = (line.section, source, key)
            if best.get(place) is not None:
                bold = _size(layout, key, figure) == best[place]
            text = _text(layout, source, key, figure)
            cells.append(Cell(text, bold, raised=figure.marks, interval=figure.interval))
        rows_by_section.setdefault(line.section, []).append(Row(line.labels, cells))
    return Table(
        name=layout.file_name,
        title=table.title or layout.title.format_map(words) or table.source,
        labels=tuple(layout.labels),
        groups=_groups(layout, keys),
        sections=[Section(heading, shown) for heading, shown in rows_by_section.items()],
        notes=_sentences(layout, words, notes),
        columns=tuple(layout.csv),
        records=_records(layout, lines) if records is None else records,
    )


def _lines(
    layout: Layout, table: PublishedTable, rows: Sequence[PaperRow], words: Mapping[str, Any]
) -> list[_Line]:
    """Rows with their section, their labels as they are shown, and whose figures they have."""
    if layout.source_in == "columns":
        return [_Line(row.section, row.labels, row, (PAPER, HERE)) for row in rows]
    printed = _published_rows(layout, table)
    lines = []
    if layout.source_in == "labels":
        for row in _below_each_other(printed, rows):
            section, *labels = row.labels
            lines.append(_Line(section, (*labels, row.source), row, (row.source,)))
        return lines
    for row in [*rows, *printed]:
        section = row.section
        if row.source in layout.sections:
            section = layout.sections[row.source].format_map(words)
        # A measured row may have fewer labels than those of the paper.
        blank = [""] * (table.num_labels - len(row.labels))
        lines.append(_Line(section, (*row.labels, *blank), row, (row.source,)))
    return lines


def _published_rows(layout: Layout, table: PublishedTable) -> list[PaperRow]:
    rows = []
    for labels, printed in table.rows.items():
        figures = {}
        for column, figure in printed.items():
            figures[layout.key(column)] = Figure(
                value=figure.value / table.scale,
                text=figure.text,
                marks=figure.marks,
                record={"printed": figure.value},
            )
        rows.append(PaperRow(labels, published=figures))
    return rows


def _below_each_other(
    published: Sequence[PaperRow], measured: Sequence[PaperRow]
) -> list[PaperRow]:
    """Rows of the paper, each with the measured one below it; those of a model stand together."""
    published_by_key = {(row.labels[0], row.labels[-1]): row for row in published}
    measured_by_key = {(row.labels[0], row.labels[-1]): row for row in measured}
    keys = list(dict.fromkeys([*published_by_key, *measured_by_key]))
    rows = []
    for model in dict.fromkeys(first for first, _ in keys):
        for key in keys:
            if key[0] != model:
                continue
            if key in published_by_key:
                rows.append(published_by_key[key])
            if key in measured_by_key:
                rows.append(measured_by_key[key])
            else:
                # A row of dashes says that nothing was measured for it.
                rows.append(PaperRow(published_by_key[key].labels, measured={}))
    return rows


def _columns(
    layout: Layout, table: PublishedTable, lines: Sequence[_Line], first: Sequence[ColumnKey]
) -> list[ColumnKey]:
    if layout.shown:
        return [(group, name) for group, name in layout.shown]
    of_paper = [layout.key(column) for column in table.shown]
    measured = list(first)
    for line in lines:
        measured += line.row.measured or {}
    if layout.source_in == "columns":
        of_paper = []  # its rows have the figures of both
    keys = [*measured, *of_paper] if layout.measured_first else [*of_paper, *measured]
    if len(layout.column_fields) < 2:
        return list(dict.fromkeys(keys))
    # Every group has the columns of all of them, also those that were measured for one alone.
    groups = dict.fromkeys(group for group, _ in keys)
    names = dict.fromkeys(name for _, name in keys)
    return list(itertools.product(groups, names))


def _groups(layout: Layout, columns: Sequence[ColumnKey]) -> list[Group]:
    groups: list[Group] = []
    for group, name in columns:
        group_heading = layout.headings.get(group, group)
        heading = layout.headings.get(name, name)
        if layout.source_in == "columns":
            pair = (f"({PAPER})", f"({HERE})")
            groups.append(Group(f"{group_heading} {heading}".strip(), pair))
        elif groups and groups[-1].name == group_heading:
            groups[-1] = Group(group_heading, (*groups[-1].columns, heading))
        else:
            groups.append(Group(group_heading, (heading,)))
    return groups


def _best(layout: Layout, lines: Sequence[_Line]) -> dict[_Place, float | None]:
    """The figure that is bold in each place where there are several to compare."""
    figures_by_place: dict[_Place, list[float | None]] = {}
    for line in lines:
        for source in line.sources:
            for key, figure in line.row.figures(source).items():
                if layout.bold_of(key[1]):
                    figures = figures_by_place.setdefault((line.section, source, key), [])
                    figures.append(_size(layout, key, figure))
    best = {}
    for place, figures in figures_by_place.items():
        if len(figures) > 1 or layout.bold_alone:
            _, _, (_, name) = place
            best[place] = extreme(figures, smallest=layout.bold_of(name) == "smallest")
    return best


def _size(layout: Layout, key: ColumnKey, figure: Figure) -> float | None:
    """What decides which figure is bold; rounded, so that all that read like the best are bold."""
    if figure.mean is None:
        return None
    smallest = layout.bold_of(key[1]) == "smallest"
    return round(abs(figure.mean) if smallest else figure.mean, 4)


def _text(layout: Layout, source: str, key: ColumnKey, figure: Figure) -> str:
    decimals = layout.paper_decimals if source == PAPER else layout.decimals
    if figure.text and (source == HERE or decimals is None):
        return figure.text
    if figure.mean is None or decimals is None:
        return NONE
    return layout.number(figure.mean, *key, decimals)


def _sentences(layout: Layout, words: Mapping[str, Any], notes: Sequence[str]) -> list[str]:
    templates = list(layout.sentences)
    if _NOTES not in templates:
        templates.append(_NOTES)
    sentences: list[str] = []
    for template in templates:
        if template == _NOTES:
            sentences += notes
            continue
        names = [name for _, name, _, _ in Formatter().parse(template) if name]
        if all(words[name] is not None for name in names):
            sentences.append(template.format_map(words).strip())
    return sentences


def _records(layout: Layout, lines: Sequence[_Line]) -> list[tuple[Any, ...]]:
    """Lines of the CSV file: one for each figure, or one for each row."""
    records = []
    parts = [(line, source) for line in lines for source in line.sources]
    for line, source in parts:
        of_row: dict[str, Any] = {
            "table": layout.file_name,
            "section": line.section,
            "row": " | ".join(line.row.labels),
            "source": source,
            "origin": _ORIGINS[source],
            **layout.record_of_all,
            **_fields(layout.label_fields, line.row.labels),
            **line.row.record,
        }
        figures = line.row.figures(source)
        if layout.lines == "row":
            for (_, name), figure in figures.items():
                of_row[name] = figure.mean
            records.append(layout.record(of_row))
            continue
        for key, figure in figures.items():
            if key[1] not in layout.only_in_table:
                records.append(layout.record(of_row | _fields_of_figure(layout, key, figure)))
    return records


def _fields_of_figure(layout: Layout, key: ColumnKey, figure: Figure) -> dict[str, Any]:
    names = key[-len(layout.column_fields) :] if layout.column_fields else ()
    fields: dict[str, Any] = {
        **_fields(layout.column_fields, [layout.csv_names.get(name, name) for name in names]),
        "value": figure.mean,
        "printed": figure.mean,
        "marks": figure.marks,
    }
    if isinstance(figure.value, Estimate):
        fields |= {"low": figure.value.low, "high": figure.value.high}
    return fields | dict(figure.record)


def _fields(names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """Labels by what they are: ``GPT-4 (PSC)`` of the name ``model (kind)`` is two fields."""
    fields: dict[str, str] = {}
    for name, text in zip(names, texts, strict=False):
        pattern = re.sub(r"\w+", r"(?P<\g<0>>.*?)", re.escape(name))
        match = re.fullmatch(pattern, text)
        if match is not None:
            fields |= match.groupdict()
    return fields
