"""KNRM (Xiong et al. 2017, "End-to-End Neural Ad-hoc Ranking with Kernel Pooling")."""

from __future__ import annotations

from torch import Tensor, nn

from backpack_rank.models.interactions.base import Interaction, Words
from backpack_rank.models.interactions.kernels import LOG_SCALE, KernelPooling


class Knrm(Interaction):
    """Cosines of word vectors, pooled by Gaussian kernels, and a linear layer over the K soft counts.

    The paper ends in a tanh; it is left out, because it does not change a ranking and scores are raw logits here. The
    factor 0.01 on the logarithms is that of the authors' code, where the paper's equation 5 has none.
    """

    def __init__(self, embedding_size: int, kernels: int = 11, sigma: float = 0.1, exact_sigma: float = 0.001) -> None:
        """Args: size of the word vectors, which any will do for, and the kernels (see :class:`KernelPooling`)."""
        super().__init__()
        self.pooling = KernelPooling(kernels, sigma, exact_sigma)
        self.score = nn.Linear(kernels, 1)

    def compare(self, query: Words, document: Words) -> Tensor:
        """See :class:`Interaction`."""
        soft_counts = LOG_SCALE * self.pooling.log_sums(query.vectors, document.vectors, query.mask, document.mask)
        return self.score(soft_counts.to(self.score.weight.dtype)).squeeze(-1)
