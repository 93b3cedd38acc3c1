"""Scores of single runs beside those of their aggregates: pictures (Tang et al., Figures 3, 5 and 6).

Scores are drawn times 100, as the paper prints Kendall's tau and nDCG@10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.charts import DotRow, Line, boxes, dots, lines
from backpack_rank.reporting.vega import Spec, save_chart

SINGLE = "single run"
_SPREAD, _NUMBERS, _TEMPERATURES, _AGGREGATORS = "figure3", "figure5a", "figure5b", "figure6"


@dataclass(frozen=True)
class AggregationScores:
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


def write_run_spread(folder: str | Path, found: Sequence[AggregationScores]) -> dict[str, Path]:
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
    pictures: dict[str, tuple[str, Callable[[], Spec]]] = {
        "Single runs and their aggregate (Figure 3)": (_SPREAD, lambda: spread_chart(found))
    }
    if any(len(one.numbers) > 1 for one in first):
        pictures["By number of aggregated rankings (Figure 5 a)"] = (_NUMBERS, lambda: numbers_chart(found))
    if any(len(own) > 1 for own in by_task.values()):
        pictures["By sampling temperature (Figure 5 b)"] = (_TEMPERATURES, lambda: temperatures_chart(found))
    if any(len(one.aggregates) > 1 for one in first):
        pictures["Aggregators (Figure 6)"] = (_AGGREGATORS, lambda: aggregators_chart(found))
    return {heading: save_chart(Path(folder) / stem, draw())[1] for heading, (stem, draw) in pictures.items()}


def spread_chart(found: Sequence[AggregationScores]) -> Spec:
    """Box plots of the single runs' scores, a panel for each task and a box for each temperature.

    Boxes go from the first to the third quartile, whiskers to the smallest and the largest run; every run is a dot, and
    the aggregate of all is a diamond.
    """
    by_task = _by_task(found)
    panels = {
        task: [(_temperature(one.temperature), [100 * s for s in one.singles], 100 * one.aggregate()) for one in own]
        for task, own in by_task.items()
    }
    titles = {task: f"{own[0].measure} x 100" for task, own in by_task.items()}
    return boxes(panels, "sampling temperature", titles, (f"{SINGLE}s", f"aggregate, {found[0].main}"))


def numbers_chart(found: Sequence[AggregationScores]) -> Spec:
    """Difference of the aggregate of the first k runs from that of all, by k, a line for each task."""
    first = [own[0] for own in _by_task(found).values()]
    series = [
        Line(one.task, one.numbers, [100 * (s - one.aggregate()) for s in one.aggregates[one.main]]) for one in first
    ]
    title = f"difference from {max(one.numbers[-1] for one in first)}, x 100"
    ticks = sorted({number for one in first for number in one.numbers})
    return lines(series, "aggregated rankings", title, zero=True, ticks=ticks, legend="right")


def temperatures_chart(found: Sequence[AggregationScores]) -> Spec:
    """Difference of the aggregate of all runs from that at the first temperature, a line for each task.

    Temperatures stand at equal distances, in their order.
    """
    by_task = _by_task(found)
    names = list(dict.fromkeys(_temperature(one.temperature) for one in found))
    series = [
        Line(
            task,
            [_temperature(one.temperature) for one in own],
            [100 * (one.aggregate() - own[0].aggregate()) for one in own],
        )
        for task, own in by_task.items()
    ]
    return lines(
        series, "sampling temperature", f"difference from temperature {names[0]}, x 100", zero=True, legend="right"
    )


def aggregators_chart(found: Sequence[AggregationScores]) -> Spec:
    """The mean of the single runs and what each aggregator makes of all of them, a row for each task."""
    first = [own[0] for own in _by_task(found).values()]
    rows = [
        DotRow(
            f"{one.task}\n{one.measure}",
            {f"mean {SINGLE}": _figure(one.mean)} | {name: _figure(one.aggregate(name)) for name in one.aggregates},
        )
        for one in first
    ]
    return dots({"": rows}, "score x 100")


def _by_task(found: Sequence[AggregationScores]) -> dict[str, list[AggregationScores]]:
    if not found:
        raise ValueError("there are no runs to draw")
    by_task: dict[str, list[AggregationScores]] = {}
    for one in found:
        by_task.setdefault(one.task, []).append(one)
    return by_task


def _figure(score: float) -> Estimate:
    return Estimate(100 * score, 100 * abs(score))


def _temperature(value: float | None) -> str:
    return "server's" if value is None else f"{value:g}"
