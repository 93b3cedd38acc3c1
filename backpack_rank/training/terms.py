"""What a ranker is trained to do beside ranking: terms that are added to the ranking loss."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from backpack_rank.data.datamodule import ListBatch
from backpack_rank.models.factory import Ranker
from backpack_rank.models.rankers import RankerOutput


class AuxiliaryLoss(Protocol):
    """One more term of the loss.

    Attributes:
        name: for logs, ``train/<name>``.
        weight: factor of the term in the sum.
        needs_senses: whether ``output.senses`` must be there.
    """

    name: str
    weight: float
    needs_senses: bool

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """The term before its weight, a scalar that may be 0 where the batch has nothing for it.

        Args:
            output: what the ranker says of the batch's N texts.
            scores: the same scores list by list, in fp32. [L, m]
        """
        ...
