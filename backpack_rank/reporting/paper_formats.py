"""A table of the paper as text. Terminal and LaTeX show means; Markdown and CSV have the confidence intervals too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.reporting.paper_tables import BELOW_ZERO, Line, PaperTable, cells_of
from backpack_rank.reporting.tables import csv_text

CSV_COLUMNS = ("table", "cutoff", "row", "system", "measure", "published", "measured", "mean", "low", "high")
_NO_VALUE = "-"
_INTERVALS = "In brackets: confidence intervals of the measured means"


def write_paper_table(folder: str | Path, table: PaperTable) -> list[Path]:
    """Write ``NAME.md``, ``NAME.csv`` and ``NAME.tex`` into a folder; returns their paths."""
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    paths = [Path(folder) / f"{table.name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def print_paper_table(table: PaperTable, console: Console | None = None) -> None:
    """Print a table and its notes."""
    console = console or Console()
    console.print(to_rich(table))
    for note in table.notes:
        console.print(Text(note))


def to_rich(table: PaperTable) -> Table:
    """For the terminal: published and measured means side by side."""
    out = Table(title=Text(table.title))
    out.add_column(table.first, overflow="fold")
    for group, name in table.columns:
        heading = f"{group}\n{name}" if group else name
        for kind in ("paper", "here") if table.compared else ("",):
            out.add_column(f"{heading}\n{kind}".rstrip("\n"), justify="right", no_wrap=True)
    for block in table.blocks:
        if block.cutoff is not None:
            out.add_row(Text(f"Cut-off: {block.cutoff}", style="bold"))
        for line in block.lines:
            out.add_row(Text(line.label), *(Text(text) for text in _texts(table, line, intervals=False)))
        out.add_section()
    return out


def to_markdown(table: PaperTable) -> str:
    """With title, intervals and notes; one column per published and per measured figure."""
    kinds = (" (paper)", " (here)") if table.compared else ("",)
    header = [table.first, *(f"{group} {name}{kind}".strip() for group, name in table.columns for kind in kinds)]
    rows = [header, ["---"] + ["---:"] * (len(header) - 1)]
    for block in table.blocks:
        if block.cutoff is not None:
            rows.append([f"**Cut-off: {block.cutoff}**"] + [""] * (len(header) - 1))
        rows += [[line.label, *_texts(table, line, intervals=True)] for line in block.lines]
    # A star would start emphasis, a bar would end the cell.
    body = [[row[0].replace("|", "\\|"), *(cell.replace(BELOW_ZERO, "\\*") for cell in row[1:])] for row in rows]
    notes = [note.replace(BELOW_ZERO, "\\*") for note in table.notes]
    if any(cell.interval is not None for cell in cells_of(table.blocks)):
        notes.append(f"{_INTERVALS}.")
    text = [f"### {table.title}", "", *(f"| {' | '.join(cells)} |" for cells in body)]
    return "\n".join([*text, *(f"\n{note}" for note in notes)]) + "\n"


def to_csv(table: PaperTable) -> str:
    """One line per row and measure, all digits, columns :data:`CSV_COLUMNS`.

    ``measured`` is the figure as it is shown (absolute for bias of table 2); ``mean``, ``low`` and ``high`` have their
    signs.
    """
    lines = []
    for block in table.blocks:
        for line in block.lines:
            for cell in line.cells:
                own = cell.measured
                signed = (None, None, None) if own is None else (own.mean, own.low, own.high)
                start = (table.name, block.cutoff, line.label, line.system, cell.measure)
                lines.append((*start, cell.published, cell.value, *signed))
    return csv_text(CSV_COLUMNS, lines)


def to_latex(table: PaperTable) -> str:
    """A ``table`` environment that needs the package booktabs; the notes stand below it."""
    width = 2 if table.compared else 1
    count = width * len(table.columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(table.title)}}}", rf"\label{{tab:{table.name}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * count}}}", r"\toprule", *_latex_header(table, width), r"\midrule"]
    for index, block in enumerate(table.blocks):
        if block.cutoff is not None:
            lines += [r"\midrule"] if index else []
            lines += [rf"\multicolumn{{{count + 1}}}{{c}}{{Cut-off: {block.cutoff}}} \\", r"\midrule"]
        for line in block.lines:
            cells = [line.label, *_texts(table, line, intervals=False)]
            lines.append(" & ".join(map(_latex, cells)) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    lines += [rf"\par\footnotesize {_latex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _texts(table: PaperTable, line: Line, intervals: bool) -> list[str]:
    texts = []
    for cell in line.cells:
        if table.compared:
            texts.append(_NO_VALUE if cell.published is None else f"{cell.published:.{table.decimals}f}")
        text = _NO_VALUE if cell.value is None else f"{cell.value:.4f}{BELOW_ZERO * cell.turned}"
        if intervals and cell.interval is not None:
            text += f" [{cell.interval[0]:.4f}, {cell.interval[1]:.4f}]"
        texts.append(text)
    return texts


def _latex_header(table: PaperTable, width: int) -> list[str]:
    """Groups, measures, and who measured; rows that would be empty are left out."""
    lines = []
    groups = [group for group, _ in table.columns]
    if any(groups):
        lines.append(" & ".join(["", *_spans(groups, width)]) + r" \\")
    names = [name for _, name in table.columns]
    lines.append(" & ".join([_latex(table.first), *(_span(name, width) for name in names)]) + r" \\")
    if table.compared:
        lines.append(" & ".join(["", *["paper", "here"] * len(names)]) + r" \\")
    return lines


def _spans(groups: Sequence[str], width: int) -> list[str]:
    """One cell per run of equal groups."""
    runs: list[tuple[str, int]] = []
    for group in groups:
        if runs and runs[-1][0] == group:
            runs[-1] = (group, runs[-1][1] + width)
        else:
            runs.append((group, width))
    return [_span(group, count) for group, count in runs]


def _span(text: str, count: int) -> str:
    return rf"\multicolumn{{{count}}}{{c}}{{{_latex(text)}}}" if count > 1 else _latex(text)


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(r"alpha ?= ?(\d+(?:\.\d+)?)", r"$\\alpha = \1$", escaped)
