"""Policies: from the senses' sensitivities and alpha to one weight per sense (paper 004 section 3, eq. 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Policy(Protocol):
    """M_s: sense -> weight. Every policy gives weights of 1 at alpha = 1."""

    @property
    def name(self) -> str:
        """Short name for tables and files."""
        ...

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k] from sensitivities s_l [k] and the dial."""
        ...


@dataclass(frozen=True)
class LowestSenses:
    """The paper's rule: the ``count`` senses with the lowest s_l, the most sensitive ones, times alpha."""

    count: int = 2

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"policy.count={self.count}: at least one sense must be scaled")

    @property
    def name(self) -> str:
        return f"lowest_{self.count}_senses"

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k]: alpha for the lowest senses, 1 for the others.

        Raises:
            ValueError: alpha is not a number >= 0, or there are fewer senses than ``count``.
        """
        alpha = check_alpha(alpha)
        if self.count > len(sensitivity):
            raise ValueError(f"policy.count={self.count}, but the model has {len(sensitivity)} senses")
        weights = torch.ones_like(sensitivity)
        weights[self.chosen(sensitivity)] = alpha
        return weights

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, the most sensitive first; equal values by index. [count]"""
        return sensitivity.argsort(stable=True)[: self.count]


def check_alpha(alpha: float) -> float:
    """Alpha as a float. Raises ``ValueError`` when it is not a finite number >= 0."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise ValueError(f"alpha={alpha!r} is not a number; give one >= 0, such as alpha=0.5")
    if not math.isfinite(alpha) or alpha < 0:
        raise ValueError(f"alpha={alpha} must be a finite number >= 0: 0 removes, 1 leaves as it is, more amplifies")
    return float(alpha)
