"""Per-query values of measures, and every average that is taken of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from backpack_rank.evaluation.bootstrap import LEVEL, bootstrap_intervals

Values: TypeAlias = Mapping[str, Mapping[str, float]]
"""``{measure: {query id: value}}``"""


@dataclass(frozen=True)
class Estimate:
    """One measure of one system over all queries.

    Attributes:
        mean: mean over queries, with its sign.
        mean_absolute: mean over queries of the absolute value. Signed values of different queries
            cancel each other in ``mean``, not here.
        low: lower end of the confidence interval of ``mean``, or None when there are too few
            queries for one.
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

    figures: Mapping[str, Estimate]
    queries: int
    left_out: int = 0
    missing: int = 0


@dataclass(frozen=True)
class SystemResult:
    """One line of the tables.

    Attributes:
        label: name of the system, such as ``BM25`` or ``alpha=0.5``.
        alpha: position of the dial; None for a system without one, which is then a reference (BM25,
            a run file).
        effectiveness: measures on the effectiveness set, or None when they were not computed.
        bias: measures on the bias set, or None when they were not computed.
        further: measures of other kinds, each on queries of its own: ``swap``, ``swapped
            documents``, ``wordings``.
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

    def figure(self, measure: str) -> Estimate | None:
        """A measure of any kind; None where it has none."""
        return next(
            (block.figures[measure] for block in self.blocks.values() if measure in block.figures),
            None,
        )


@dataclass(frozen=True)
class RunInfo:
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

    rows: tuple[SystemResult, ...]
    about: RunInfo = RunInfo()


@dataclass(frozen=True)
class PerQuery:
    """Values of measures for each query: what every measure returns.

    Attributes:
        values: ``{measure: {query id: value}}``. A measure may lack queries for which it is not
            defined, such as NFaiRR where no document would be the background.
        left_out: ids of queries that have no value (nothing relevant to find, nothing ranked to
            look at).
        missing: ids of queries without a ranking whose value is 0 for that reason; they are in
            ``values``.
    """

    values: Mapping[str, Mapping[str, float]]
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures, in order."""
        return tuple(self.values)

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Queries that have a value of any measure, in the order of the measure that has most of
        them.
        """
        most: Mapping[str, float] = max(self.values.values(), key=len, default={})
        return tuple(
            dict.fromkeys([*most, *(query_id for of in self.values.values() for query_id in of)])
        )

    def array(self, measure: str) -> np.ndarray:
        """Values of a measure, float64 [queries of the measure], in their order.

        Raises:
            KeyError: no such measure; lists those that there are.
        """
        if measure not in self.values:
            raise KeyError(
                f"no measure {measure!r} here; there are: {', '.join(self.values) or 'none'}"
            )
        return np.array(list(self.values[measure].values()), dtype=np.float64)

    def mean(self, measure: str) -> float:
        """Mean over queries; NaN without queries."""
        values = self.array(measure)
        return float(values.mean()) if len(values) else math.nan

    def absolute_mean(self, measure: str) -> float:
        """Absolute value of the mean over queries."""
        return abs(self.mean(measure))

    def mean_absolute(self, measure: str) -> float:
        """Mean over queries of the absolute values; NaN without queries."""
        values = np.abs(self.array(measure))
        return float(values.mean()) if len(values) else math.nan

    def interval(self, measure: str, level: float = LEVEL) -> tuple[float, float] | None:
        """Bootstrap confidence interval of the mean; None for fewer than two queries.

        See :func:`~backpack_rank.evaluation.bootstrap.bootstrap_intervals`.
        """
        return _ends(bootstrap_intervals(self.array(measure)[None], level)[0])

    def select_queries(self, query_ids: Iterable[str]) -> PerQuery:
        """The values of these queries, in this order; a measure that lacks one goes on lacking it.

        Raises:
            KeyError: queries without values; names them.
        """
        wanted = tuple(query_ids)
        known = set(self.query_ids)
        unknown = [query_id for query_id in wanted if query_id not in known]
        if unknown:
            raise KeyError(f"{len(unknown)} queries have no values here, such as {unknown[:3]}")
        kept = set(wanted)
        values = {
            name: {query_id: of[query_id] for query_id in wanted if query_id in of}
            for name, of in self.values.items()
        }
        return PerQuery(
            values, self.left_out, tuple(query_id for query_id in self.missing if query_id in kept)
        )

    def summary(self) -> Summary:
        """The averages of every measure with their intervals and the counts of queries, for a
        report.

        The draws of the intervals are the same for all measures.
        """
        by_length: dict[int, list[str]] = {}
        for measure, of in self.values.items():
            by_length.setdefault(len(of), []).append(measure)
        figures: dict[str, Estimate] = {}
        for measures in by_length.values():
            figures |= self._estimates(measures)
        ordered = {measure: figures[measure] for measure in self.values}
        return Summary(ordered, len(self.query_ids), len(self.left_out), len(self.missing))

    def _estimates(self, measures: Sequence[str]) -> dict[str, Estimate]:
        """Averages of measures that have equally many queries."""
        values = np.stack([self.array(measure) for measure in measures])
        absolute = np.abs(values)
        # Where no value is negative, both means and so both intervals are the same.
        signed = np.flatnonzero((values < 0).any(axis=1))
        ends = bootstrap_intervals(np.concatenate([values, absolute[signed]]))
        absolute_ends = ends[: len(values)].copy()
        absolute_ends[signed] = ends[len(values) :]
        figures = {}
        for row, measure in enumerate(measures):
            low, high = _ends(ends[row]) or (None, None)
            absolute_low, absolute_high = _ends(absolute_ends[row]) or (None, None)
            averages = (self.mean(measure), self.mean_absolute(measure))
            figures[measure] = Estimate(*averages, low, high, absolute_low, absolute_high)
        return figures


def check_finite(run: Mapping[str, Mapping[str, float]]) -> None:
    """Raise ``ValueError`` that names query and document of a score that is no finite number."""
    for query_id, scores in run.items():
        for doc_id, score in scores.items():
            if not math.isfinite(score):
                raise ValueError(
                    f"the score of query {query_id!r}, document {doc_id!r} is {score}; it must be "
                    "finite"
                )


def _ends(interval: np.ndarray) -> tuple[float, float] | None:
    return None if np.isnan(interval).any() else (float(interval[0]), float(interval[1]))
