"""A measure by input position of the relevant passage, by system: picture, JSON, CSV.

It is the picture of DebiasFirst, Figure 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backpack_rank.reporting.charts import Line, lines
from backpack_rank.reporting.vega import Spec, below, save_figure
from backpack_rank.reporting.writers import finite

FORMAT = "backpack_rank controlled positions 1"
STEM = "controlled_positions"
COLUMNS = ("system", "measure", "position", "value", "standard_error")


@dataclass(frozen=True)
class PositionCurve:
    """A measure by input position of the relevant passage.

    >>> curve = PositionCurve("MRR", values=(0.9, 0.5, 0.7), errors=(0.1, 0.1, 0.1))
    >>> round(curve.mean, 2), round(curve.range, 2)
    (0.7, 0.4)

    Attributes:
        measure: its name.
        values: mean over the lists at each position, from the first.
        errors: standard error of each mean; NaN for one list.
    """

    measure: str
    values: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the positions."""
        return float(np.mean(self.values))

    @property
    def range(self) -> float:
        """Value at the best position minus that at the worst."""
        return float(np.max(self.values) - np.min(self.values))

    @property
    def variance(self) -> float:
        """Mean squared distance of the positions' values from their mean."""
        return float(np.var(self.values))


@dataclass(frozen=True)
class SystemPositions:
    """Curves of a system in the controlled position experiment, and what ranking cost.

    Attributes:
        label: name of the system.
        curves: of each measure.
        ranked: lists that it was given: those of the experiment times their positions.
        passes: forward passes that ranking them took; None: not counted.
        seconds: wall-clock time that it took; None: not measured.
    """

    label: str
    curves: tuple[PositionCurve, ...]
    ranked: int
    passes: int | None = None
    seconds: float | None = None

    def curve(self, measure: str) -> PositionCurve:
        """The curve of a measure.

        Raises:
            KeyError: no such measure; lists those that there are.
        """
        for curve in self.curves:
            if curve.measure == measure:
                return curve
        there = ", ".join(curve.measure for curve in self.curves) or "none"
        raise KeyError(f"{self.label} has no curve of {measure!r}; there are: {there}")


@dataclass(frozen=True)
class PositionReport:
    """The controlled position experiment with several systems on the same lists.

    Attributes:
        collection: what the lists are from.
        lists: how many.
        systems: the first is what the others are compared with.
        notes: further sentences, such as which passages count as relevant.
    """

    collection: str
    lists: int
    systems: tuple[SystemPositions, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.systems or not self.measures:
            raise ValueError("a report of positions needs a system with a curve")
        for system in self.systems:
            if tuple(curve.measure for curve in system.curves) != self.measures:
                raise ValueError(f"{system.label} has other measures than {self.systems[0].label}")
            if any(len(curve.values) != self.positions for curve in system.curves):
                raise ValueError(f"{system.label} has other positions than {self.systems[0].label}")

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures, in order."""
        return tuple(curve.measure for curve in self.systems[0].curves)

    @property
    def positions(self) -> int:
        """Number of input positions."""
        return len(self.systems[0].curves[0].values)


def write_position_curves(
    folder: str | Path, report: PositionReport, stem: str = STEM
) -> list[Path]:
    """Write a report as ``<stem>.json``, ``.csv``, ``.png`` and ``.svg``.

    JSON::

        {"format": "backpack_rank controlled positions 1", "collection", "lists", "notes",
         "systems": [{"label", "ranked", "passes", "seconds",
                      "curves": [{"measure", "mean", "range", "variance", "values", "errors"}]}]}

    CSV: one line for each system, measure and position, columns :data:`COLUMNS`, positions from 1.
    """
    systems = []
    lines_of_csv = []
    for system in report.systems:
        curves = []
        for curve in system.curves:
            curves.append(_curve_payload(curve))
            values_and_errors = zip(curve.values, curve.errors, strict=True)
            for position, (value, error) in enumerate(values_and_errors, start=1):
                lines_of_csv.append((system.label, curve.measure, position, value, error))
        systems.append(
            {
                "label": system.label,
                "ranked": system.ranked,
                "passes": system.passes,
                "seconds": system.seconds,
                "curves": curves,
            }
        )
    payload = {
        "format": FORMAT,
        "collection": report.collection,
        "lists": report.lists,
        "notes": list(report.notes),
        "systems": systems,
    }
    title = f"{report.collection}, {report.lists:,} lists"
    csv = (COLUMNS, lines_of_csv)
    return save_figure(folder, stem, payload, csv, position_chart(report), title)


def position_chart(report: PositionReport) -> Spec:
    """Draw a chart for each measure: a line and its standard error for each system."""
    positions = list(map(float, range(1, report.positions + 1)))
    title = "input position of the relevant passage"
    charts = []
    for measure in report.measures:
        series = []
        for system in report.systems:
            curve = system.curve(measure)
            name = f"{system.label}: mean {curve.mean:.3f}, range {curve.range:.3f}"
            low = np.subtract(curve.values, curve.errors).tolist()
            high = np.add(curve.values, curve.errors).tolist()
            series.append(Line(name, positions, curve.values, low, high))
        ticks = positions if report.positions <= 25 else None  # more would overlap
        charts.append(lines(series, title, measure, band=True, ticks=ticks, legend="right"))
    return below(charts)


def _curve_payload(curve: PositionCurve) -> dict[str, object]:
    """A curve for the JSON file; errors that are NaN become null."""
    return {
        "measure": curve.measure,
        "mean": curve.mean,
        "range": curve.range,
        "variance": curve.variance,
        "values": list(curve.values),
        "errors": list(map(finite, curve.errors)),
    }
