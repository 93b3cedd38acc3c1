"""Tables of permutation self-consistency: single runs and their aggregates.

Aggregates are also shown by the number of aggregated rankings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backpack_rank.position.aggregation.run_spread import AggregationScores
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table

SPREAD_COLUMNS = (
    *("task", "measure", "temperature", "lists", "runs"),
    *("minimum", "first_quartile", "median", "third_quartile", "maximum", "mean"),
    *("aggregator", "aggregate", "beaten"),
)
NUMBER_COLUMNS = (
    *("task", "measure", "temperature", "lists", "aggregator"),
    *("rankings", "score", "share_of_gain"),
)
PUBLISHED = "psc_figures"
"""What the paper says of these figures, of which it prints no numbers."""
_RRF = "rrf"


def spread_table(scores: Sequence[AggregationScores], notes: Sequence[str] = ()) -> Table:
    """Show how far single runs spread, and what each aggregator makes of all of them.

    Rows are tasks, such as ``WordSort | Kendall's tau``, and sections are temperatures.

    Raises:
        ValueError: there are no scores, or of tasks with other aggregators than the first.
    """
    names = _aggregators(scores)
    sections, records = [], []
    for temperature in dict.fromkeys(task_scores.temperature for task_scores in scores):
        rows = []
        for task_scores in scores:
            if task_scores.temperature != temperature:
                continue
            quartiles = np.quantile(task_scores.singles, [0, 0.25, 0.5, 0.75, 1]).tolist()
            rows.append(_spread_row(task_scores, names, quartiles))
            about = (task_scores.task, task_scores.measure, temperature, task_scores.lists)
            spread = (len(task_scores.singles), *quartiles, task_scores.mean)
            for name in names:
                aggregate = task_scores.aggregate(name)
                beaten = task_scores.share_beaten(name)
                records.append((*about, *spread, name, aggregate, beaten))
        heading = "" if temperature is None else f"Sampling temperature {temperature:g}"
        sections.append(Section(heading, rows))
    paper = published(PUBLISHED).paper
    most = scores[0].numbers[-1]
    sentences = (
        f"{paper}, Figures 3 and 6. Scores times 100: min, median, max and interquartile range "
        f"(IQR) of {len(scores[0].singles)} single runs, each of one shuffle of every list; "
        f"aggregates of the first {most} of them. beats: share of the single runs that score less "
        f"than {names[0]}.",
        *spread_notes(scores),
        *notes,
    )
    return Table(
        name="single_runs",
        title="Single runs and their aggregates",
        labels=("task", "measure"),
        groups=(
            Group("single runs", ("min", "median", "max", "IQR")),
            Group("aggregate", names),
            Group("", ("beats",)),
        ),
        sections=sections,
        notes=sentences,
        columns=SPREAD_COLUMNS,
        records=records,
    )


def numbers_table(scores: Sequence[AggregationScores], notes: Sequence[str] = ()) -> Table:
    """Show how many rankings are worth aggregating.

    The table has the first aggregator at the first temperature; the CSV file has all aggregators
    at all temperatures.

    Raises:
        ValueError: as :func:`spread_table`, or tasks with other numbers than the first.
    """
    names = _aggregators(scores)
    numbers = scores[0].numbers
    first_temperature = scores[0].temperature
    rows: list[Row] = []
    records: list[tuple[Any, ...]] = []
    for task_scores in scores:
        task, measure, temperature = task_scores.task, task_scores.measure, task_scores.temperature
        if task_scores.numbers != numbers:
            raise ValueError(f"{task} has other numbers of rankings than {scores[0].task}")
        if temperature == first_temperature:
            shown = (task_scores.mean, *task_scores.aggregates[task_scores.main])
            rows.append(Row((task, measure), [_times_100(score) for score in shown]))
        about = (task, measure, temperature, task_scores.lists)
        for name in names:
            for number, score in zip(numbers, task_scores.aggregates[name], strict=True):
                share: float | None = task_scores.share_of_gain(score, name)
                if share is not None and math.isnan(share):
                    share = None  # an aggregate without gain
                records.append((*about, name, number, score, share))
    sentences = (
        f"{published(PUBLISHED).paper}, Figure 5 (a). Scores times 100: mean of the single runs, "
        f"and {names[0]} of the first so many of them.",
        *notes,
    )
    return Table(
        name="aggregated_rankings",
        title="Number of aggregated rankings",
        labels=("task", "measure"),
        groups=(
            Group("", ("single",)),
            Group("aggregated rankings", tuple(map(str, numbers))),
        ),
        sections=[Section("", rows)],
        notes=sentences,
        columns=NUMBER_COLUMNS,
        records=records,
    )


def spread_notes(scores: Sequence[AggregationScores]) -> list[str]:
    """Set what the paper's text says about its figures beside what was measured here."""
    at_first_temperature = []
    for task_scores in scores:
        if task_scores.temperature == scores[0].temperature:
            at_first_temperature.append(task_scores)
    sentences = {
        "figure3": _against_best_run(at_first_temperature),
        "figure5a": _gain_of_five_runs(at_first_temperature),
        "figure5b": _largest_change_by_temperature(scores),
        "figure6": _against_rrf(at_first_temperature),
    }
    says = published(PUBLISHED).says
    notes = []
    for figure, sentence in sentences.items():
        if sentence:
            notes.append(f"{says[figure]} Here: {sentence}")
    return notes


