"""Tables of sorting tasks in paper 003's layouts (Tables 3 and 8): figures measured here above the published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backpack_rank.reporting import published_lists as published
from backpack_rank.reporting.layout import NONE, Entry, LayoutTable

COLUMNS = ("source", "model", "task", "kind", "tau", "exact")
ONCE, CONSISTENT = "Orig.", "PSC"


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


def sorting_table(measured: Sequence[SortingFigures], notes: Sequence[str] = ()) -> LayoutTable:
    """Table 3 (Kendall's tau times 100): a row for each model, once and by permutation self-consistency."""
    tasks, ways = _tasks(measured), tuple(dict.fromkeys([ONCE, CONSISTENT, *_ways(measured)]))
    here = [((one.model,), tuple(_entry(one, task, way) for task in tasks for way in ways)) for one in measured]
    there = []
    records = _measured(measured)
    for (model,), row in published.PSC_TABLE3.items():
        values = [row.values.get(f"{task} {way}") for task in tasks for way in ways]
        there.append(((model,), tuple(map(_printed, values))))
        for task in published.SORTING:
            records += [_published(model, task, way, row.values[f"{task} {way}"]) for way in (ONCE, CONSISTENT)]
    return LayoutTable(
        "sorting",
        "Sorting tasks, Kendall's tau times 100 (Table 3)",
        ("model",),
        tuple((task, ways) for task in tasks),
        _sections(here, there),
        (f"{published.PERMUTATION}, Table 3. PSC: permutation self-consistency, 20 shuffles, Kemeny.", *notes),
        COLUMNS,
        tuple(records),
    )


def sorting_methods_table(measured: Sequence[SortingFigures], notes: Sequence[str] = ()) -> LayoutTable:
    """Table 8 (Kendall's tau times 100): a row for each model and way of ranking, a column for each task."""
    tasks = _tasks(measured)
    here = [
        ((f"{one.model} ({way})",), tuple(_entry(one, task, way) for task in tasks))
        for one in measured
        for way in _ways([one])
    ]
    there = []
    records = _measured(measured)
    for (label,), row in published.PSC_TABLE8.items():
        there.append(((label,), tuple(_printed(row.values.get(task)) for task in tasks)))
        model, _, way = label.removesuffix(")").partition(" (")
        records += [_published(model, task, way, value) for task, value in row.values.items()]
    return LayoutTable(
        "sorting_methods",
        "Sorting tasks by comparisons and by permutations, Kendall's tau times 100 (Table 8)",
        ("Method",),
        (("", tasks),),
        _sections(here, there),
        (
            f"{published.PERMUTATION}, Table 8. PRP: pairwise ranking prompting, 10 passes of bubble sort; PSC: "
            "permutation self-consistency, 20 shuffles, Kemeny.",
            *notes,
        ),
        COLUMNS,
        tuple(records),
    )


TABLES: Mapping[str, Callable[[Sequence[SortingFigures], Sequence[str]], LayoutTable]] = {
    "psc_table3": sorting_table,
    "psc_table8": sorting_methods_table,
}
"""Layouts by the name of the experiment."""

_Row = tuple[tuple[str, ...], tuple[Entry, ...]]


def _tasks(measured: Sequence[SortingFigures]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*published.SORTING, *(task for one in measured for task, _ in one.figures)]))


def _ways(measured: Sequence[SortingFigures]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(way for one in measured for _, way in one.figures))


def _entry(one: SortingFigures, task: str, way: str) -> Entry:
    found = one.figures.get((task, way))
    return Entry(NONE if found is None else f"{100 * found.tau:.1f}")


def _printed(value: float | None) -> Entry:
    return Entry(NONE if value is None else f"{value:.1f}")


def _measured(measured: Sequence[SortingFigures]) -> list[tuple[Any, ...]]:
    return [("here", one.model, *key, value.tau, value.exact) for one in measured for key, value in one.figures.items()]


def _published(model: str, task: str, way: str, value: float) -> tuple[Any, ...]:
    return ("paper", model, task, way, value / 100, None)


def _sections(here: Sequence[_Row], there: Sequence[_Row]) -> tuple[tuple[str, tuple[_Row, ...]], ...]:
    sections = (("Measured here", tuple(here)), ("Published", tuple(there)))
    return sections if here else sections[1:]
