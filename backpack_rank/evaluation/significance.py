"""Which differences between systems are real: paired tests on the queries that all of them have.

Every test is two-sided and on the same queries for both systems; Holm's correction is over the
tests of one measure and one average that are made together (all pairs of :func:`compare`, all
systems of :func:`pairwise_against`).

Signed measures of bias are compared in three ways, because values of opposite sign cancel each
other in a mean: ``mean`` (do the systems lean differently), ``absolute_mean`` (is the mean of one
closer to 0; what the tables show) and ``mean_absolute`` (are the values of single queries closer to
0).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from backpack_rank.evaluation.bootstrap import RESAMPLES, SEED
from backpack_rank.evaluation.paired import (
    cohens_d,
    holm,
    observed_sums,
    randomisation,
    rank_biserial,
    rescale_differences,
    wilcoxon,
)
from backpack_rank.evaluation.results import PerQuery

SIGNIFICANCE = 0.05
"""Corrected p values below it are called significant."""

Direction: TypeAlias = Literal["higher", "lower", "zero", "none"]
"""What is better: a higher mean, a lower one, one closer to 0, or none (systems only differ)."""

Average: TypeAlias = Literal["mean", "absolute_mean", "mean_absolute"]
"""An average over queries, named as in :class:`~backpack_rank.evaluation.results.Estimate`."""


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
        p_holm: ``p_randomisation`` with Holm's correction over all tests of this measure and
            average made together.
        d_z: Cohen's d of the paired differences; infinite when all are equal and not 0, NaN for one
            query.
        rank_biserial: matched-pairs rank-biserial correlation, positive where first is mostly
            larger.

    Wilcoxon's test and the effect sizes look at differences of every query: of the signed values
    for ``mean`` and ``absolute_mean``, of the absolute values for ``mean_absolute``.
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
        direction: what is better.
        means: mean over the shared queries for every system, with its sign, in the order of the
            systems.
        tests: of every pair of systems; for the direction ``zero`` of all three averages.
    """

    measure: str
    direction: Direction
    means: tuple[float, ...]
    tests: tuple[PairedTest, ...]

    @property
    def average(self) -> Average:
        """What decides which of two systems is better, and is tested for the letters of a table."""
        return deciding_average(self.direction)


@dataclass(frozen=True)
class Comparison:
    """Systems side by side on the queries that all of them have, with tests of every pair.

    Attributes:
        systems: their labels, all different.
        measures: what was compared.
        queries: number of shared queries.
        where: the queries' collection and set, for a reader.
        lacking: for a system that lacks a value of queries that another system has, these queries;
            they are left out for all systems.
        level: a corrected p value below it is called significant.
    """

    systems: tuple[str, ...]
    measures: tuple[ComparedMeasure, ...]
    queries: int
    where: str = ""
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    level: float = SIGNIFICANCE


def deciding_average(direction: Direction) -> Average:
    """The average that says which of two systems is better.

    It is the absolute mean where closer to 0 is better.
    """
    return "absolute_mean" if direction == "zero" else "mean"


_SIGNED: tuple[Average, ...] = ("mean", "absolute_mean")
_DIRECTIONS: tuple[tuple[str, Direction], ...] = (
    (r"A?RaB\b.*", "zero"),
    (r"N?FaiRR\b.*", "higher"),
    (r"exposure\(neutral\).*", "higher"),
    (r"exposure\b.*", "none"),
    (r"\|.*", "lower"),  # a mean of absolute values, |gap|/std
    (r"(mean )?gap\b.*", "zero"),
    (r"rank shift\b.*", "zero"),
    (r"swap (tau|overlap)\b.*", "higher"),
    (r"swap\b.*", "lower"),
    (r"prefers neither\b.*", "higher"),
    (
        r"(nDCG|DCG|M?RR|M?AP|P|R|Recall|Success|Rprec|ERR|RBP|Bpref|infAP|SetP|SetR|SetF|SetAP|Judged)\b.*",
        "higher",
    ),
)


