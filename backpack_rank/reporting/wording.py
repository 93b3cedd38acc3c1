"""Measures and their figures in words, for charts and pages."""

from __future__ import annotations

import math

from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting.report_tables import split_measure
from backpack_rank.reporting.table import NONE, number

AS_IT_IS = "the ranker as it is"
"""What a page calls the ranker at alpha=1."""
UNBIASED_AT_ZERO = ("RaB", "ARaB")
"""How measures begin that are 0 without bias."""
_IN_WORDS = {
    "RaB": "rank bias",
    "ARaB": "average rank bias",
    "NFaiRR": "neutrality of the ranking",
    "|gap|/std": "score gap / spread",
    "swap change/std": "swap change / spread",
}


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


def axis_title(measure: str) -> str:
    """A measure with its name in words, and where it is unbiased.

    >>> axis_title("ARaB(tf)@10")
    'ARaB(tf)@10, average rank bias (0 is unbiased)'
    """
    title = measure
    words = _words_of(split_measure(measure)[0])
    if words is not None:
        title += f", {words}"
    if measure.startswith(UNBIASED_AT_ZERO):
        title += " (0 is unbiased)"
    return title


def measure_in_words(measure: str) -> str:
    """A measure in words, or its name where there are none.

    >>> measure_in_words("swap change/std (swapped)"), measure_in_words("nDCG@10")
    ('swap change / spread', 'nDCG@10')
    """
    name = measure.replace(" (swapped)", "")
    return _words_of(name) or name


def _words_of(name: str) -> str | None:
    """Of a measure, whatever its magnitude and cut-off."""
    family = name.partition("(")[0].partition("@")[0]
    return _IN_WORDS.get(name) or _IN_WORDS.get(family)
