"""Scores of a few documents under a dial: a table for people, and the same as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.reporting.tables import csv_text


@dataclass(frozen=True)
class ScoreRow:
    """One document of one query.

    Attributes:
        query_id: the query.
        doc_id: the document.
        group: its group, or empty.
        scores: raw score at each alpha.
        ranks: rank from 1 at each alpha.
        other: rank by the other ranker, None without one.
        recalibrated: rank after recalibration of the other ranker at each alpha.
    """

    query_id: str
    doc_id: str
    group: str
    scores: Mapping[float, float]
    ranks: Mapping[float, int]
    other: int | None = None
    recalibrated: Mapping[float, int] | None = None

    def change(self, alpha: float) -> float:
        """Change of the score against alpha = 1."""
        return self.scores[alpha] - self.scores[1.0]


def print_scores(
    rows: Sequence[ScoreRow], other: str = "", notes: Sequence[str] = (), console: Console | None = None
) -> None:
    """Print score and rank per alpha, changes per group, and the recalibrated order of the other ranker."""
    console = console or Console()
    alphas = list(rows[0].scores)
    scores = {alpha: [f"{row.scores[alpha]:+.3f} ({row.ranks[alpha]})" for row in rows] for alpha in alphas}
    console.print(_table("Scores (rank) by alpha", rows, {f"alpha={alpha:g}": scores[alpha] for alpha in alphas}))
    console.print(_changes(rows, alphas))
    if other:
        again = {
            f"alpha={alpha:g}": [str((row.recalibrated or {}).get(alpha, "")) for row in rows]
            for alpha in alphas
            if alpha != 1
        }
        title = f"Rank by {other}, and after recalibration by what alpha changes"
        console.print(_table(title, rows, {other: [str(row.other) for row in rows], **again}))
    for note in notes:
        console.print(Text(note))


def write_scores(path: str | Path, rows: Sequence[ScoreRow]) -> None:
    """Write one line per query, document and alpha, all digits."""
    header = ("query_id", "doc_id", "group", "alpha", "score", "change", "rank", "other_rank", "recalibrated_rank")
    lines = (
        (
            row.query_id,
            row.doc_id,
            row.group,
            alpha,
            score,
            row.change(alpha),
            row.ranks[alpha],
            row.other,
            (row.recalibrated or {}).get(alpha),
        )
        for row in rows
        for alpha, score in row.scores.items()
    )
    write_text(path, csv_text(header, lines))


def changes_by_group(rows: Sequence[ScoreRow], alpha: float) -> dict[str, float]:
    """Mean change of the score against alpha = 1 in every group."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.group or "no group", []).append(row.change(alpha))
    return {group: sum(changes) / len(changes) for group, changes in groups.items()}


def _table(title: str, rows: Sequence[ScoreRow], columns: Mapping[str, Sequence[str]]) -> Table:
    """One line per document; the query only where there are several."""
    table = Table(title=title, collapse_padding=True)
    several = len({row.query_id for row in rows}) > 1
    for name in (["query"] if several else []) + ["document", "group"]:
        table.add_column(name)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        first = [Text(row.query_id)] if several else []
        table.add_row(*first, Text(row.doc_id), Text(row.group), *(cells[number] for cells in columns.values()))
    return table


def _changes(rows: Sequence[ScoreRow], alphas: Sequence[float]) -> Table:
    table = Table(title="Mean change of the score against alpha=1")
    table.add_column("group")
    others = [alpha for alpha in alphas if alpha != 1]
    for alpha in others:
        table.add_column(f"alpha={alpha:g}", justify="right")
    for group in changes_by_group(rows, 1.0):
        table.add_row(Text(group), *(f"{changes_by_group(rows, alpha)[group]:+.4f}" for alpha in others))
    return table
