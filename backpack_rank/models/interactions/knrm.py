"""KNRM (Xiong et al. 2017) and Conv-KNRM (Dai et al. 2018).

KNRM: "End-to-End Neural Ad-hoc Ranking with Kernel Pooling".
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.checks import whole_number
from backpack_rank.constructors import Kernels, Layers, Positive, Width
from backpack_rank.models.interactions.base import LOG_SCALE, Interaction, KernelPooling, Words


class Knrm(Interaction):
    """Cosines of word vectors, Gaussian kernels over them, and a linear layer on K soft counts.

    The paper ends in a tanh; it is left out, because it does not change a ranking and scores are
    raw logits here. The factor 0.01 on the logarithms is that of the authors' code, where the
    paper's equation 5 has none.

    Args:
        embedding_size: e; no weight depends on it.
        kernels, sigma, exact_sigma: see :class:`KernelPooling`.
    """

    def __init__(
        self,
        embedding_size: int,
        kernels: Kernels = 11,
        sigma: Positive = 0.1,
        exact_sigma: Positive = 0.001,
    ) -> None:
        super().__init__()
        self.pooling = KernelPooling(kernels, sigma, exact_sigma)
        self.score = nn.Linear(kernels, 1)

    def compare(self, query: Words, document: Words) -> Tensor:
        """See :class:`Interaction`."""
        log_sums = self.pooling.log_sums(query.vectors, document.vectors, query.mask, document.mask)
        soft_counts = LOG_SCALE * log_sums
        return self.score(soft_counts.to(self.score.weight.dtype)).squeeze(-1)


class ConvKnrm(Interaction):
    """Cosines of n-grams of all pairs of lengths, Gaussian kernels over them, and a linear layer.

    An n-gram of length h is g_i = relu(W_h [e_i; ...; e_{i+h-1}] + b_h), with the same W_h for
    query and document. Every term starts one; where the text ends, zeros follow, so a text of one
    term has n-grams of all lengths too. For each pair of lengths (h of the query, h' of the
    document) and each kernel k the feature is

        phi_k = 0.01 * sum_i log sum_j K_k(cos(g_i^h, g_j^h'))

    and the score a linear layer on all of them. As in :class:`Knrm`, the factor is that of the
    published code, and the paper's tanh on the score is left out.

    Args:
        embedding_size: e.
        filters: length of an n-gram's vector (128 in the paper).
        ngrams: longest n-gram (3 in the paper: 9 pairs of lengths).
        kernels: of which the first counts exact matches (11 in the paper).
        sigma, exact_sigma: widths of the other kernels and of the first.

    Raises:
        ValueError: fewer than 1 filter or length, or kernels that :class:`KernelPooling` refuses.
    """

    def __init__(
        self,
        embedding_size: int,
        filters: Width = 128,
        ngrams: Layers = 3,
        kernels: Kernels = 11,
        sigma: Positive = 0.1,
        exact_sigma: Positive = 0.001,
    ) -> None:
        super().__init__()
        whole_number("filters", filters, 1)
        whole_number("ngrams", ngrams, 1)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embedding_size, filters, kernel_size=length)
            for length in range(1, ngrams + 1)
        )
        self.pooling = KernelPooling(kernels, sigma, exact_sigma)
        self.score = nn.Linear(ngrams**2 * kernels, 1)

    def compare(self, query: Words, document: Words) -> Tensor:
        """See :class:`Interaction`."""
        document_grams = self.grams(document.vectors)
        query_grams = self.grams(query.vectors)
        features = []
        for query_gram in query_grams:
            for document_gram in document_grams:
                log_sums = self.pooling.log_sums(
                    query_gram, document_gram, query.mask, document.mask
                )
                features.append(LOG_SCALE * log_sums)
        return self.score(torch.cat(features, dim=-1).to(self.score.weight.dtype)).squeeze(-1)

    def grams(self, vectors: Tensor) -> list[Tensor]:
        """Vectors of the n-grams that start at each term, for each length. [B, N, e]

        Returns:
            A tensor [B, N, filters] for each length.
        """
        texts = vectors.transpose(1, 2)
        grams = []
        for following, convolution in enumerate(self.convolutions):
            # An n-gram needs the terms that follow its first one: zeros behind the text's end.
            padded = F.pad(texts, (0, following))
            grams.append(F.relu(convolution(padded)).transpose(1, 2))
        return grams
