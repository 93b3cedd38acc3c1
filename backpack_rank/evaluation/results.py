"""Per-query values of measures, and every average that is taken of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        smallest, largest = sorted((abs(self.low), abs(self.high)))
        if self.low <= 0 <= self.high:
            smallest = 0.0
        return smallest, largest


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
        blocks: dict[str, Summary] = {}
        if self.effectiveness is not None:
            blocks["effectiveness"] = self.effectiveness
        if self.bias is not None:
            blocks["bias"] = self.bias
        return blocks | dict(self.further)

    def figure(self, measure: str) -> Estimate | None:
        """A measure of any kind; None where it has none."""
        for block in self.blocks.values():
            if measure in block.figures:
                return block.figures[measure]
        return None


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
    """Values of measures for each query: what every measure returns, and every average starts from.

    >>> values = PerQuery({"nDCG@10": {"q1": 0.5, "q2": 1.0}}, left_out=("q3",))
    >>> values.mean("nDCG@10")
    0.75
    >>> values.part(["q2", "q3"])
    PerQuery(values={'nDCG@10': {'q2': 1.0}}, left_out=('q3',), missing=())

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
        """Queries that have a value of any measure, in the order of the measure with most."""
        longest: Mapping[str, float] = max(self.values.values(), key=len, default={})
        query_ids = dict.fromkeys(longest)
        for by_query in self.values.values():
            query_ids.update(dict.fromkeys(by_query))
        return tuple(query_ids)

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """(measure, query id, value) of every value: the long form, for tables and files."""
        for measure, by_query in self.values.items():
            for query_id, value in by_query.items():
                yield measure, query_id, value

    def array(self, measure: str, query_ids: Iterable[str] | None = None) -> np.ndarray:
        """Values of a measure, float64 [queries].

        Args:
            measure: its name.
            query_ids: whose values, in this order; None: all queries of the measure.

        Raises:
            KeyError: no such measure; lists those that there are. Or a query without a value.
        """
        if measure not in self.values:
            there = ", ".join(self.values) or "none"
            raise KeyError(f"no measure {measure!r} here; there are: {there}")
        by_query = self.values[measure]
        if query_ids is None:
            return np.array(list(by_query.values()), dtype=np.float64)
        return np.array([by_query[query_id] for query_id in query_ids], dtype=np.float64)

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

    def part(self, query_ids: Iterable[str]) -> PerQuery:
        """Averages over some of the queries; their order stays.

        Args:
            query_ids: queries to keep, also those of ``left_out``; others than there are count
                nothing.
        """
        kept = set(query_ids)
        values: dict[str, dict[str, float]] = {}
        for measure, by_query in self.values.items():
            values[measure] = {
                query_id: value for query_id, value in by_query.items() if query_id in kept
            }
        left_out = tuple(query_id for query_id in self.left_out if query_id in kept)
        missing = tuple(query_id for query_id in self.missing if query_id in kept)
        return PerQuery(values, left_out, missing)

    def select_queries(self, query_ids: Iterable[str]) -> PerQuery:
        """Bring systems into one order of queries.

        A measure that lacks one of them goes on lacking it; ``left_out`` stays.

        Raises:
            KeyError: queries without values; names them.
        """
        wanted = tuple(query_ids)
        known = set(self.query_ids)
        unknown = [query_id for query_id in wanted if query_id not in known]
        if unknown:
            raise KeyError(f"{len(unknown)} queries have no values here, such as {unknown[:3]}")
        values: dict[str, dict[str, float]] = {}
        for measure, by_query in self.values.items():
            values[measure] = {
                query_id: by_query[query_id] for query_id in wanted if query_id in by_query
            }
        kept = set(wanted)
        missing = tuple(query_id for query_id in self.missing if query_id in kept)
        return PerQuery(values, self.left_out, missing)

    def with_measures(self, measures: Iterable[str]) -> PerQuery:
        """The part with these measures, in the order in which they stand here."""
        wanted = set(measures)
        values: dict[str, Mapping[str, float]] = {}
        for measure, by_query in self.values.items():
            if measure in wanted:
                values[measure] = by_query
        return replace(self, values=values)

    def summary(self) -> Summary:
        """The averages of every measure with their intervals and the counts of queries."""
        # Measures with equally many queries share the draws of their intervals: one product of
        # matrices serves them all.
        measures_by_length: dict[int, list[str]] = {}
        for measure, by_query in self.values.items():
            measures_by_length.setdefault(len(by_query), []).append(measure)
        estimates: dict[str, Estimate] = {}
        for measures in measures_by_length.values():
            estimates |= self._estimates(measures)
        # Back in the order of the tables.
        figures = {measure: estimates[measure] for measure in self.values}
        return Summary(
            figures=figures,
            queries=len(self.query_ids),
            left_out=len(self.left_out),
            missing=len(self.missing),
        )

    def _estimates(self, measures: Sequence[str]) -> dict[str, Estimate]:
        """Averages of measures that have equally many queries."""
        values = np.stack([self.array(measure) for measure in measures])
        absolute = np.abs(values)

        # Only measures with a negative value need a second interval: for all others, both means and
        # so both intervals are the same.
        signed = np.flatnonzero((values < 0).any(axis=1))
        drawn = bootstrap_intervals(np.concatenate([values, absolute[signed]]))
        intervals = drawn[: len(values)]
        absolute_intervals = intervals.copy()
        absolute_intervals[signed] = drawn[len(values) :]

        estimates = {}
        for row, measure in enumerate(measures):
            low, high = _ends(intervals[row]) or (None, None)
            absolute_low, absolute_high = _ends(absolute_intervals[row]) or (None, None)
            estimates[measure] = Estimate(
                mean=self.mean(measure),
                mean_absolute=self.mean_absolute(measure),
                low=low,
                high=high,
                mean_absolute_low=absolute_low,
                mean_absolute_high=absolute_high,
            )
        return estimates


def shared_measures(systems: Iterable[PerQuery]) -> list[str]:
    """Measures that all of these have, in the order of the first; none without systems."""
    shared: list[str] | None = None
    for values in systems:
        if shared is None:
            shared = list(values.measures)
        else:
            shared = [measure for measure in shared if measure in values.values]
    return shared or []


def check_finite(run: Mapping[str, Mapping[str, float]]) -> None:
    """Raise ``ValueError`` that names query and document of a score that is no finite number."""
    for query_id, scores in run.items():
        for doc_id, score in scores.items():
            if not math.isfinite(score):
                raise ValueError(
                    f"the score of query {query_id!r}, document {doc_id!r} is {score}; "
                    "it must be finite"
                )


def _ends(interval: np.ndarray) -> tuple[float, float] | None:
    """Both ends of a drawn interval; None where there were too few queries to draw from."""
    if np.isnan(interval).any():
        return None
    return float(interval[0]), float(interval[1])
