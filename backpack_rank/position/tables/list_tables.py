"""Tables about lists of Tang et al., CapCal and DebiasFirst: figures measured here above the published ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backpack_rank.position.aggregation.run_spread import AggregationScores
from backpack_rank.reporting.published import PublishedTable, published
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table

LIST_COLUMNS = ("source", "row", "column", "nDCG@10")
SORTING_COLUMNS = ("source", "model", "task", "kind", "tau", "exact")
SPREAD_COLUMNS = (
    *("task", "measure", "temperature", "lists", "runs", "minimum", "first_quartile", "median", "third_quartile"),
    *("maximum", "mean", "aggregator", "aggregate", "beaten"),
)
NUMBER_COLUMNS = ("task", "measure", "temperature", "lists", "aggregator", "rankings", "score", "share_of_gain")
_RRF = "rrf"
_FIVE = 5


@dataclass(frozen=True)
class Sorted:
    """A model on a sorting task: mean Kendall's tau, and the share of lists that are exactly right, in [0, 1]."""

    tau: float
    exact: float | None = None


@dataclass(frozen=True)
class SortingFigures:
    """Figures of one model, by task and by way of ranking: ``Orig.``, ``PSC``, ``PRP`` or another."""

    model: str
    figures: Mapping[tuple[str, str], Sorted] = field(default_factory=dict)


def list_table(
    name: str,
    measured: Mapping[tuple[str, str], float],
    marks: Mapping[tuple[str, str], str],
    source: str,
    notes: Sequence[str] = (),
) -> Table:
    """Measured figures above the published ones; columns that were measured come first, empty ones are left out.

    Args:
        name: of the published table.
        measured: nDCG@10, by row and column.
        marks: raised behind measured figures.
        source: what was measured, heading of that part.
        notes: sentences below the table.
    """
    table = published(name)
    columns = tuple(dict.fromkeys([*(column for _, column in measured), *table.shown]))
    width = max(map(len, table.rows), default=1)
    here, there, records = [], [], []
    for row in dict.fromkeys(row for row, _ in measured):
        found = {column: measured[row, column] for column in columns if (row, column) in measured}
        cells = {c: Cell(_scaled(value, table.scale), raised=marks.get((row, c), "")) for c, value in found.items()}
        here.append(Row((row, *[""] * (width - 1)), [cells.get(column, Cell()) for column in columns]))
        records += [("measured", row, column, value) for column, value in found.items()]
    for labels, printed in table.rows.items():
        cells = {column: Cell(figure.text, raised=figure.marks) for column, figure in printed.items()}
        there.append(Row(labels, [cells.get(column, Cell()) for column in columns]))
        records += [("published", " | ".join(labels), column, value) for column, value in table.values(*labels).items()]
    sections = {f"Measured: {source}": here, "Published": there}
    sentences = [note for note in (table.note, *notes) if note]
    return table.table_of([Group("", columns)], sections, sentences, LIST_COLUMNS, records, ("",) * width)


def sorting_table(name: str, measured: Sequence[SortingFigures], notes: Sequence[str] = ()) -> Table:
    """Kendall's tau times 100 on sorting tasks.

    Args:
        name: of the published table. Where its columns are ``TASK WAY`` (Table 3), a row is a model; where they are
            tasks (Table 8), a row is ``MODEL (WAY)``.
        measured: one for each model.
        notes: further sentences.

    Raises:
        ValueError: rows of the published table have more than one label.
    """
    table = published(name)
    if any(len(labels) > 1 for labels in table.rows):
        raise ValueError(f"{name}: rows of a table of sorting tasks must have one label, 'model' or 'model (way)'")
    across = all(" " in column for column in table.columns)
    there = _sorting_rows(table, across)
    here = [(one.model, {key: f"{100 * value.tau:.1f}" for key, value in one.figures.items()}) for one in measured]
    keys = [key for _, figures in [*there, *here] for key in figures]
    tasks, ways = tuple(dict.fromkeys(task for task, _ in keys)), tuple(dict.fromkeys(way for _, way in keys))
    sections = {
        heading: [row for one in figures for row in _laid_out(*one, tasks, ways, across)]
        for heading, figures in (("Measured here", here), ("Published", there))
        if figures
    }
    records: list[tuple[Any, ...]] = [
        ("here", one.model, *key, value.tau, value.exact) for one in measured for key, value in one.figures.items()
    ]
    records += [
        ("paper", model, *key, float(text) / table.scale, None)
        for model, figures in there
        for key, text in figures.items()
    ]
    groups = [Group(task, ways) for task in tasks] if across else [Group("", tasks)]
    sentences = [f"{table.source}. {table.note}", *notes]
    return table.table_of(groups, sections, sentences, SORTING_COLUMNS, records)


