"""The page's figures as PNG and SVG files, for papers and slides."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from backpack_rank.reporting.page.charts import Chart, Point, Series, ShareChart
from backpack_rank.reporting.page.data import Page
from backpack_rank.reporting.page.figures import policy_charts, share_charts
from backpack_rank.reporting.page.styles import GROUP_COLOURS, MARKERS, NEUTRAL_COLOUR, Style, styles
from backpack_rank.reporting.plots import save_figure

_DASHES = {"": "-", "6 3": "--", "2 3": ":", "8 3 2 3": "-.", "4 4": "--"}


def write_pictures(folder: str | Path, page: Page) -> list[Path]:
    """Write every figure of a page as ``<name>.png`` and ``<name>.svg`` into a folder.

    Returns:
        Paths of the files, each complete or absent; equal pages give equal files.
    """
    paths: list[Path] = []
    for chart in page_charts(page):
        paths += save_chart(Path(folder) / chart.name, chart)
    return paths


def page_charts(page: Page) -> list[Chart | ShareChart]:
    """All figures of a page with axes, in the order of the page."""
    charts: list[Chart | ShareChart] = [
        panel.chart for gallery in (page.tradeoff, page.cutoffs) if gallery for panel in gallery.panels
    ]
    if page.policies:
        charts += [*policy_charts(page.policies), *share_charts(page.policies, page.groups)]
    return charts


def save_chart(path: str | Path, chart: Chart | ShareChart) -> tuple[Path, Path]:
    """Draw one figure; returns the paths of its PNG and its SVG file.

    Args:
        path: name of the files without ending; what stands after a point in it is kept.
        chart: what to draw.
    """
    figure = Canvas(figsize=(7.2, 4.2) if isinstance(chart, Chart) else (4.2, 3.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    if isinstance(chart, Chart):
        _draw_chart(axes, chart)
    else:
        _draw_shares(axes, chart)
    axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    columns = 4 if isinstance(chart, Chart) else 3
    figure.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=8)
    return save_figure(figure, Path(path))


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for one, look in zip(chart.series, styles(chart.series), strict=True):
        _draw_series(axes, one, look)
    axes.set(xlim=(chart.x.low, chart.x.high), ylim=(chart.y.low, chart.y.high))
    axes.set_xticks([value for value, _ in chart.x.ticks], [text for _, text in chart.x.ticks])
    axes.set_yticks([value for value, _ in chart.y.ticks], [text for _, text in chart.y.ticks])
    axes.set_xlabel(chart.x.title)
    axes.set_ylabel(chart.y.title.partition(": ")[0])
    axes.grid(color="#e4e7ec", lw=0.7)
    axes.set_axisbelow(True)
    if chart.x.zero:
        axes.axvline(0, color="#565e6b", lw=0.9, zorder=1)
    if chart.y.zero:
        axes.axhline(0, color="#565e6b", lw=0.9, zorder=1)


def _draw_series(axes: Axes, series: Series, look: Style) -> None:
    x, y = [point.x for point in series.points], [point.y for point in series.points]
    axes.plot(x, y, color=look.colour, marker=MARKERS[look.number], ls=_DASHES[look.dash], lw=1.5, ms=5.5,
              mec="white", mew=0.6, label=series.label, zorder=3, gid="series")  # fmt: skip
    for point in series.points:
        _draw_point(axes, point, look)


def _draw_point(axes: Axes, point: Point, look: Style) -> None:
    if point.x_range:
        axes.hlines(point.y, *point.x_range, color=look.colour, lw=1, alpha=0.4, zorder=2)
    if point.y_range:
        axes.vlines(point.x, *point.y_range, color=look.colour, lw=1, alpha=0.4, zorder=2)
    if point.marked:
        axes.plot(point.x, point.y, "o", ms=12, mfc="none", mec=look.colour, mew=1.4, zorder=4)
    if point.label:
        weight = "bold" if point.marked else "normal"
        axes.annotate(point.label, (point.x, point.y), (5, 6), textcoords="offset points", fontsize=8, weight=weight)


def _draw_shares(axes: Axes, chart: ShareChart) -> None:
    colours = [*GROUP_COLOURS[: len(chart.parts) - 1], NEUTRAL_COLOUR]
    names = [name for name, _ in chart.columns]
    bottom = [0.0] * len(names)
    for number, (part, colour) in enumerate(zip(chart.parts, colours, strict=True)):
        heights = [values[number] for _, values in chart.columns]
        axes.bar(range(len(names)), heights, 0.76, bottom=bottom, color=colour, edgecolor="white", label=part)
        bottom = [math.fsum(pair) for pair in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.set_xlabel("alpha")
