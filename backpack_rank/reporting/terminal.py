"""How a table is laid out in the terminal, by rich."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table

_WITHIN = "±"


def parts_that_fit(table: Table, console: Console) -> list[RichTable]:
    """The table, or parts of it with all rows and some columns, no wider than the terminal."""
    # With a space between columns where there is room for it, else without.
    for padding in (1, 0):
        rich_table = _layout(table, console.width, padding)
        if _fits(rich_table, console):
            return [rich_table]

    # Places of the columns of each part: as many blocks as fit.
    parts: list[list[int]] = [[]]
    for block in _columns_to_keep_together(table):
        wider = _layout(_with_columns(table, [*parts[-1], *block]), console.width, padding=0)
        # A block that is too wide alone has a part of its own, and rich cuts it.
        if parts[-1] and not _fits(wider, console):
            parts.append([])
        parts[-1] += block
    return [_layout(_with_columns(table, part), console.width, padding=0) for part in parts]


def fixed_columns(
    table: Table, together: int, label_width: int, number_width: int, change_width: int
) -> list[RichTable]:
    """A table of figures with changes, in columns of one width.

    Marks and intervals of cells, and names of groups are not shown.

    Args:
        table: to print.
        together: figures side by side; others stand in further tables.
        label_width: characters of each leading column; longer labels are broken.
        number_width: of each figure.
        change_width: of each change behind it, and its star.
    """
    parts = []
    for start in range(0, len(table.headings), together):
        places = range(start, min(start + together, len(table.headings)))
        part = _with_columns(table, places)
        rich_table = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
        for label in table.labels:
            rich_table.add_column(Text(printable(label)), width=label_width, overflow="fold")
        for heading in part.headings:
            text = Text(printable(heading.rjust(number_width)))
            rich_table.add_column(text, width=number_width + change_width, no_wrap=True)
        figures = []
        for row in part.rows:
            texts = []
            for cell in row.cells:
                # Percentages stand below each other, stars behind them.
                change = cell.change if cell.change.endswith("*") else f"{cell.change} "
                texts.append(
                    Text(printable(cell.text.rjust(number_width) + change.rjust(change_width)))
                )
            figures.append(texts)
        _add_sections(rich_table, part.sections, figures)
        parts.append(rich_table)
    return parts


def _fits(rich_table: RichTable, console: Console) -> bool:
    # In an unbounded terminal, else rich reports no more than the terminal's width.
    unbounded = console.options.update(max_width=10_000)
    return console.measure(rich_table, options=unbounded).maximum <= console.width


def _columns_to_keep_together(table: Table) -> list[list[int]]:
    """Places of the columns that are not torn apart: those of a group that has a name."""
    blocks = []
    first = 0
    for group in table.groups:
        places = list(range(first, first + len(group.columns)))
        first += len(group.columns)
        if group.name:
            blocks.append(places)
        else:
            blocks += [[place] for place in places]
    return blocks


def _with_columns(table: Table, places: Sequence[int]) -> Table:
    """The table with some of its columns of figures."""
    groups = []
    first = 0
    for group in table.groups:
        kept = []
        for place, heading in enumerate(group.columns, start=first):
            if place in places:
                kept.append(heading)
        first += len(group.columns)
        if kept:
            groups.append(Group(group.name, tuple(kept)))
    sections = []
    for section in table.sections:
        rows = []
        for row in section.rows:
            rows.append(Row(row.labels, [row.cells[place] for place in places]))
        sections.append(Section(section.heading, rows))
    return replace(table, groups=groups, sections=sections)


def _layout(table: Table, width: int, padding: int) -> RichTable:
    rich_table = RichTable(box=SIMPLE_HEAD, padding=(0, padding, 0, 0))
    for label in table.labels:
        rich_table.add_column(
            Text(printable(label)),
            overflow="fold",
            max_width=max(16, width // 3),
            vertical="bottom",
        )
    columns = []
    for place, heading in enumerate(_heading_lines(table)):
        lines = Text("\n".join(heading), justify="right")
        rich_table.add_column(lines, no_wrap=True, vertical="bottom")
        # Column by column, because the width of a figure depends on those above and below it.
        columns.append(_aligned([row.cells[place] for row in table.rows], heading))
    figures = []
    for number in range(len(table.rows)):
        figures.append([column[number] for column in columns])
    _add_sections(rich_table, table.sections, figures)
    return rich_table


def _add_sections(
    rich_table: RichTable, sections: Sequence[Section], figures: Sequence[Sequence[Text]]
) -> None:
    """Add headings and rows; ``figures`` are those of all rows, one list for each."""
    remaining = iter(figures)
    for section in sections:
        if section.heading:
            rich_table.add_row(Text(printable(section.heading), style="bold"))
        for row in section.rows:
            labels = [Text(printable(label)) for label in row.labels]
            rich_table.add_row(*labels, *next(remaining))
        rich_table.add_section()


def _heading_lines(table: Table) -> list[list[str]]:
    """The lines of each heading; the first column of a group has the group's name above."""
    headings = []
    for group in table.groups:
        for place, name in enumerate(group.columns):
            group_name = group.name.split() if place == 0 else []
            headings.append([*group_name, *_broken(name)])
    return headings


def _broken(heading: str) -> list[str]:
    """The lines of a heading: long words are cut before brackets and cut-offs.

    >>> _broken("ARaB(tf-paper)@10")
    ['ARaB', '(tf-paper)', '@10']
    """
    lines = []
    for word in heading.split():
        if len(word) > 8:
            word = re.sub(r"(?<=[\w-])(?=[(@])|(?<=\))(?=@)", "\n", word)
        lines += word.split()
    return lines


def _aligned(cells: Sequence[Cell], heading: Sequence[str]) -> list[Text]:
    """Figures of a column, which stand below each other whatever marks stand behind them."""
    marks = [_mark(cell) for cell in cells]
    mark_width = max(map(len, marks), default=0)
    # An interval in brackets has no room beside a figure.
    within = [f" {cell.interval}" if cell.interval[:1] == _WITHIN else "" for cell in cells]
    within_width = max(map(len, within), default=0)
    widths = [len(cell.text) for cell in cells]
    for word in heading:
        # A heading may reach over the marks.
        widths.append(len(word) - mark_width - within_width)
    width = max(widths)
    texts = []
    for cell, mark, ends in zip(cells, marks, within, strict=True):
        text = Text(" " * (width - len(cell.text)))
        text.append(cell.text, style="bold" if cell.bold else "")
        text.append(ends.ljust(within_width), style="dim")
        text.append(mark.ljust(mark_width), style="dim")
        texts.append(text)
    return texts


def _mark(cell: Cell) -> str:
    """A letter is set apart from the figure, a dagger is not."""
    if cell.raised[:1].isalnum():
        return f" {cell.raised}"
    return cell.raised
