"""What makes a score of vectors: the paper's two-layer head, and the linear one of its code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEADS = ("mlp", "linear_sigmoid")
"""Names for ``model.ranker.head``."""


class RankingHead(nn.Module):
    """Two-layer MLP d -> d -> 1 that makes scores of vectors (Afzali et al., section 3).

    Scores are raw logits. A sigmoid would leave a ranking unchanged, and not training: softmax over
    values in [0, 1] cannot tell a list's documents far apart.

    With a similarity (:mod:`backpack_rank.models.similarity`), vectors have one number more, which
    is added to the score as it is.
    """

    def __init__(self, size: int, dropout: float, adds_similarity: bool = False) -> None:
        super().__init__()
        self.adds_similarity = adds_similarity
        self.dense = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(size, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors to scores: [..., d] -> [...], or [..., d + 1] -> [...] with a similarity."""
        if self.adds_similarity:
            learned = self._learned(vectors[..., :-1].to(self.dense.weight.dtype))
            return vectors[..., -1] + learned.to(vectors.dtype)
        return self._learned(vectors)

    def _learned(self, vectors: Tensor) -> Tensor:
        hidden = F.gelu(self.dense(vectors))
        return self.out(self.dropout(hidden)).squeeze(-1)

    @torch.no_grad()
    def start_at_zero(self) -> None:
        """Let every score begin as the similarity alone."""
        self.out.weight.zero_()
        self.out.bias.zero_()


class LinearSigmoidHead(nn.Module):
    """Trains as the paper's authors did: one linear layer without bias, then a sigmoid.

    >>> head = LinearSigmoidHead(size=4)
    >>> bool((head(torch.randn(3, 4)) < 1).all())
    True

    The listwise softmax then compares numbers between 0 and 1. Of a list with m documents, one of
    them relevant, its loss cannot fall below log(1 + (m - 1) / e): 1.461 for ten.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.out = nn.Linear(size, 1, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors to scores in (0, 1): [..., d] -> [...]."""
        return torch.sigmoid(self.out(vectors)).squeeze(-1)


def new_head(
    name: str, size: int, dropout: float, adds_similarity: bool = False
) -> RankingHead | LinearSigmoidHead:
    """The head of one of the names in :data:`HEADS`, for vectors of d = ``size``."""
    if name == "linear_sigmoid":
        return LinearSigmoidHead(size)
    return RankingHead(size, dropout, adds_similarity)
