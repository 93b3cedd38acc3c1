"""Scores of single runs beside those of their aggregates: tables, and the paper's sentences beside measured figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from backpack_rank.reporting import published_lists as published
from backpack_rank.reporting.layout import NONE, Entry, LayoutTable
from backpack_rank.reporting.run_spread import TaskRuns

SPREAD_COLUMNS = (
    *("task", "measure", "temperature", "lists", "runs", "minimum", "first_quartile", "median", "third_quartile"),
    *("maximum", "mean", "aggregator", "aggregate", "beaten"),
)
NUMBER_COLUMNS = ("task", "measure", "temperature", "lists", "aggregator", "rankings", "score", "share_of_gain")
_RRF = "rrf"
_FIVE = 5


def spread_table(found: Sequence[TaskRuns], notes: Sequence[str] = ()) -> LayoutTable:
    """Single runs by task and temperature, what each aggregator makes of all of them, and what share it beats.

    Raises:
        ValueError: nothing was found, or tasks with other aggregators than the first.
    """
    names = _aggregators(found)
    sections, records = [], []
    for temperature in dict.fromkeys(one.temperature for one in found):
        rows = []
        for one in (one for one in found if one.temperature == temperature):
            quartiles = np.quantile(one.singles, [0, 0.25, 0.5, 0.75, 1]).tolist()
            low, first, middle, third, high = quartiles
            best = max(round(100 * one.aggregate(name), 2) for name in names)
            entries = [_hundred(value) for value in (low, middle, high, third - first)]
            entries += [_hundred(one.aggregate(name), best) for name in names]
            entries.append(Entry(f"{100 * _beaten(one, one.main):.0f}%"))
            rows.append(((one.task, one.measure), tuple(entries)))
            about = (one.task, one.measure, temperature, one.lists, len(one.singles))
            records += [(*about, *quartiles, one.mean, name, one.aggregate(name), _beaten(one, name)) for name in names]
        heading = "" if temperature is None else f"Sampling temperature {temperature:g}"
        sections.append((heading, tuple(rows)))
    many = found[0].numbers[-1]
    sentences = (
        f"{published.PERMUTATION}, Figures 3 and 6. Scores times 100: min, median, max and interquartile range (IQR) "
        f"of {len(found[0].singles)} single runs, each of one shuffle of every list; aggregates of the first {many} of "
        f"them. beats: share of the single runs that score less than {names[0]}.",
        *spread_notes(found),
        *notes,
    )
    groups = (("single runs", ("min", "median", "max", "IQR")), ("aggregate", names), ("", ("beats",)))
    return LayoutTable(
        *("single_runs", "Single runs and their aggregates", ("task", "measure"), groups),
        *(tuple(sections), sentences, SPREAD_COLUMNS, tuple(records)),
    )


def numbers_table(found: Sequence[TaskRuns], notes: Sequence[str] = ()) -> LayoutTable:
    """The first aggregator by number of aggregated rankings at the first temperature; the CSV file has all of both.

    Raises:
        ValueError: as :func:`spread_table`, or tasks with other numbers than the first.
    """
    names, numbers = _aggregators(found), found[0].numbers
    rows, records = [], []
    for one in found:
        if one.numbers != numbers:
            raise ValueError(f"{one.task} has other numbers of rankings than {found[0].task}")
        if one.temperature == found[0].temperature:
            entries = (_hundred(one.mean), *map(_hundred, one.aggregates[one.main]))
            rows.append(((one.task, one.measure), entries))
        for name in names:
            for number, score in zip(numbers, one.aggregates[name], strict=True):
                gain = _share(one.mean, score, one.aggregate(name))
                about = (one.task, one.measure, one.temperature, one.lists)
                records.append((*about, name, number, score, None if math.isnan(gain) else gain))
    sentences = (
        f"{published.PERMUTATION}, Figure 5 (a). Scores times 100: mean of the single runs, and {names[0]} of the "
        "first so many of them.",
        *notes,
    )
    groups = (("", ("single",)), ("aggregated rankings", tuple(map(str, numbers))))
    return LayoutTable(
        *("aggregated_rankings", "Number of aggregated rankings", ("task", "measure"), groups),
        *((("", tuple(rows)),), sentences, NUMBER_COLUMNS, tuple(records)),
    )


def spread_notes(found: Sequence[TaskRuns]) -> list[str]:
    """What the paper's text says about its figures, each beside what was measured here."""
    base = [one for one in found if one.temperature == found[0].temperature]
    return [
        f"{published.PSC_FIGURE3} Here: {_against_best(base)}.",
        *_early(base),
        *_temperatures(found),
        *_against_rrf(base),
    ]


