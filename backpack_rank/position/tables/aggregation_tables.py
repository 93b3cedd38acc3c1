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
    """Use it to show how far single runs spread, and what each aggregator makes of all of them.

    Rows are tasks, sections are temperatures.

    Raises:
        ValueError: there are no scores, or of tasks with other aggregators than the first.
    """
    names = _aggregators(scores)
    sections, records = [], []
    for temperature in dict.fromkeys(of_task.temperature for of_task in scores):
        rows = []
        for of_task in scores:
            if of_task.temperature != temperature:
                continue
            quartiles = np.quantile(of_task.singles, [0, 0.25, 0.5, 0.75, 1]).tolist()
            rows.append(_spread_row(of_task, names, quartiles))
            about = (of_task.task, of_task.measure, temperature, of_task.lists)
            for name in names:
                score, beaten = of_task.aggregate(name), of_task.share_beaten(name)
                spread = (len(of_task.singles), *quartiles, of_task.mean)
                records.append((*about, *spread, name, score, beaten))
        heading = "" if temperature is None else f"Sampling temperature {temperature:g}"
        sections.append(Section(heading, rows))
    paper, most = published(PUBLISHED).paper, scores[0].numbers[-1]
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
    """Use it to show how many rankings are worth aggregating.

    The table has the first aggregator at the first temperature; the CSV file has all of both.

    Raises:
        ValueError: as :func:`spread_table`, or tasks with other numbers than the first.
    """
    names, numbers = _aggregators(scores), scores[0].numbers
    rows: list[Row] = []
    records: list[tuple[Any, ...]] = []
    for of_task in scores:
        if of_task.numbers != numbers:
            raise ValueError(f"{of_task.task} has other numbers of rankings than {scores[0].task}")
        if of_task.temperature == scores[0].temperature:
            shown = (of_task.mean, *of_task.aggregates[of_task.main])
            cells = [_times_100(score) for score in shown]
            rows.append(Row((of_task.task, of_task.measure), cells))
        about = (of_task.task, of_task.measure, of_task.temperature, of_task.lists)
        for name in names:
            for number, score in zip(numbers, of_task.aggregates[name], strict=True):
                share = of_task.share_of_gain(score, name)
                records.append((*about, name, number, score, None if math.isnan(share) else share))
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
    """Use it to set what the paper's text says about its figures beside what was measured here."""
    first_temperature = [
        of_task for of_task in scores if of_task.temperature == scores[0].temperature
    ]
    measured = {
        "figure3": _against_best_run(first_temperature),
        "figure5a": _gain_of_five_runs(first_temperature),
        "figure5b": _largest_change_by_temperature(scores),
        "figure6": _against_rrf(first_temperature),
    }
    says = published(PUBLISHED).says
    return [f"{says[figure]} Here: {here}" for figure, here in measured.items() if here]


def _spread_row(
    of_task: AggregationScores, names: Sequence[str], quartiles: Sequence[float]
) -> Row:
    low, first, middle, third, high = quartiles
    cells = [_times_100(score) for score in (low, middle, high, third - first)]
    # Of scores as they are printed, so that all equal to the best are bold.
    best = max(round(100 * of_task.aggregate(name), 2) for name in names)
    for name in names:
        score = of_task.aggregate(name)
        cells.append(_times_100(score, bold=round(100 * score, 2) == best))
    cells.append(Cell(f"{100 * of_task.share_beaten(of_task.main):.0f}%"))
    return Row((of_task.task, of_task.measure), cells)


def _against_best_run(scores: Sequence[AggregationScores]) -> str:
    words = []
    for of_task in scores:
        best, aggregate = max(of_task.singles), of_task.aggregate()
        change = f" ({100 * (aggregate / best - 1):+.1f}%)" if best > 0 else ""
        words.append(f"{of_task.task} {100 * (aggregate - best):+.2f}{change}")
    return f"{scores[0].main} against the best single run, points: {'; '.join(words)}."


def _gain_of_five_runs(scores: Sequence[AggregationScores]) -> str:
    """Empty where five runs were not aggregated, or were the most that were."""
    numbers = scores[0].numbers
    if 5 not in numbers[:-1]:
        return ""
    place = numbers.index(5)
    shares = {}
    for of_task in scores:
        shares[of_task.task] = of_task.share_of_gain(of_task.aggregates[of_task.main][place])
    return f"five give {_in_words(shares)} of the gain of {numbers[-1]} over the mean single run."


def _largest_change_by_temperature(scores: Sequence[AggregationScores]) -> str:
    """Empty where there is one temperature."""
    first = scores[0].temperature
    aggregate_at_first: dict[str, float] = {}
    for of_task in scores:
        if of_task.temperature == first:
            aggregate_at_first.setdefault(of_task.task, of_task.aggregate())
    changes = []
    for of_task in scores:
        if of_task.temperature != first:
            change = 100 * (of_task.aggregate() - aggregate_at_first[of_task.task])
            changes.append((change, of_task))
    if not changes:
        return ""
    change, changed = max(changes, key=lambda pair: abs(pair[0]))
    return (
        f"the largest change of {changed.main} is {change:+.2f} points ({changed.task}, "
        "temperature "
        f"{_temperature(changed.temperature)} in place of {_temperature(first)})."
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
