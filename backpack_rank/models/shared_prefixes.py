"""Beginnings that texts of a batch have in common, for models that read left to right.

Such a model makes the same of equal vectors behind an equal beginning, so the query that a list of
documents stands behind is read once. Only attention still sees all texts in full
(:mod:`backpack_rank.models.attention`).

Equal tokens need not have equal vectors: paired tokens move the embedding of " her" where it is a
word, and leave it in "herself" (:mod:`backpack_rank.models.token_shift`). So embeddings are
compared as well.
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
    """Which tokens of a packed row are read, and which of these stands for each token.

    >>> batch = PackedBatch.from_sequences([[5, 6, 7], [5, 6, 8]])
    >>> embeddings = torch.eye(9)[batch.input_ids]
    >>> shared = SharedPrefixes.of(batch, embeddings)
    >>> shared.kept.tolist(), shared.rows.tolist()
    ([True, True, True, False, False, True], [0, 1, 2, 0, 1, 3])

    Attributes:
        kept: tokens that are read. bool [T]
        rows: for each token, which of the tokens read stands for it. [T]
    """

    kept: Tensor
    rows: Tensor

    @classmethod
    def of(cls, batch: PackedBatch, embeddings: Tensor) -> SharedPrefixes | None:
        """What texts share with the text before them; None where that saves little.

        Args:
            batch: the texts.
            embeddings: of its tokens, as the model reads them. [T, e]
        """
        # One higher, so that a token with id 0 is not taken for padding.
        ids = batch.pad(batch.input_ids + 1)
        same = torch.zeros_like(ids, dtype=torch.bool)
        equal = (ids[1:] == ids[:-1]) & (ids[1:] > 0)
        # Vectors are compared only where the tokens are equal.
        places = batch.pad(torch.arange(len(batch.input_ids), device=ids.device))
        vectors, vectors_above = embeddings[places[1:][equal]], embeddings[places[:-1][equal]]
        equal[equal.clone()] = (vectors == vectors_above).all(dim=-1)
        same[1:] = equal.cumprod(dim=1).bool()  # up to the first token that differs
        kept = ~same.flatten()[batch.padded_rows]
        read = int(kept.sum())
        if read > (1 - WORTH) * len(kept):
            return None
        # A repeated token is that of the last text above it whose token in this place was read.
        numbers = batch.pad(torch.where(kept, kept.cumsum(0), 0)).cummax(dim=0).values
        return cls(kept, numbers.flatten()[batch.padded_rows] - 1)
