"""Pictures of the scores of single runs and their aggregates (Tang et al., Figures 3, 5, 6).

Scores are drawn times 100, as the paper prints Kendall's tau and nDCG@10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.charts import DotRow, Line, boxes, dots, lines
from backpack_rank.reporting.table import NONE
from backpack_rank.reporting.vega import Spec, save_chart

SINGLE = "single run"
RRF = "rrf"


@dataclass(frozen=True)
class AggregationScores:
    """Mean scores over the lists of one task, sampled at one temperature.

    >>> scores = AggregationScores(
    ...     task="WordSort", measure="Kendall's tau", temperature=0.0, lists=100,
    ...     singles=(0.5, 0.7), numbers=(1, 2), aggregates={"kemeny": (0.5, 0.8)},
    ... )
    >>> scores.main, scores.share_beaten("kemeny"), round(scores.share_of_gain(0.7), 2)
    ('kemeny', 1.0, 0.5)

    Attributes:
        task: its name.
        measure: of the scores, for example ``Kendall's tau``.
        temperature: of sampling; None: the server's own.
        lists: that were ranked.
        singles: score of each single run, in order.
        numbers: how many of the runs were aggregated, increasing.
        aggregates: scores for these numbers, by name of the aggregator; the first is the one that
            others compare with.
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
            raise ValueError(
                f"{self.task}: there must be a single run, a number of them and an aggregator"
            )
        for name, scores in self.aggregates.items():
            if len(scores) != len(self.numbers):
                raise ValueError(
                    f"{self.task}: {name} has {len(scores)} scores for {len(self.numbers)} numbers"
                )

    @property
    def main(self) -> str:
        """Name of the first aggregator."""
        return next(iter(self.aggregates))

    @property
    def mean(self) -> float:
        """Mean score of the single runs."""
        return float(np.mean(self.singles))

    def aggregate(self, name: str | None = None) -> float:
        """Score of the aggregate of the most runs, by default of the first aggregator."""
        return self.aggregates[name or self.main][-1]

    def share_beaten(self, name: str) -> float:
        """Share of the single runs that score less than the aggregate of that name, in [0, 1]."""
        return float(np.mean(np.array(self.singles) < self.aggregate(name)))

    def share_of_gain(self, score: float, name: str | None = None) -> float:
        """What a score gains over the mean single run, as a share of what the aggregate gains.

        NaN where the aggregate (by default of the first aggregator) gains nothing.
        """
        gain = self.aggregate(name) - self.mean
        return (score - self.mean) / gain if gain > 0 else math.nan


def write_run_spread(folder: str | Path, scores: Sequence[AggregationScores]) -> dict[str, Path]:
    """Draw the figures of the paper for tasks measured here::

        pictures = write_run_spread(folder, scores)  # figure3.png, figure3.svg, figure5a.png, ...

    Figure 5 (a) is left out where there is one number, 5 (b) where there is one temperature, 6
    where there is one aggregator; 3, 5 (a) and 6 are of the first temperature, and 3 has a box for
    each of the others too.

    Args:
        folder: made where it is missing.
        scores: of tasks and temperatures; the first temperature is the one that others compare
            with.

    Returns:
        SVG files by heading.

    Raises:
        ValueError: there is nothing to draw.
    """
    by_task = _by_task(scores)
    first = _first_temperature(scores)
    pictures: dict[str, Path] = {}

    def save(heading: str, stem: str, chart: Spec) -> None:
        _, pictures[heading] = save_chart(Path(folder) / stem, chart)

    save("Single runs and their aggregate (Figure 3)", "figure3", spread_chart(scores))
    if any(len(of_task.numbers) > 1 for of_task in first):
        save("By number of aggregated rankings (Figure 5 a)", "figure5a", numbers_chart(scores))
    if any(len(temperatures) > 1 for temperatures in by_task.values()):
        save("By sampling temperature (Figure 5 b)", "figure5b", temperatures_chart(scores))
    if any(len(of_task.aggregates) > 1 for of_task in first):
        save("Aggregators (Figure 6)", "figure6", aggregators_chart(scores))
    return pictures


def spread_chart(scores: Sequence[AggregationScores]) -> Spec:
    """How far single runs spread: a panel for each task, a box for a temperature.

    Boxes go from the first to the third quartile, whiskers to the smallest and the largest run;
    every run is a dot, and the aggregate of all is a diamond.
    """
    panels: dict[str, list[tuple[str, list[float], float]]] = {}
    titles = {}
    for task, temperatures in _by_task(scores).items():
        panels[task] = []
        for at_temperature in temperatures:
            label = _temperature(at_temperature.temperature)
            singles = [100 * score for score in at_temperature.singles]
            panels[task].append((label, singles, 100 * at_temperature.aggregate()))
        titles[task] = f"{temperatures[0].measure} x 100"
    legend = (f"{SINGLE}s", f"aggregate, {scores[0].main}")
    return boxes(panels, "sampling temperature", titles, legend)


def numbers_chart(scores: Sequence[AggregationScores]) -> Spec:
    """How far the aggregate of the first k runs is from that of all, by task."""
    series = []
    ticks: set[int] = set()
    for task_scores in _first_temperature(scores):
        of_all = task_scores.aggregate()
        differences = []
        for of_first_k in task_scores.aggregates[task_scores.main]:
            differences.append(100 * (of_first_k - of_all))
        series.append(Line(task_scores.task, task_scores.numbers, differences))
        ticks |= set(task_scores.numbers)
    return lines(
        series,
        "aggregated rankings",
        f"difference from {max(ticks)}, x 100",
        zero=True,
        ticks=sorted(ticks),
        legend="right",
    )


