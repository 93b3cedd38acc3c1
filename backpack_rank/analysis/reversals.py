r"""How often a listwise ranker reverses two passages, by where it read them (paper 003, section 3.2).

For input positions i < j of a randomly shuffled list, the pair is reversed when the passage read at j comes out before
the passage read at i. Shuffling severs input order from relevance, so without position bias every pair of positions is
reversed in half of the rankings, however good or bad the ranker is. Fewer: the ranker keeps the input order there.

Where the right order is known (the sorting tasks), pairs can also be counted as wrong: the output contradicts the right
order. That tells where in its input a ranker makes its mistakes; a perfect ranker makes none, a blind one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.listwise.base import Ranking
from backpack_rank.listwise.propensity import stacked_ranks


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Pairs of input positions i < j, and in how many rankings something was the case with them.

    Attributes:
        counts: rankings in which it was, above the diagonal; 0 elsewhere. int64 [k, k]
        of: rankings in which it could have been, likewise.
    """

    counts: np.ndarray
    of: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """``counts / of``; NaN on and below the diagonal, and where nothing was counted. float64 [k, k]"""
        return np.divide(self.counts, self.of, out=np.full(self.counts.shape, np.nan), where=self.of > 0)

    @property
    def mean(self) -> float:
        """Share of all pairs; NaN without a pair."""
        return float(self.counts.sum() / self.of.sum()) if self.of.any() else float("nan")

    @property
    def range(self) -> float:
        """Largest minus smallest of :attr:`shares`: what the positions of a pair make out; NaN without a pair."""
        shares = self.shares[~np.isnan(self.shares)]
        return float(shares.max() - shares.min()) if len(shares) else float("nan")


def reversals(rankings: Sequence[Ranking], size: int) -> PairCounts:
    """Count reversed pairs.

    Passages that a ranker left out count where :class:`~backpack_rank.listwise.base.Ranking` puts them, behind
    the others in input order, and are not reversed among themselves.

    Args:
        rankings: of shuffled lists, positions in the order in which they were read.
        size: k, the number of passages of every list.

    Raises:
        ValueError: no ranking, or one of another size.
    """
    ranks = stacked_ranks(rankings, size)
    counts = np.zeros((size, size), dtype=np.int64)
    for row in ranks:  # one at a time: [n, k, k] would be large
        counts += row[:, None] > row[None, :]
    upper = _upper(size)
    return PairCounts(np.where(upper, counts, 0), np.where(upper, len(ranks), 0))


def wrong_pairs(rankings: Sequence[Ranking], targets: Sequence[np.ndarray], size: int) -> PairCounts:
    """Count pairs that come out in the wrong order.

    Args:
        rankings: as in :func:`reversals`.
        targets: for each ranking the right place of the passage at each input position, smaller is better; pairs with
            equal ones have no right order and are not counted. [k] each
        size: k.

    Raises:
        ValueError: no ranking, one of another size, or targets that do not fit.
    """
    ranks = stacked_ranks(rankings, size)
    if len(targets) != len(ranks) or any(np.shape(target) != (size,) for target in targets):
        raise ValueError(f"there must be a target of {size} places for each of the {len(ranks)} rankings")
    counts = np.zeros((size, size), dtype=np.int64)
    of = np.zeros((size, size), dtype=np.int64)
    for row, target in zip(ranks, targets, strict=True):
        right = np.sign(np.subtract.outer(target, target))
        counts += np.sign(np.subtract.outer(row, row)) == -right
        of += right != 0
    # Equal targets give 0, as does a passage with itself; only i = j has equal ranks.
    upper = _upper(size)
    return PairCounts(np.where(upper, counts, 0), np.where(upper, of, 0))


def _upper(size: int) -> np.ndarray:
    return np.triu(np.ones((size, size), dtype=bool), 1)