def spread_table(found: Sequence[AggregationScores], notes: Sequence[str] = ()) -> Table:
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
            cells = [_hundred(value) for value in (low, middle, high, third - first)]
            cells += [_hundred(one.aggregate(name), best) for name in names]
            cells.append(Cell(f"{100 * _beaten(one, one.main):.0f}%"))
            rows.append(Row((one.task, one.measure), cells))
            about = (one.task, one.measure, temperature, one.lists, len(one.singles))
            records += [(*about, *quartiles, one.mean, name, one.aggregate(name), _beaten(one, name)) for name in names]
        heading = "" if temperature is None else f"Sampling temperature {temperature:g}"
        sections.append(Section(heading, rows))
    many = found[0].numbers[-1]
    sentences = (
        f"{_said().paper}, Figures 3 and 6. Scores times 100: min, median, max and interquartile range (IQR) "
        f"of {len(found[0].singles)} single runs, each of one shuffle of every list; aggregates of the first {many} of "
        f"them. beats: share of the single runs that score less than {names[0]}.",
        *spread_notes(found),
        *notes,
    )
    groups = (Group("single runs", ("min", "median", "max", "IQR")), Group("aggregate", names), Group("", ("beats",)))
    title = "Single runs and their aggregates"
    return Table("single_runs", title, ("task", "measure"), groups, sections, sentences, SPREAD_COLUMNS, records)


def numbers_table(found: Sequence[AggregationScores], notes: Sequence[str] = ()) -> Table:
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
            cells = (_hundred(one.mean), *map(_hundred, one.aggregates[one.main]))
            rows.append(Row((one.task, one.measure), cells))
        for name in names:
            for number, score in zip(numbers, one.aggregates[name], strict=True):
                gain = _share(one.mean, score, one.aggregate(name))
                about = (one.task, one.measure, one.temperature, one.lists)
                records.append((*about, name, number, score, None if math.isnan(gain) else gain))
    sentences = (
        f"{_said().paper}, Figure 5 (a). Scores times 100: mean of the single runs, and {names[0]} of the "
        "first so many of them.",
        *notes,
    )
    groups = (Group("", ("single",)), Group("aggregated rankings", tuple(map(str, numbers))))
    title, sections = "Number of aggregated rankings", [Section("", rows)]
    return Table(
        "aggregated_rankings", title, ("task", "measure"), groups, sections, sentences, NUMBER_COLUMNS, records
    )


def spread_notes(found: Sequence[AggregationScores]) -> list[str]:
    """What the paper's text says about its figures, each beside what was measured here."""
    base = [one for one in found if one.temperature == found[0].temperature]
    sentences = {
        "figure3": _against_best(base),
        "figure5a": _early(base),
        "figure5b": _temperatures(found),
        "figure6": _against_rrf(base),
    }
    return [f"{_said().says[figure]} Here: {here}" for figure, here in sentences.items() if here]


def _scaled(value: float, scale: int) -> str:
    """A measured figure as the paper would print it: ``50.58`` or ``.5058``."""
    return f"{scale * value:.2f}" if scale == 100 else f"{value:.4f}".removeprefix("0")


