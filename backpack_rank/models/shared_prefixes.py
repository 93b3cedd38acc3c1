"""Beginnings that texts of a batch have in common, for models that read left to right.

Such a model makes the same of equal tokens behind an equal beginning, so the query that a list of
documents stands behind is read once. Only attention still sees all texts in full
(:mod:`backpack_rank.models.attention`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backpack_rank.data.packing import PackedBatch

WORTH = 0.03
"""Share of a batch's tokens that has to be repeated for the bookkeeping to pay."""


@dataclass(frozen=True)
class SharedPrefixes:
    """Which tokens of a packed row are read, and which of them stands for each token.

    Attributes:
        kept: tokens that are read. bool [T]
        rows: number among the tokens read of the one that stands for each token. [T]
    """

    kept: Tensor
    rows: Tensor

    @classmethod
    def of(cls, batch: PackedBatch) -> SharedPrefixes | None:
        """What texts have in common with the text in front of them; None where that is next to
        nothing.
        """
        # One higher, so that a token with id 0 is not taken for padding.
        ids = batch.pad(batch.input_ids + 1)
        same = torch.zeros_like(ids, dtype=torch.bool)
        same[1:] = ((ids[1:] == ids[:-1]) & (ids[1:] > 0)).cumprod(dim=1).bool()
        kept = ~same.flatten()[batch.padded_rows]
        read = int(kept.sum())
        if read > (1 - WORTH) * len(kept):
            return None
        # A repeated token is that of the last text above it that has one of its own in this place.
        numbers = batch.pad(torch.where(kept, kept.cumsum(0), 0)).cummax(dim=0).values
        return cls(kept, numbers.flatten()[batch.padded_rows] - 1)
