"""Tables of a comparison in LaTeX, with booktabs and no other package."""

from __future__ import annotations

from collections.abc import Sequence

from backpack_rank.reporting.rows import Cell, Grid

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_tables(grids: Sequence[Grid], sentences: Sequence[str]) -> str:
    """One table environment per grid, in a paper to be read in by ``\\input{comparison}``."""
    lines = [r"% Needs \usepackage{booktabs} in the preamble.", *(f"% {' '.join(line.split())}" for line in sentences)]
    for grid in grids:
        lines += ["", *_table(grid)]
    return "\n".join(lines) + "\n"


def latex_escape(text: str) -> str:
    """The text with every character that LaTeX reads as a command written out; white space becomes one space."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))


def _table(grid: Grid) -> list[str]:
    negative = [
        any(cells[column].figure.startswith("-") and len(cells[column].figure) > 1 for _, _, cells in grid.lines)
        for column in range(len(grid.measures))
    ]
    header = ["", "System", *(latex_escape(measure) for measure in grid.measures)]
    body = [
        [letter, latex_escape(label), *(_cell(cell, signs) for cell, signs in zip(cells, negative, strict=True))]
        for letter, label, cells in grid.lines
    ]
    return [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{latex_escape(grid.title)}}}",
        f"  \\begin{{tabular}}{{ll{'l' * len(grid.measures)}}}",
        r"    \toprule",
        f"    {' & '.join(header)} \\\\",
        r"    \midrule",
        *(f"    {' & '.join(line)} \\\\" for line in body),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _cell(cell: Cell, signs: bool) -> str:
    if cell.mean is None:
        return "--"
    minus = "$-$" if cell.figure.startswith("-") else r"\phantom{$-$}" if signs else ""
    figure = cell.figure.lstrip("-")
    figure = f"\\textbf{{{minus}{figure}}}" if cell.best else minus + figure
    return f"{figure}\\textsuperscript{{{cell.raised}}}" if cell.letters else figure
