"""Axes with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from backpack_rank.reporting.page.charts import Axis

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def value_axis(title: str, values: Iterable[float], zero: bool = False, ticks: int = 5) -> Axis:
    """An axis from round number to round number around all values.

    Args:
        title: what it measures.
        values: finite numbers that must lie on the axis; at least one.
        zero: 0 lies on the axis too and is marked.
        ticks: largest number of intervals between ticks.
    """
    found = [*values, *([0.0] if zero else [])]
    low, high = min(found), max(found)
    if high - low < 1e-12:
        margin = abs(high) * 0.1 or 1.0
        low, high = low - margin, high + margin
    step = _step((high - low) / ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if _has_half(step) else 0))
    marks = tuple((number * step, _text(number * step, digits)) for number in range(first, last + 1))
    return Axis(title, first * step, last * step, marks, zero)


def ordered_axis(title: str, names: Sequence[str]) -> Axis:
    """An axis with equal steps; the value of the n-th name is n."""
    return Axis(title, -0.4, len(names) - 0.6, tuple((float(n), name) for n, name in enumerate(names)))


def dial_axis(alphas: Iterable[float]) -> Axis:
    """The axis of alpha: from 0 to 1, or further where an alpha lies beyond, with a margin for marks."""
    high = max([1.0, *alphas])
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0) if high == 1 else (0.0, 0.5, 1.0, *([high] if high > 1 else []))
    return Axis(
        "alpha (1: the model as it is)", -0.05 * high, 1.05 * high, tuple((tick, f"{tick:g}") for tick in ticks)
    )


def share(axis: Axis, value: float) -> float:
    """Where a value lies between the ends of an axis, 0 to 1."""
    return (value - axis.low) / (axis.high - axis.low)


def _step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(step * size for step in _STEPS if step * size >= least * (1 - 1e-9))


def _has_half(step: float) -> bool:
    return f"{step:e}".startswith("2.5")


def _text(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text) else f"{0:.{digits}f}" if digits else "0"
