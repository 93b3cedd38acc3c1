r"""Where a listwise ranker puts what it reads at each input position (paper 000, section 4.1 and eq. 5).

Over shuffled lists every passage stands at every input position equally often, so a ranker that does not look at
positions sends each input position to each output position equally often: for lists of k passages every cell of
:func:`transition_counts` is a k-th of the number of rankings, up to chance. What is above that shows where the ranker
follows the input order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from backpack_rank.listwise.base import Ranking


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions of a ranker on shuffled lists of k passages.

    Attributes:
        counts: rankings that put the passage at this input position to that output position. int64 [k, k]
    """

    counts: np.ndarray

    @classmethod
    def of(cls, rankings: Sequence[Ranking], size: int) -> Transitions:
        """From rankings of shuffled lists; arguments and errors of :func:`transition_counts`."""
        return cls(transition_counts(rankings, size))

    @property
    def size(self) -> int:
        """k, the number of positions."""
        return len(self.counts)

    @property
    def rankings(self) -> int:
        """How many rankings were counted."""
        return int(self.counts[0].sum())

    @property
    def shares(self) -> np.ndarray:
        """Share of all transitions (eq. 5); all cells sum to 1, 1 / k^2 in each is no position bias. float64 [k, k]"""
        return self.counts / self.counts.sum()

    @property
    def given_input(self) -> np.ndarray:
        """Share of the transitions from each input position; rows sum to 1, 1 / k is no bias. float64 [k, k]"""
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    @cached_property
    def total_variation(self) -> float:
        """Distance of :attr:`shares` from uniform: 0 is no position bias, 1 - 1/k a fixed order of positions."""
        return float(np.abs(self.shares - 1 / self.size**2).sum() / 2)

    @cached_property
    def chance(self) -> float:
        """What :attr:`total_variation` is expected to be for uniformly random rankings, as many as were counted."""
        # Each cell is binomial with mean n / k. Its mean deviation in closed form is De Moivre's.
        number, size = self.rankings, self.size
        if size == 1:
            return 0.0
        above = number // size + 1
        deviation = 2 * above * (1 - 1 / size) * stats.binom.pmf(above, number, 1 / size)
        return float(size**2 * deviation / (number * size) / 2)


def transition_counts(rankings: Sequence[Ranking], size: int) -> np.ndarray:
    """How often the passage at each input position comes to stand at each output position.

    Passages that a ranker left out count where :class:`~backpack_rank.listwise.base.Ranking` puts them: behind
    the others, in input order.

    Args:
        rankings: of lists in the order in which the ranker read them; shuffled ones where bias is to be seen.
        size: k, the number of passages of every list.

    Returns:
        int64 [k, k], input position by output position; every row and every column sums to the number of rankings.

    Raises:
        ValueError: no ranking, or one of another size, which would count positions that other lists do not have.
    """
    ranks = stacked_ranks(rankings, size)
    cells = np.arange(size) * size + ranks
    return np.bincount(cells.ravel(), minlength=size * size).reshape(size, size)


def stacked_ranks(rankings: Sequence[Ranking], size: int) -> np.ndarray:
    """Output position by input position of each ranking. int64 [n, size]

    Raises:
        ValueError: no ranking, or one of another size.
    """
    if size < 1:
        raise ValueError(f"size={size} of the lists must be at least 1")
    if not rankings:
        raise ValueError("there is no ranking to count positions of")
    for number, ranking in enumerate(rankings, start=1):
        if len(ranking.order) != size:
            raise ValueError(
                f"ranking {number} of {len(rankings)} is of {len(ranking.order)} passages, not of {size}: leave out "
                "shorter lists and cut longer ones"
            )
    return np.stack([ranking.ranks() for ranking in rankings])
