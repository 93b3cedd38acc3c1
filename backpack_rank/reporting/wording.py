"""Figures in words, and what a table's measures say."""

from __future__ import annotations

import math
from collections.abc import Iterable

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting.table import NONE, number

AS_IT_IS = "the ranker as it is"
"""What a page calls the ranker at alpha=1."""


def figure_of(row: SystemResult, measure: str) -> Estimate | None:
    """A measure of a system, of any kind; None where it has none, or no number."""
    figure = row.figure(measure)
    if figure is None or not math.isfinite(figure.mean):
        return None
    return figure


def interval(figure: Estimate) -> tuple[float, float] | None:
    """The ends of a figure's interval, or None without one."""
    if figure.low is None or figure.high is None:
        return None
    if not math.isfinite(figure.low) or not math.isfinite(figure.high):
        return None
    return figure.low, figure.high


def figure_text(figure: Estimate | None) -> str:
    """A mean with its interval; ``-`` without a number.

    >>> figure_text(Estimate(0.25, 0.25, 0.2, 0.3))
    '0.2500 [0.2000, 0.3000]'
    """
    if figure is None or not math.isfinite(figure.mean):
        return NONE
    text = number(figure.mean)
    ends = interval(figure)
    if ends is not None:
        text += f" [{number(ends[0])}, {number(ends[1])}]"
    return text


def measures_explained(measures: Iterable[str]) -> str:
    """What the measures of a table say and where they are best, each family once.

    >>> measures_explained(["nDCG@10", "nDCG@20", "some measure"])
    'nDCG: quality of the ranking, 1 is perfect.'

    Empty where nothing is known of any.
    """
    explained: dict[str, str] = {}
    for measure in map(measure_of, measures):
        if measure.explained:
            explained[measure.family] = measure.explained
    parts = [f"{family}: {words}" for family, words in explained.items()]
    return f"{'; '.join(parts)}." if parts else ""
