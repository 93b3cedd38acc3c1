"""What the modules that compare word vectors share: their call, and words of padded texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn


class Words(NamedTuple):
    """The words of B queries or documents.

    Attributes:
        vectors: [B, N, e].
        mask: true at words, false at padding, which stands to the right. bool [B, N]
        ids: [B, N].
    """

    vectors: Tensor
    mask: Tensor
    ids: Tensor

    def cleared(self) -> Words:
        """Zero vectors at padding, and at least one (masked) column, so that a batch of empty texts has a width."""
        # Not a product with the mask: whatever stands at padding, also what is not finite, is replaced.
        vectors = self.vectors.masked_fill(~self.mask[..., None], 0.0)
        return Words(vectors, self.mask, self.ids).padded(1)

    def padded(self, width: int) -> Words:
        """At least ``width`` columns; further ones are padding."""
        missing = width - self.vectors.shape[1]
        if missing <= 0:
            return Words(*self)
        vectors = F.pad(self.vectors, (0, 0, 0, missing))
        return Words(vectors, F.pad(self.mask, (0, missing), value=False), F.pad(self.ids, (0, missing)))

    def first(self, width: int) -> Words:
        """The first ``width`` columns at most."""
        return Words(self.vectors[:, :width], self.mask[:, :width], self.ids[:, :width])


class Interaction(nn.Module, ABC):
    """Compares word vectors of query and document. A subclass says how; padding is out of the way when it does."""

    def forward(
        self,
        query: Tensor,
        query_mask: Tensor,
        document: Tensor,
        document_mask: Tensor,
        query_ids: Tensor,
        document_ids: Tensor,
    ) -> Tensor:
        """Scores [B] from word vectors [B, Q, e] and [B, D, e], their masks and the ids of the words.

        What stands at padding changes no score, so a padded batch gives the scores of each text alone.
        """
        return self.compare(
            Words(query, query_mask, query_ids).cleared(), Words(document, document_mask, document_ids).cleared()
        )

    @abstractmethod
    def compare(self, query: Words, document: Words) -> Tensor:
        """Scores [B] of texts with zero vectors at padding and at least one column each."""
