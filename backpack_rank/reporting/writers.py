"""Tables in the terminal, as Markdown, LaTeX (with booktabs and no other package) and CSV; CSV and JSON of anything."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table

# "=" and what programs take for it: full-width signs, and the separators ";" and "|", behind which a cell begins anew.
GAP = "|gap|/std"
_FORMULA = re.compile(r"['\t\r\n ]*[=+\-@\uff1d\uff0b\uff0d\uff20;|].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def write_table(folder: str | Path, table: Table) -> list[Path]:
    """Write ``NAME.md``, ``NAME.tex`` and ``NAME.csv`` into a folder; returns their paths."""
    texts = {"md": to_markdown(table), "tex": to_latex(table), "csv": csv_text(table.columns, table.records)}
    paths = [Path(folder) / f"{table.name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def print_table(table: Table, console: Console | None = None) -> None:
    """Print title, table and notes; columns that do not fit side by side stand below each other."""
    console = console or Console()
    console.print(Text(printable(table.title), style="bold"))
    for part in _fitting(table, console):
        console.print(part)
    for note in table.notes:
        console.print(Text(printable(note)))


def to_markdown(table: Table) -> str:
    """With title, confidence intervals and notes; a section's heading stands in a row of its own."""
    header = [*table.labels, *(f"{group.name} {name}".strip() for group in table.groups for name in group.columns)]
    rows = [[_plain(text) for text in header]]
    rows.append(["---"] * len(table.labels) + ["---:"] * (len(header) - len(table.labels)))
    for section in table.sections:
        if section.heading:
            rows.append([f"**{_plain(section.heading)}**"] + [""] * (len(header) - 1))
        rows += [[*map(_plain, row.labels), *map(_markdown, row.cells)] for row in section.rows]
    notes = list(table.notes)
    if any(cell.interval for row in table.rows for cell in row.cells):
        notes.append("In brackets: confidence intervals of the measured means.")
    text = [f"### {_plain(table.title)}", "", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n".join([*text, *(f"\n{_plain(note)}" for note in notes)]) + "\n"


def to_latex(table: Table) -> str:
    """A ``table`` environment that needs the package booktabs; the notes stand below it."""
    columns = list(zip(*(row.cells for row in table.rows), strict=True))
    columns = columns or [()] * sum(len(group.columns) for group in table.groups)
    # Marks behind some figures of a column would shift the others if it were aligned to the right.
    places = ["l"] * len(table.labels) + ["l" if any(cell.raised for cell in cells) else "r" for cells in columns]
    written = list(zip(*map(_latex_column, columns), strict=True)) or [()] * len(table.rows)
    lines = [
        "% Needs \\usepackage{booktabs} in the preamble.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{''.join(places)}}}",
        r"\toprule",
    ]
    if any(group.name for group in table.groups):
        spans = [rf"\multicolumn{{{len(names)}}}{{c}}{{{latex_escape(group)}}}" for group, names in table.groups]
        lines.append(" & ".join([*[""] * len(table.labels), *spans]) + r" \\")
    names = [name for group in table.groups for name in group.columns]
    lines.append(" & ".join(map(latex_escape, [*table.labels, *names])) + r" \\")
    bodies = iter(written)
    for section in table.sections:
        lines.append(r"\midrule")
        if section.heading:
            lines.append(rf"\multicolumn{{{len(places)}}}{{l}}{{\textbf{{{latex_escape(section.heading)}}}}} \\")
        for row in section.rows:
            lines.append(" & ".join([*map(latex_escape, row.labels), *next(bodies)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    lines += [rf"\par\footnotesize {latex_escape(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def latex_escape(text: str) -> str:
    """The text with every character that LaTeX reads as a command written out, and ``alpha = 0.5`` as a formula."""
    escaped = "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"alpha = (\d+(?:\.\d+)?)", r"$\\alpha = \1$", escaped)


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """CSV text; None and numbers that are not finite become empty cells, numbers keep all digits.

    A text that a spreadsheet would run as a formula begins with an apostrophe; see :func:`safe_cell`.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow([_csv_cell(cell) for cell in line])
    return buffer.getvalue()


def safe_cell(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would run it.

    So does one that begins with ``=``, ``+``, ``-`` or ``@``, also full-width, and with ``;`` or ``|``, which some take
    for the end of a cell.

    Numbers, such as the id ``-5``, and a single sign stay as they are.
    """
    if text == GAP:  # a measure of this project
        return text
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def read_cell(cell: str) -> str:
    """The text that :func:`safe_cell` was given."""
    return cell[1:] if cell.startswith("'") and safe_cell(cell[1:]) == cell else cell


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, float):
        return finite(cell)
    return safe_cell(cell) if isinstance(cell, str) else cell


def dump_json(payload: dict[str, Any]) -> str:
    """JSON text with indentation; numbers that are not finite are refused."""
    return json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: float | None) -> float | None:
    """The number, or None for NaN and infinity, which JSON and spreadsheets do not know."""
    return value if value is not None and math.isfinite(value) else None


def _fitting(table: Table, console: Console) -> list[RichTable]:
    """The table, or parts of it with the same rows and some of the columns, each no wider than the terminal."""
    unbounded = console.options.update(max_width=10_000)  # else rich reports no more than the terminal's width

    def drawn(places: Sequence[int], padding: int = 0) -> RichTable:
        return _rich(_part(table, places), console.width, padding)

    def fits(one: RichTable) -> bool:
        return console.measure(one, options=unbounded).maximum <= console.width

    together = _together(table)
    for padding in (1, 0):
        if fits(whole := drawn([place for own in together for place in own], padding)):
            return [whole]
    parts: list[list[int]] = [[]]
    for own in together:
        if parts[-1] and not fits(drawn([*parts[-1], *own])):
            parts.append([])
        parts[-1] += own
    return [drawn(part) for part in parts]


def _together(table: Table) -> list[list[int]]:
    """Places of the columns that are not torn apart: those of a group that has a name."""
    places = count()
    owned = [(group.name, list(islice(places, len(group.columns)))) for group in table.groups]
    return [part for name, own in owned for part in ([own] if name else [[place] for place in own])]


def _part(table: Table, places: Sequence[int]) -> Table:
    """The table with some of its columns."""
    number = count()
    named = [(name, [column for column in columns if next(number) in places]) for name, columns in table.groups]
    groups = [Group(name, tuple(columns)) for name, columns in named if columns]
    sections = [
        Section(heading, [Row(labels, [cells[place] for place in places]) for labels, cells in rows])
        for heading, rows in table.sections
    ]
    return replace(table, groups=groups, sections=sections)


def _rich(table: Table, width: int, padding: int) -> RichTable:
    out = RichTable(box=SIMPLE_HEAD, padding=(0, padding, 0, 0))
    for label in table.labels:
        out.add_column(Text(printable(label)), overflow="fold", max_width=max(16, width // 3), vertical="bottom")
    headings = [
        [*([] if place else group.split()), *_broken(name)]
        for group, names in table.groups
        for place, name in enumerate(names)
    ]
    for heading in headings:
        out.add_column(Text("\n".join(heading), justify="right"), no_wrap=True, vertical="bottom")
    columns = [_aligned([row.cells[place] for row in table.rows], heading) for place, heading in enumerate(headings)]
    figures = zip(*columns, strict=True) if columns else iter([()] * len(table.rows))
    for section in table.sections:
        if section.heading:
            out.add_row(Text(printable(section.heading), style="bold"))
        for row in section.rows:
            out.add_row(*(Text(printable(label)) for label in row.labels), *next(figures))
        out.add_section()
    return out


def _broken(heading: str) -> list[str]:
    """The lines of a heading; long names such as ``ARaB(tf-paper)@10`` are cut before brackets and cut-offs."""
    words = heading.split()
    cut = [re.sub(r"(?<=[\w-])(?=[(@])|(?<=\))(?=@)", "\n", word) if len(word) > 8 else word for word in words]
    return "\n".join(cut).split()


def _aligned(cells: Sequence[Cell], heading: Sequence[str]) -> list[Text]:
    """Figures of a column, which stand below each other whatever marks stand behind them."""
    room = max((len(_mark(cell)) for cell in cells), default=0)
    width = max([len(cell.text) for cell in cells] + [len(word) - room for word in heading])
    return [
        Text(" " * (width - len(cell.text)))
        .append(cell.text, style="bold" if cell.bold else "")
        .append(f"{_mark(cell):<{room}}", style="dim")
        for cell in cells
    ]


def _mark(cell: Cell) -> str:
    """A letter is set apart from the figure, a dagger is not."""
    return f" {cell.raised}" if cell.raised[:1].isalnum() else cell.raised


def _markdown(cell: Cell) -> str:
    text = f"**{_plain(cell.text)}**" if cell.bold else _plain(cell.text)
    raised = f"<sup>{_plain(cell.raised)}</sup>" if cell.raised else ""
    return f"{text}{raised} {cell.interval}".rstrip()


def _plain(text: str) -> str:
    """Text whose marks Markdown does not read."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _latex_column(cells: Sequence[Cell]) -> list[str]:
    """Figures of a column; where they are aligned to the left, those without a sign leave room for it."""
    signs = any(cell.raised for cell in cells) and any(re.match(r"[-+]\d", cell.text) for cell in cells)
    written = []
    for cell in cells:
        text = latex_escape(cell.text)
        if re.match(r"-\d", text):
            text = f"$-${text[1:]}"
        elif signs and text[:1].isdigit():
            text = rf"\phantom{{$-$}}{text}"
        text = rf"\textbf{{{text}}}" if cell.bold else text
        written.append(rf"{text}\textsuperscript{{{latex_escape(cell.raised)}}}" if cell.raised else text)
    return written
