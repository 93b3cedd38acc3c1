"""Training lists in several orders, so that no input position is the place of relevance
(DebiasFirst, section 4.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from backpack_rank.checks import whole


class Augmentation(ABC):
    """In which orders a list of passages is shown."""

    @property
    @abstractmethod
    def copies(self) -> int:
        """Orders of each list, n."""

    @abstractmethod
    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Input positions of a list of ``size`` passages, once for each copy: permutations of
        0..size-1. [n, size]
        """


@dataclass(frozen=True)
class NoAugmentation(Augmentation):
    """Lists stay in the order in which they come."""

    @property
    def copies(self) -> int:
        return 1

    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """The order as it is. [1, size]"""
        return np.arange(size)[None]


@dataclass(frozen=True)
class RandomShuffles(Augmentation):
    """Every copy of a list in an order of its own, drawn alike among all (RankZephyr's
    augmentation).

    Attributes:
        number: copies of each list, n.
    """

    number: int = 1

    def __post_init__(self) -> None:
        whole("task.copies", self.number, 1)

    @property
    def copies(self) -> int:
        return self.number

    def orders(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """n independent permutations. [n, size]"""
        return np.stack([rng.permutation(size) for _ in range(self.number)])


@dataclass(frozen=True)
class PositionAware(Augmentation):
    """Pos-Aug: one shuffle, cut into n groups; the groups are rotated (DebiasFirst, section 4.2).

    Over the n copies, the group of every passage stands once at each of the n places of a group, so
    relevance is spread over input positions exactly evenly where random orders spread it evenly
    only on average. Where n does not divide the size, the first groups have one passage more.

    Attributes:
        groups: n.
    """

    groups: int = 4

    def __post_init__(self) -> None:
        whole("task.copies", self.groups, 2, ": rotation needs groups")

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
        groups = np.array_split(
            rng.permutation(size), self.groups
        )  # numpy's permutation is Fisher-Yates
        return np.stack(
            [np.concatenate(groups[turn:] + groups[:turn]) for turn in range(self.groups)]
        )


def augmentation_of(name: str, copies: int) -> Augmentation:
    """``none``, ``shuffle`` or ``rotate`` by name.

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
