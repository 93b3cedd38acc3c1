"""What a report is made of: systems, their measures, and the words that say how these were computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Values: TypeAlias = Mapping[str, Mapping[str, float]]
"""``{measure: {query id: value}}``"""


@dataclass(frozen=True)
class Figure:
    """One measure of one system over all queries.

    Attributes:
        mean: mean over queries, with its sign.
        mean_absolute: mean over queries of the absolute value. Signed values of different queries cancel each
            other in ``mean``, not here.
        low: lower end of the confidence interval of ``mean``, or None when there are too few queries for one.
        high: upper end of it.
    """

    mean: float
    mean_absolute: float
    low: float | None = None
    high: float | None = None

    @property
    def absolute_mean(self) -> float:
        """Absolute value of the mean: what a trade-off plot shows, 0 is best."""
        return abs(self.mean)


@dataclass(frozen=True)
class Summary:
    """All measures of one system on one set of queries.

    Attributes:
        figures: by measure name, in the order in which they are shown.
        queries: number of queries that the means are taken over.
        left_out: queries that have no value and count in no mean.
        missing: queries without a ranking that count 0; they are part of ``queries``.
    """

    figures: Mapping[str, Figure]
    queries: int
    left_out: int = 0
    missing: int = 0


@dataclass(frozen=True)
class SystemRow:
    """One line of the tables.

    Attributes:
        label: name of the system, such as ``BM25`` or ``alpha=0.5``.
        alpha: position of the dial; None for a system without one, which is then a reference (BM25, a run file).
        effectiveness: measures on the effectiveness set, or None when they were not computed.
        bias: measures on the bias set, or None when they were not computed.
    """

    label: str
    alpha: float | None = None
    effectiveness: Summary | None = None
    bias: Summary | None = None


@dataclass(frozen=True)
class About:
    """How the figures of a report came about; empty where it does not apply.

    Attributes:
        effectiveness_set: name of the collection that effectiveness was measured on.
        bias_set: name of the collection and query set that bias was measured on.
        alpha: position of the dial of this evaluation, None without a model.
        policy: the policy that the dial drives.
        preset: name of the bias measures' preset (``default``, ``rekabsaz2020``).
        lexicon: word list of the bias measures.
        tokenizer: how documents were split into words for them.
        sign: their sign, such as ``male_minus_female``.
        sign_in_words: the same as a sentence for a reader.
        notes: further sentences for a reader, such as what was left out and why.
    """

    effectiveness_set: str = ""
    bias_set: str = ""
    alpha: float | None = None
    policy: str = ""
    preset: str = ""
    lexicon: str = ""
    tokenizer: str = ""
    sign: str = ""
    sign_in_words: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Systems side by side, in the order in which they are shown, and how they were measured."""

    rows: tuple[SystemRow, ...]
    about: About = About()
