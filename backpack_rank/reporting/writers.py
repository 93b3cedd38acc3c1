"""Tables in the terminal, as Markdown, LaTeX (with booktabs and no other package) and CSV.

CSV and JSON of anything else are written here too.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Table
from backpack_rank.reporting.terminal import parts_that_fit

GAP = "|gap|/std"
"""A measure of this project, which spreadsheets do not run although it begins with a bar."""
# "=" and what programs take for it: full-width signs, and the separators ";" and "|", behind which
# a cell begins anew.
_FORMULA = re.compile(r"['\t\r\n ]*[=+\-@\uff1d\uff0b\uff0d\uff20;|].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_MOST_COLUMNS, _COLUMNS_OF_PART = 6, 4
"""Columns of a LaTeX table without groups at most, and of each part of one that has more."""
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
    """Keep a table as ``NAME.md``, ``NAME.tex`` and ``NAME.csv``; returns the paths."""
    texts = {
        "md": to_markdown(table),
        "tex": to_latex(table),
        "csv": csv_text(table.columns, table.records),
    }
    paths = []
    for ending, text in texts.items():
        path = Path(folder) / f"{table.name}.{ending}"
        write_text(path, text)
        paths.append(path)
    return paths


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table with its title and notes.

    Columns that do not fit side by side stand below each other.

    Args:
        table: to print.
        console: where to, default the terminal.
    """
    console = console or Console()
    console.print(Text(printable(table.title), style="bold"))
    for part in parts_that_fit(table, console):
        console.print(part)
    for note in table.notes:
        console.print(Text(printable(note)))


def to_markdown(table: Table) -> str:
    """A table with its title, confidence intervals and notes in Markdown.

    The heading of a section stands in a row of its own. There is an example at
    :class:`~backpack_rank.reporting.table.Table`.
    """
    notes = list(table.notes)
    cells: list[Cell] = []
    for row in table.rows:
        cells += row.cells
    if any(cell.interval for cell in cells):
        notes.append("In brackets: confidence intervals of the measured means.")
    lines = [f"### {markdown_escape(table.title)}", "", *markdown_rows(table)]
    for note in notes:
        lines += ["", markdown_escape(note)]
    return "\n".join(lines) + "\n"


def markdown_escape(text: str) -> str:
    """The text on one line, with the marks that Markdown would read escaped.

    >>> print(markdown_escape("|gap| of a_b"))
    \\|gap\\| of a\\_b
    """
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def markdown_rows(table: Table, escape: Callable[[str], str] = markdown_escape) -> list[str]:
    """The lines of a table in Markdown, header first, without title and notes.

    Args:
        table: to write.
        escape: of headings, labels and figures.
    """
    headings = list(map(escape, table.labels))
    for group in table.groups:
        for name in group.columns:
            headings.append(escape(f"{group.name} {name}".strip()))
    rows = [headings, ["---"] * len(table.labels) + ["---:"] * len(table.headings)]
    for section in table.sections:
        if section.heading:
            rows.append([f"**{escape(section.heading)}**"] + [""] * (len(headings) - 1))
        for row in section.rows:
            texts = list(map(escape, row.labels))
            for cell in row.cells:
                texts.append(_markdown_cell(cell, escape))
            rows.append(texts)
    return [f"| {' | '.join(row)} |" for row in rows]


def _markdown_cell(cell: Cell, escape: Callable[[str], str]) -> str:
    text = escape(cell.text)
    if cell.bold:
        text = f"**{text}**"
    if cell.raised:
        text += f"<sup>{escape(cell.raised)}</sup>"
    if cell.change:
        text += f" ({escape(cell.change)})"
    return f"{text} {cell.interval}".rstrip()


