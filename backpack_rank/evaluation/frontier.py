"""Curves of methods over their dial, and which of them another method beats.

A method is compared at the smallest alpha that was measured of it. It is *beaten* by another one,
as to effectiveness and one measure of bias, where the other

- has significantly less of the bias (paired randomisation test over queries, Holm's correction over
  all pairs of methods), and
- loses no effectiveness: the 95% interval of the difference of the two lies above minus the margin;

or where it is significantly more effective without more of the bias in the mean. A query's value is
its mean over the seeds, so the tests are about these rankers on other queries: how much another
training would change is told by the spread over seeds alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from backpack_rank.evaluation.bootstrap import bootstrap_intervals
from backpack_rank.evaluation.frontier_points import Point
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.several_rankings import mean_over_rankings
from backpack_rank.evaluation.significance import SIGNIFICANCE, compare, direction_of

MARGIN = 0.01
"""Share of the effectiveness that may be lost without a word."""
ROUNDING = 1e-6
"""Means that differ by less are the rounding of scores in single precision, and count as equal."""


@dataclass(frozen=True)
class Curve:
    """One method over its dial; :func:`curves_of` makes it.

    Attributes:
        method: its name.
        ranker: that it acts on.
        alphas: from 1, the ranker as it is, downwards. [A]
        seeds: of the trainings. [S]
        by_seed: values of each seed at each alpha. [A][S]
    """

    method: str
    ranker: str
    alphas: tuple[float, ...]
    seeds: tuple[int, ...]
    by_seed: tuple[tuple[PerQuery, ...], ...]

    def values(self, place: int = -1) -> PerQuery:
        """Of each query the mean over the seeds, at an alpha by number; default the last one."""
        return mean_over_rankings(self.by_seed[place])

    def spread(self, measure: str, place: int = -1) -> tuple[float, float]:
        """The means of the lowest and of the highest seed at an alpha."""
        means = [values.mean(measure) for values in self.by_seed[place]]
        return min(means), max(means)


def curves_of(
    points: Iterable[Point],
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Curve]:
    """The curves of the points of one collection.

    A method that turns a dial begins at alpha 1, with the ranker as it is. All curves have the same
    seeds, and of each measure the queries of which every method has a value at its smallest alpha:
    means over different seeds or queries could not be compared. AWRF_JS, for example, has no value
    where the first documents of a ranking are of no known group.

    Args:
        points: as of :class:`~backpack_rank.evaluation.frontier_points.PointFile`.
        methods: which are wanted, in order; those without points are left out. None: all.
        seeds: which are wanted; a method that lacks one of them is left out. None: those that
            every method has.
    """
    values: dict[tuple[str, float], dict[int, PerQuery]] = {}
    rankers: dict[str, str] = {}
    unchanged: dict[str, str] = {}
    points = list(points)
    if seeds is not None:
        incomplete = _without_a_seed(points, seeds)
        points = [point for point in points if point.method not in incomplete]
        points = [point for point in points if point.seed in seeds]
    for point in points:
        if methods is not None and point.method not in methods:
            continue
        values.setdefault((point.method, point.alpha), {})[point.seed] = point.values
        rankers[point.method] = point.ranker
        if point.alpha == 1:
            unchanged.setdefault(point.ranker, point.method)
    places: dict[str, list[tuple[str, float]]] = {}
    for method, alpha in sorted(values, key=lambda place: -place[1]):
        places.setdefault(method, []).append((method, alpha))
    for method, of_method in places.items():
        start = unchanged.get(rankers[method])
        _, largest_alpha = of_method[0]
        if largest_alpha != 1 and start is not None:
            of_method.insert(0, (start, 1.0))
    if not values:
        return []
    shared = tuple(sorted(set.intersection(*map(set, values.values()))))
    if not shared:
        return []
    curves = []
    for method in methods or places:
        if method not in places:
            continue
        by_seed = []
        for place in places[method]:
            by_seed.append(tuple(values[place][seed] for seed in shared))
        alphas = tuple(alpha for _, alpha in places[method])
        curves.append(Curve(method, rankers[method], alphas, shared, tuple(by_seed)))
    return _of_common_queries(curves)


def _without_a_seed(points: Iterable[Point], seeds: Sequence[int]) -> set[str]:
    """Methods of which a position of the dial was not measured with one of the seeds."""
    measured: dict[tuple[str, float], set[int]] = {}
    for point in points:
        measured.setdefault((point.method, point.alpha), set()).add(point.seed)
    return {method for (method, _), there in measured.items() if not there.issuperset(seeds)}


def _of_common_queries(curves: Sequence[Curve]) -> list[Curve]:
    common: dict[str, set[str]] = {}
    for curve in curves:
        for measure, by_query in curve.values().values.items():
            common[measure] = common.get(measure, set(by_query)) & set(by_query)
    of_common = []
    for curve in curves:
        by_seed = []
        for of_alpha in curve.by_seed:
            by_seed.append(tuple(_restricted(values, common) for values in of_alpha))
        of_common.append(replace(curve, by_seed=tuple(by_seed)))
    return of_common


def _restricted(values: PerQuery, query_ids: Mapping[str, set[str]]) -> PerQuery:
    """Values of each measure of its queries alone; without the measures that have none."""
    kept: dict[str, dict[str, float]] = {}
    for measure, by_query in values.values.items():
        wanted = query_ids.get(measure)
        if wanted:
            kept[measure] = {name: value for name, value in by_query.items() if name in wanted}
    return replace(values, values=kept)


def better_by(measure: str, difference: float) -> bool:
    """Whether a difference of deciding averages, one less the other, speaks for the one.

    One that is within :data:`ROUNDING` speaks for neither.
    """
    direction = direction_of(measure)
    return difference > ROUNDING if direction == "higher" else difference < -ROUNDING


def average_of(measure: str, values: PerQuery) -> float:
    """What decides between two systems: the mean, or its absolute value where 0 is best."""
    mean = values.mean(measure)
    return abs(mean) if direction_of(measure) == "zero" else mean


def on_the_frontier(curves: Sequence[Curve], effectiveness: str, bias: str) -> set[str]:
    """Methods that no other one equals or betters in both means, each at its smallest alpha."""
    figures: dict[str, tuple[float, float]] = {}
    for curve in curves:
        values = curve.values()
        if bias in values.values:
            # The higher, the better, both of them. To six places, as ROUNDING has it.
            less_bias = round(average_of(bias, values), 6)
            if direction_of(bias) != "higher":
                less_bias = -less_bias
            figures[curve.method] = values.mean(effectiveness), less_bias
    kept = set()
    for method, (gain, less_bias) in figures.items():
        is_dominated = False
        for other_gain, other_less_bias in figures.values():
            as_good = other_gain >= gain and other_less_bias >= less_bias
            same = (other_gain, other_less_bias) == (gain, less_bias)
            is_dominated = is_dominated or (as_good and not same)
        if not is_dominated:
            kept.add(method)
    return kept


def beaten_by(
    curves: Sequence[Curve], effectiveness: str, bias: str, margin: float = MARGIN
) -> Mapping[str, Sequence[str]]:
    """The methods that beat each method, by what the tests allow to say.

    ::

        beaten_by(curves, "nDCG@10", "swap change/std (swapped)")["uniform"]  # ['renditions']

    Args:
        curves: of one collection.
        effectiveness, bias: measures.
        margin: share of the effectiveness of the beaten method that may be lost.

    Returns:
        Methods that beat each of those that have the measure of bias; see the head of this module.
    """
    systems = {}
    for curve in curves:
        values = curve.values()
        if bias in values.values:
            systems[curve.method] = values
    if not systems:
        return {}
    beaten: dict[str, list[str]] = {method: [] for method in systems}
    tests: dict[str, dict[tuple[str, str], tuple[float, bool]]] = {}
    for compared in compare(systems, [effectiveness, bias]).measures:
        tests[compared.measure] = {}
        for test in compared.tests:
            if test.average == compared.average:
                real = test.p_holm < SIGNIFICANCE
                pair = test.first, test.second
                tests[compared.measure][pair] = test.difference, real
                tests[compared.measure][pair[::-1]] = -test.difference, real
    for method, values in systems.items():
        for other in systems:
            if other == method:
                continue
            gain, gain_is_real = tests[effectiveness][other, method]
            change, change_is_real = tests[bias][other, method]
            if better_by(bias, change) and change_is_real:
                allowed = margin * values.mean(effectiveness)
                low, _ = difference_interval(systems[other], values, effectiveness)
                # Of too few queries for an interval (NaN) nothing is said.
                if low >= -allowed:
                    beaten[method].append(other)
            elif gain > 0 and gain_is_real and not better_by(bias, -change):
                beaten[method].append(other)
    return beaten


def difference_interval(first: PerQuery, second: PerQuery, measure: str) -> tuple[float, float]:
    """The 95% interval of the mean difference over queries, first less second.

    ::

        low, high = difference_interval(renditions, unchanged, "nDCG@10")

    Returns:
        Its ends, NaN where there are too few queries for an interval.
    """
    queries = sorted(set(first.values[measure]) & set(second.values[measure]))
    differences = first.array(measure, queries) - second.array(measure, queries)
    low, high = bootstrap_intervals(differences[None])[0]
    return float(low), float(high)
