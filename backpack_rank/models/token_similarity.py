"""Late interaction over an encoder that was trained for vectors of whole texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.data.packing import PackedBatch


def best_cosines(states: Tensor, texts: PackedBatch, places: Tensor) -> tuple[Tensor, Tensor]:
    """What each token of a query finds in a document (Khattab and Zaharia 2020, eq. 3, as a mean).

    ::

        values, found = best_cosines(states, texts, places)
        similarity = values.sum(dim=1)  # [B], from -1 to 1

    With unit vectors h of tokens, i of the n tokens of the query but its special ones and j of all
    tokens of the document::

        similarity = 1 / n * sum over i: max over j: h_i . h_j

    Args:
        states: last hidden states of an encoder. float32 [T', d]
        texts: U texts, each with a special token at its start and at its end.
        places: which texts are the query and the document of each row. [B, 2]

    Returns:
        The terms of the sum, of the longest query's L tokens, 0 where a query has none [B, L]; and
        which token of the document each is with, from 0 [B, L].
    """
    vectors = texts.pad(F.normalize(states, dim=-1))
    lengths = (texts.offsets[1:] - texts.offsets[:-1]).long()
    query_lengths, document_lengths = lengths[places].unbind(dim=1)
    # Documents are longer: of the padding, a product over queries needs that of queries alone.
    of_queries = vectors[:, : int(query_lengths.max())][places[:, 0]]
    of_documents = vectors[places[:, 1]]
    with torch.autocast(states.device.type, enabled=False):  # as of whole texts: in float32
        cosines = of_queries @ of_documents.transpose(1, 2)  # [B, L, tokens of the longest one]

    positions = torch.arange(vectors.shape[1], device=states.device)
    is_padding = positions >= document_lengths[:, None]
    best, found = cosines.masked_fill(is_padding[:, None], -1.0).max(dim=2)

    positions = positions[: best.shape[1]]
    is_word = (positions > 0) & (positions < query_lengths[:, None] - 1)
    # A query of no words has no terms.
    words = (query_lengths - 2).clamp(min=1)
    return torch.where(is_word, best, 0.0) / words[:, None], found
