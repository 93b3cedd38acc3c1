"""Measures and their figures in words, for charts and pages."""

from __future__ import annotations

import math
from collections.abc import Iterable

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
    "|gap|/std": "score gap in standard deviations",
    "swap change/std": "swap change in standard deviations",
}
_EXPLAINED = {
    "nDCG": "quality of the ranking, 1 is perfect",
    "MRR": "1 / rank of the first relevant document, 1 is perfect",
    "ARaB": "how far the words of one group prevail, high ranks counting more, 0 is even",
    "RaB": "how far the words of one group prevail, 0 is even",
    "NFaiRR": "neutral documents at high ranks, 1 is best",
    "|gap|/std": "distance of male and female wordings' scores in standard deviations, 0 is none",
    "swap change/std": (
        "how much a score changes when the words of one group are swapped for the other's, "
        "in standard deviations, 0 is not at all"
    ),
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
    ('swap change in standard deviations', 'nDCG@10')
    """
    name = shown_name(measure)
    return _words_of(name) or name


def shown_name(measure: str) -> str:
    """A measure as tables and charts name it, without what it was measured on."""
    return measure.replace(" (swapped)", "")


def measures_explained(measures: Iterable[str]) -> str:
    """What the measures of a table say and where they are best, each family once.

    >>> measures_explained(["nDCG@10", "nDCG@20", "some measure"])
    'nDCG: quality of the ranking, 1 is perfect.'

    Empty where nothing is known of any.
    """
    explained: dict[str, str] = {}
    for measure in measures:
        name = shown_name(measure)
        family = name if name in _EXPLAINED else _family(name)
        if family in _EXPLAINED:
            explained[family] = _EXPLAINED[family]
    parts = [f"{family}: {words}" for family, words in explained.items()]
    return f"{'; '.join(parts)}." if parts else ""


def _words_of(name: str) -> str | None:
    """Of a measure, whatever its magnitude and cut-off."""
    return _IN_WORDS.get(name) or _IN_WORDS.get(_family(name))


def _family(name: str) -> str:
    """A measure's name without magnitude and cut-off."""
    return name.partition("(")[0].partition("@")[0]
