"""Tables in a layout of their own (rows in sections, figures with raised marks): terminal, Markdown, LaTeX, CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.reporting.latex import latex_escape
from backpack_rank.reporting.tables import csv_text

NONE = "-"


@dataclass(frozen=True)
class Entry:
    """One figure as it is shown: its text, whether it is printed bold, and marks raised behind it."""

    text: str = NONE
    bold: bool = False
    raised: str = ""


@dataclass(frozen=True)
class LayoutTable:
    """A table and everything that is written of it.

    Attributes:
        name: of its files.
        title: what it shows.
        labels: headings of the leading columns.
        groups: headings of the figures as (group, names); a group may be empty.
        sections: (heading, rows as (labels, entries)); a heading may be empty.
        notes: sentences below the table.
        columns: of the CSV file.
        records: its lines, with all digits.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    sections: tuple[tuple[str, tuple[tuple[tuple[str, ...], tuple[Entry, ...]], ...]], ...]
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    records: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        width = sum(len(names) for _, names in self.groups)
        for _, rows in self.sections:
            for labels, entries in rows:
                if (len(labels), len(entries)) != (len(self.labels), width):
                    raise ValueError(f"{self.name}: row {labels} has {len(entries)} figures, the table has {width}")


def write_layout_table(folder: str | Path, table: LayoutTable) -> list[Path]:
    """Write ``NAME.md``, ``NAME.tex`` and ``NAME.csv`` into a folder; returns their paths."""
    texts = {"md": to_markdown(table), "tex": to_latex(table), "csv": csv_text(table.columns, table.records)}
    paths = [Path(folder) / f"{table.name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def print_layout_table(table: LayoutTable, console: Console | None = None) -> None:
    """Print a table and its notes; groups of figures that do not fit side by side stand below each other."""
    console = console or Console()
    for part in _fitting(table, console.width):
        console.print(_rich(part))
    for note in table.notes:
        console.print(Text(note))


def to_markdown(table: LayoutTable) -> str:
    """With title and notes; a section's heading stands in a row of its own."""
    header = [*table.labels, *(f"{group} {name}".strip() for group, names in table.groups for name in names)]
    rows = [header, ["---"] * len(table.labels) + ["---:"] * (len(header) - len(table.labels))]
    for heading, lines in table.sections:
        if heading:
            rows.append([f"**{_plain(heading)}**"] + [""] * (len(header) - 1))
        rows += [[*map(_plain, labels), *map(_markdown, entries)] for labels, entries in lines]
    text = [f"### {table.title}", "", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n".join([*text, *(f"\n{_plain(note)}" for note in table.notes)]) + "\n"


def to_latex(table: LayoutTable) -> str:
    """A ``table`` environment that needs the package booktabs; the notes stand below it."""
    leading, width = len(table.labels), sum(len(names) for _, names in table.groups)
    lines = [
        "% Needs \\usepackage{booktabs} in the preamble.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_escape(table.title)}}}",
        rf"\begin{{tabular}}{{{'l' * leading}{'r' * width}}}",
        r"\toprule",
    ]
    if any(group for group, _ in table.groups):
        spans = [rf"\multicolumn{{{len(names)}}}{{c}}{{{latex_escape(group)}}}" for group, names in table.groups]
        lines.append(" & ".join([*[""] * leading, *spans]) + r" \\")
    names = [latex_escape(name) for _, group in table.groups for name in group]
    lines.append(" & ".join([*map(latex_escape, table.labels), *names]) + r" \\")
    for heading, rows in table.sections:
        lines.append(r"\midrule")
        if heading:
            lines.append(rf"\multicolumn{{{leading + width}}}{{l}}{{\textbf{{{latex_escape(heading)}}}}} \\")
        lines += [" & ".join([*map(latex_escape, labels), *map(_latex, entries)]) + r" \\" for labels, entries in rows]
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    lines += [rf"\par\footnotesize {latex_escape(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def extreme(figures: Iterable[float | None], smallest: bool) -> float | None:
    """The smallest or largest of the figures that are there, rounded to what a table shows; None without any."""
    there = [round(figure, 4) for figure in figures if figure is not None and figure == figure]
    return None if not there else min(there) if smallest else max(there)


def _rich(table: LayoutTable) -> Table:
    out = Table(title=Text(table.title), box=SIMPLE_HEAD, padding=0)
    for label in table.labels:
        out.add_column(Text(label), overflow="fold")
    for group, names in table.groups:
        for place, name in enumerate(names):
            heading = f"{group if not place else ''}\n{name}" if any(group for group, _ in table.groups) else name
            out.add_column(Text(heading), justify="right", no_wrap=True)
    for heading, rows in table.sections:
        if heading:
            out.add_row(Text(heading, style="bold"))
        for labels, entries in rows:
            figures = [Text(f"{one.text}{one.raised}", style="bold" if one.bold else "") for one in entries]
            out.add_row(*map(Text, labels), *figures)
        out.add_section()
    return out


def _fitting(table: LayoutTable, width: int) -> list[LayoutTable]:
    """The table, or parts of it with the same rows and some of the groups, each no wider than the terminal."""
    rows = [row for _, rows in table.sections for row in rows]
    headings = [name for _, names in table.groups for name in names]
    shown = [[len(entry.text + entry.raised) for entry in entries] for _, entries in rows]
    widths = [1 + max([len(name), *(line[place] for line in shown)]) for place, name in enumerate(headings)]
    labels = [[len(label) for label in labels] for labels, _ in rows]
    labels += [[len(heading)] + [0] * (len(table.labels) - 1) for heading, _ in table.sections]
    leading = sum(1 + max([len(name), *(line[place] for line in labels)]) for place, name in enumerate(table.labels))
    leading += 1  # the left edge; the right one is the space behind the last column
    parts: list[list[int]] = [[]]
    used, first = leading, 0
    for number, (group, names) in enumerate(table.groups):
        wide = sum(widths[first : first + len(names)]) + max(0, len(group) - widths[first] + 1)
        if parts[-1] and used + wide > width:
            parts.append([])
            used = leading
        parts[-1].append(number)
        used, first = used + wide, first + len(names)
    return [table] if len(parts) == 1 else [_part(table, groups) for groups in parts]


def _part(table: LayoutTable, groups: Sequence[int]) -> LayoutTable:
    """The table with some of its groups."""
    ends = list(accumulate(len(names) for _, names in table.groups))
    places = [place for number in groups for place in range(ends[number] - len(table.groups[number][1]), ends[number])]
    sections = tuple(
        (heading, tuple((labels, tuple(entries[place] for place in places)) for labels, entries in rows))
        for heading, rows in table.sections
    )
    return replace(table, groups=tuple(table.groups[number] for number in groups), sections=sections)


def _markdown(entry: Entry) -> str:
    text = f"**{entry.text}**" if entry.bold else entry.text
    return f"{text}<sup>{entry.raised}</sup>" if entry.raised else text


def _latex(entry: Entry) -> str:
    text = latex_escape(entry.text)
    text = rf"\textbf{{{text}}}" if entry.bold else text
    return rf"{text}\textsuperscript{{{latex_escape(entry.raised)}}}" if entry.raised else text


def _plain(text: str) -> str:
    """Text whose marks Markdown does not read."""
    return "".join(f"\\{letter}" if letter in r"\`*_[]<>|" else letter for letter in text)
