"""What tests read back: the orders of rankings, and the rows of CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from backpack_rank.position.lists.base import Ranking


def orders(rankings: Iterable[Ranking]) -> list[list[int]]:
    """The order of each ranking, best first."""
    return [ranking.order.tolist() for ranking in rankings]


def csv_rows(path: Path, **values: str) -> list[dict[str, str]]:
    """The rows of a CSV file; where values of columns are given, the rows that have them."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if values.items() <= row.items()]
