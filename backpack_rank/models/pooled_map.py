"""A map of the pooled vector: what a ranker's head scores in place of the vector of a text.

    x_alpha = x - (1 - alpha) B A (x - mu)

A and B are thin: as many rows and columns as directions are taken out, one for two groups. The
network in front of the head does not know of the map, so one pass serves all alphas.
:mod:`backpack_rank.senses.erasure` fits such maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from backpack_rank.digests import digest

MAP_FILE = "erase.safetensors"
"""A fitted map; beside a ranker's weights, every door finds it."""


@dataclass(frozen=True, eq=False)
class PooledMap:
    """Changes the vector that a ranker's head makes a score of.

    >>> first_number_alone = PooledMap(
    ...     mean=torch.zeros(2), left=torch.tensor([[1.0], [0.0]]), right=torch.tensor([[1.0, 0.0]])
    ... )
    >>> first_number_alone(torch.tensor([[3.0, 4.0]]))
    tensor([[0., 4.]])

    Attributes:
        mean: mu. [d]
        left: B. [d, r]
        right: A. [r, d]
        alpha: 0 takes all out that B A projects on, 1 leaves the vector unchanged.
    """

    mean: Tensor
    left: Tensor
    right: Tensor
    alpha: float = 0.0

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors [..., d] as the head is to see them, in their own number format."""
        # Half precision has too few digits for a projection.
        wide = vectors if vectors.dtype == torch.float64 else vectors.float()
        removed = (wide - self.mean.to(wide)) @ self.right.to(wide).T @ self.left.to(wide).T
        return (wide - (1 - self.alpha) * removed).to(vectors.dtype)

    @property
    def size(self) -> int:
        """d"""
        return len(self.mean)

    @cached_property
    def key(self) -> str:
        """Equal for two maps that do the same at every vector."""
        parts = [self.mean.numpy(), self.left.numpy(), self.right.numpy()]
        # Shapes too: the same numbers may stand for other matrices.
        return digest([f"{self.alpha!r} {self.left.shape}", *parts])


@contextmanager
def mapped_vectors(ranker: Any, pooled_map: PooledMap | None) -> Iterator[None]:
    """Around the call of a ranker: within the block its head scores mapped vectors.

    Args:
        ranker: a :class:`~backpack_rank.models.rankers.Ranker`.
        pooled_map: None changes nothing.

    Raises:
        TypeError: the ranker's head takes no single vector of a text.
    """
    if pooled_map is None:
        yield
        return

    def change_input(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return pooled_map(inputs[0]), *inputs[1:]

    handle = ranker.pooled_head.register_forward_pre_hook(change_input)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def kept_vectors(head: nn.Module) -> Iterator[list[Tensor]]:
    """Around the call of a ranker to get the vectors that its head scored.

    Yields:
        A list; each call of the head adds what it was given.
    """
    kept: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _module, inputs: kept.append(inputs[0]))
    try:
        yield kept
    finally:
        handle.remove()
