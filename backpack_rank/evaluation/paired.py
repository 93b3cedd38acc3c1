r"""Paired tests over queries: randomisation, Wilcoxon, Holm's correction, effect sizes.

Randomisation (Fisher; Smucker, Allan and Carterette 2007): under the hypothesis that two systems
are alike, it is chance which of the two values of a query belongs to which system. Swapping them
turns the sign of the query's difference d_q, so the two-sided p value is the share of all patterns
of signs e with

    | sum_q e_q d_q |  >=  | sum_q d_q |.

All 2^k patterns are counted where they are no more than the draws asked for and 65,536 (k queries
with a difference); else m patterns are drawn and p = (b + 1) / (m + 1), b of them reaching the
observed sum.

Wilcoxon's test asks the same of ranks: R+ is the sum of the ranks of |d_q| over the positive
differences, and under the hypothesis all patterns of signs are equally likely. Up to 50 differences
they are counted, also with ties, for which the tables of scipy do not hold; a sum of ranks is
reached by adding one rank or not, so no list of patterns is needed. Above, scipy's normal
approximation (corrected for ties) is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backpack_rank.evaluation.results import PerQuery

_CHUNK = 512  # patterns of signs held in memory at once
_MOST_COUNTED = 2**16
_MOST_RANKED = 50  # 2 ** 50 patterns are still counted exactly in float64
_ROUNDING = 1e-13


def randomisation(
    differences: np.ndarray, observed: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """Two-sided p values of the randomisation test.

    Args:
        differences: float64 [n_tests, n_queries], first system minus second, as of
            :func:`rescale_differences`.
        observed: float64 [n_tests, n_statistics], sums over queries that a pattern of signs has to
            reach; the absolute sum of the differences, except for :func:`observed_sums`'
            ``absolute_mean``.
        resamples: number of patterns to draw where not all are counted.
        seed: of the draws.

    Returns:
        float64 [n_tests, n_statistics]; 1 where all differences are 0.
    """
    p_values = np.ones(observed.shape)
    # Sums of the same numbers in another order differ in the last digits; they count as reached.
    least = observed - _ROUNDING * differences.shape[1]
    number = np.count_nonzero(differences, axis=1)
    exact = number < min(resamples, _MOST_COUNTED).bit_length()  # 2 ** number <= resamples
    for row in np.flatnonzero(exact):
        sums = _all_signs(number[row]) @ differences[row][differences[row] != 0]
        p_values[row] = (np.abs(sums)[:, None] >= least[row]).mean(axis=0)
    drawn = np.flatnonzero(~exact)
    if len(drawn):
        reached = _count_reached(differences[drawn], least[drawn], resamples, seed)
        p_values[drawn] = (reached + 1) / (resamples + 1)
    return p_values


def observed_sums(differences: np.ndarray, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a pattern of signs has to reach, for the mean and for the absolute value of the mean.

    Swapping the values of queries leaves S = sum(first + second) unchanged and makes
    D = sum(first - second) to D*. As | |S + D*| - |S - D*| | = 2 min(|S|, |D*|), the absolute means
    differ as much as observed, or more, where |D*| >= min(|S|, |D|). So one set of draws serves
    both.

    Args:
        differences: first minus second, float64 [n_tests, n_queries].
        totals: first plus second, the same shape and units.

    Returns:
        |D| and min(|S|, |D|), each float64 [n_tests].
    """
    difference = np.abs(differences.sum(axis=1))
    return difference, np.minimum(difference, np.abs(totals.sum(axis=1)))


def rescale_differences(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Differences and sums of two systems' values, in units of the largest absolute value of both.

    Differences that differ by rounding only become equal: the tests count ties, and 0.3 - 0.2 is
    not 0.1 in binary numbers. Tests and effect sizes are the same in every unit.

    Args:
        first: float64 [n_queries].
        second: the same for the other system.
    """
    largest = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0)) or 1.0
    return np.round((first - second) / largest, 14), (first + second) / largest


def wilcoxon(differences: np.ndarray) -> float:
    """Two-sided p value of Wilcoxon's signed-rank test.

    Differences of 0 are left out; 1 when all are. Exact for up to 50 differences, the normal
    approximation for more; see the head of this module.
    """
    from scipy import stats  # here: it takes long to import, and is needed late

    changed = differences[differences != 0]
    if len(changed) > _MOST_RANKED:
        return float(stats.wilcoxon(changed).pvalue)
    # Tied ranks are halves: doubled, all are whole numbers.
    ranks = np.rint(2 * stats.rankdata(np.abs(changed))).astype(np.int64)
    patterns = np.zeros(ranks.sum() + 1)  # number of patterns by their sum of ranks
    patterns[0] = 1.0
    for rank in ranks:
        patterns[rank:] += patterns[:-rank].copy()
    smaller = min(ranks[changed > 0].sum(), ranks[changed < 0].sum())
    return min(1.0, float(2 * patterns[: smaller + 1].sum() / patterns.sum()))


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """p values corrected for being one of a family (Holm 1979), in the order given.

    With p_(1) <= ... <= p_(m): corrected p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).
    """
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = np.minimum(1.0, raw[order] * np.arange(len(raw), 0, -1))
    corrected = np.empty(len(raw))
    corrected[order] = np.maximum.accumulate(stepped)
    return corrected


def cohens_d(differences: np.ndarray) -> float:
    """Cohen's d_z: mean difference over the standard deviation of the differences.

    0 when all differences are 0, infinite when they are all the same other number, NaN for fewer
    than two queries.
    """
    if len(differences) < 2:
        return np.nan
    mean = float(differences.mean())
    if (differences == differences[0]).all():
        return float(np.copysign(np.inf, mean)) if mean else 0.0
    return mean / float(differences.std(ddof=1))


def rank_biserial(differences: np.ndarray) -> float:
    """Matched-pairs rank-biserial correlation: (R+ - R-) / (R+ + R-).

    R are the sums of ranks of |difference|.

    From -1 to 1; differences of 0 are left out, 0 when all are.
    """
    from scipy import stats

    changed = differences[differences != 0]
    ranks = stats.rankdata(np.abs(changed))
    return float((np.sign(changed) * ranks).sum() / ranks.sum()) if len(changed) else 0.0


def _all_signs(number: int) -> np.ndarray:
    """Every pattern of signs, float64 [2 ** number, number]."""
    bits = np.arange(2**number)[:, None] >> np.arange(number) & 1
    return 2.0 * bits - 1.0


def _count_reached(
    differences: np.ndarray, least: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """How many drawn patterns reach each bound, [n_tests, n_statistics]."""
    number = differences.shape[1]
    rng = np.random.default_rng(seed)
    reached = np.zeros(least.shape, dtype=np.int64)
    for start in range(0, resamples, _CHUNK):
        draws = min(_CHUNK, resamples - start)
        octets = rng.integers(0, 256, (draws, (number + 7) // 8), dtype=np.uint8)
        signs = np.unpackbits(octets, axis=1, count=number).astype(np.float64) * 2 - 1
        sums = np.abs(differences @ signs.T)
        for column in range(least.shape[1]):
            reached[:, column] += np.count_nonzero(sums >= least[:, column, None], axis=1)
    return reached


def p_wilcoxon(first: PerQuery, second: PerQuery, measure: str) -> float:
    """p value of Wilcoxon's signed-rank test over the queries that both have."""
    shared = [query_id for query_id in first.values[measure] if query_id in second.values[measure]]
    values, others = first.array(measure, shared), second.array(measure, shared)
    differences, _ = rescale_differences(values, others)
    return wilcoxon(differences)
