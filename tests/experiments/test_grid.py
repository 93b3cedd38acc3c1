"""The loop of experiments: each outer one is prepared once, all inner ones follow, what is complete
is told.
"""

from __future__ import annotations

import pytest

from backpack_rank.experiments.grid import fill_grid


def test_all_collections_of_a_row_come_before_the_next_row() -> None:
    done: list[object] = []

    def prepare(options: str) -> str:
        done.append(f"prepare {options}")
        return options.upper()

    def measure(row: str, ranker: str, name: str, collection: int) -> str:
        done.append((row, name))
        return ranker * collection

    cells = fill_grid(
        {"one": "a", "two": "b"}, {"x": 1, "y": 2}, prepare, measure, after_each=done.append
    )
    assert cells == {("one", "x"): "A", ("one", "y"): "AA", ("two", "x"): "B", ("two", "y"): "BB"}
    first = ["prepare a", ("one", "x"), ("one", "y"), "A"]
    assert done == [*first, "prepare b", ("two", "x"), ("two", "y"), "B"]


def test_what_was_complete_before_a_mistake_has_been_told() -> None:
    complete: list[int] = []

    def measure(row: str, number: int, name: str, collection: None) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        fill_grid({"good": "1", "bad": "0"}, {"x": None}, int, measure, after_each=complete.append)
    assert complete == [1]
