"""Means of systems of several rankings, with the spread over rankings and that over queries."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from backpack_rank.evaluation.result_table import ResultTable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number

_OF_ALL = "EE-"
"""How measures begin that are of all rankings of a query together."""


def spread_table(table: ResultTable, measures: Collection[str] | None = None) -> Table | None:
    """Show how far the rankings of one system lie apart; None without such a system.

    Two spreads say two things: the standard deviation over rankings (n - 1) how much another seed
    would change, the interval over queries how much other queries would. Its records are a line for
    every ranking and measure: ``rankings.csv``.

    Args:
        table: values of every system.
        measures: to show; None: all.
    """
    sections: list[Section] = []
    records: list[tuple[object, ...]] = []
    for system in table.systems:
        if not system.rankings:
            continue
        rows: list[Row] = []
        for name, values in system.values.items():
            summary = values.summary()
            for measure, estimate in summary.figures.items():
                if measures is not None and measure not in measures:
                    continue
                means: list[float] = []
                for label, of_ranking in system.rankings.items():
                    mean = of_ranking[name].mean(measure)
                    means.append(mean)
                    records.append((system.label, name, measure, label, mean))
                cells = [number(estimate.mean)]
                if measure.startswith(_OF_ALL):
                    cells += [number(None)] * 3
                else:
                    cells += [number(float(np.std(means, ddof=1)))]
                    cells += [number(min(means)), number(max(means))]
                cells += [number(estimate.low), number(estimate.high)]
                label = system.label if not rows else ""
                rows.append(Row((label, measure), [Cell(cell) for cell in cells]))
        count = len(system.rankings)
        sections.append(Section(f"{system.label}: {count} rankings", rows))
    if not sections:
        return None
    return Table(
        name="rankings",
        title="Systems of several rankings",
        labels=("system", "measure"),
        groups=[Group("", ("mean", "std", "lowest", "highest", "low", "high"))],
        sections=sections,
        notes=(
            "std, lowest, highest: of the means of the rankings; low, high: bootstrap interval of "
            "the mean over queries; EE is of all rankings of a query together",
        ),
        columns=("system", "set", "measure", "ranking", "mean"),
        records=records,
    )
