"""The dual encoder: query and document are read apart, and a score is the dot product of their vectors (BERT_DOT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.configuration import DualEncoderConfig
from backpack_rank.models.packing import PackedBatch, behind_separator
from backpack_rank.models.ranker import BackboneRanker, RankerOutput
from backpack_rank.models.reading import new_backbone


@dataclass(frozen=True)
class DualPairEncoder(PairEncoder):
    """Encodes the two texts of a pair as the encoder reads them alone, one behind the other.

    A joined row is [start, query, separator, start, document, end]. ``max_length`` is the limit of each of the two
    texts, added tokens included: a document is cut in the same place whatever the query, so that its vector can be
    computed once.

    Raises:
        ValueError: the separator is also the start token, so that it would not tell where a query ends.
    """

    def __post_init__(self) -> None:
        if self.start_id == self.separator_id:
            raise ValueError(
                f"token {self.separator_id} of the tokenizer starts a text and separates texts, so query and document "
                "cannot be told apart; give the tokenizer a sep_token of its own"
            )

    def queries(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each query as it is read: [start, query, separator]. Raises ``ValueError`` as :meth:`encode_query`."""
        return [self._query(self.encode_query(text)) for text in texts]

    def documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each document as it is read: [start, document, end], cut to ``max_length``."""
        return [self._document(ids) for ids in self.encode(texts)]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query. Raises ``ValueError`` when it is empty or longer than ``max_length``."""
        (ids,) = self.encode([text])
        if not len(ids):
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        if (length := len(self.start) + len(ids) + 1) > self.max_length:
            raise ValueError(
                f"the query has {length} tokens, added ones included, and max_length={self.max_length}; raise "
                f"max_length or shorten the query: {text[:80]!r}"
            )
        return ids

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[start, query, separator, start, document, end], the document's part cut to ``max_length``."""
        return np.concatenate([self._query(query), self._document(document)])

    def _query(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([self.start, ids, np.array([self.separator_id], dtype=np.int32)])

    def _document(self, ids: np.ndarray) -> np.ndarray:
        room = self.max_length - len(self.start) - 1
        return np.concatenate([self.start, ids[:room], np.array([self.end_id], dtype=np.int32)])


class DualEncoderForRanking(BackboneRanker):
    """One backbone for queries and documents; score = q . d of the vectors at their pooled tokens.

    Paper 001 section 2.3, eq. 3 (BERT_DOT): TF([CLS; q])_1 . TF([CLS; p])_1. Nothing is added to the backbone.
    """

    config: DualEncoderConfig
    config_class = DualEncoderConfig
    pair_encoder: ClassVar[type[PairEncoder]] = DualPairEncoder

    def __init__(self, config: DualEncoderConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self.post_init()

    def forward(self, batch: PackedBatch, return_senses: bool = False) -> RankerOutput:
        """Scores of the B rows of a packed batch, each a query and a document (:class:`DualPairEncoder`).

        A query that several rows have is read once.

        Raises:
            ValueError: when asked for sense vectors, or a row has no separator behind its query.
        """
        if return_senses:
            raise ValueError("a dual encoder has no sense vectors, so alpha cannot turn it; use a Backpack ranker")
        if self.config.separator_id is None:
            raise ValueError("the configuration names no separator_id, so a row cannot be split behind its query")
        behind = behind_separator(batch, self.config.separator_id)
        documents = batch.select(behind)
        if bool((documents.offsets[1:] == documents.offsets[:-1]).any()):
            raise ValueError("a row has no document behind its query; join the texts with DualPairEncoder")
        queries, rows = distinct(batch.select(~behind))
        return RankerOutput((self.encode_queries(queries)[rows] * self.encode_documents(documents)).sum(dim=-1))

    def encode_queries(self, batch: PackedBatch) -> Tensor:
        """Vectors of B queries [start, query, separator]. [B, d]"""
        return self._pooled(batch)

    def encode_documents(self, batch: PackedBatch) -> Tensor:
        """Vectors of B documents [start, document, end]; they depend on no query. [B, d]"""
        return self._pooled(batch)

    def _pooled(self, batch: PackedBatch) -> Tensor:
        return self.hidden_states(batch)[self.pooled_positions(batch)]


def distinct(batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
    """The different texts of a batch, in the order of their first places, and which of them each text is. [B]"""
    # One higher, so that a token with id 0 is not taken for padding.
    _, groups = torch.unique(batch.pad(batch.input_ids + 1), dim=0, return_inverse=True)
    places = torch.arange(len(batch), device=groups.device)
    first = torch.full_like(places, len(batch)).scatter_reduce(0, groups, places, "amin")[groups]
    kept = first == places
    if bool(kept.all()):
        return batch, places
    part = batch.select(kept[batch.text_ids])
    number = kept.long().cumsum(0) - 1
    offsets = torch.cat([part.offsets[:-1][kept], part.offsets[-1:]])
    texts = PackedBatch(part.input_ids, part.position_ids, number[part.text_ids], offsets, part.max_length)
    return texts, number[first]
