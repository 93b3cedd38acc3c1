"""The loop of an experiment, rows x collections, and what else experiments share.

An experiment of a paper is a table: a row for each ranker, remedy or way of ranking, a column for
each collection, and in each cell what was measured of the row on the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import print_table

_OuterName = TypeVar("_OuterName", bound=Hashable)
_Outer = TypeVar("_Outer")
_Prepared = TypeVar("_Prepared")
_InnerName = TypeVar("_InnerName", bound=Hashable)
_Inner = TypeVar("_Inner")
_Value = TypeVar("_Value")


def fill_grid(
    outer: Mapping[_OuterName, _Outer],
    inner: Mapping[_InnerName, _Inner],
    prepare: Callable[[_Outer], _Prepared],
    measure: Callable[[_OuterName, _Prepared, _InnerName, _Inner], _Value],
    after_each: Callable[[_Prepared], None] | None = None,
) -> dict[tuple[_OuterName, _InnerName], _Value]:
    """In an experiment that measures each of its rows on each of its collections.

    >>> rows, collections = {"one": "1", "two": "2"}, {"tiny": ["d1", "d2", "d3"]}
    >>> def measure(row, depth, name, documents):
    ...     return documents[:depth]
    >>> cells = fill_grid(rows, collections, prepare=int, measure=measure)
    >>> cells["two", "tiny"]
    ['d1', 'd2']

    Make that the outer loop which is costly to load, because each of its items is loaded once. It
    is the rows where each row is another model: all collections of a row come before the next row,
    so only one model is in memory. It is the collections where all rows share a model.

    Args:
        outer: items of the outer loop by name, rows or collections.
        inner: items of the inner loop by name, collections or rows.
        prepare: loads what an outer item needs.
        measure: ranks and measures one row on one collection. It gets the outer name, what was
            prepared, the inner name, and the inner item.
        after_each: called when an outer item is complete, for example to write what there is so
            far. An experiment that was stopped goes on from the rankings that its rankers saved.

    Returns:
        What was measured, by outer and inner name.
    """
    cells: dict[tuple[_OuterName, _InnerName], _Value] = {}
    for outer_name, content in outer.items():
        prepared = prepare(content)
        for inner_name, other in inner.items():
            cells[outer_name, inner_name] = measure(outer_name, prepared, inner_name, other)
        if after_each is not None:
            after_each(prepared)
    return cells


def show(tables: Sequence[Table], sentence: str, quiet: bool) -> None:
    """Print the tables and a sentence below them, unless quiet."""
    if not quiet:
        for table in tables:
            print_table(table)
        print(sentence)


def paths_in_words(paths: Iterable[Path]) -> str:
    """Which files were written.

    >>> paths_in_words([Path("table1.md"), Path("table1.csv")])
    'Written: table1.md, table1.csv'
    """
    return f"Written: {', '.join(map(str, paths))}"
