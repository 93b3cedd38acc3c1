"""Intervals and paired tests: by hand, by scipy, by counting everything."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from backpack_rank.evaluation.bootstrap import bootstrap_intervals
from backpack_rank.evaluation.paired import cohens_d, holm, randomisation, rank_biserial, wilcoxon
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.significance import (
    PairedTest,
    compare,
    direction_of,
    pairwise_against,
)


def per_query(values, measure: str = "nDCG@10") -> PerQuery:
    return PerQuery({measure: {f"q{number}": float(value) for number, value in enumerate(values)}})


def compared(first, second) -> PairedTest:
    """The one test of two systems."""
    (test,) = compare({"first": per_query(first), "second": per_query(second)}).measures[0].tests
    return test


def skewed(number: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, 1.0, number)


# --- bootstrap


def test_intervals_are_scipys_bca_intervals_within_the_error_of_the_draws():
    tied = np.array([1.0] * 3 + [0.0] * 13)
    for values in (
        skewed(15),
        -skewed(40, 4),
        np.random.default_rng(5).normal(0.1, 1.0, 200),
        tied,
    ):
        low, high = bootstrap_intervals(values[None], resamples=40_000, seed=1)[0]
        theirs = stats.bootstrap(
            (values,), np.mean, n_resamples=40_000, rng=np.random.default_rng(99), method="BCa"
        )
        expected = theirs.confidence_interval
        assert (low, high) == pytest.approx(
            tuple(expected), abs=0.03 * (expected.high - expected.low)
        )


def test_the_level_is_the_share_of_intervals_that_hold_the_true_mean():
    samples = np.random.default_rng(0).exponential(1.0, (600, 40))
    for level in (0.8, 0.95):
        ends = bootstrap_intervals(samples, level, resamples=2_000)
        covered = ((ends[:, 0] <= 1) & (ends[:, 1] >= 1)).mean()
        assert covered == pytest.approx(level, abs=0.04)


def test_a_higher_level_gives_wider_intervals_and_the_seed_decides_them():
    values = skewed(30)[None]
    narrow, wide = bootstrap_intervals(values, 0.8)[0], bootstrap_intervals(values, 0.99)[0]
    assert wide[0] < narrow[0] < values.mean() < narrow[1] < wide[1]
    assert (bootstrap_intervals(values, seed=7) == bootstrap_intervals(values, seed=7)).all()
    assert (bootstrap_intervals(values, seed=7) != bootstrap_intervals(values, seed=8)).any()


def test_a_measure_has_the_same_interval_alone_and_beside_others():
    values = {name: dict(enumerate(skewed(25, seed))) for seed, name in enumerate(("a", "b", "c"))}
    result = PerQuery(
        {name: {f"q{q}": value for q, value in of.items()} for name, of in values.items()}
    )
    for name, figure in result.summary().figures.items():
        assert (figure.low, figure.high) == pytest.approx(result.interval(name), abs=1e-12)


def test_the_mean_of_absolute_values_has_an_interval_of_its_own():
    values = np.random.default_rng(2).normal(0.05, 1.0, 60)
    figure = per_query(values).summary().figures["nDCG@10"]
    assert (figure.low, figure.high) == pytest.approx(
        tuple(bootstrap_intervals(values[None])[0]), abs=1e-12
    )
    absolute = tuple(bootstrap_intervals(np.abs(values)[None])[0])
    assert (figure.mean_absolute_low, figure.mean_absolute_high) == pytest.approx(
        absolute, abs=1e-12
    )
    positive = per_query(np.abs(values)).summary().figures["nDCG@10"]
    assert (positive.low, positive.high) == (
        positive.mean_absolute_low,
        positive.mean_absolute_high,
    )


def test_ties_that_differ_by_rounding_do_not_move_the_interval():
    grades = np.array([0, 0, 1, 3, 1, 0, 2, 7, 1, 0, 3, 3])
    unscaled, tenth = (
        bootstrap_intervals(grades[None])[0],
        bootstrap_intervals(grades[None] / 10)[0],
    )
    assert tenth * 10 == pytest.approx(unscaled, abs=1e-9)


def test_intervals_of_one_query_of_equal_values_and_of_values_without_a_number():
    assert per_query([0.5]).interval("nDCG@10") is None
    figure = per_query([0.5]).summary().figures["nDCG@10"]
    assert (figure.low, figure.high, figure.mean_absolute_low) == (None, None, None)
    assert per_query([-0.1] * 7).interval("nDCG@10") == (-0.1, -0.1)
    equal = per_query([-0.1] * 7).summary().figures["nDCG@10"]
    assert (equal.low, equal.high) == (-0.1, -0.1)
    assert (equal.mean_absolute_low, equal.mean_absolute_high) == (0.1, 0.1)
    ends = bootstrap_intervals(np.array([[1.0, np.nan, 2.0], [1.0, 1.5, 2.0]]))
    assert np.isnan(ends[0]).all()
    assert np.isfinite(ends[1]).all()
    assert PerQuery({}).summary().figures == {}
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_intervals(np.zeros((1, 3)), level=95)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_intervals_lie_between_the_smallest_and_the_largest_value(values):
    low, high = bootstrap_intervals(np.array([values]), resamples=200)[0]
    assert min(values) <= low <= high <= max(values)


def test_a_part_of_the_queries_keeps_their_values_and_says_which_are_unknown():
    values = PerQuery({"m": {"q1": 1.0, "q2": 0.0, "q3": 0.5}}, left_out=("q9",), missing=("q2",))
    part = values.select_queries(["q3", "q2"])
    assert part.values == {"m": {"q3": 0.5, "q2": 0.0}}
    assert (part.left_out, part.missing) == (("q9",), ("q2",))
    assert values.select_queries(["q1"]).missing == ()
    with pytest.raises(KeyError, match="q8"):
        values.select_queries(["q1", "q8"])


# --- randomisation


def all_swaps(first, second, statistic) -> float:
    """Two-sided p value by counting every way to swap the values of queries."""
    observed, reached, count = abs(statistic(first, second)), 0, 0
    for swaps in itertools.product((False, True), repeat=len(first)):
        a = [y if swap else x for x, y, swap in zip(first, second, swaps, strict=True)]
        b = [x if swap else y for x, y, swap in zip(first, second, swaps, strict=True)]
        reached += abs(statistic(a, b)) >= observed - 1e-12
        count += 1
    return reached / count


def mean_difference(first, second) -> float:
    return math.fsum(first) / len(first) - math.fsum(second) / len(second)


def absolute_mean_difference(first, second) -> float:
    return abs(math.fsum(first) / len(first)) - abs(math.fsum(second) / len(second))


def p_of(differences, resamples: int = 10_000, seed: int = 0) -> float:
    array = np.array([differences], dtype=float)
    return float(
        randomisation(array, np.abs(array.sum(axis=1, keepdims=True)), resamples, seed)[0, 0]
    )


def test_randomisation_worked_by_hand():
    assert p_of([1, 2, 3]) == 2 / 8  # only +++ and --- reach 6
    assert p_of([1, 1, 1, -1]) == 10 / 16  # all but the 6 patterns of sum 0
    assert p_of([0, 0, 1]) == 1.0
    assert p_of([0.0, 0.0]) == 1.0
    assert p_of([1] * 10 + [0] * 500) == 2 / 1024  # queries without a difference tell nothing


def test_randomisation_is_scipys_where_everything_is_counted():
    rng = np.random.default_rng(1)
    for number in (2, 5, 11):
        first, second = rng.normal(0.4, 1.0, number), rng.normal(0.0, 1.0, number)
        theirs = stats.permutation_test(
            (first, second),
            lambda a, b, axis: (a - b).mean(axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
        )
        ours = compared(first, second)
        assert ours.p_randomisation == pytest.approx(theirs.pvalue, abs=1e-12)


def test_drawn_patterns_give_the_p_value_of_all_patterns_within_the_error_of_the_draws():
    differences = np.random.default_rng(4).normal(0.4, 1.0, 16)
    patterns = 2 * (np.arange(2**16)[:, None] >> np.arange(16) & 1) - 1
    exact = (np.abs(patterns @ differences) >= abs(differences.sum()) - 1e-9).mean()
    assert 0.02 < exact < 0.5
    drawn = [p_of(differences, 20_000, seed) for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    assert drawn == pytest.approx([exact] * 2, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


def test_drawn_p_values_are_never_zero():
    assert p_of([1.0] * 60, resamples=999) == 1 / 1000


def test_p_values_of_random_differences_are_uniform():
    rng = np.random.default_rng(8)
    differences = rng.normal(0, 1, (800, 40))
    p_values = randomisation(differences, np.abs(differences.sum(axis=1, keepdims=True)), 2_000, 0)
    assert (p_values < 0.05).mean() == pytest.approx(0.05, abs=0.025)
    assert (p_values < 0.5).mean() == pytest.approx(0.5, abs=0.06)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_every_average_is_tested_as_by_counting_all_swaps(seed):
    source = random.Random(seed)
    # Tenths give ties that binary numbers miss.
    first = [source.randint(-3, 4) / 10 for _ in range(7)]
    second = [source.randint(-3, 4) / 10 for _ in range(7)]
    systems = {"a": per_query(first, "RaB(tf)@5"), "b": per_query(second, "RaB(tf)@5")}
    test_by_average = {test.average: test for test in pairwise_against("b", systems)}
    assert set(test_by_average) == {"mean", "absolute_mean", "mean_absolute"}
    absolute = [abs(value) for value in first], [abs(value) for value in second]
    expected = {
        "mean": (mean_difference(first, second), all_swaps(first, second, mean_difference)),
        "absolute_mean": (
            absolute_mean_difference(first, second),
            all_swaps(first, second, absolute_mean_difference),
        ),
        "mean_absolute": (mean_difference(*absolute), all_swaps(*absolute, mean_difference)),
    }
    for average, (difference, p_value) in expected.items():
        assert test_by_average[average].difference == pytest.approx(difference, abs=1e-12)
        assert test_by_average[average].p_randomisation == pytest.approx(p_value, abs=1e-12)


def test_systems_that_lean_to_opposite_sides_differ_though_neither_is_closer_to_zero():
    rng = np.random.default_rng(0)
    first = rng.normal(0.5, 0.2, 50)
    systems = {"a": per_query(first, "RaB(tf)@5"), "b": per_query(-first, "RaB(tf)@5")}
    test_by_average = {test.average: test for test in pairwise_against("b", systems)}
    assert test_by_average["mean"].p_randomisation < 0.001
    assert test_by_average["absolute_mean"].p_randomisation == 1.0
    assert test_by_average["mean_absolute"].p_randomisation == 1.0


# --- Wilcoxon, effect sizes, Holm


def test_wilcoxon_is_scipys_and_sees_ties_that_rounding_hides():
    first, second = (
        np.array([0.9, 0.4, 0.35, 0.8, 0.1, 0.5]),
        np.array([0.3, 0.1, 0.4, 0.1, 0.1, 0.45]),
    )
    comparison = compared(first, second)
    assert comparison.p_wilcoxon == pytest.approx(stats.wilcoxon([60, 30, -5, 70, 5]).pvalue)
    # Ranks 4, 3, 1.5, 5, 1.5; R- is 1.5: of 32 patterns of signs, {}, {1.5} and {1.5} give no more.
    assert comparison.p_wilcoxon == pytest.approx(2 * 3 / 32)
    assert wilcoxon(np.zeros(5)) == 1.0


@pytest.mark.parametrize("number", [1, 2, 5, 13, 14, 37, 50])
def test_wilcoxon_is_scipys_exact_test_where_nothing_ties(number):
    differences = np.random.default_rng(number).normal(0.3, 1.0, number)
    assert wilcoxon(differences) == pytest.approx(
        stats.wilcoxon(differences, method="exact").pvalue, rel=1e-9
    )


@pytest.mark.parametrize("number", [3, 8, 14, 16])
def test_wilcoxon_with_ties_counts_all_patterns_of_signs(number):
    rng = np.random.default_rng(number)
    differences = rng.integers(1, 4, number) * np.where(rng.random(number) < 0.3, -1.0, 1.0)
    magnitudes = np.abs(differences)
    ranks = [(magnitudes < m).sum() + ((magnitudes == m).sum() + 1) / 2 for m in magnitudes]
    expected = sum(ranks) / 2  # of R+ over all patterns
    observed = abs(
        sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0) - expected
    )
    patterns = np.arange(2**number)[:, None] >> np.arange(number) & 1
    share = (np.abs(patterns @ np.array(ranks) - expected) >= observed).mean()
    assert wilcoxon(differences) == pytest.approx(share, rel=1e-12)
    assert wilcoxon(np.concatenate([differences, [0.0, 0.0]])) == wilcoxon(differences)


def test_wilcoxon_of_more_than_fifty_differences_is_the_normal_approximation():
    differences = np.round(np.random.default_rng(2).normal(0.1, 1.0, 120), 1)
    changed = differences[differences != 0]
    ranks = stats.rankdata(np.abs(changed))
    number = len(changed)
    _, ties = np.unique(ranks, return_counts=True)
    variance = number * (number + 1) * (2 * number + 1) / 24 - (ties**3 - ties).sum() / 48
    z = (ranks[changed > 0].sum() - number * (number + 1) / 4) / math.sqrt(variance)
    assert wilcoxon(differences) == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-9)


def test_effect_sizes_worked_by_hand():
    differences = np.array([0.2, 0.4, -0.1, 0.0])
    # mean 0.125; squares of deviations .005625, .075625, .050625, .015625 sum to .1475
    assert cohens_d(differences) == pytest.approx(0.125 / math.sqrt(0.1475 / 3))
    assert rank_biserial(differences) == pytest.approx((2 + 3 - 1) / 6)
    assert rank_biserial(-differences) == pytest.approx(-4 / 6)
    assert rank_biserial(np.array([1.0, 1.0, -1.0])) == pytest.approx((2 + 2 - 2) / 6)
    assert (cohens_d(np.zeros(3)), rank_biserial(np.zeros(3))) == (0.0, 0.0)
    assert cohens_d(np.full(3, -0.1)) == -math.inf
    assert math.isnan(cohens_d(np.array([0.1])))


def test_holm_worked_by_hand():
    # .005 x 4, .01 x 3, .03 x 2, .04 x 1, the last not below the one before
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]).tolist() == [1.0, 1.0]
    assert holm([0.02]).tolist() == [0.02]
    assert holm([]).tolist() == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.2))
def test_holm_keeps_the_order_never_lowers_and_rejects_as_the_step_down_procedure(p_values, level):
    corrected = holm(p_values)
    assert all(new >= raw for new, raw in zip(corrected, p_values, strict=True))
    assert corrected.max() <= 1
    for i, j in itertools.combinations(range(len(p_values)), 2):
        if p_values[i] <= p_values[j]:
            assert corrected[i] <= corrected[j] or p_values[i] == p_values[j]
    rejected = 0
    for step, raw in enumerate(sorted(p_values)):
        if raw * (len(p_values) - step) > level:
            break
        rejected += 1
    assert (corrected <= level).sum() == rejected


# --- systems


def three_systems(measure: str = "nDCG@10", queries: int = 60) -> dict[str, PerQuery]:
    rng = np.random.default_rng(11)
    base = rng.uniform(0.2, 0.6, queries)
    return {
        "low": per_query(base, measure),
        "same": per_query(
            base + rng.normal(0, 0.001, queries) * (rng.random(queries) < 0.5), measure
        ),
        "high": per_query(base + rng.uniform(0.05, 0.2, queries), measure),
    }


def test_all_pairs_are_tested_and_corrected_within_a_measure():
    systems = three_systems()
    comparison = compare(systems, where="set")
    (compared,) = comparison.measures
    assert [(test.first, test.second) for test in compared.tests] == [
        ("low", "same"),
        ("low", "high"),
        ("same", "high"),
    ]
    assert (comparison.systems, comparison.queries, comparison.where) == (
        ("low", "same", "high"),
        60,
        "set",
    )
    assert (compared.direction, compared.average, dict(comparison.lacking)) == (
        "higher",
        "mean",
        {},
    )
    assert compared.means == pytest.approx([of.mean("nDCG@10") for of in systems.values()])
    raw = [test.p_randomisation for test in compared.tests]
    assert raw[1] == raw[2] == 1 / 10_001
    assert raw[0] > 0.05
    # p / 10,001 twice: the smaller of equal ones times 3, the other as large.
    assert [test.p_holm for test in compared.tests] == pytest.approx(
        [raw[0], 3 * raw[1], 3 * raw[1]]
    )
    first, last = systems["low"].array("nDCG@10"), systems["high"].array("nDCG@10")
    test = compared.tests[1]
    assert test.difference == pytest.approx(first.mean() - last.mean())
    assert test.d_z == pytest.approx((first - last).mean() / (first - last).std(ddof=1))
    assert test.rank_biserial == -1.0
    assert test.p_wilcoxon == pytest.approx(stats.wilcoxon(first - last).pvalue, rel=1e-6)


def test_against_a_reference_the_family_is_the_other_systems():
    tests = pairwise_against("same", three_systems())
    assert [(test.first, test.second) for test in tests] == [("low", "same"), ("high", "same")]
    assert tests[1].p_holm == pytest.approx(2 * tests[1].p_randomisation)
    assert tests[1].difference > 0
    with pytest.raises(KeyError, match="no system is called 'other'; there are: low, same, high"):
        pairwise_against("other", three_systems())


def test_a_measure_of_bias_is_compared_by_its_distance_from_zero_a_share_by_its_mean():
    systems = {
        label: PerQuery(
            {
                "RaB(tf)@10": dict(of.values["nDCG@10"]),
                "Exposure(male)@10": dict(of.values["nDCG@10"]),
            }
        )
        for label, of in three_systems(queries=20).items()
    }
    bias, share = compare(systems).measures
    assert (bias.direction, bias.average, share.direction, share.average) == (
        "zero",
        "absolute_mean",
        "none",
        "mean",
    )
    assert {test.average for test in bias.tests} == {"mean", "absolute_mean", "mean_absolute"}
    assert {test.average for test in share.tests} == {"mean"}
    assert (
        compare(systems, ["RaB(tf)@10"], {"RaB(tf)@10": "lower"}).measures[0].direction == "lower"
    )

    def family(average: str) -> list[float]:
        return [test.p_holm for test in bias.tests if test.average == average]

    # All values are positive.
    assert family("mean") == family("absolute_mean") == family("mean_absolute")


@pytest.mark.parametrize(
    ("direction", "measures"),
    [
        ("higher", ["nDCG@10", "MRR@10", "R@100", "P(rel=2)@5", "AP", "Success@5"]),
        ("higher", ["FaiRR@10", "NFaiRR@5", "Exposure(neutral)@10", "swap tau", "prefers neither"]),
        ("higher", ["AWRF_JS@20", "EE-R@20", "ExposureRatio@20", "ExposurePerRelevance@20"]),
        ("zero", ["RaB(tf)@10", "ARaB(bool,male)@5", "gap", "gap/std", "rank shift"]),
        ("lower", ["|gap|/std", "swap change", "swap max shift (swapped)"]),
        ("lower", ["EE-L@20", "EE-D@20", "NDKL@20"]),
        ("none", ["Exposure(male)@10", "prefers male", "unheard of", "Rabbit"]),
    ],
)
def test_what_is_better_is_told_by_the_name(direction, measures):
    directions = {measure: direction_of(measure) for measure in measures}
    assert directions == dict.fromkeys(measures, direction)


def test_queries_that_a_system_lacks_are_named_and_left_out_for_all():
    systems = {
        "a": PerQuery({"MRR@10": {"q1": 1.0, "q2": 0.0, "q3": 0.5}}),
        "b": PerQuery({"MRR@10": {"q3": 0.0, "q1": 0.5}}),
        "c": PerQuery({"MRR@10": {"q1": 0.0, "q3": 1.0, "q4": 1.0}}),
    }
    comparison = compare(systems)
    assert comparison.queries == 2
    assert comparison.lacking == {"a": ("q4",), "b": ("q2", "q4"), "c": ("q2",)}
    assert comparison.measures[0].means == pytest.approx((0.75, 0.25, 0.5))
    assert [test.difference for test in comparison.measures[0].tests] == pytest.approx(
        [0.5, 0.25, -0.25]
    )
    assert comparison.measures[0].tests[0].queries == 2


def test_equal_systems_do_not_differ():
    test = compared(skewed(20), skewed(20))
    assert (test.p_randomisation, test.p_wilcoxon, test.p_holm) == (1.0, 1.0, 1.0)
    assert (test.difference, test.d_z, test.rank_biserial) == (0.0, 0.0, 0.0)
    rounded = compared([0.1 + 0.2] * 9, [0.3] * 9)
    assert (rounded.p_randomisation, rounded.p_wilcoxon, rounded.d_z) == (1.0, 1.0, 0.0)


def test_tests_and_effect_sizes_are_the_same_in_every_unit():
    # Grades in tenths: many ties, which other units must not break.
    source = random.Random(0)
    first, second = ([source.randint(-6, 9) / 10 for _ in range(25)] for _ in range(2))
    tests = [
        compared(np.array(first) * unit, np.array(second) * unit) for unit in (1.0, 0.7e-6, 3e5)
    ]
    for test in tests:
        assert (test.p_randomisation, test.p_wilcoxon) == (
            tests[0].p_randomisation,
            tests[0].p_wilcoxon,
        )
        assert (test.d_z, test.rank_biserial) == pytest.approx(
            (tests[0].d_z, tests[0].rank_biserial)
        )
    assert [test.difference for test in tests] == pytest.approx(
        [tests[0].difference * u for u in (1, 0.7e-6, 3e5)]
    )


def test_one_system_is_a_comparison_without_tests_and_one_query_never_significant():
    comparison = compare({"only": per_query([0.1, 0.2])})
    assert comparison.measures[0].tests == ()
    (test,) = compare({"a": per_query([1.0]), "b": per_query([0.0])}).measures[0].tests
    assert test.p_randomisation == 1.0
    assert math.isnan(test.d_z)


def test_with_many_systems_a_real_difference_can_still_be_significant():
    base = np.random.default_rng(0).uniform(0, 0.5, 40)
    systems = {f"s{number}": per_query(base + number / 50) for number in range(30)}
    tests = compare(systems, resamples=200).measures[0].tests
    assert len(tests) == 435
    assert max(test.p_holm for test in tests) < 0.05


def test_what_cannot_be_compared_is_an_error_that_says_why():
    a, b = PerQuery({"m": {"q1": 1.0}}), PerQuery({"m": {"q2": 1.0}})
    with pytest.raises(ValueError, match=r"no query has values in all systems.*a has 1, b has 1"):
        compare({"a": a, "b": b})
    with pytest.raises(ValueError, match="no system"):
        compare({})
    with pytest.raises(ValueError, match="no measure"):
        compare({"a": a}, [])
    with pytest.raises(KeyError, match="b has no measure 'n'; it has: m"):
        compare({"a": PerQuery({"n": {"q2": 1.0}}), "b": b})
    with pytest.raises(ValueError, match="m of a is nan for query 'q1'"):
        compare({"a": PerQuery({"m": {"q1": math.nan}}), "b": a})
