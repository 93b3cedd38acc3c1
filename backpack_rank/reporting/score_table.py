"""Scores of a few documents under a dial: a table for people, and the same as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from backpack_rank.files import write_text
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table
from backpack_rank.reporting.writers import csv_text, print_table


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
    alphas = list(rows[0].scores)
    names = {alpha: f"alpha={alpha:g}" for alpha in alphas}
    scores = {names[alpha]: [f"{row.scores[alpha]:+.3f} ({row.ranks[alpha]})" for row in rows] for alpha in alphas}
    changed = [alpha for alpha in alphas if alpha != 1]
    changes = [
        Row((group,), [Cell(f"{changes_by_group(rows, alpha)[group]:+.4f}") for alpha in changed])
        for group in changes_by_group(rows, 1.0)
    ]
    title, groups = "Mean change of the score against alpha=1", (Group("", tuple(names[alpha] for alpha in changed)),)
    tables = [
        _by_document("Scores (rank) by alpha", rows, scores),
        Table("", title, ("group",), groups, [Section("", changes)]),
    ]
    if other:
        again = {names[alpha]: [str((row.recalibrated or {}).get(alpha, "")) for row in rows] for alpha in changed}
        title = f"Rank by {other}, and after recalibration by what alpha changes"
        tables.append(_by_document(title, rows, {other: [str(row.other) for row in rows], **again}))
    for table in [*tables[:-1], replace(tables[-1], notes=notes)]:
        print_table(table, console)


def write_scores(path: str | Path, rows: Sequence[ScoreRow]) -> None:
    """Write one line per query, document and alpha, all digits."""
    header = ("query_id", "doc_id", "group", "alpha", "score", "change", "rank", "other_rank", "recalibrated_rank")
    lines: list[tuple[Any, ...]] = []
    for row in rows:
        for alpha, score in row.scores.items():
            ranks = (row.ranks[alpha], row.other, (row.recalibrated or {}).get(alpha))
            lines.append((row.query_id, row.doc_id, row.group, alpha, score, row.change(alpha), *ranks))
    write_text(path, csv_text(header, lines))


def changes_by_group(rows: Sequence[ScoreRow], alpha: float) -> dict[str, float]:
    """Mean change of the score against alpha = 1 in every group."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.group or "no group", []).append(row.change(alpha))
    return {group: sum(changes) / len(changes) for group, changes in groups.items()}


def _by_document(title: str, rows: Sequence[ScoreRow], columns: Mapping[str, Sequence[str]]) -> Table:
    """One line per document; the query only where there are several."""
    several = len({row.query_id for row in rows}) > 1
    lines = [
        Row((*([row.query_id] if several else []), row.doc_id, row.group), list(map(Cell, cells)))
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True)
    ]
    labels = (*(["query"] if several else []), "document", "group")
    return Table("", title, labels, [Group("", tuple(columns))], [Section("", lines)])