def _sorting_rows(table: PublishedTable, across: bool) -> list[tuple[str, dict[tuple[str, str], str]]]:
    """Rows of a published table as (model, figures by task and way)."""
    found = []
    for (label,), printed in table.rows.items():
        model, _, own = label.removesuffix(")").partition(" (")
        figures = {}
        for column, figure in printed.items():
            task, _, way = column.rpartition(" ") if across else (column, "", own)
            figures[task, way] = figure.text
        found.append((label if across else model, figures))
    return found


def _laid_out(
    model: str, figures: Mapping[tuple[str, str], str], tasks: Sequence[str], ways: Sequence[str], across: bool
) -> list[Row]:
    """A model as one row, or as one for each of its ways of ranking."""
    if across:
        return [Row((model,), tuple(Cell(figures.get((task, way), NONE)) for task in tasks for way in ways))]
    own = dict.fromkeys(way for _, way in figures)
    return [Row((f"{model} ({way})",), tuple(Cell(figures.get((task, way), NONE)) for task in tasks)) for way in own]


def _said() -> PublishedTable:
    return published("psc_figures")


def _against_best(base: Sequence[AggregationScores]) -> str:
    words = []
    for one in base:
        best = max(one.singles)
        change = f" ({100 * (one.aggregate() / best - 1):+.1f}%)" if best > 0 else ""
        words.append(f"{one.task} {100 * (one.aggregate() - best):+.2f}{change}")
    return f"{base[0].main} against the best single run, points: {'; '.join(words)}."


def _early(base: Sequence[AggregationScores]) -> str:
    if _FIVE not in base[0].numbers[:-1]:
        return ""
    at = base[0].numbers.index(_FIVE)
    shares = {one.task: _share(one.mean, one.aggregates[one.main][at], one.aggregate()) for one in base}
    return f"five give {_shares(shares)} of the gain of {base[0].numbers[-1]} over the mean single run."


def _temperatures(found: Sequence[AggregationScores]) -> str:
    base = {one.task: one for one in reversed(found) if one.temperature == found[0].temperature}
    changes = [
        (100 * (one.aggregate() - base[one.task].aggregate()), one)
        for one in found
        if one.temperature != found[0].temperature
    ]
    if not changes:
        return ""
    change, one = max(changes, key=lambda pair: abs(pair[0]))
    return (
        f"the largest change of {one.main} is {change:+.2f} points ({one.task}, temperature "
        f"{_named(one.temperature)} in place of {_named(found[0].temperature)})."
    )


def _against_rrf(base: Sequence[AggregationScores]) -> str:
    if _RRF not in base[0].aggregates or base[0].main == _RRF:
        return ""
    differences = [100 * (one.aggregate() - one.aggregate(_RRF)) for one in base]
    shares = {one.task: _share(one.mean, one.aggregate(_RRF), one.aggregate()) for one in base}
    return (
        f"{base[0].main} is ahead in {sum(d > 0 for d in differences)} of {len(base)} by {np.mean(differences):+.2f} "
        f"points on average; RRF gives {_shares(shares)} of its gain over the mean single run."
    )


def _shares(shares: dict[str, float]) -> str:
    words = [f"{NONE if math.isnan(share) else f'{100 * share:.1f}%'} ({task})" for task, share in shares.items()]
    return ", ".join(words)


def _aggregators(found: Sequence[AggregationScores]) -> tuple[str, ...]:
    if not found:
        raise ValueError("a table of single runs needs a task")
    names = tuple(found[0].aggregates)
    for one in found:
        if tuple(one.aggregates) != names:
            raise ValueError(f"{one.task} has other aggregators than {found[0].task}")
    return names


def _beaten(one: AggregationScores, name: str) -> float:
    return float(np.mean(np.array(one.singles) < one.aggregate(name)))


def _share(baseline: float, part: float, whole: float) -> float:
    """What one way gains over a baseline, as a share of what another one gains; NaN where that gains nothing."""
    return (part - baseline) / (whole - baseline) if whole > baseline else math.nan


def _hundred(score: float, best: float | None = None) -> Cell:
    text = f"{100 * score:.2f}"
    return Cell(text, best is not None and round(100 * score, 2) == best)


def _named(temperature: float | None) -> str:
    return "of the server" if temperature is None else f"{temperature:g}"
