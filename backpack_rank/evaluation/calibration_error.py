r"""Expected calibration error: how far predicted probabilities of relevance are from its shares.

Predictions are put into bins of equal width, and (Guo et al. 2017, eq. 3)

    ECE = sum over bins b of |b| / n * |share of relevant pairs in b - mean prediction in b|
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BINS = 15
"""Those of Guo et al. 2017."""
RESAMPLES = 2000
LEVEL = 0.95


def calibration_error(probabilities: np.ndarray, relevant: np.ndarray, bins: int = BINS) -> float:
    """Whether a score of 0.8 means that 8 documents in 10 are relevant.

    >>> round(calibration_error(np.array([0.9, 0.9, 0.1, 0.1]), np.array([1, 0, 0, 0]), bins=2), 3)
    0.25

    Args:
        probabilities: predictions in [0, 1]. [n]
        relevant: 1 or True where a pair is relevant. [n]
        bins: of equal width; one that ends at x holds the predictions below x, the last one 1 too.

    Raises:
        ValueError: there are no predictions, or one lies outside [0, 1].
    """
    of_bins = _of_bins(probabilities, relevant, np.zeros(len(probabilities), dtype=int), bins)
    return float(_errors(of_bins.sum(axis=0, keepdims=True))[0])


def change_of_error(
    before: np.ndarray,
    after: np.ndarray,
    relevant: np.ndarray,
    queries: Sequence[str],
    bins: int = BINS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Whether a change made the calibration worse by more than chance.

    Queries are drawn with replacement, as documents of one query are not independent; the interval
    is that of the percentiles (95%).

    Args:
        before, after: predictions for the same pairs. [n]
        relevant: 1 or True where a pair is relevant. [n]
        queries: the query of each pair. [n]
        bins: see :func:`calibration_error`.
        resamples: how often queries are drawn.
        seed: of the draws.

    Returns:
        The error after less that before, and the ends of its interval.
    """
    _, numbers = np.unique(np.asarray(queries), return_inverse=True)
    of_queries = [_of_bins(predictions, relevant, numbers, bins) for predictions in (before, after)]
    change = _errors(of_queries[1].sum(axis=0)[None]) - _errors(of_queries[0].sum(axis=0)[None])
    generator = np.random.default_rng(seed)
    total = of_queries[0].shape[0]
    # How often each query was drawn; sums over bins of the drawn queries are a product with it.
    drawn = generator.multinomial(total, np.full(total, 1 / total), size=resamples)
    errors = [_errors(np.einsum("rq,qbs->rbs", drawn, sums)) for sums in of_queries]
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(errors[1] - errors[0], [tail, 100 - tail])
    return float(change[0]), float(low), float(high)


def _of_bins(
    probabilities: np.ndarray, relevant: np.ndarray, queries: np.ndarray, bins: int
) -> np.ndarray:
    """For each query and bin: pairs, relevant pairs, and the sum of predictions. [Q, b, 3]"""
    values = np.asarray(probabilities, dtype=np.float64)
    if not values.size:
        raise ValueError("a calibration error needs at least one prediction")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a calibration error is of probabilities: predictions lie outside [0, 1]")
    places = np.minimum((values * bins).astype(int), bins - 1)
    sums = np.zeros((int(queries.max()) + 1, bins, 3))
    columns = (np.ones_like(values), np.asarray(relevant, dtype=np.float64), values)
    for column, of_pairs in enumerate(columns):
        np.add.at(sums[:, :, column], (queries, places), of_pairs)
    return sums


def _errors(sums: np.ndarray) -> np.ndarray:
    """ECE from the sums of bins [r, b, 3]: |b|/n |rel/|b| - prob/|b|| is |rel - prob| / n. [r]"""
    gaps = np.abs(sums[..., 1] - sums[..., 2]).sum(axis=1)
    errors: np.ndarray = gaps / sums[..., 0].sum(axis=1)
    return errors
