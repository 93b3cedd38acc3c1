"""What an evaluation gives to a Hydra sweeper that optimises, such as Optuna's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from backpack_rank.evaluation.results import Report, SystemResult


def objective_of(report: Report | None, wanted: str | Sequence[str]) -> float | list[float]:
    """Measures of the last system, which is the one that the options are of.

    >>> from backpack_rank.evaluation.results import Estimate, RunInfo, Summary
    >>> figures = {"RaB(tf)@10": Estimate(mean=-0.5, mean_absolute=0.75)}
    >>> report = Report([SystemResult("alpha=0", 0.0, bias=Summary(figures, 4))], RunInfo())
    >>> objective_of(report, "|RaB(tf)@10|"), objective_of(report, ["RaB(tf)@10"])
    (0.5, [-0.5])

    Args:
        report: of the evaluation.
        wanted: names of measures; between bars, the absolute value of the mean.

    Returns:
        A number, of several names a list.

    Raises:
        ValueError: nothing was measured, there is no such measure (the nearest is named), or it has
            no value.
    """
    if report is None:
        raise ValueError("objective=... is of a task that measures, and this one measures nothing")
    row = report.rows[-1]
    if isinstance(wanted, str):
        return _value(row, wanted)
    return [_value(row, name) for name in wanted]


def no_objective(wanted: str | Sequence[str]) -> float | list[float]:
    """What a failed job gives in its place: no number, so that it is never the best."""
    return math.nan if isinstance(wanted, str) else [math.nan] * len(wanted)


def is_failure(value: Any) -> bool:
    """Whether a job gave False, nothing, or no number."""
    numbers = value if isinstance(value, list) else [value]
    # Not by ==: an objective of 0 is equal to False, and as good as it gets.
    return any(number is False or number is None or math.isnan(number) for number in numbers)


def _value(row: SystemResult, name: str) -> float:
    figure = row.figure(name)
    is_absolute = figure is None and len(name) > 2 and name[0] == name[-1] == "|"
    if is_absolute:
        figure = row.figure(name[1:-1])
    if figure is None:
        measured: list[str] = []
        for summary in row.blocks.values():
            measured += summary.figures
        near = get_close_matches(name.strip("|"), measured, n=1)
        hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(measured)}"
        raise ValueError(f"objective={name} was not measured{hint}")
    value = figure.absolute_mean if is_absolute else figure.mean
    if not math.isfinite(value):
        raise ValueError(f"objective={name} has no value")
    return value