def _spread_row(scores: AggregationScores, names: Sequence[str], quartiles: Sequence[float]) -> Row:
    """Spread of the single runs, aggregates, and the share of runs that the first one beats."""
    low, first, middle, third, high = quartiles
    cells = [_times_100(score) for score in (low, middle, high, third - first)]
    # Rounded as in print, so that all that read like the best aggregate are bold.
    best = max(round(100 * scores.aggregate(name), 2) for name in names)
    for name in names:
        aggregate = scores.aggregate(name)
        cells.append(_times_100(aggregate, bold=round(100 * aggregate, 2) == best))
    cells.append(Cell(f"{100 * scores.share_beaten(scores.main):.0f}%"))
    return Row((scores.task, scores.measure), cells)


def _against_best_run(scores: Sequence[AggregationScores]) -> str:
    differences = []
    for task_scores in scores:
        best = max(task_scores.singles)
        aggregate = task_scores.aggregate()
        difference = f"{task_scores.task} {100 * (aggregate - best):+.2f}"
        if best > 0:
            difference += f" ({100 * (aggregate / best - 1):+.1f}%)"
        differences.append(difference)
    return f"{scores[0].main} against the best single run, points: {'; '.join(differences)}."


def _gain_of_five_runs(scores: Sequence[AggregationScores]) -> str:
    """Empty where five runs were not aggregated, or were the most that were."""
    numbers = scores[0].numbers
    if 5 not in numbers[:-1]:
        return ""
    place = numbers.index(5)
    shares = {}
    for task_scores in scores:
        of_five = task_scores.aggregates[task_scores.main][place]
        shares[task_scores.task] = task_scores.share_of_gain(of_five)
    return f"five give {_in_words(shares)} of the gain of {numbers[-1]} over the mean single run."


def _largest_change_by_temperature(scores: Sequence[AggregationScores]) -> str:
    """Empty where there is one temperature."""
    first = scores[0].temperature
    aggregate_at_first: dict[str, float] = {}
    for task_scores in scores:
        if task_scores.temperature == first:
            aggregate_at_first.setdefault(task_scores.task, task_scores.aggregate())
    changes = []
    for task_scores in scores:
        if task_scores.temperature != first:
            change = 100 * (task_scores.aggregate() - aggregate_at_first[task_scores.task])
            changes.append((change, task_scores))
    if not changes:
        return ""
    change, changed = max(changes, key=lambda pair: abs(pair[0]))
    return (
        f"the largest change of {changed.main} is {change:+.2f} points ({changed.task}, "
        f"temperature {_temperature(changed.temperature)} in place of {_temperature(first)})."
    )


def _against_rrf(scores: Sequence[AggregationScores]) -> str:
    """Empty where reciprocal rank fusion is not among the aggregators, or is the first of them."""
    main = scores[0].main
    if _RRF not in scores[0].aggregates or main == _RRF:
        return ""
    differences, shares = [], {}
    for of_task in scores:
        rrf = of_task.aggregate(_RRF)
        differences.append(100 * (of_task.aggregate() - rrf))
        shares[of_task.task] = of_task.share_of_gain(rrf)
    ahead = sum(difference > 0 for difference in differences)
    return (
        f"{main} is ahead in {ahead} of {len(scores)} by {np.mean(differences):+.2f} points on "
        f"average; RRF gives {_in_words(shares)} of its gain over the mean single run."
    )


def _in_words(share_by_task: Mapping[str, float]) -> str:
    words = []
    for task, share in share_by_task.items():
        percent = NONE if math.isnan(share) else f"{100 * share:.1f}%"
        words.append(f"{percent} ({task})")
    return ", ".join(words)


def _aggregators(scores: Sequence[AggregationScores]) -> tuple[str, ...]:
    if not scores:
        raise ValueError("a table of single runs needs a task")
    names = tuple(scores[0].aggregates)
    for of_task in scores:
        if tuple(of_task.aggregates) != names:
            raise ValueError(f"{of_task.task} has other aggregators than {scores[0].task}")
    return names


def _times_100(score: float, bold: bool = False) -> Cell:
    return Cell(f"{100 * score:.2f}", bold)


def _temperature(temperature: float | None) -> str:
    return "of the server" if temperature is None else f"{temperature:g}"
