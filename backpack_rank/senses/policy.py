"""Policies: from the senses' sensitivities and alpha to one weight per sense (paper 004 section 3, eq. 5)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from backpack_rank.senses.control import Control

if TYPE_CHECKING:  # subject.py needs this module
    from backpack_rank.senses.subject import Subject


class SensePolicy(ABC):
    """M_s: sense -> weight. Every policy gives weights of 1 at alpha = 1."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name for tables and files."""

    @abstractmethod
    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k], >= 0, from sensitivities s_l [k] and the dial.

        Raises:
            ValueError: alpha is not a number >= 0, or the policy does not fit the senses.
        """

    def control(self, subject: Subject, alpha: float) -> Control:
        """The weights as a control; nothing at alpha = 1.

        Raises:
            TypeError: alpha is not 1 and the ranker has no senses.
            ValueError: as :meth:`weights`.
        """
        alpha = check_alpha(alpha)
        if subject.sensitivity is None:
            if alpha != 1:
                name = type(subject.ranker).__name__
                raise TypeError(f"{name} has no sense vectors; policy {self.name} with alpha={alpha:g} needs them")
            return Control(self.name, alpha)
        weights = self.weights(subject.sensitivity, alpha)
        return Control(self.name, alpha, weights=None if alpha == 1 else weights)


class ChosenSenses(SensePolicy):
    """Some senses times alpha, the others times 1."""

    @abstractmethod
    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses."""

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k]: alpha for the chosen senses, 1 for the others."""
        alpha = check_alpha(alpha)
        weights = torch.ones_like(sensitivity)
        weights[self.chosen(sensitivity)] = alpha
        return weights


@dataclass(frozen=True)
class LowestSenses(ChosenSenses):
    """The paper's rule: the ``count`` senses with the lowest s_l, the most sensitive ones, times alpha."""

    count: int = 2

    def __post_init__(self) -> None:
        _check_count(self.count)

    @property
    def name(self) -> str:
        return f"lowest_{self.count}_senses"

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, the most sensitive first; equal values by index. [count]

        Raises:
            ValueError: there are fewer senses than ``count``.
        """
        _check_enough(self.count, sensitivity)
        return sensitivity.argsort(stable=True)[: self.count]


@dataclass(frozen=True)
class ThresholdSenses(ChosenSenses):
    """Every sense whose s_l lies below a value, times alpha.

    Attributes:
        threshold: the value itself, or None.
        quantile: the value as a quantile of the senses' s_l, above 0 and up to 1 (linear interpolation), or None.
            One of the two is given.
    """

    threshold: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        if (self.threshold is None) == (self.quantile is None):
            raise ValueError("give either policy.threshold (a value of s_l) or policy.quantile (0 to 1), and not both")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError(f"policy.threshold={self.threshold} is not a finite number")
        if self.quantile is not None and not 0 < self.quantile <= 1:
            raise ValueError(f"policy.quantile={self.quantile}: it must be above 0 and at most 1")

    @property
    def name(self) -> str:
        if self.quantile is not None:
            return f"below_quantile_{self.quantile:g}"
        return f"below_{self.threshold:g}"

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, ascending.

        Raises:
            ValueError: no sense lies below the threshold; says between which values s_l lies.
        """
        threshold = self._value(sensitivity)
        chosen = (sensitivity < threshold).nonzero().flatten()
        if len(chosen) == 0:
            low, high = float(sensitivity.min()), float(sensitivity.max())
            raise ValueError(
                f"policy {self.name} selects no sense: s_l of the {len(sensitivity)} senses lies between {low:.4f} "
                f"and {high:.4f}, and none is below {threshold:.4f}"
            )
        return chosen

    def _value(self, sensitivity: Tensor) -> float:
        if self.threshold is not None:
            return self.threshold
        assert self.quantile is not None
        return float(sensitivity.double().quantile(self.quantile))


