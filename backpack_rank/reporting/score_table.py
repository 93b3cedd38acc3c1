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
    rows: Sequence[ScoreRow],
    other: str = "",
    notes: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Print score and rank by alpha, and how groups change.

    Args:
        rows: one for each query and document; all have the same alphas.
        other: name of another ranker, whose order is then printed too, before and after
            recalibration; empty without one.
        notes: sentences below the last table.
        console: to print on.
    """
    alphas = list(rows[0].scores)
    changed_alphas = [alpha for alpha in alphas if alpha != 1]
    scores = {}
    for alpha in alphas:
        texts = []
        for row in rows:
            texts.append(f"{row.scores[alpha]:+.3f} ({row.ranks[alpha]})")
        scores[_heading(alpha)] = texts
    tables = [_by_document("Scores (rank) by alpha", rows, scores), _by_group(rows, changed_alphas)]
    if other:
        ranks = {other: [str(row.other) for row in rows]}
        for alpha in changed_alphas:
            texts = []
            for row in rows:
                recalibrated = row.recalibrated or {}
                texts.append(str(recalibrated.get(alpha, "")))
            ranks[_heading(alpha)] = texts
        title = f"Rank by {other}, and after recalibration by what alpha changes"
        tables.append(_by_document(title, rows, ranks))
    tables[-1] = replace(tables[-1], notes=notes)
    for table in tables:
        print_table(table, console)


def write_scores(path: str | Path, rows: Sequence[ScoreRow]) -> None:
    """Write one line per query, document and alpha, all digits."""
    header = (
        "query_id",
        "doc_id",
        "group",
        "alpha",
        "score",
        "change",
        "rank",
        "other_rank",
        "recalibrated_rank",
    )
    lines: list[tuple[Any, ...]] = []
    for row in rows:
        about = (row.query_id, row.doc_id, row.group)
        recalibrated = row.recalibrated or {}
        for alpha, score in row.scores.items():
            ranks = (row.ranks[alpha], row.other, recalibrated.get(alpha))
            lines.append((*about, alpha, score, row.change(alpha), *ranks))
    write_text(path, csv_text(header, lines))


def changes_by_group(rows: Sequence[ScoreRow], alpha: float) -> dict[str, float]:
    """Mean change of the score against alpha = 1 in every group."""
    changes_of: dict[str, list[float]] = {}
    for row in rows:
        changes_of.setdefault(row.group or "no group", []).append(row.change(alpha))
    means = {}
    for group, changes in changes_of.items():
        means[group] = sum(changes) / len(changes)
    return means


def _heading(alpha: float) -> str:
    return f"alpha={alpha:g}"


def _by_group(rows: Sequence[ScoreRow], alphas: Sequence[float]) -> Table:
    """One line per group: the mean change of its scores at each alpha."""
    changes = {alpha: changes_by_group(rows, alpha) for alpha in alphas}
    shown = []
    for group in changes_by_group(rows, 1.0):
        cells = [Cell(f"{changes[alpha][group]:+.4f}") for alpha in alphas]
        shown.append(Row((group,), cells))
    return Table(
        name="",
        title="Mean change of the score against alpha=1",
        labels=("group",),
        groups=(Group("", tuple(_heading(alpha) for alpha in alphas)),),
        sections=[Section("", shown)],
    )


def _by_document(
    title: str, rows: Sequence[ScoreRow], columns: Mapping[str, Sequence[str]]
) -> Table:
    """One line per document; the query only where there are several.

    Args:
        title: of the table.
        rows: give the labels.
        columns: texts of the rows, by heading.
    """
    several = len({row.query_id for row in rows}) > 1
    shown = []
    for number, row in enumerate(rows):
        labels = (row.doc_id, row.group)
        cells = [Cell(texts[number]) for texts in columns.values()]
        shown.append(Row((row.query_id, *labels) if several else labels, cells))
    return Table(
        name="",
        title=title,
        labels=("query", "document", "group") if several else ("document", "group"),
        groups=[Group("", tuple(columns))],
        sections=[Section("", shown)],
    )
