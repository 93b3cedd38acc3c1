"""What interactions share: their call, words of padded texts, cosine matches and kernels.

Kernel pooling: Xiong et al. 2017.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.checks import above, whole_number
from backpack_rank.models.token_shift import TokenShift


class Words(NamedTuple):
    """The words of B queries or documents.

    Attributes:
        vectors: [B, N, e].
        mask: true at words, false at padding, which stands to the right. bool [B, N]
        ids: [B, N].
        token_shift: how the vectors were moved, for whatever else is looked up by id.
    """

    vectors: Tensor
    mask: Tensor
    ids: Tensor
    token_shift: TokenShift | None = None

    def values(self, table: Tensor) -> Tensor:
        """The words' numbers from a table with one for each id, moved as vectors are. [B, N]"""
        if self.token_shift is None:
            return table[self.ids]
        return self.token_shift.values(table, self.ids)

    def cleared(self) -> Words:
        """The words with zero vectors at padding, and at least one column."""
        # Not a product with the mask: values at padding that are not finite are replaced too.
        vectors = self.vectors.masked_fill(~self.mask[..., None], 0.0)
        # A batch of empty texts gets a column of padding, over which sums and maxima can be taken.
        return self._replace(vectors=vectors).padded(1)

    def padded(self, width: int) -> Words:
        """At least ``width`` columns; further ones are padding."""
        missing = width - self.vectors.shape[1]
        if missing <= 0:
            return self
        return self._replace(
            vectors=F.pad(self.vectors, (0, 0, 0, missing)),
            mask=F.pad(self.mask, (0, missing), value=False),
            ids=F.pad(self.ids, (0, missing)),
        )

    def first(self, width: int) -> Words:
        """The first ``width`` columns at most."""
        return self._replace(
            vectors=self.vectors[:, :width], mask=self.mask[:, :width], ids=self.ids[:, :width]
        )


class Interaction(nn.Module, ABC):
    """Subclass this for a new way to compare the words of query and document.

    A subclass writes :meth:`compare` and need not think of what stands at padding.
    """

    def forward(
        self,
        query: Tensor,
        query_mask: Tensor,
        document: Tensor,
        document_mask: Tensor,
        query_ids: Tensor,
        document_ids: Tensor,
        token_shift: TokenShift | None = None,
    ) -> Tensor:
        """Scores of B texts.

        What stands at padding changes no score, so a padded batch gives the scores of each text
        alone.

        Args:
            query, document: word vectors. [B, Q, e], [B, D, e]
            query_mask, document_mask: true at words. [B, Q], [B, D]
            query_ids, document_ids: ids of the words. [B, Q], [B, D]
            token_shift: how the vectors were moved.

        Returns:
            [B]
        """
        query_words = Words(query, query_mask, query_ids, token_shift)
        document_words = Words(document, document_mask, document_ids, token_shift)
        return self.compare(query_words.cleared(), document_words.cleared())

    @abstractmethod
    def compare(self, query: Words, document: Words) -> Tensor:
        """Scores [B] of texts with zero vectors at padding and at least one column each."""


SMALLEST_SUM = 1e-10
"""Kernel sums are cut off here before their logarithm."""
LOG_SCALE = 0.01
"""Factor on log sums in the published code of KNRM and Conv-KNRM."""


def cosine_match(query: Tensor, document: Tensor) -> Tensor:
    """Cosines of every query term with every document term, [B, Q, e] and [B, D, e] -> [B, Q, D].

    Always in float32, also under autocast: equal vectors must have a cosine of 1 to about 1e-6,
    because the kernel of exact matches is 0.001 wide. A zero vector has a cosine of 0 with
    everything, and no gradient.
    """
    with torch.autocast(query.device.type, enabled=False):
        query, document = query.float(), document.float()
        # Lengths divide the products and not the vectors: in training, a match then takes a third
        # of the time.
        # Gradients are added in this order, and their last bits depend on it.
        products = query @ document.mT
        products = products * _inverse_lengths(query)[:, :, None]
        return products * _inverse_lengths(document)[:, None, :]


def _inverse_lengths(vectors: Tensor) -> Tensor:
    """1 / length of each vector; 0 of a zero vector."""
    lengths = vectors.norm(dim=-1)
    return lengths.masked_fill(lengths == 0, float("inf")).reciprocal()


class KernelPooling(nn.Module):
    """Soft counts of matches at each level of similarity: a histogram with Gaussian bins.

    The first kernel stands at 1 and is narrow, so it counts exact matches; the others divide [-1,
    1] evenly, from the best match to the worst (0.9, 0.7, ..., -0.9 for 11 kernels). Without a
    kernel for exact matches, all have the same width and stand evenly from -1 to 1.

    >>> KernelPooling(5).means
    (1.0, 0.75, 0.25, -0.25, -0.75)

    Args:
        kernels: K, the first one included.
        sigma: width of the kernels behind the first.
        exact_sigma: width of the first; None: no kernel for exact matches.

    Raises:
        ValueError: fewer than 2 kernels, or a width that is not above 0.
    """

    def __init__(
        self, kernels: int = 11, sigma: float = 0.1, exact_sigma: float | None = 0.001
    ) -> None:
        super().__init__()
        whole_number("kernels", kernels, 2)
        above("sigma", sigma, 0)
        above("exact_sigma", exact_sigma, 0, null="")
        others = kernels - 1
        # Plain numbers and not buffers: a ranker in half precision would round them.
        self.means: tuple[float, ...]
        if exact_sigma is None:
            self.means = tuple(2 * place / others - 1 for place in range(kernels))
            self.widths = (sigma,) * kernels
        else:
            # Middles of equal parts of [-1, 1], the highest first.
            middles = [(others - 1 - 2 * place) / others for place in range(others)]
            self.means = (1.0, *middles)
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
        sums = []
        for mean, width in zip(self.means, self.widths, strict=True):
            kernel = torch.exp((match - mean).square() * (-0.5 / width**2))
            sums.append((kernel * mask).sum(-1))
        return torch.stack(sums, dim=-1)

    def log_sums(
        self, query: Tensor, document: Tensor, query_mask: Tensor, document_mask: Tensor
    ) -> Tensor:
        """Logarithms of the soft counts of cosines, summed over the query's terms (eq. 5). [B, K]

        Args:
            query: vectors of the query's terms. [B, Q, e]
            document: of the document's. [B, D, e]
            query_mask, document_mask: as in :meth:`forward`.
        """
        sums = self(cosine_match(query, document), query_mask, document_mask)
        return (sums.clamp(min=SMALLEST_SUM).log() * query_mask[..., None]).sum(dim=1)
