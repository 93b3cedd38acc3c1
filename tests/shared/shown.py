"""What a table shows (as it is printed, and row by row), and a report of two systems to show."""

from __future__ import annotations

import io

from rich.console import Console

from backpack_rank.evaluation.results import Estimate, Report, RunInfo, Summary, SystemResult
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import print_table


def printed(table: Table, width: int = 100, **options) -> str:
    """What the terminal shows of a table."""
    console = Console(file=io.StringIO(), width=width, **({"color_system": None} | options))
    print_table(table, console)
    return console.file.getvalue()


def cells(table: Table, section: str, *labels: str) -> list[str]:
    """The figures of a row: bold ones with a star before them, marks behind them."""
    rows_of_labels = []
    for heading, rows in table.sections:
        if heading == section:
            rows_of_labels += [row for row in rows if row.labels == labels]
    (row,) = rows_of_labels
    return [f"{'*' if cell.bold else ''}{cell.text}{cell.raised}" for cell in row.cells]


def _row(label: str, alpha: float | None, shift: float = 0.0) -> SystemResult:
    effectiveness = {
        "MRR@10": Estimate(1 / 3, 1 / 3, 0.3, 0.4, 0.31, 0.41),
        "nDCG@5": Estimate(0.5 + shift, 0.5),
        "nDCG@10": Estimate(0.25 + shift, 0.25),
        "R@100": Estimate(0.8, 0.8),
    }
    bias = {
        f"{name}({kind})@{cutoff}": Estimate(shift - cutoff / 1000, 0.2)
        for cutoff in (5, 10, 20, 30, 40)
        for kind in ("tf", "tf-paper", "bool")
        for name in ("RaB", "ARaB")
    }
    return SystemResult(label, alpha, Summary(effectiveness, 243, 390, 1), Summary(bias, 1765, 2))


def sample_report() -> Report:
    sign = "male minus female: positive values lean towards male words, negative ones towards female words"
    sets = ("wikiqa/test", "wikiqa/test, neutral queries")
    words = ("default", "gender_words", "word", "male_minus_female", sign)
    about = RunInfo(*sets, 0.5, "2 lowest senses", *words, ("A note [bold]in brackets[/bold].",))
    return Report((_row("BM25", None), _row("alpha=0.5", 0.5, 0.01)), about)
