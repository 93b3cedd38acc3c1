"""Tokens that a query and a document share, as a part of a score: BM25 without lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from backpack_rank.checks import above
from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.models.token_shift import TokenShift

SATURATION = 0.5
"""Occurrences that a token needs in a document for half of what it can add (BM25's k1 at b = 0)."""


class TokenMatches(nn.Module):
    """Makes of the tokens that query and document share a number for each pair::

        matches = TokenMatches(weight=0.5, vocabulary=len(tokenizer))
        matches.count(frequencies, documents, tokenizer.all_special_ids)
        matches(batch, separator_id)  # [B]

    With tf occurrences of token t in document d, df of N documents that hold it, and the k1 of
    :data:`SATURATION`, this is BM25 (Robertson and Zaragoza 2009, eq. 3.15) at b = 0::

        weight * sum over tokens t of q: idf(t) * tf(t, d) / (tf(t, d) + k1)
        idf(t) = ln(1 + (N - df(t) + .5) / (df(t) + .5))

    Until :meth:`count` has counted documents, no token adds anything. Words that attribute senses
    read as forms have ids behind the vocabulary, and add nothing.

    Attributes:
        weight: of the sum, above 0.
        frequencies: df of each token, and -1 of those that add nothing. [vocabulary]
        documents: N.
    """

    # Saved with the weights, and integers: half precision does not round them.
    frequencies: Tensor
    documents: Tensor

    def __init__(self, weight: float, vocabulary: int) -> None:
        super().__init__()
        above("similarity.matches", weight, 0)
        self.weight = weight
        self.register_buffer("frequencies", torch.full((vocabulary,), -1))
        self.register_buffer("documents", torch.tensor(0))

    def count(self, frequencies: Tensor, documents: int, special_ids: list[int]) -> None:
        """Take what the IDF is made of from a collection.

        Args:
            frequencies: in how many documents each token stands. int64 [vocabulary]
            documents: how many documents there are.
            special_ids: tokens that are of no word.
        """
        self.frequencies.copy_(frequencies)
        self.frequencies[special_ids] = -1
        self.documents.fill_(documents)

    def forward(
        self, batch: PackedBatch, separator_id: int, token_shift: TokenShift | None = None
    ) -> Tensor:
        """The sum of each row. float32 [B]"""
        parts = self.of_tokens(batch, separator_id, token_shift)
        return parts.new_zeros(len(batch)).index_add(0, batch.text_ids, parts)

    def of_tokens(
        self, batch: PackedBatch, separator_id: int, token_shift: TokenShift | None = None
    ) -> Tensor:
        """What each token of a document adds to the sum of its row. float32 [T]

        The tf occurrences of a token have equal parts, and tokens of queries have 0.

        Args:
            batch: B rows, each of a query and a document.
            separator_id: token that a query ends with.
            token_shift: a word that it moves keeps alpha of what it adds.
        """
        ids, in_document = batch.input_ids, behind_separator(batch, separator_id)
        # One number for each token of each row.
        kinds, kind_of_token = (batch.text_ids * (ids.max() + 1) + ids).unique(return_inverse=True)
        counts = torch.zeros((2, len(kinds)), device=ids.device)
        of_query, of_document = counts
        of_query.index_add_(0, kind_of_token, (~in_document).float())
        of_document.index_add_(0, kind_of_token, in_document.float())
        saturated = of_query / (of_document + SATURATION)
        weights = self.token_weights(ids)
        if token_shift is not None:
            weights = weights * token_shift.share_kept(ids)
        return weights * saturated[kind_of_token] * in_document

    def token_weights(self, ids: Tensor) -> Tensor:
        """Weight * idf of token ids [...], 0 of those that add nothing. float32 [...]"""
        vocabulary = len(self.frequencies)
        frequencies = self.frequencies[ids.clamp(max=vocabulary - 1)]
        idf = torch.log1p((self.documents - frequencies + 0.5) / (frequencies + 0.5))
        is_counted = (ids < vocabulary) & (frequencies >= 0)
        return self.weight * torch.where(is_counted, idf, 0.0)
