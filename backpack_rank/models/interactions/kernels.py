"""Cosine match matrices and Gaussian kernel pooling over them (Xiong et al. 2017), shared by the kernel rankers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from backpack_rank.checks import above, at_least

SMALLEST_SUM = 1e-10
"""Kernel sums are cut off here before their logarithm."""
LOG_SCALE = 0.01
"""Factor on log sums in the published code of KNRM and Conv-KNRM."""


def cosine_match(query: Tensor, document: Tensor) -> Tensor:
    """Cosines of every query term with every document term, [B, Q, e] and [B, D, e] -> [B, Q, D].

    Always in float32, also under autocast: equal vectors must have a cosine of 1 to about 1e-6, because the kernel of
    exact matches is 0.001 wide. A zero vector has a cosine of 0 with everything, and no gradient.
    """
    with torch.autocast(query.device.type, enabled=False):
        query, document = query.float(), document.float()
        # Lengths divide the products and not the vectors: a third of the time of a training step's match.
        return (query @ document.mT) * _inverse_lengths(query)[:, :, None] * _inverse_lengths(document)[:, None, :]


def _inverse_lengths(vectors: Tensor) -> Tensor:
    lengths = vectors.norm(dim=-1)
    return lengths.masked_fill(lengths == 0, float("inf")).reciprocal()


class KernelPooling(nn.Module):
    """Soft counts of matches at each level of similarity: a histogram with Gaussian bins.

    The first kernel stands at 1 and is narrow, so it counts exact matches; the others divide [-1, 1] evenly, from the
    best match to the worst (0.9, 0.7, ..., -0.9 for 11 kernels). Without an exact one, all kernels are alike and stand
    evenly from -1 to 1.
    """

    def __init__(self, kernels: int = 11, sigma: float = 0.1, exact_sigma: float | None = 0.001) -> None:
        """Args: number of kernels K, the first one included, and the widths of the others and of the first.

        ``exact_sigma`` None: no kernel for exact matches.

        Raises:
            ValueError: fewer than 2 kernels, or a width that is not above 0.
        """
        super().__init__()
        at_least("kernels", kernels, 2)
        above("sigma", sigma, 0)
        above("exact_sigma", exact_sigma, 0, null="")
        others = kernels - 1
        # Plain numbers and not buffers: a ranker in half precision would round them.
        self.means: tuple[float, ...]
        if exact_sigma is None:
            self.means = tuple(2 * place / others - 1 for place in range(kernels))
            self.widths = (sigma,) * kernels
        else:
            self.means = (1.0, *((others - 1 - 2 * place) / others for place in range(others)))
            self.widths = (exact_sigma, *(sigma,) * others)

    def extra_repr(self) -> str:
        return f"kernels={len(self.means)}, sigma={self.widths[-1]}, first={self.widths[0]}"

    def forward(self, match: Tensor, query_mask: Tensor, document_mask: Tensor) -> Tensor:
        """Sum over document terms of exp(-(m - mu)^2 / (2 sigma^2)) (eq. 4 of the paper), float32.

        Args:
            match: similarities [B, Q, D].
            query_mask: True where the query has a term. [B, Q]
            document_mask: True where the document has one. [B, D]

        Returns:
            [B, Q, K]; 0 in rows without a query term.
        """
        mask = (query_mask[:, :, None] & document_mask[:, None, :]).float()
        match = match.float()
        sums = [
            (torch.exp((match - mean).square() * (-0.5 / width**2)) * mask).sum(-1)
            for mean, width in zip(self.means, self.widths, strict=True)
        ]
        return torch.stack(sums, dim=-1)

    def log_sums(self, query: Tensor, document: Tensor, query_mask: Tensor, document_mask: Tensor) -> Tensor:
        """Logarithms of the soft counts of cosines, summed over the query's terms (eq. 5). [B, K]

        Args:
            query: vectors of the query's terms. [B, Q, e]
            document: of the document's. [B, D, e]
            query_mask, document_mask: as in :meth:`forward`.
        """
        sums = self(cosine_match(query, document), query_mask, document_mask)
        return (sums.clamp(min=SMALLEST_SUM).log() * query_mask[..., None]).sum(dim=1)
