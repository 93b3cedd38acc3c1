"""The one table: sections of rows of cells, notes below them, and the lines of its CSV file.

Whatever shows figures makes a :class:`Table`; :mod:`backpack_rank.reporting.writers` prints it in
the terminal and writes Markdown, LaTeX and CSV, and the templates of the pages show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

NONE = "-"
"""A figure that is not there."""


@dataclass(frozen=True)
class Cell:
    """One figure of a :class:`Row`, as it is shown.

    Attributes:
        text: the figure.
        bold: whether it is printed bold.
        raised: marks behind it in superscript: letters of significance, a dagger.
        interval: its confidence interval, which Markdown and the page have room for.
        change: against the figure that it is compared with.
    """

    text: str = NONE
    bold: bool = False
    raised: str = ""
    interval: str = ""
    change: str = ""


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
    """Figures that people read, in the terminal, in a file or on a page.

    ::

        >>> from backpack_rank.reporting.writers import to_markdown
        >>> table = Table(
        ...     name="rankers",
        ...     title="Rankers",
        ...     labels=("system",),
        ...     groups=[Group("", ("nDCG@10", "MRR@10"))],
        ...     sections=[Section("", [Row(("BM25",), [Cell("0.3041"), Cell("0.4", bold=True)])])],
        ... )
        >>> print(to_markdown(table))
        ### Rankers
        <BLANKLINE>
        | system | nDCG@10 | MRR@10 |
        | --- | ---: | ---: |
        | BM25 | 0.3041 | **0.4** |
        <BLANKLINE>

    Attributes:
        name: of its files.
        title: what it shows.
        labels: headings of the leading columns.
        groups: headings of the figures.
        sections: the rows.
        notes: sentences below the table.
        columns: of the CSV file.
        records: its lines, with all digits.
        marked: numbers of the rows, from 0 over all sections, that a page marks.

    Raises:
        ValueError: a row has more or fewer labels or figures than the headings; names the row.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    groups: Sequence[Group]
    sections: Sequence[Section]
    notes: Sequence[str] = ()
    columns: Sequence[str] = ()
    records: Sequence[tuple[Any, ...]] = ()
    marked: Sequence[int] = ()

    def __post_init__(self) -> None:
        width = len(self.headings)
        for row in self.rows:
            if len(row.labels) != len(self.labels) or len(row.cells) != width:
                raise ValueError(
                    f"{self.name}: row {row.labels} has {len(row.cells)} figures, "
                    f"the table has {width}"
                )

    @property
    def headings(self) -> list[str]:
        """Headings of the figures, without the names of their groups."""
        headings: list[str] = []
        for group in self.groups:
            headings += group.columns
        return headings

    @property
    def rows(self) -> list[Row]:
        """The rows of all sections."""
        rows: list[Row] = []
        for section in self.sections:
            rows += section.rows
        return rows


def number(value: float | None, decimals: int = 4) -> str:
    """A figure in a cell; what is not there or not finite is a dash.

    >>> number(0.25), number(-0.00001, 2), number(None)
    ('0.2500', '0.00', '-')
    """
    if value is None or not math.isfinite(value):
        return NONE
    # Rounded first, and 0 added, which makes -0.0 a 0.0: nothing reads -0.0000.
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def signed(value: float) -> str:
    """A difference; it has its sign and 4 decimals.

    >>> signed(0.25)
    '+0.2500'
    """
    return f"{round(value, 4) + 0.0:+.4f}"


def percent(value: float) -> str:
    """A relative difference; it has its sign and one decimal.

    >>> percent(-0.125), percent(0.0001)
    ('-12.5%', '0.0%')
    """
    if math.isnan(value):
        return NONE
    # What rounds to nothing has no sign.
    if abs(value) < 0.0005:
        return "0.0%"
    return f"{value:+.1%}"


def extreme(figures: Iterable[float | None], smallest: bool) -> float | None:
    """Find the figure of a column to print bold.

    Args:
        figures: None and NaN where there is none.
        smallest: whether the smallest is wanted, else the largest.

    Returns:
        The figure, rounded to what a table shows, so that figures that look equal are equal. None
        where there is no figure.
    """
    rounded = []
    for figure in figures:
        if figure is not None and not math.isnan(figure):
            rounded.append(round(figure, 4))
    if not rounded:
        return None
    return min(rounded) if smallest else max(rounded)