def temperatures_chart(scores: Sequence[AggregationScores]) -> Spec:
    """How far the aggregate is from that at the first temperature, by task.

    Temperatures stand at equal distances, in their order.
    """
    series = []
    for task, temperatures in _by_task(scores).items():
        at_first = temperatures[0].aggregate()
        labels = []
        differences = []
        for at_temperature in temperatures:
            labels.append(_temperature(at_temperature.temperature))
            differences.append(100 * (at_temperature.aggregate() - at_first))
        series.append(Line(task, labels, differences))
    return lines(
        series,
        "sampling temperature",
        f"difference from temperature {_temperature(scores[0].temperature)}, x 100",
        zero=True,
        legend="right",
    )


def aggregators_chart(scores: Sequence[AggregationScores]) -> Spec:
    """Compare the mean single run with what each aggregator makes of all, by task."""
    rows = []
    for task_scores in _first_temperature(scores):
        figures = {f"mean {SINGLE}": _figure(task_scores.mean)}
        for name in task_scores.aggregates:
            figures[name] = _figure(task_scores.aggregate(name))
        rows.append(DotRow(f"{task_scores.task}\n{task_scores.measure}", figures))
    return dots({"": rows}, "score x 100")


def findings(scores: Sequence[AggregationScores]) -> dict[str, Any]:
    """What was measured of all that the paper says of its figures; None where nothing was."""
    at_first_temperature = _first_temperature(scores)
    return {
        "main": scores[0].main,
        "runs": len(scores[0].singles),
        "most": scores[0].numbers[-1],
        "against_best_run": _against_best_run(at_first_temperature),
        "gain_of_five": _gain_of_five(at_first_temperature),
        "largest_change": _largest_change_by_temperature(scores),
        **_against_rrf(at_first_temperature),
    }


def _against_best_run(scores: Sequence[AggregationScores]) -> str:
    differences = []
    for task_scores in scores:
        best = max(task_scores.singles)
        aggregate = task_scores.aggregate()
        difference = f"{task_scores.task} {100 * (aggregate - best):+.2f}"
        if best > 0:
            difference += f" ({100 * (aggregate / best - 1):+.1f}%)"
        differences.append(difference)
    return "; ".join(differences)


def _gain_of_five(scores: Sequence[AggregationScores]) -> str | None:
    """None where five runs were not aggregated, or were the most that were."""
    numbers = scores[0].numbers
    if 5 not in numbers[:-1]:
        return None
    place = numbers.index(5)
    shares = {}
    for task_scores in scores:
        of_five = task_scores.aggregates[task_scores.main][place]
        shares[task_scores.task] = task_scores.share_of_gain(of_five)
    return _in_words(shares)


def _largest_change_by_temperature(scores: Sequence[AggregationScores]) -> str | None:
    """None where there is one temperature."""
    first = scores[0].temperature
    aggregate_at_first: dict[str, float] = {}
    changes = []
    for task_scores in scores:
        aggregate = task_scores.aggregate()
        if task_scores.temperature == first:
            aggregate_at_first.setdefault(task_scores.task, aggregate)
        else:
            change = 100 * (aggregate - aggregate_at_first[task_scores.task])
            changes.append((change, task_scores))
    if not changes:
        return None
    change, changed = max(changes, key=lambda pair: abs(pair[0]))
    other = _of_temperature(changed.temperature)
    return (
        f"{change:+.2f} points ({changed.task}, temperature {other} in place of "
        f"{_of_temperature(first)})"
    )


def _against_rrf(scores: Sequence[AggregationScores]) -> dict[str, str | None]:
    """None where reciprocal rank fusion is not among the aggregators, or is the first of them."""
    if RRF not in scores[0].aggregates or scores[0].main == RRF:
        return {"ahead_of_rrf": None, "gain_of_rrf": None}
    differences, shares = [], {}
    for of_task in scores:
        rrf = of_task.aggregate(RRF)
        differences.append(100 * (of_task.aggregate() - rrf))
        shares[of_task.task] = of_task.share_of_gain(rrf)
    ahead = sum(difference > 0 for difference in differences)
    points = f"{np.mean(differences):+.2f} points"
    return {
        "ahead_of_rrf": f"{ahead} of {len(scores)} by {points}",
        "gain_of_rrf": _in_words(shares),
    }


def _in_words(share_by_task: Mapping[str, float]) -> str:
    words = []
    for task, share in share_by_task.items():
        percent = NONE if math.isnan(share) else f"{100 * share:.1f}%"
        words.append(f"{percent} ({task})")
    return ", ".join(words)


def _of_temperature(temperature: float | None) -> str:
    return "of the server" if temperature is None else f"{temperature:g}"


def _by_task(scores: Sequence[AggregationScores]) -> dict[str, list[AggregationScores]]:
    """Scores at all temperatures of each task, in the order given."""
    if not scores:
        raise ValueError("there are no runs to draw")
    by_task: dict[str, list[AggregationScores]] = {}
    for at_temperature in scores:
        by_task.setdefault(at_temperature.task, []).append(at_temperature)
    return by_task


def _first_temperature(scores: Sequence[AggregationScores]) -> list[AggregationScores]:
    """Each task at its first temperature, which others are compared with."""
    return [temperatures[0] for temperatures in _by_task(scores).values()]


def _figure(score: float) -> Estimate:
    """A score times 100, as a dot without an interval."""
    return Estimate(100 * score, 100 * abs(score))


def _temperature(value: float | None) -> str:
    return "server's" if value is None else f"{value:g}"
