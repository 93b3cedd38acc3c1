"""Figures as plain data: points, series, axes, and galleries of charts with selectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A system in a figure of effectiveness against bias, or at a cut-off, or at an alpha.

    Attributes:
        x: horizontal value.
        y: vertical value.
        label: short text beside the point; empty for none.
        detail: text shown when the pointer rests on the point.
        x_range: ends of the interval of ``x``, or None.
        y_range: ends of the interval of ``y``, or None.
        marked: drawn with a ring around it.
    """

    x: float
    y: float
    label: str = ""
    detail: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    marked: bool = False


@dataclass(frozen=True)
class Series:
    """Points that belong together, joined in their order.

    Attributes:
        label: name in the legend.
        points: in the order of the line.
        reference: drawn grey and dashed (BM25, a run file).
    """

    label: str
    points: tuple[Point, ...]
    reference: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        title: what it measures, in words.
        low: value at its start.
        high: value at its end.
        ticks: (value, text).
        zero: whether a line marks the value 0 (no bias).
    """

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    zero: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure with two axes.

    Attributes:
        name: stem of the files that hold it.
        title: heading of the figure.
        description: what a reader who cannot see it is told.
        x: horizontal axis.
        y: vertical axis.
        series: what is drawn.
    """

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]


@dataclass(frozen=True)
class ShareChart:
    """Columns that are divided into parts, one column for each alpha.

    Attributes:
        name: stem of the files that hold it.
        title: heading of the figure.
        description: what a reader who cannot see it is told.
        parts: names of the parts, from the bottom up.
        columns: (text below the column, share of each part); shares sum to 1.
    """

    name: str
    title: str
    description: str
    parts: tuple[str, ...]
    columns: tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True)
class Panel:
    """A chart that is shown when the selectors of its gallery stand at ``choice``."""

    choice: tuple[str, ...]
    chart: Chart


@dataclass(frozen=True)
class Gallery:
    """Charts of one kind, one visible at a time.

    Attributes:
        name: unique on the page.
        selectors: what a reader selects, such as ``("measure", "cut-off")``; a panel's choice has as many parts.
        panels: all charts, in the order of the selectors.
        caption: how to read the charts.
        first: number of the panel that is shown when the page opens (and alone, without scripting).
    """

    name: str
    selectors: tuple[str, ...]
    panels: tuple[Panel, ...]
    caption: str = ""
    first: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.panels):
            raise ValueError(f"gallery {self.name!r} has {len(self.panels)} panels, first={self.first} is none of them")
        for panel in self.panels:
            if len(panel.choice) != len(self.selectors):
                raise ValueError(f"gallery {self.name!r}: {panel.choice} does not fit the selectors {self.selectors}")
