"""KNRM (Xiong et al. 2017, "End-to-End Neural Ad-hoc Ranking with Kernel Pooling")."""

from __future__ import annotations

from torch import Tensor, nn

from backpack_rank.models.interactions.kernels import SMALLEST_SUM, KernelPooling, cosine_match


class Knrm(nn.Module):
    """Cosines of word vectors, pooled by Gaussian kernels, and a linear layer over the K soft counts.

    The paper ends in a tanh; it is left out, because it does not change a ranking and scores are raw logits here. The
    factor 0.01 on the logarithms is that of the authors' code, where the paper's equation 5 has none.
    """

    def __init__(self, embedding_size: int, kernels: int = 11, sigma: float = 0.1, exact_sigma: float = 0.001) -> None:
        """Args: size of the word vectors, which any will do for, and the kernels (see :class:`KernelPooling`)."""
        super().__init__()
        self.pooling = KernelPooling(kernels, sigma, exact_sigma)
        self.score = nn.Linear(kernels, 1)

    def forward(
        self,
        query: Tensor,
        query_mask: Tensor,
        document: Tensor,
        document_mask: Tensor,
        query_ids: Tensor,
        document_ids: Tensor,
    ) -> Tensor:
        """Scores [B] from word vectors [B, Q, e] and [B, D, e] with their masks; the ids are not used."""
        sums = self.pooling(cosine_match(query, document), query_mask, document_mask)
        soft_counts = (sums.clamp(min=SMALLEST_SUM).log() * 0.01 * query_mask[..., None]).sum(1)
        return self.score(soft_counts.to(self.score.weight.dtype)).squeeze(-1)
