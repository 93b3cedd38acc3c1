"""Training lists in several orders, so that no input position is the place of relevance.

See DebiasFirst, section 4.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from backpack_rank.checks import whole_number


class Augmentation(ABC):
    """What to subclass for a way to choose the orders in which a training list is shown."""

    @property
    @abstractmethod
    def copies(self) -> int:
        """Orders of each list, n."""

    @abstractmethod
    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """A permutation of the input positions 0..size-1 for each copy of a list. [n, size]"""


class NoAugmentation(Augmentation):
    """Shows every list once, in the order in which it comes.

    >>> NoAugmentation().orders(3, np.random.default_rng(0)).tolist()
    [[0, 1, 2]]
    """

    @property
    def copies(self) -> int:
        return 1

    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """The order of the input. [1, size]"""
        return np.arange(size)[None]


class RandomShuffles(Augmentation):
    """Trains on every copy of a list in a random order (RankZephyr's augmentation).

    >>> RandomShuffles(2).orders(3, np.random.default_rng(0)).tolist()
    [[2, 0, 1], [2, 1, 0]]

    Attributes:
        number: copies of each list, n.
    """

    def __init__(self, number: int = 1) -> None:
        """Raises ``ValueError`` for a number below 1."""
        whole_number("task.copies", number, 1)
        self.number = number

    @property
    def copies(self) -> int:
        return self.number

    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """n independent permutations. [n, size]"""
        return np.stack([rng.permutation(size) for _ in range(self.number)])


class PositionAware(Augmentation):
    """Copies in which relevance stands at every input position equally often (Pos-Aug).

    >>> PositionAware(groups=2).orders(4, np.random.default_rng(0)).tolist()
    [[2, 0, 1, 3], [1, 3, 2, 0]]

    A list is shuffled and cut into n groups, and the groups are rotated (DebiasFirst, section 4.2).

    Over the n copies, each group stands once at each of the n places. So every passage is spread
    evenly over the input positions, exactly and not only on average as by random orders. Where n
    does not divide the size, the first groups have one passage more.

    Attributes:
        groups: n.
    """

    def __init__(self, groups: int = 4) -> None:
        """Raises ``ValueError`` for fewer than 2 groups."""
        whole_number("task.copies", groups, 2, ": rotation needs groups")
        self.groups = groups

    @property
    def copies(self) -> int:
        return self.groups

    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """n rotations of one permutation. [n, size]

        Raises:
            ValueError: there are more groups than passages.
        """
        if size < self.groups:
            raise ValueError(
                f"a list of {size} passages cannot be cut into {self.groups} groups: lower "
                "task.copies"
            )
        # numpy's permutation is Fisher-Yates, as in the paper.
        groups = np.array_split(rng.permutation(size), self.groups)
        rotations = []
        for first in range(self.groups):
            rotations.append(np.concatenate(groups[first:] + groups[:first]))
        return np.stack(rotations)


def augmentation_of(name: str, copies: int) -> Augmentation:
    """Get the augmentation that ``task.augmentation`` names.

    >>> augmentation_of("rotate", copies=4).copies
    4

    Raises:
        ValueError: another name, or a number of copies that it cannot take.
    """
    if name == "none":
        if copies != 1:
            raise ValueError(
                f"task.augmentation=none shows every list once, so task.copies={copies} must be 1"
            )
        return NoAugmentation()
    if name == "shuffle":
        return RandomShuffles(copies)
    if name == "rotate":
        return PositionAware(copies)
    raise ValueError(f"task.augmentation={name}: use none, shuffle or rotate")
