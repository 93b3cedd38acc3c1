"""Propensities of DebiasFirst: where a frozen ranker sends each input position.

Over shuffled lists every passage stands at every input position equally often, so a ranker that
does not look at positions sends each input position to each output position equally often: for
lists of k passages every cell of :func:`transition_counts` is a k-th of the number of rankings, up
to chance. What is above that shows where the ranker follows the input order (section 4.1 and
eq. 5).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import stats

from backpack_rank.checks import fraction, whole_number
from backpack_rank.commands import called
from backpack_rank.files import write_text
from backpack_rank.position.lists.base import ListwiseRanker, Ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import rank_shuffled

FORMAT = "backpack_rank propensities 1"
FILE = "propensities.json"
FLOOR = 0.2
_LISTS_AT_ONCE = 256
"""Lists whose shuffles are ranked in one call."""


class Transitions:
    """Shows whether a ranker follows the order in which it is shown k passages.

    >>> unchanged = Ranking(np.array([0, 1]))
    >>> Transitions.of([unchanged, unchanged], size=2).total_variation  # always the input order
    0.5

    Attributes:
        counts: rankings that put the passage at this input position to that output position. int64
            [k, k]
    """

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts

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
        """Share of all transitions (eq. 5). float64 [k, k]

        All cells sum to 1; without position bias each is 1 / k^2.
        """
        return self.counts / self.counts.sum()

    @property
    def given_input(self) -> np.ndarray:
        """Share of the transitions from each input position. float64 [k, k]

        Rows sum to 1; without position bias each cell is 1 / k.
        """
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    @cached_property
    def total_variation(self) -> float:
        """Distance of :attr:`shares` from uniform.

        0 is no position bias, 1 - 1/k a fixed order of positions.
        """
        return float(np.abs(self.shares - 1 / self.size**2).sum() / 2)

    @cached_property
    def chance(self) -> float:
        """What :attr:`total_variation` is expected to be for as many uniformly random rankings."""
        # Each cell is binomial with mean n / k. Its mean deviation in closed form is De Moivre's.
        number, size = self.rankings, self.size
        if size == 1:
            return 0.0
        above = number // size + 1
        deviation = 2 * above * (1 - 1 / size) * stats.binom.pmf(above, number, 1 / size)
        return float(size**2 * deviation / (number * size) / 2)


def transition_counts(rankings: Sequence[Ranking], size: int) -> np.ndarray:
    """Count how often each input position comes out at each output position.

    >>> transition_counts([Ranking(np.array([0, 1])), Ranking(np.array([1, 0]))], size=2).tolist()
    [[1, 1], [1, 1]]

    Passages that a ranker left out count where :class:`~backpack_rank.position.lists.base.Ranking`
    puts them: behind the others, in input order.

    Args:
        rankings: of lists in the order in which the ranker read them; shuffled ones where bias is
            to be seen.
        size: k, the number of passages of every list.

    Returns:
        int64 [k, k], input position by output position; every row and every column sums to the
        number of rankings.

    Raises:
        ValueError: no ranking, or one of another size, which would count positions that other lists
            do not have.
    """
    ranks = stacked_ranks(rankings, size)
    # Cell [a, b] of the matrix is number a * size + b when its rows are laid end to end.
    cells = np.arange(size) * size + ranks
    return np.bincount(cells.ravel(), minlength=size * size).reshape(size, size)


def stacked_ranks(rankings: Sequence[Ranking], size: int) -> np.ndarray:
    """The output position by input position of each ranking. int64 [n, size]

    >>> stacked_ranks([Ranking(np.array([2, 0, 1]))], size=3).tolist()
    [[1, 2, 0]]

    Raises:
        ValueError: no ranking, or one of another size.
    """
    whole_number("size", size, 1)
    if not rankings:
        raise ValueError("there is no ranking to count positions of")
    for number, ranking in enumerate(rankings, start=1):
        if len(ranking.order) != size:
            raise ValueError(
                f"ranking {number} of {len(rankings)} is of {len(ranking.order)} passages, not of "
                f"{size}: leave out shorter lists and cut longer ones"
            )
    return np.stack([ranking.ranks() for ranking in rankings])


class Propensities:
    """Weighs training pairs against a ranker's position bias (DebiasFirst).

    w[a, b] is the share of all transitions that go from input position a to output position b
    (eq. 5)::

        propensities = estimate_propensities(ranker, lists, size=20)
        propensities.save("propensities.json")
        weights = propensities.inverse()

    Attributes:
        counts: transitions over shuffled lists of k passages, input position by output position.
            int64 [k, k]
        lists: Q, lists that were shuffled.
        shuffles: n, of each list.
        floor: least propensity, as a share of the even one, 1 / k^2. Cells below it, also those of
            transitions that never happened, are raised to it: before scaling, no passage weighs
            more than 1 / floor.
        left_out: lists that were not of k passages.
        ranker: name of the frozen ranker.
        seed: of the shuffles.
    """

    def __init__(
        self,
        counts: np.ndarray,
        lists: int,
        shuffles: int,
        floor: float = FLOOR,
        left_out: int = 0,
        ranker: str = "",
        seed: int = 0,
    ) -> None:
        """Raises ``ValueError`` for counts that no shuffles give, or a floor outside (0, 1]."""
        counts = np.asarray(counts)
        if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or len(counts) < 2:
            raise ValueError(
                "propensities are a square matrix of at least 2 positions, got "
                f"{list(counts.shape)}"
            )
        rankings = lists * shuffles
        even = (counts.sum(0) == rankings).all() and (counts.sum(1) == rankings).all()
        if not even or (counts < 0).any():
            raise ValueError(
                "every row and every column of the transitions must sum to lists x shuffles = "
                f"{rankings}: each ranking takes every input position to one output position"
            )
        fraction("propensities: floor", floor, ends="(]")
        self.counts = counts
        self.lists = lists
        self.shuffles = shuffles
        self.floor = floor
        self.left_out = left_out
        self.ranker = ranker
        self.seed = seed

    @property
    def size(self) -> int:
        """k, the number of positions."""
        return len(self.counts)

    @property
    def floored(self) -> int:
        """Cells below the floor."""
        return int((self._counted_shares < self.floor / self.size**2).sum())

    @cached_property
    def shares(self) -> np.ndarray:
        """w, counts / (Q k n) (eq. 5), at least ``floor / k^2``. float64 [k, k]"""
        return np.maximum(self._counted_shares, self.floor / self.size**2)

    def inverse(self, scale: float = 1.0) -> np.ndarray:
        """v = scale / (k^2 w); without position bias every cell is ``scale``. float64 [k, k]"""
        return scale / (self.size**2 * self.shares)

    def scale_for(self, ranks: Sequence[np.ndarray], levels: Sequence[np.ndarray]) -> float:
        """The ``scale`` of :meth:`inverse` with which pairs of these lists weigh 1 on average.

        The average over the pairs of the loss, each weighing 1 / (pi(i) + pi(j)) as in eq. 2: so
        eq. 4 has the size of eq. 2 where all pairs are equally far from being ranked right, and
        lambda keeps its meaning.

        Args:
            ranks: target rank of each input position of each list, from 0; likewise ``levels``,
                which tell ties.

        Raises:
            ValueError: a list is longer than the matrix, or no list has a pair.
        """
        plain = weighted = 0.0
        inverse = self.inverse()
        for list_ranks, level in zip(ranks, levels, strict=True):
            self.check_size(len(list_ranks))
            # 1 / (pi(i) + pi(j)), where ranks from 0 give 2 more, and 0 for pairs that are tied.
            rank_sums = list_ranks[:, None] + list_ranks[None, :] + 2
            pairs = np.where(level[:, None] < level[None, :], 1.0 / rank_sums, 0.0)
            values = inverse[np.arange(len(list_ranks)), list_ranks]
            plain += pairs.sum()
            weighted += values @ pairs @ values
        if not weighted:
            raise ValueError(
                "no list has two passages of different levels, so there is nothing to weigh"
            )
        # The scale stands in the weight of a pair twice, as a factor of v_i and of v_j.
        return math.sqrt(plain / weighted)

    def check_size(self, size: int) -> None:
        """Raise ``ValueError`` for lists longer than those that the matrix was estimated on."""
        if size > self.size:
            raise ValueError(
                f"the propensities are of lists of {self.size} passages, and a training list has "
                f"{size}: estimate them on lists of {size}, or set task.size={self.size}"
            )

    def save(self, path: str | Path) -> None:
        """Write a JSON file, complete or not at all."""
        content = {
            "format": FORMAT,
            "ranker": self.ranker,
            "lists": self.lists,
            "shuffles": self.shuffles,
            "seed": self.seed,
            "left_out": self.left_out,
            "floor": self.floor,
            "floored_cells": self.floored,
            "counts": self.counts.tolist(),
        }
        # One line for each row of the matrix.
        text = json.dumps(content, indent=1).replace("\n   ", " ").replace("\n  ]", "]")
        write_text(path, text + "\n")

    @property
    def _counted_shares(self) -> np.ndarray:
        """Counts / (Q k n), before the floor."""
        return self.counts / (self.lists * self.size * self.shuffles)


def load_propensities(path: str | Path) -> Propensities:
    """Read the propensities that an experiment wrote, from a file or its folder.

    ``load_propensities("outputs/evaluate/DATE").inverse()``

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no file of propensities, or what it holds does not fit together.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"task.propensities: there is no file {path}; `{called('evaluate')} "
            "experiment=propensities` writes one"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is no file of propensities: its format is not {FORMAT!r}")
    try:
        return Propensities(
            counts=np.array(content["counts"], dtype=np.int64),
            lists=content["lists"],
            shuffles=content["shuffles"],
            floor=content["floor"],
            left_out=content["left_out"],
            ranker=content["ranker"],
            seed=content["seed"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def estimate_propensities(
    ranker: ListwiseRanker,
    lists: Sequence[PassageList],
    size: int,
    shuffles: int = 10,
    seed: int = 0,
    floor: float = FLOOR,
) -> Propensities:
    """Before training with inverse propensities, on the ranker to be trained (eq. 5).

    Every list is shuffled n times and ranked, and it is counted where each input position goes.

    Args:
        lists: of ``size`` passages; others are left out and counted, since they lack positions.
        shuffles: n; the paper takes 10 of 3,000 lists.
        floor: see :class:`Propensities`; the counts of the result are without it.

    Raises:
        ValueError: no list is of this size.
    """
    chosen = [passages for passages in lists if len(passages) == size]
    if not chosen:
        raise ValueError(
            f"none of the {len(lists)} lists has {size} passages to estimate propensities on"
        )
    counts = np.zeros((size, size), dtype=np.int64)
    for start in range(0, len(chosen), _LISTS_AT_ONCE):
        shuffled = rank_shuffled(ranker, chosen[start : start + _LISTS_AT_ONCE], shuffles, seed)
        counts += transition_counts(shuffled.rankings, size)
    return Propensities(
        counts=counts,
        lists=len(chosen),
        shuffles=shuffles,
        floor=floor,
        left_out=len(lists) - len(chosen),
        ranker=ranker.name,
        seed=seed,
    )
