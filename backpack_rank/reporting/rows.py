"""What a report is made of: systems, their measures, and the words that say how these were computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Values: TypeAlias = Mapping[str, Mapping[str, float]]
"""``{measure: {query id: value}}``"""

SIGNIFICANCE = 0.05
"""Corrected p values below it are called significant."""

Goal: TypeAlias = Literal["higher", "lower", "zero", "none"]
"""What is better: a higher or a lower mean, one closer to 0, or neither (then systems only differ)."""

Average: TypeAlias = Literal["mean", "absolute_mean", "mean_absolute"]
"""An average over queries, named as in :class:`Figure`."""


@dataclass(frozen=True)
class Figure:
    """One measure of one system over all queries.

    Attributes:
        mean: mean over queries, with its sign.
        mean_absolute: mean over queries of the absolute value. Signed values of different queries cancel each
            other in ``mean``, not here.
        low: lower end of the confidence interval of ``mean``, or None when there are too few queries for one.
        high: upper end of it.
        mean_absolute_low: lower end of the confidence interval of ``mean_absolute``, or None.
        mean_absolute_high: upper end of it.
    """

    mean: float
    mean_absolute: float
    low: float | None = None
    high: float | None = None
    mean_absolute_low: float | None = None
    mean_absolute_high: float | None = None

    @property
    def absolute_mean(self) -> float:
        """Absolute value of the mean: what a trade-off plot shows, 0 is best."""
        return abs(self.mean)

    @property
    def absolute_mean_interval(self) -> tuple[float, float] | None:
        """Absolute values that the interval of ``mean`` holds; from 0 on when 0 is inside."""
        if self.low is None or self.high is None:
            return None
        ends = sorted((abs(self.low), abs(self.high)))
        return (0.0 if self.low <= 0 <= self.high else ends[0]), ends[1]


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
        further: measures of other kinds, each on queries of its own: ``swap``, ``swapped documents``, ``wordings``.
    """

    label: str
    alpha: float | None = None
    effectiveness: Summary | None = None
    bias: Summary | None = None
    further: Mapping[str, Summary] = field(default_factory=dict)

    @property
    def blocks(self) -> dict[str, Summary]:
        """All that was measured, by kind."""
        own = {"effectiveness": self.effectiveness, "bias": self.bias}
        return {**{kind: block for kind, block in own.items() if block is not None}, **self.further}


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


@dataclass(frozen=True)
class PairedTest:
    """Two systems on the same queries, one measure.

    Attributes:
        measure: its name.
        average: what is compared: ``mean``, ``absolute_mean`` (the absolute value of the mean) or
            ``mean_absolute`` (the mean of the absolute values).
        first: label of a system.
        second: label of the other.
        queries: number of queries that both have.
        difference: of the averages, first minus second.
        p_randomisation: two-sided p value of the paired randomisation test of that difference.
        p_wilcoxon: two-sided p value of Wilcoxon's signed-rank test.
        p_holm: ``p_randomisation`` with Holm's correction over all tests of this measure and average made together.
        d_z: Cohen's d of the paired differences; infinite when all are equal and not 0, NaN for one query.
        rank_biserial: matched-pairs rank-biserial correlation, positive where first is mostly larger.

    Wilcoxon's test and the effect sizes look at differences of every query: of the signed values for ``mean`` and
    ``absolute_mean``, of the absolute values for ``mean_absolute``.
    """

    measure: str
    average: Average
    first: str
    second: str
    queries: int
    difference: float
    p_randomisation: float
    p_wilcoxon: float
    p_holm: float
    d_z: float
    rank_biserial: float


@dataclass(frozen=True)
class ComparedMeasure:
    """One measure of all systems of a comparison.

    Attributes:
        measure: its name.
        goal: what is better.
        means: mean over the shared queries for every system, with its sign, in the order of the systems.
        tests: of every pair of systems; for the goal ``zero`` of all three averages.
    """

    measure: str
    goal: Goal
    means: tuple[float, ...]
    tests: tuple[PairedTest, ...]

    @property
    def average(self) -> Average:
        """What decides which of two systems is better, and is tested for the letters of a table."""
        return deciding_average(self.goal)


@dataclass(frozen=True)
class Comparison:
    """Systems side by side on the queries that all of them have, with tests of every pair.

    Attributes:
        systems: their labels, all different.
        measures: what was compared.
        queries: number of shared queries.
        where: the queries' collection and set, for a reader.
        lacking: for a system that lacks a value of queries that another system has, these queries; they are left
            out for all systems.
        level: a corrected p value below it is called significant.
    """

    systems: tuple[str, ...]
    measures: tuple[ComparedMeasure, ...]
    queries: int
    where: str = ""
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    level: float = SIGNIFICANCE


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Attributes:
        mean: the mean over queries; None for a system that was not compared on this measure.
        best: whether no system is better.
        letters: of the systems that this one is significantly better than (or differs from).
    """

    mean: float | None
    best: bool = False
    letters: tuple[str, ...] = ()

    @property
    def figure(self) -> str:
        """The mean with 4 decimals."""
        return "-" if self.mean is None else f"{self.mean:.4f}"

    @property
    def raised(self) -> str:
        """The letters in one word, with commas where one of them is longer than a letter."""
        return ("," if any(len(letter) > 1 for letter in self.letters) else "").join(self.letters)


@dataclass(frozen=True)
class Grid:
    """A table of figures that fits a page.

    Attributes:
        title: what the figures are of.
        measures: headings of the columns.
        lines: (letter, system, one cell per measure).
    """

    title: str
    measures: tuple[str, ...]
    lines: tuple[tuple[str, str, tuple[Cell, ...]], ...]


def deciding_average(goal: Goal) -> Average:
    """The average that says which of two systems is better: the absolute mean where closer to 0 is better."""
    return "absolute_mean" if goal == "zero" else "mean"
