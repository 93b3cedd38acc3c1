r"""Bootstrap confidence intervals of means over queries.

Queries are drawn with replacement, as many as there are, and the mean is taken again; the interval
is the bias-corrected and accelerated one (BCa; Efron and Tibshirani 1993, section 14.3), as in
``scipy.stats.bootstrap``:

    low, high = quantiles of the resampled means at
                Phi( z0 + (z0 + z) / (1 - a (z0 + z)) )   for z = -z_p, +z_p

with z0 = Phi^-1(share of resampled means below the mean, ties half) and, for the mean, the
acceleration a = sum (x - mean)^3 / (6 (sum (x - mean)^2)^{3/2}).

All measures of a system share the same draws, so that 50 measures of 1,765 queries cost one product
of matrices.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

LEVEL = 0.95
RESAMPLES = 10_000
SEED = 0
_CHUNK = 2**20  # drawn queries held in memory at once
_ROUNDING = 1e-12


def bootstrap_intervals(
    values: np.ndarray, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> np.ndarray:
    """Confidence intervals (BCa) of means; equal values and seeds give equal ones.

    >>> bootstrap_intervals(np.array([[0.0, 1.0, 1.0, 0.5]]), resamples=100).round(1)
    array([[0.2, 0.9]])

    Args:
        values: float64 [n_measures, n_queries].
        level: share of the intervals that cover the mean.
        resamples: how often queries are drawn.
        seed: of the draws.

    Returns:
        float64 [n_measures, 2], low and high. Rows of equal values v give (v, v); rows with a value
        that is not finite, and all rows when there are fewer than two queries, give NaN.

    Raises:
        ValueError: the level is not between 0 and 1, or there are no resamples.
    """
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(
            f"a level between 0 and 1 and at least one resample are needed, got {level} and "
            f"{resamples}"
        )
    values = np.asarray(values, dtype=np.float64)
    ends = np.full((len(values), 2), np.nan)
    if values.shape[1] < 2:
        return ends
    finite = np.isfinite(values).all(axis=1)
    constant = finite & (values.max(axis=1) == values.min(axis=1))
    ends[constant] = values[constant, :1]
    rows = np.flatnonzero(finite & ~constant)
    if len(rows) == 0:
        return ends
    means_of_rows = _resampled_means(values[rows], resamples, seed)
    for row, means in zip(rows, means_of_rows, strict=True):
        ends[row] = _bca(values[row], means, level)
    return ends


def _resampled_means(values: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of the draws. [n_measures, resamples]"""
    number = values.shape[1]
    rng = np.random.default_rng(seed)
    means = np.empty((len(values), resamples))
    step = max(1, _CHUNK // number)
    for start in range(0, resamples, step):
        draws = min(step, resamples - start)
        drawn = rng.integers(0, number, (draws, number))
        # How often each draw holds each query: a mean is a product with these counts, and one
        # count of all serves because every draw has numbers of its own.
        drawn += np.arange(draws)[:, None] * number
        counts = np.bincount(drawn.ravel(), minlength=draws * number).reshape(draws, number)
        means[:, start : start + draws] = values @ counts.T.astype(np.float64) / number
    return means


def _bca(values: np.ndarray, means: np.ndarray, level: float) -> np.ndarray:
    """Ends of the interval of one measure, see the formulas at the head of this module."""
    # Sums in another order differ in the last digits: they are ties, and the same interval on every
    # machine.
    scale = np.abs(values).max()
    mean = values.mean()

    below = np.count_nonzero(means < mean - _ROUNDING * scale)
    ties = np.count_nonzero(np.abs(means - mean) <= _ROUNDING * scale)
    # No share is 0 or 1, where z0 would be infinite.
    least = 0.5 / len(means)
    bias = ndtri(np.clip((below + ties / 2) / len(means), least, 1 - least))  # z0

    deviations = (values - mean) / scale
    acceleration = (deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5)  # a

    shifted = bias + ndtri([(1 - level) / 2, (1 + level) / 2])
    quantiles = np.quantile(means, ndtr(bias + shifted / (1 - acceleration * shifted)))
    return np.clip(np.round(quantiles / scale, 12) * scale, values.min(), values.max())
