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
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from backpack_rank.evaluation.bootstrap import RESAMPLES, SEED
from backpack_rank.evaluation.measure import Average, Direction, Undescribed
from backpack_rank.evaluation.measure_names import measure_of
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

log = logging.getLogger(__name__)
SIGNIFICANCE = 0.05
"""Corrected p values below it are called significant."""


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", Direction(self.direction))

    @property
    def average(self) -> Average:
        """What decides which of two systems is better, and is tested for the letters of a table."""
        return self.direction.average


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


def compare(
    systems: Mapping[str, PerQuery],
    measures: Sequence[str] | None = None,
    directions: Mapping[str, str] | None = None,
    where: str = "",
    level: float = SIGNIFICANCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Test all pairs of systems on every measure.

        comparison = compare({"BM25": first, "alpha=0": second}, ["nDCG@10"])
        comparison.measures[0].tests[0].p_holm

    Queries that not all systems have are left out and named in ``lacking``; a query that a run does
    not rank but that counts 0 has a value and stays in.

    Args:
        systems: per-query values by label.
        measures: names, default all of the first system.
        directions: what is better, for measures that are none of ours, see :func:`direction_of`.
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
    if measures is None:
        first_system = next(iter(systems.values()))
        measures = first_system.measures
    names = list(measures)
    if not names:
        raise ValueError("no measure to compare the systems by")
    pairs = list(itertools.combinations(systems, 2))
    compared = []
    for measure in names:
        values = _values(systems, shared, measure)
        direction = _direction(measure, directions)
        tests = _test_pairs(values, pairs, measure, direction, level, resamples, seed)
        means = tuple(float(values[label].mean()) for label in systems)
        compared.append(ComparedMeasure(measure, direction, means, tests))
    return Comparison(tuple(systems), tuple(compared), len(shared), where, lacking, level)


def pairwise_against(
    reference: str,
    systems: Mapping[str, PerQuery],
    measures: Sequence[str] | None = None,
    directions: Mapping[str, str] | None = None,
    level: float = SIGNIFICANCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[PairedTest, ...]:
    """Test every other system against one reference, on every measure.

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
    if measures is None:
        measures = systems[reference].measures
    tests: list[PairedTest] = []
    for measure in measures:
        values = _values(systems, shared, measure)
        direction = _direction(measure, directions)
        tests += _test_pairs(values, pairs, measure, direction, level, resamples, seed)
    return tuple(tests)


def direction_of(measure: str) -> Direction:
    """What is better for a measure, by its name; ``none`` for names that are not known."""
    return measure_of(measure).direction


def _direction(measure: str, directions: Mapping[str, str] | None) -> Direction:
    if directions and measure in directions:
        return Direction(directions[measure])
    described = measure_of(measure)
    if isinstance(described, Undescribed):
        log.warning("%s: nobody said what is better, so tests say only who differs", measure)
    return described.direction


def _shared(systems: Mapping[str, PerQuery]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Queries of all systems, and for each system that lacks some those that it lacks."""
    if not systems:
        raise ValueError("no system to compare")
    queries_by_system: dict[str, set[str]] = {}
    # In the order in which they first stand, so that drawn signs meet the same queries every time.
    all_queries: dict[str, None] = {}
    for label, values in systems.items():
        queries_by_system[label] = set(values.query_ids)
        all_queries.update(dict.fromkeys(values.query_ids))

    in_every_system = set.intersection(*queries_by_system.values())
    shared = [query_id for query_id in all_queries if query_id in in_every_system]
    if not shared:
        counts = []
        for label, queries in queries_by_system.items():
            counts.append(f"{label} has {len(queries)}")
        raise ValueError(
            f"no query has values in all systems, so they cannot be compared: {', '.join(counts)}"
        )

    lacking: dict[str, tuple[str, ...]] = {}
    for label, queries in queries_by_system.items():
        missing = tuple(query_id for query_id in all_queries if query_id not in queries)
        if missing:
            lacking[label] = missing
    return shared, lacking


def _values(
    systems: Mapping[str, PerQuery], shared: Sequence[str], measure: str
) -> dict[str, np.ndarray]:
    """Values by label of the shared queries that have the measure in all systems. [n_queries]"""
    query_ids = list(shared)
    for label, system in systems.items():
        if measure not in system.values:
            there = ", ".join(system.measures) or "none"
            raise KeyError(f"{label} has no measure {measure!r}; it has: {there}")
        by_query = system.values[measure]
        query_ids = [query_id for query_id in query_ids if query_id in by_query]
    if not query_ids:
        raise ValueError(
            f"no query has a value of {measure} in all systems, so they cannot be compared by it"
        )

    values_by_system: dict[str, np.ndarray] = {}
    for label, system in systems.items():
        values = system.array(measure, query_ids)
        not_finite = np.flatnonzero(~np.isfinite(values))
        if len(not_finite):
            first = int(not_finite[0])
            raise ValueError(
                f"{measure} of {label} is {values[first]} for query {query_ids[first]!r}; "
                "tests need finite values"
            )
        values_by_system[label] = values
    return values_by_system


def _test_pairs(
    values: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    measure: str,
    direction: Direction,
    level: float,
    resamples: int,
    seed: int,
) -> tuple[PairedTest, ...]:
    """Tests of all pairs on one measure, for every average that its direction asks for."""
    if not pairs:
        return ()
    # The smallest p value that draws can give is 1 / (draws + 1); corrected, it must be well below
    # the level.
    draws = max(resamples, math.ceil(2 * len(pairs) / level))
    if direction is not Direction.ZERO:
        return _families(values, pairs, measure, ("mean",), draws, seed)
    of_signed = _families(values, pairs, measure, ("mean", "absolute_mean"), draws, seed)
    absolute = {label: np.abs(array) for label, array in values.items()}
    of_absolute = _families(absolute, pairs, measure, ("mean_absolute",), draws, seed)
    return of_signed + of_absolute


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
    differences = np.empty_like(first)
    totals = np.empty_like(first)
    for row in range(len(pairs)):
        differences[row], totals[row] = rescale_differences(first[row], second[row])

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
        for row, (first_label, second_label) in enumerate(pairs):
            first_mean = float(first[row].mean())
            second_mean = float(second[row].mean())
            if average == "absolute_mean":
                first_mean, second_mean = abs(first_mean), abs(second_mean)
            test = PairedTest(
                measure=measure,
                average=average,
                first=first_label,
                second=second_label,
                queries=first.shape[1],
                difference=first_mean - second_mean,
                p_randomisation=float(p_values[row, column]),
                p_wilcoxon=p_wilcoxon[row],
                p_holm=float(corrected[row]),
                d_z=d_z[row],
                rank_biserial=correlation[row],
            )
            tests.append(test)
    return tuple(tests)
