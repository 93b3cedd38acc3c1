"""Scores of single runs beside those of their aggregates: pictures (paper 003, Figures 3, 5 and 6).

Scores are drawn times 100, as the paper prints Kendall's tau and nDCG@10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from backpack_rank.reporting.dots import DotRow, dots_figure
from backpack_rank.reporting.plots import save_figure
from backpack_rank.reporting.rows import Figure

SINGLE = "single run"
_SPREAD, _NUMBERS, _TEMPERATURES, _AGGREGATORS = "figure3", "figure5a", "figure5b", "figure6"

# Okabe and Ito's palette without its yellow, as in the other pictures.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":")  # where the colours begin again
_BOX, _AGGREGATE = _COLOURS[0], _COLOURS[1]
_ACROSS = 4  # panels beside each other
_HALF = 0.22  # of a box's width


@dataclass(frozen=True)
class TaskRuns:
    """One task at one temperature: mean scores over its lists.

    Attributes:
        task: its name.
        measure: of the scores, for example ``Kendall's tau``.
        temperature: of sampling; None: the server's own.
        lists: that were ranked.
        singles: score of each single run, in order.
        numbers: how many of the runs were aggregated, increasing.
        aggregates: scores for these numbers, by name of the aggregator; the first is the one that others compare with.
    """

    task: str
    measure: str
    temperature: float | None
    lists: int
    singles: tuple[float, ...]
    numbers: tuple[int, ...]
    aggregates: Mapping[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        if not self.singles or not self.numbers or not self.aggregates:
            raise ValueError(f"{self.task}: there must be a single run, a number of them and an aggregator")
        for name, scores in self.aggregates.items():
            if len(scores) != len(self.numbers):
                raise ValueError(f"{self.task}: {name} has {len(scores)} scores for {len(self.numbers)} numbers")

    @property
    def main(self) -> str:
        """Name of the first aggregator."""
        return next(iter(self.aggregates))

    @property
    def mean(self) -> float:
        """Mean score of the single runs."""
        return float(np.mean(self.singles))

    def aggregate(self, name: str | None = None) -> float:
        """Score of the aggregate of the largest number of runs."""
        return self.aggregates[name or self.main][-1]


def write_run_spread(folder: str | Path, found: Sequence[TaskRuns]) -> dict[str, Path]:
    """Write ``figure3``, ``figure5a``, ``figure5b`` and ``figure6``, each as ``.png`` and ``.svg``.

    Figure 5 (a) is left out where there is one number, 5 (b) where there is one temperature, 6 where there is one
    aggregator; 3, 5 (a) and 6 are of the first temperature, and 3 has a box for each of the others too.

    Args:
        folder: made where it is missing.
        found: tasks and temperatures; the first temperature is the one that others compare with.

    Returns:
        SVG files by heading.

    Raises:
        ValueError: there is nothing to draw.
    """
    by_task = _by_task(found)
    first = [own[0] for own in by_task.values()]
    pictures: dict[str, tuple[str, Callable[[], Canvas]]] = {
        "Single runs and their aggregate (Figure 3)": (_SPREAD, lambda: spread_figure(found))
    }
    if any(len(one.numbers) > 1 for one in first):
        pictures["By number of aggregated rankings (Figure 5 a)"] = (_NUMBERS, lambda: numbers_figure(found))
    if any(len(own) > 1 for own in by_task.values()):
        pictures["By sampling temperature (Figure 5 b)"] = (_TEMPERATURES, lambda: temperatures_figure(found))
    if any(len(one.aggregates) > 1 for one in first):
        pictures["Aggregators (Figure 6)"] = (_AGGREGATORS, lambda: aggregators_figure(found))
    return {heading: save_figure(draw(), Path(folder) / stem)[1] for heading, (stem, draw) in pictures.items()}


def spread_figure(found: Sequence[TaskRuns]) -> Canvas:
    """Box plots of the single runs' scores, a panel for each task and a box for each temperature.

    Boxes go from the first to the third quartile, whiskers to the smallest and the largest run; every run is a dot, and
    the aggregate of all is a diamond.
    """
    by_task = _by_task(found)
    across = min(_ACROSS, len(by_task))
    down = -(-len(by_task) // across)
    widest = max(map(len, by_task.values()))
    figure = Canvas(figsize=((1.9 + 0.55 * widest) * across + 0.6, 3.6 * down + 0.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False)
    for axes, (task, own) in zip(grid.flat, by_task.items(), strict=False):
        for place, one in enumerate(own):
            _box(axes, place, one)
        axes.set_title(task, loc="left", fontweight="bold", fontsize=10)
        axes.set_ylabel(f"{own[0].measure} x 100")
        axes.set_xticks(range(len(own)), [_temperature(one.temperature) for one in own])
        axes.set_xlabel("sampling temperature")
        axes.set_xlim(-0.7, len(own) - 0.3)
        _plain(axes)
    for axes in grid.flat[len(by_task) :]:
        axes.set_visible(False)
    handles = [
        Line2D([], [], color=_BOX, marker="o", ms=4, ls="", alpha=0.6, label=f"{SINGLE}s"),
        Line2D([], [], color=_AGGREGATE, marker="D", ms=8, mec="white", ls="", label=f"aggregate, {found[0].main}"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def numbers_figure(found: Sequence[TaskRuns]) -> Canvas:
    """Difference of the aggregate of the first k runs from that of all, by k, a line for each task."""
    first = [own[0] for own in _by_task(found).values()]
    lines = {
        one.task: (one.numbers, tuple(score - one.aggregate() for score in one.aggregates[one.main])) for one in first
    }
    return _lines(lines, "aggregated rankings", f"difference from {max(one.numbers[-1] for one in first)}, x 100")


def temperatures_figure(found: Sequence[TaskRuns]) -> Canvas:
    """Difference of the aggregate of all runs from that at the first temperature, a line for each task.

    Temperatures stand at equal distances, in their order.
    """
    by_task = _by_task(found)
    names = list(dict.fromkeys(_temperature(one.temperature) for one in found))
    lines = {
        task: (
            tuple(names.index(_temperature(one.temperature)) for one in own),
            tuple(one.aggregate() - own[0].aggregate() for one in own),
        )
        for task, own in by_task.items()
    }
    figure = _lines(lines, "sampling temperature", f"difference from temperature {names[0]}, x 100")
    figure.axes[0].set_xticks(range(len(names)), names)
    return figure


def aggregators_figure(found: Sequence[TaskRuns]) -> Canvas:
    """The mean of the single runs and what each aggregator makes of all of them, a row for each task."""
    first = [own[0] for own in _by_task(found).values()]
    rows = [
        DotRow(
            f"{one.task}\n{one.measure}",
            {f"mean {SINGLE}": _figure(one.mean)} | {name: _figure(one.aggregate(name)) for name in one.aggregates},
        )
        for one in first
    ]
    return dots_figure({"": rows}, measure="score x 100", title="")


def _by_task(found: Sequence[TaskRuns]) -> dict[str, list[TaskRuns]]:
    if not found:
        raise ValueError("there are no runs to draw")
    by_task: dict[str, list[TaskRuns]] = {}
    for one in found:
        by_task.setdefault(one.task, []).append(one)
    return by_task


def _box(axes: Axes, place: int, one: TaskRuns) -> None:
    scores = 100 * np.array(one.singles)
    low, first, middle, third, high = np.quantile(scores, [0, 0.25, 0.5, 0.75, 1])
    stats = {"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high}
    line = {"color": _BOX, "lw": 1.2}
    axes.bxp(
        [stats],
        positions=[place],
        widths=2 * _HALF,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": "#d5e6f3", "edgecolor": _BOX, "lw": 1.2},
        whiskerprops=line,
        capprops=line,
        medianprops={"color": "#000000", "lw": 1.5},
        manage_ticks=False,
    )
    # Side by side in the order of the runs, so that equal scores do not hide each other.
    beside = place + np.linspace(-0.7 * _HALF, 0.7 * _HALF, len(scores)) if len(scores) > 1 else [place]
    axes.plot(beside, scores, "o", color=_BOX, ms=3.5, alpha=0.6, ls="", zorder=3, gid="single")
    axes.plot(place, 100 * one.aggregate(), "D", color=_AGGREGATE, mec="white", ms=9, ls="", zorder=4, gid="aggregate")


def _lines(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str) -> Canvas:
    """A line for each name through its values, which are multiplied by 100; 0 is marked."""
    figure = Canvas(figsize=(8.5, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axhline(0, color="#555555", lw=1)
    for number, (name, (places, values)) in enumerate(lines.items()):
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        style = _LINES[number // len(_COLOURS) % len(_LINES)]
        axes.plot(places, 100 * np.array(values), style, color=colour, marker=marker, ms=6, lw=1.6, label=name)
    axes.set_xticks(sorted({place for places, _ in lines.values() for place in places}))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _plain(axes)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return figure


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _figure(score: float) -> Figure:
    return Figure(100 * score, 100 * abs(score))


def _temperature(value: float | None) -> str:
    return "server's" if value is None else f"{value:g}"