@dataclass(frozen=True)
class RandomSenses(ChosenSenses):
    """Control: ``count`` senses drawn with ``seed``, whatever their s_l, times alpha."""

    count: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        _check_count(self.count)

    @property
    def name(self) -> str:
        return f"random_{self.count}_senses_seed_{self.seed}"

    def chosen(self, sensitivity: Tensor) -> Tensor:
        """Indices of the scaled senses, the same for every alpha. [count]

        Raises:
            ValueError: there are fewer senses than ``count``.
        """
        _check_enough(self.count, sensitivity)
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(len(sensitivity), generator=generator)[: self.count]


@dataclass(frozen=True)
class UniformSenses(SensePolicy):
    """Control: every sense times alpha.

    It moves no sense against another, so what it does to a measure is what a mere change of the scores' scale does.
    """

    @property
    def name(self) -> str:
        return "uniform"

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k]: alpha for all."""
        return torch.full_like(sensitivity, check_alpha(alpha))


@dataclass(frozen=True)
class SoftSenses(SensePolicy):
    """Weights that rise with s_l: alpha + (1 - alpha) g(s_l), so between alpha (sensitive) and 1 (not sensitive).

    g(s_l) = 1 / (1 + exp(-z_l / temperature)), with z_l = (s_l - mean) / standard deviation over the senses, rises with
    s_l; a sense of mean sensitivity gets g = 1/2. A temperature near 0 is a step at the mean, a high one is
    :class:`UniformSenses` at (1 + alpha) / 2.

    Attributes:
        temperature: above 0.
    """

    temperature: float = 0.25

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"policy.temperature={self.temperature} must be a finite number above 0")

    @property
    def name(self) -> str:
        return f"soft_{self.temperature:g}"

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k].

        Raises:
            ValueError: alpha is not a number >= 0, or all senses have the same s_l.
        """
        alpha = check_alpha(alpha)
        values = sensitivity.double()
        if values.min() == values.max():
            raise ValueError(
                f"s_l is {float(values[0]):.4f} for each of the {len(values)} senses: policy {self.name} cannot tell "
                "them apart; policy=uniform scales all of them"
            )
        standardised = (values - values.mean()) / values.std(correction=0)
        kept = torch.sigmoid(standardised / self.temperature)
        return (alpha + (1 - alpha) * kept).to(sensitivity)


@dataclass(frozen=True)
class ExplicitWeights(SensePolicy):
    """Weights w_l given by hand: 1 + (1 - alpha) (w_l - 1), 0 where that is negative (alpha above 1).

    Attributes:
        values: w_l, the weights at alpha = 0, one number >= 0 per sense.
    """

    values: Sequence[float]

    def __post_init__(self) -> None:
        numbers = tuple(float(value) for value in self.values)
        if not numbers or not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError(f"policy.values={list(numbers)}: give one finite number >= 0 per sense")
        object.__setattr__(self, "values", numbers)

    @property
    def name(self) -> str:
        return "explicit"

    def weights(self, sensitivity: Tensor, alpha: float) -> Tensor:
        """Weights [k].

        Raises:
            ValueError: alpha is not a number >= 0, or there is not one weight per sense.
        """
        alpha = check_alpha(alpha)
        if len(self.values) != len(sensitivity):
            raise ValueError(
                f"policy.values has {len(self.values)} weights, but the model has {len(sensitivity)} senses"
            )
        at_zero = torch.tensor(self.values, dtype=torch.float64)
        return (1 + (1 - alpha) * (at_zero - 1)).clamp(min=0).to(sensitivity)


def check_alpha(alpha: float) -> float:
    """Alpha as a float. Raises ``ValueError`` when it is not a finite number >= 0."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise ValueError(f"alpha={alpha!r} is not a number; give one >= 0, such as alpha=0.5")
    if not math.isfinite(alpha) or alpha < 0:
        raise ValueError(f"alpha={alpha} must be a finite number >= 0: 0 removes, 1 leaves as it is, more amplifies")
    return float(alpha)


def _check_count(count: int) -> None:
    if count < 1:
        raise ValueError(f"policy.count={count}: at least one sense must be scaled")


def _check_enough(count: int, sensitivity: Tensor) -> None:
    if count > len(sensitivity):
        raise ValueError(f"policy.count={count}, but the model has {len(sensitivity)} senses")
