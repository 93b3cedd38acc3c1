"""The one table: sections of rows of cells, notes below them, and the lines of its CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

NONE = "-"
"""A figure that is not there."""


@dataclass(frozen=True)
class Cell:
    """One figure as it is shown.

    Attributes:
        text: the figure.
        bold: whether it is printed bold.
        raised: marks behind it: letters of significance, a dagger.
        interval: its confidence interval, which Markdown has room for.
    """

    text: str = NONE
    bold: bool = False
    raised: str = ""
    interval: str = ""


class Row(NamedTuple):
    """Labels of a row (one for each leading column) and its figures."""

    labels: tuple[str, ...]
    cells: Sequence[Cell]


class Section(NamedTuple):
    """Rows under a heading, which may be empty."""

    heading: str
    rows: Sequence[Row]


class Group(NamedTuple):
    """Columns of figures under a name, which may be empty."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table and everything that is written of it.

    Attributes:
        name: of its files.
        title: what it shows.
        labels: headings of the leading columns.
        groups: headings of the figures.
        sections: the rows.
        notes: sentences below the table.
        columns: of the CSV file.
        records: its lines, with all digits.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    groups: Sequence[Group]
    sections: Sequence[Section]
    notes: Sequence[str] = ()
    columns: Sequence[str] = ()
    records: Sequence[tuple[Any, ...]] = ()

    def __post_init__(self) -> None:
        width = sum(len(group.columns) for group in self.groups)
        for row in self.rows:
            if (len(row.labels), len(row.cells)) != (len(self.labels), width):
                raise ValueError(f"{self.name}: row {row.labels} has {len(row.cells)} figures, the table has {width}")

    @property
    def rows(self) -> list[Row]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section.rows]


def number(value: float | None, decimals: int = 4) -> str:
    """A figure with so many decimals; what is not there or not finite is a dash."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{round(value, decimals) + 0.0:.{decimals}f}"  # rounded first, so that nothing reads -0.0000


def signed(value: float) -> str:
    """A difference with its sign and 4 decimals."""
    return f"{round(value, 4) + 0.0:+.4f}"


def percent(value: float) -> str:
    """A relative difference with its sign and one decimal."""
    if math.isnan(value):
        return NONE
    return "0.0%" if abs(value) < 0.0005 else f"{value:+.1%}"


def extreme(figures: Iterable[float | None], smallest: bool) -> float | None:
    """The smallest or largest of the figures that are there, rounded to what a table shows; None without any."""
    there = [round(figure, 4) for figure in figures if figure is not None and figure == figure]
    return None if not there else min(there) if smallest else max(there)
