"""PACRR: the strongest n-gram matches of each query term (Hui et al. 2017, EMNLP)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.checks import whole_number
from backpack_rank.constructors import Layers, Width
from backpack_rank.models.interactions.base import Interaction, Words, cosine_match


class Pacrr(Interaction):
    """Convolutions l x l over the cosine matrix, max over filters, and k-max over the document.

    The sizes l are 2 .. windows. For l = 1 the signal at (i, j) is the cosine itself, for larger l
    the maximum over the filters of relu(conv_l) with the window's first corner at (i, j); beyond
    the texts the matrix is 0. Of each query term and each l the ``top`` largest signals over the
    document's terms are kept, largest first, 0 where it has fewer terms. Rows of the query's terms
    (0 beyond it) go through two dense layers to the score, which are the form that the authors'
    published code gives the paper's recurrent layer. With ``vocabulary_size`` each row has one
    value more: the term's IDF after a softmax over the query's terms.

    Args:
        embedding_size: e; no weight depends on it.
        query_length: terms of a query that are read (16 in the paper); later ones are cut off.
        windows: largest window l_g (3 in the paper), at least 1.
        filters: of each convolution (32 in the paper).
        top: k of the k-max pooling (2 in the paper).
        hidden: width of the two dense layers (32 in the published code).
        vocabulary_size: number of term ids; None leaves the terms' weights out. The IDF values are
            a buffer, all 0 (equal weights) until :meth:`set_idf`, and saved with the weights.

    Raises:
        ValueError: a size is below 1.
    """

    idf: Tensor | None

    def __init__(
        self,
        embedding_size: int,
        query_length: Width = 16,
        windows: Layers = 3,
        filters: Width = 32,
        top: Layers = 2,
        hidden: Width = 32,
        vocabulary_size: int | None = None,
    ) -> None:
        super().__init__()
        whole_number("query_length", query_length, 1)
        whole_number("windows", windows, 1)
        whole_number("filters", filters, 1)
        whole_number("top", top, 1)
        whole_number("hidden", hidden, 1)
        self.query_length = query_length
        self.top = top
        self.convolutions = nn.ModuleList(
            nn.Conv2d(1, filters, length) for length in range(2, windows + 1)
        )
        features = windows * top
        idf = None
        if vocabulary_size is not None:
            features += 1
            idf = torch.zeros(vocabulary_size)
        self.register_buffer("idf", idf)
        self.dense_1 = nn.Linear(query_length * features, hidden)
        self.dense_2 = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1)

    def set_idf(self, values: Tensor) -> None:
        """Give each term id its IDF. [vocabulary]

        Raises:
            ValueError: made without ``vocabulary_size``, or another number of values.
        """
        if self.idf is None:
            raise ValueError("this PACRR weighs no terms: give vocabulary_size to make it do so")
        if values.shape != self.idf.shape:
            raise ValueError(
                f"{tuple(values.shape)} IDF values for a vocabulary of {len(self.idf)} terms"
            )
        self.idf.copy_(values)

    def compare(self, query: Words, document: Words) -> Tensor:
        """See :class:`Interaction`."""
        query = query.first(self.query_length).padded(self.query_length)
        matrix = cosine_match(query.vectors, document.vectors).to(self.score.weight.dtype)
        signals = [matrix]
        for following, convolution in enumerate(self.convolutions, start=1):
            # Zeros behind both texts: every term is the first corner of a window.
            padded = F.pad(matrix[:, None], (0, following, 0, following))
            maps = convolution(padded)
            signals.append(F.relu(maps).amax(dim=1))
        rows = [largest(signal, document.mask, self.top) for signal in signals]
        if self.idf is not None:
            rows.append(self._term_weights(query))
        features = torch.cat(rows, dim=-1) * query.mask[..., None]
        hidden = F.relu(self.dense_1(features.flatten(1)))
        hidden = F.relu(self.dense_2(hidden))
        return self.score(hidden).squeeze(-1)

    def _term_weights(self, query: Words) -> Tensor:
        """Softmax of IDF over the query's terms. [B, Q, 1]"""
        assert self.idf is not None
        values = query.values(self.idf).float()
        # The lowest number and not minus infinity: of an empty query the softmax must be a number,
        # which compare() multiplies by 0.
        lowest = torch.finfo(values.dtype).min
        weights = values.masked_fill(~query.mask, lowest).softmax(dim=1)
        return weights.to(self.score.weight.dtype)[..., None]


def largest(signals: Tensor, document_mask: Tensor, top: int) -> Tensor:
    """The ``top`` largest signals of each query term over the document's terms.

    The largest comes first; zeros follow where the document has fewer terms.

    >>> signals = torch.tensor([[[0.5, 0.9, 0.7]]])
    >>> largest(signals, torch.tensor([[True, True, False]]), 3)
    tensor([[[0.9000, 0.5000, 0.0000]]])

    Args:
        signals: [B, Q, D].
        document_mask: [B, D].

    Returns:
        [B, Q, top].
    """
    signals = signals.masked_fill(~document_mask[:, None], float("-inf"))
    count = min(top, signals.shape[2])
    strongest = signals.topk(count, dim=2).values
    strongest = strongest.masked_fill(strongest == float("-inf"), 0.0)
    return F.pad(strongest, (0, top - count))
