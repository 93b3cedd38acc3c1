"""What the tables of paper 001 share: how figures are written, and the lines of their CSV files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from backpack_rank.reporting.layout import NONE
from backpack_rank.reporting.published_rotation import MODELS
from backpack_rank.reporting.rows import Figure

COLUMNS = (
    *("table", "model", "training", "source", "test", "measure"),
    *("value", "low", "high", "p_wilcoxon", "letters", "rankers"),
)
PAPER, HERE = "paper", "here"
"""Who measured a figure."""


def record(
    *keys: str, value: Figure | float, p: float | None = None, letters: str = "", rankers: int | None = None
) -> tuple[Any, ...]:
    """A line of a CSV file with the columns :data:`COLUMNS`; ``keys`` are the first six of them."""
    figure = value if isinstance(value, Figure) else Figure(value, abs(value))
    mean = None if math.isnan(figure.mean) else figure.mean
    return (*keys, mean, figure.low, figure.high, p, letters, rankers)


def ordered(models: Iterable[str], first: Sequence[str] = MODELS) -> list[str]:
    """The paper's models, then the others."""
    return list(dict.fromkeys([*first, *models]))


def number(value: float, decimals: int) -> str:
    """A figure with so many decimals."""
    return NONE if math.isnan(value) else f"{value:.{decimals}f}"


def percent(value: float) -> str:
    """A relative difference with its sign and one decimal."""
    if math.isnan(value):
        return NONE
    return "0.0%" if abs(value) < 0.0005 else f"{value:+.1%}"
