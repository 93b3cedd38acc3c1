"""Rows of dots: a few figures of each system on one scale, such as nDCG@10 by input order or before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from backpack_rank.reporting.plots import save_figure
from backpack_rank.reporting.rows import Figure

# Okabe and Ito's palette, as in the other pictures; filled and hollow marks also tell the first two apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_APART = 0.14  # of the distance of two rows


@dataclass(frozen=True)
class DotRow:
    """One row of dots.

    Attributes:
        label: of the row.
        figures: by name of the dot; intervals are drawn where there are any. Rows may lack dots.
    """

    label: str
    figures: Mapping[str, Figure]


def dots_plot(
    path: str | Path, panels: Mapping[str, Sequence[DotRow]], *, measure: str, title: str = ""
) -> tuple[Path, Path]:
    """Draw rows of dots, joined by a line from the smallest to the largest; the longer the line, the more they differ.

    Args:
        path: name of the files without ending.
        panels: rows by heading, drawn below each other on one scale; the heading of a single panel may be empty.
        measure: what the scale is.
        title: of the picture.

    Returns:
        Paths of the PNG and the SVG file.

    Raises:
        ValueError: no row, or a row without a dot; names it.
    """
    return save_figure(dots_figure(panels, measure=measure, title=title), Path(path))


def dots_figure(panels: Mapping[str, Sequence[DotRow]], *, measure: str, title: str) -> Canvas:
    """The picture of :func:`dots_plot`."""
    rows = [row for part in panels.values() for row in part]
    if not rows:
        raise ValueError("there is no row of dots to draw")
    if empty := [row.label for row in rows if not row.figures]:
        raise ValueError(f"row {empty[0]!r} has no dot")
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    heights = [len(part) + 0.8 for part in panels.values()]
    figure = Canvas(figsize=(8.5, 0.45 * sum(heights) + 1.3), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (heading, part) in zip(grid, panels.items(), strict=True):
        _draw(axes, heading, part, names)
    grid[-1].set_xlabel(measure)
    handles = {
        handle.get_label(): handle for axes in grid for handle in axes.get_lines() if handle.get_label() in names
    }
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower center", ncols=min(len(names), 6), frameon=False
    )
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _draw(axes: Axes, heading: str, rows: Sequence[DotRow], names: Sequence[str]) -> None:
    for place, row in enumerate(rows):
        means = [one.mean for one in row.figures.values()]
        axes.plot([min(means), max(means)], [place, place], color="#bbbbbb", lw=3, solid_capstyle="round", zorder=1)
        for name, one in row.figures.items():
            number = names.index(name)
            height = place + _APART * (number - (len(names) - 1) / 2)  # intervals must not hide each other
            colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
            if one.low is not None and one.high is not None:
                axes.plot([one.low, one.high], [height, height], color=colour, lw=1, alpha=0.7, zorder=2)
            axes.plot(one.mean, height, marker, color=colour, mec="white", ms=8, ls="", label=name, zorder=3)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)  # the first row on top
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    if heading:
        axes.set_title(heading, loc="left", fontweight="bold", fontsize=10)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