def _against_best(base: Sequence[TaskRuns]) -> str:
    words = []
    for one in base:
        best = max(one.singles)
        change = f" ({100 * (one.aggregate() / best - 1):+.1f}%)" if best > 0 else ""
        words.append(f"{one.task} {100 * (one.aggregate() - best):+.2f}{change}")
    return f"{base[0].main} against the best single run, points: {'; '.join(words)}"


def _early(base: Sequence[TaskRuns]) -> list[str]:
    if _FIVE not in base[0].numbers[:-1]:
        return []
    at = base[0].numbers.index(_FIVE)
    shares = {one.task: _share(one.mean, one.aggregates[one.main][at], one.aggregate()) for one in base}
    what = f"of the gain of {base[0].numbers[-1]} over the mean single run"
    return [f"{published.PSC_FIGURE5A} Here: five give {_shares(shares)} {what}."]


def _temperatures(found: Sequence[TaskRuns]) -> list[str]:
    base = {one.task: one for one in reversed(found) if one.temperature == found[0].temperature}
    changes = [
        (100 * (one.aggregate() - base[one.task].aggregate()), one)
        for one in found
        if one.temperature != found[0].temperature
    ]
    if not changes:
        return []
    change, one = max(changes, key=lambda pair: abs(pair[0]))
    return [
        f"{published.PSC_FIGURE5B} Here: the largest change of {one.main} is {change:+.2f} points ({one.task}, "
        f"temperature {_named(one.temperature)} in place of {_named(found[0].temperature)})."
    ]


def _against_rrf(base: Sequence[TaskRuns]) -> list[str]:
    if _RRF not in base[0].aggregates or base[0].main == _RRF:
        return []
    differences = [100 * (one.aggregate() - one.aggregate(_RRF)) for one in base]
    shares = {one.task: _share(one.mean, one.aggregate(_RRF), one.aggregate()) for one in base}
    return [
        f"{published.PSC_FIGURE6} Here: {base[0].main} is ahead in {sum(d > 0 for d in differences)} of {len(base)} by "
        f"{np.mean(differences):+.2f} points on average; RRF gives {_shares(shares)} of its gain over the mean single "
        "run."
    ]


def _shares(shares: dict[str, float]) -> str:
    words = [f"{NONE if math.isnan(share) else f'{100 * share:.1f}%'} ({task})" for task, share in shares.items()]
    return ", ".join(words)


def _aggregators(found: Sequence[TaskRuns]) -> tuple[str, ...]:
    if not found:
        raise ValueError("a table of single runs needs a task")
    names = tuple(found[0].aggregates)
    for one in found:
        if tuple(one.aggregates) != names:
            raise ValueError(f"{one.task} has other aggregators than {found[0].task}")
    return names


def _beaten(one: TaskRuns, name: str) -> float:
    return float(np.mean(np.array(one.singles) < one.aggregate(name)))


def _share(baseline: float, part: float, whole: float) -> float:
    """What one way gains over a baseline, as a share of what another one gains; NaN where that gains nothing."""
    return (part - baseline) / (whole - baseline) if whole > baseline else math.nan


def _hundred(score: float, best: float | None = None) -> Entry:
    text = f"{100 * score:.2f}"
    return Entry(text, best is not None and round(100 * score, 2) == best)


def _named(temperature: float | None) -> str:
    return "of the server" if temperature is None else f"{temperature:g}"