def to_latex(table: Table) -> str:
    """A ``table`` environment with its notes below; it needs the package booktabs.

    More columns than fit a page stand in several parts below each other.
    """
    lines = [
        "% Needs \\usepackage{booktabs} in the preamble.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
    ]
    columns = len(table.headings)
    # Groups of columns, as papers have them, are not torn apart.
    is_grouped = any(group.name for group in table.groups)
    width = columns if is_grouped or columns <= _MOST_COLUMNS else _COLUMNS_OF_PART
    if width < columns:
        lines.append(r"\setlength{\tabcolsep}{4pt}")
    # A table without columns has one part too.
    for first in range(0, max(1, columns), max(1, width)):
        if first:
            lines.append(r"\medskip")
        lines += [*_tabular(table, slice(first, first + width)), ""]
    lines += [rf"\par\footnotesize {latex_escape(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _tabular(table: Table, part: slice) -> list[str]:
    """Lines of a ``tabular`` environment with some of the columns."""
    columns = _columns_of_cells(table)[part]
    # Marks behind some figures of a column would shift the others if it were aligned to the right.
    alignment = "l" * len(table.labels)
    for cells in columns:
        alignment += "l" if any(cell.raised for cell in cells) else "r"
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    if any(group.name for group in table.groups):
        names = [""] * len(table.labels)
        for group in table.groups:
            span = len(group.columns)
            names.append(rf"\multicolumn{{{span}}}{{c}}{{{latex_escape(group.name)}}}")
        lines.append(_latex_row(names))
    lines.append(_latex_row(list(map(latex_escape, (*table.labels, *table.headings[part])))))
    # Column by column, because a figure leaves room for the signs of those above and below it.
    texts_by_column = list(map(_latex_column, columns))
    number = 0  # of the row, over all sections
    for section in table.sections:
        lines.append(r"\midrule")
        if section.heading:
            heading = rf"\textbf{{{latex_escape(section.heading)}}}"
            lines.append(_latex_row([rf"\multicolumn{{{len(alignment)}}}{{l}}{{{heading}}}"]))
        for row in section.rows:
            texts = list(map(latex_escape, row.labels))
            texts += [column[number] for column in texts_by_column]
            lines.append(_latex_row(texts))
            number += 1
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _columns_of_cells(table: Table) -> list[list[Cell]]:
    columns: list[list[Cell]] = [[] for _ in table.headings]
    for row in table.rows:
        for column, cell in zip(columns, row.cells, strict=True):
            column.append(cell)
    return columns


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_column(cells: Sequence[Cell]) -> list[str]:
    """Figures of a column; aligned to the left, those without a sign leave room for it."""
    marked = any(cell.raised for cell in cells)
    with_signs = any(re.match(r"[-+]\d", cell.text) for cell in cells)
    written = []
    for cell in cells:
        text = latex_escape(cell.text)
        if re.match(r"-\d", text):
            text = f"$-${text[1:]}"
        elif marked and with_signs and text[:1].isdigit():
            text = rf"\phantom{{$-$}}{text}"
        if cell.bold:
            text = rf"\textbf{{{text}}}"
        if cell.raised:
            text = rf"{text}\textsuperscript{{{latex_escape(cell.raised)}}}"
        if cell.change:
            text += f" ({latex_escape(cell.change)})"
        written.append(text)
    return written


def latex_escape(text: str) -> str:
    """Text in LaTeX: commands are written out, ``alpha = 0.5`` becomes a formula.

    >>> print(latex_escape("a_b at alpha = 0.5"))
    a\\_b at $\\alpha = 0.5$
    """
    on_one_line = " ".join(text.split())
    escaped = "".join(_LATEX.get(character, character) for character in on_one_line)
    return re.sub(r"alpha = (\d+(?:\.\d+)?)", r"$\\alpha = \1$", escaped)


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """CSV that spreadsheets open safely; numbers keep all digits.

    None and numbers that are not finite become empty cells. A text that a spreadsheet would run as
    a formula begins with an apostrophe (:func:`safe_cell`); control characters are spelt out.

    >>> csv_text(("system", "mean"), [("=1+1", 0.25), ("BM25", float("nan"))])
    "system,mean\\n'=1+1,0.25\\nBM25,\\n"
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow(map(_csv_cell, line))
    return buffer.getvalue()


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, float):
        return finite(cell)
    if isinstance(cell, str):
        return safe_cell(printable(cell))
    return cell


def safe_cell(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would run it.

    So does one that begins with ``=``, ``+``, ``-`` or ``@``, also full-width, and with ``;`` or
    ``|``, which some take for the end of a cell. Numbers, such as the id ``-5``, and a single sign
    stay as they are.

    >>> safe_cell("=1+1"), safe_cell("-5"), safe_cell("-")
    ("'=1+1", '-5', '-')
    """
    if text == GAP or _NUMBER.fullmatch(text) or not _FORMULA.match(text):
        return text
    return f"'{text}"


def read_cell(cell: str) -> str:
    """The text that :func:`safe_cell` was given."""
    if cell.startswith("'") and safe_cell(cell[1:]) == cell:
        return cell[1:]
    return cell


def dump_json(payload: dict[str, Any]) -> str:
    """JSON with indentation; numbers that are not finite are refused.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: float | None) -> float | None:
    """The number, or None for NaN and infinity, which JSON and spreadsheets do not know."""
    if value is None or not math.isfinite(value):
        return None
    return value
