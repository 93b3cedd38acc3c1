"""The ranking loss by name (``training.loss`` in ``conf/train.yaml``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from backpack_rank.training.losses import lambda_weights, listwise_softmax, pairwise_hinge, ranknet


def lambdarank(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """RankNet with the pairs weighed by what swapping them would change about nDCG."""
    return ranknet(scores, labels, mask, lambda_weights(scores, labels, mask))


@dataclass(frozen=True)
class RankingLoss:
    """What makes a ranker rank: a loss over labelled lists.

    Attributes:
        name: ``listwise_softmax``, ``pairwise_hinge``, ``ranknet`` or ``lambdarank``.
        margin: by how much a pair's scores must differ, of ``pairwise_hinge``.
        weight: factor of the loss beside further terms; 0 leaves the terms alone.

    Raises:
        ValueError: an unknown name, a margin of 0 or below, or a weight below 0.
    """

    name: str = "listwise_softmax"
    margin: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise ValueError(f"training.loss={self.name}: use one of {', '.join(LOSSES)}")
        if not self.margin > 0 or not self.weight >= 0:
            raise ValueError(
                f"training.margin={self.margin} must be > 0 and training.loss_weight={self.weight} must be >= 0"
            )

    def __call__(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
        """The loss before its weight, and how many lists were left out; see :mod:`backpack_rank.training.losses`."""
        return LOSSES[self.name](scores, labels, mask, self.margin)


# What each makes of (scores, labels, mask, margin).
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, int]]] = {
    "listwise_softmax": lambda scores, labels, mask, _: listwise_softmax(scores, labels, mask),
    "pairwise_hinge": pairwise_hinge,
    "ranknet": lambda scores, labels, mask, _: ranknet(scores, labels, mask),
    "lambdarank": lambda scores, labels, mask, _: lambdarank(scores, labels, mask),
}
