"""A measure by input position of the relevant passage, of several systems (paper 000, Figure 4): picture, JSON, CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from backpack_rank.files import write_text
from backpack_rank.reporting.plots import save_figure
from backpack_rank.reporting.tables import csv_text, dump_json, finite

FORMAT = "backpack_rank controlled positions 1"
STEM = "controlled_positions"
COLUMNS = ("system", "measure", "position", "value", "standard_error")

# Okabe and Ito's palette without its yellow, as in the other pictures.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":")  # where the colours begin again


@dataclass(frozen=True)
class PositionCurve:
    """A measure by input position of the relevant passage.

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
    """One system in the controlled position experiment.

    Attributes:
        label: name of the system.
        curves: one for each measure.
        ranked: lists that it was given: those of the experiment times their positions.
        passes: forward passes that ranking them took; None where nobody counted.
        seconds: wall-clock time that it took; None where nobody measured.
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
        systems: the first one is what the others are compared with.
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


def write_position_curves(folder: str | Path, report: PositionReport, stem: str = STEM) -> list[Path]:
    """Write ``<stem>.json``, ``.csv``, ``.png`` and ``.svg`` into a folder; returns their paths.

    JSON: ``{"format": "backpack_rank controlled positions 1", "collection", "lists", "notes", "systems": [{"label",
    "ranked", "passes", "seconds", "curves": [{"measure", "mean", "range", "variance", "values", "errors"}]}]}``. CSV:
    one line for each system, measure and position, columns :data:`COLUMNS`, positions from 1.
    """
    systems = [
        {
            "label": system.label,
            "ranked": system.ranked,
            "passes": system.passes,
            "seconds": system.seconds,
            "curves": [_curve_payload(curve) for curve in system.curves],
        }
        for system in report.systems
    ]
    about = {"collection": report.collection, "lists": report.lists, "notes": list(report.notes)}
    paths = [Path(folder) / f"{stem}.{ending}" for ending in ("json", "csv")]
    write_text(paths[0], dump_json({"format": FORMAT, **about, "systems": systems}))
    lines = [
        (system.label, curve.measure, place + 1, value, error)
        for system in report.systems
        for curve in system.curves
        for place, (value, error) in enumerate(zip(curve.values, curve.errors, strict=True))
    ]
    write_text(paths[1], csv_text(COLUMNS, lines))
    return [*paths, *save_figure(position_figure(report), Path(folder) / stem)]


def position_figure(report: PositionReport) -> Canvas:
    """One panel for each measure, one line for each system, its standard error as a shade."""
    count = len(report.measures)
    figure = Canvas(figsize=(9.5, 3.4 * count + 0.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for axes, measure in zip(panels, report.measures, strict=True):
        _draw(axes, report, measure)
    panels[-1].set_xlabel("input position of the relevant passage")
    figure.suptitle(f"{report.collection}, {report.lists:,} lists", fontsize=11)
    return figure


def _draw(axes: Axes, report: PositionReport, measure: str) -> None:
    places = np.arange(1, report.positions + 1)
    for number, system in enumerate(report.systems):
        curve = system.curve(measure)
        values, errors = np.array(curve.values), np.nan_to_num(np.array(curve.errors))
        colour = _COLOURS[number % len(_COLOURS)]
        line = _LINES[number // len(_COLOURS) % len(_LINES)]
        marker = _MARKERS[number % len(_MARKERS)]
        label = f"{system.label}\nmean {curve.mean:.3f}, range {curve.range:.3f}"
        axes.fill_between(places, values - errors, values + errors, color=colour, alpha=0.15, lw=0)
        axes.plot(places, values, line, color=colour, lw=1.6, marker=marker, ms=4.5, label=label)
    axes.set_ylabel(measure)
    if report.positions <= 25:
        axes.set_xticks(places)
    axes.margins(x=0.02)
    axes.grid(color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9, labelspacing=0.9)


def _curve_payload(curve: PositionCurve) -> dict[str, object]:
    summary = {"measure": curve.measure, "mean": curve.mean, "range": curve.range, "variance": curve.variance}
    lists: dict[str, Sequence[float | None]] = {
        "values": list(curve.values),
        "errors": [finite(error) for error in curve.errors],
    }
    return {**summary, **lists}