def compare(
    systems: Mapping[str, PerQuery],
    measures: Sequence[str] | None = None,
    directions: Mapping[str, Direction] | None = None,
    where: str = "",
    level: float = SIGNIFICANCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Use it to test all pairs of systems on every measure.

        comparison = compare({"BM25": first, "alpha=0": second}, ["nDCG@10"])
        comparison.measures[0].tests[0].p_holm

    Queries that not all systems have are left out and named in ``lacking``; a query that a run does
    not rank but that counts 0 has a value and stays in.

    Args:
        systems: per-query values by label.
        measures: names, default all of the first system.
        directions: what is better, for measures where :func:`direction_of` does not say it right.
        where: the queries' collection and set, for a reader.
        level: corrected p values below it are called significant.
        resamples: patterns of signs drawn; more are drawn where so few could not reach the level
            after correction.
        seed: of the draws.

    Raises:
        ValueError: no system or no measure, no shared query, or a value that is not finite.
        KeyError: a system without one of the measures.
    """
    shared, lacking = _shared(systems)
    names = list(next(iter(systems.values())).measures) if measures is None else list(measures)
    if not names:
        raise ValueError("no measure to compare the systems by")
    pairs = list(itertools.combinations(systems, 2))
    compared = []
    for measure in names:
        values = _values(systems, shared, measure)
        direction = (directions or {}).get(measure) or direction_of(measure)
        tests = _test_pairs(values, pairs, measure, direction, level, resamples, seed)
        means = tuple(float(values[label].mean()) for label in systems)
        compared.append(ComparedMeasure(measure, direction, means, tests))
    return Comparison(tuple(systems), tuple(compared), len(shared), where, lacking, level)


def pairwise_against(
    reference: str,
    systems: Mapping[str, PerQuery],
    measures: Sequence[str] | None = None,
    directions: Mapping[str, Direction] | None = None,
    level: float = SIGNIFICANCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[PairedTest, ...]:
    """Use it to test every other system against one reference, on every measure.

    Holm's correction is over these systems only.

    Args:
        reference: label of the system that the others are compared with; it is ``second`` in every
            test.
        systems: per-query values by label, the reference among them.
        measures, directions, level, resamples, seed: as in :func:`compare`.

    Raises:
        ValueError, KeyError: as :func:`compare`, or no system has the label of the reference.
    """
    if reference not in systems:
        raise KeyError(
            f"no system is called {reference!r}; there are: {', '.join(systems) or 'none'}"
        )
    shared, _ = _shared(systems)
    pairs = [(label, reference) for label in systems if label != reference]
    tests: list[PairedTest] = []
    for measure in systems[reference].measures if measures is None else measures:
        values = _values(systems, shared, measure)
        direction = (directions or {}).get(measure) or direction_of(measure)
        tests += _test_pairs(values, pairs, measure, direction, level, resamples, seed)
    return tuple(tests)


def direction_of(measure: str) -> Direction:
    """What is better for a measure, by its name; ``none`` for names that are not known."""
    for pattern, direction in _DIRECTIONS:
        if re.fullmatch(pattern, measure, re.IGNORECASE):
            return direction
    return "none"


def _shared(systems: Mapping[str, PerQuery]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Queries of all systems, and for each system that lacks some those that it lacks."""
    if not systems:
        raise ValueError("no system to compare")
    ids_by_system = {label: set(values.query_ids) for label, values in systems.items()}
    # In the order in which they first stand, so that drawn signs meet the same queries every time.
    query_ids: dict[str, None] = {}
    for values in systems.values():
        query_ids.update(dict.fromkeys(values.query_ids))
    in_all = set.intersection(*ids_by_system.values())
    shared = [query_id for query_id in query_ids if query_id in in_all]
    if not shared:
        counts = ", ".join(f"{label} has {len(ids)}" for label, ids in ids_by_system.items())
        raise ValueError(
            f"no query has values in all systems, so they cannot be compared: {counts}"
        )
    lacking: dict[str, tuple[str, ...]] = {}
    for label, ids in ids_by_system.items():
        missing = tuple(query_id for query_id in query_ids if query_id not in ids)
        if missing:
            lacking[label] = missing
    return shared, lacking


def _values(
    systems: Mapping[str, PerQuery], shared: Sequence[str], measure: str
) -> dict[str, np.ndarray]:
    """Values by label of the shared queries that have the measure in all systems. [n_queries]"""
    defined = list(shared)
    for label, of_system in systems.items():
        if measure not in of_system.values:
            there = ", ".join(of_system.measures) or "none"
            raise KeyError(f"{label} has no measure {measure!r}; it has: {there}")
        by_query = of_system.values[measure]
        defined = [query_id for query_id in defined if query_id in by_query]
    if not defined:
        raise ValueError(
            f"no query has a value of {measure} in all systems, so they cannot be compared by it"
        )
    values: dict[str, np.ndarray] = {}
    for label, of_system in systems.items():
        values[label] = of_system.array(measure, defined)
        not_finite = np.flatnonzero(~np.isfinite(values[label]))
        if len(not_finite):
            first = int(not_finite[0])
            raise ValueError(
                f"{measure} of {label} is {values[label][first]} for query {defined[first]!r}; "
                "tests need finite values"
            )
    return values


def _test_pairs(
    values: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    measure: str,
    direction: Direction,
    level: float,
    resamples: int,
    seed: int,
) -> tuple[PairedTest, ...]:
    if not pairs:
        return ()
    # The smallest p value that draws can give is 1 / (draws + 1); corrected, it must be well below
    # the level.
    draws = max(resamples, math.ceil(2 * len(pairs) / level))
    if direction != "zero":
        return _families(values, pairs, measure, ("mean",), draws, seed)
    absolute = {label: np.abs(array) for label, array in values.items()}
    return (
        *_families(values, pairs, measure, _SIGNED, draws, seed),
        *_families(absolute, pairs, measure, ("mean_absolute",), draws, seed),
    )


def _families(
    values: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    measure: str,
    averages: tuple[Average, ...],
    resamples: int,
    seed: int,
) -> tuple[PairedTest, ...]:
    """Tests of all pairs for each average, corrected within it.

    All averages use the same differences and the same draws.
    """
    first = np.stack([values[label] for label, _ in pairs])
    second = np.stack([values[label] for _, label in pairs])
    scaled = [rescale_differences(*arrays) for arrays in zip(first, second, strict=True)]
    differences = np.stack([difference for difference, _ in scaled])
    totals = np.stack([total for _, total in scaled])
    of_mean, of_absolute_mean = observed_sums(differences, totals)
    observed: list[np.ndarray] = []
    for average in averages:
        observed.append(of_absolute_mean if average == "absolute_mean" else of_mean)
    p_values = randomisation(differences, np.stack(observed, axis=1), resamples, seed)
    # What looks at the differences alone is the same for all averages, so it is computed once.
    p_wilcoxon = [wilcoxon(row) for row in differences]
    d_z = [cohens_d(row) for row in differences]
    correlation = [rank_biserial(row) for row in differences]
    tests = []
    for column, average in enumerate(averages):
        corrected = holm(p_values[:, column])
        for row, (label, other) in enumerate(pairs):
            mean, other_mean = float(first[row].mean()), float(second[row].mean())
            if average == "absolute_mean":
                mean, other_mean = abs(mean), abs(other_mean)
            test = PairedTest(
                measure=measure,
                average=average,
                first=label,
                second=other,
                queries=first.shape[1],
                difference=mean - other_mean,
                p_randomisation=float(p_values[row, column]),
                p_wilcoxon=p_wilcoxon[row],
                p_holm=float(corrected[row]),
                d_z=d_z[row],
                rank_biserial=correlation[row],
            )
            tests.append(test)
    return tuple(tests)
