"""The dual encoder that is trained here: one backbone reads queries and documents apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.wordings import ApartPairTokenizer, split
from backpack_rank.models.apart import VectorRanker
from backpack_rank.models.backbone import new_backbone
from backpack_rank.models.configuration import DualEncoderConfig
from backpack_rank.models.rankers import BackboneRanker, DualPairTokenizer
from backpack_rank.models.token_shift import TokenShift


@dataclass(frozen=True)
class DualEncoderPairTokenizer(ApartPairTokenizer, DualPairTokenizer):
    """The rows of a :class:`DualPairTokenizer`, also of texts of several wordings."""

    def query_row(self, ids: np.ndarray) -> np.ndarray:
        """[start, query, separator]"""
        return self._query(ids)

    def document_row(self, ids: np.ndarray) -> np.ndarray:
        """[start, document, end], cut to ``max_length``."""
        return self._document(ids)


class DualEncoderForRanking(VectorRanker, BackboneRanker):
    """Searches with vectors: one backbone reads queries and documents apart.

    The score is the dot product of the two vectors at their pooled tokens. This is BERT_DOT
    (Hofstätter et al. 2021, eq. 3), TF([CLS; q])_1 . TF([CLS; p])_1; the backbone gets no new part.
    """

    config: DualEncoderConfig
    config_class = DualEncoderConfig
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = DualEncoderPairTokenizer

    def __init__(self, config: DualEncoderConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self.joint = None
        self.post_init()

    @property
    def vector_size(self) -> int:
        """D"""
        size: int = self.config.hidden_size
        return size

    def parts_of_row(self, row: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """See :meth:`ApartRanker.parts_of_row`: a query ends with the first separator."""
        return parts_of_row(row, self.config.separator_id, self.mark)

    def encode_queries(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B queries [start, query, separator]. [B, D]"""
        return self.pooled_states(batch, token_shift)

    def encode_documents(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B documents [start, document, end]; they depend on no query. [B, D]"""
        return self.pooled_states(batch, token_shift)


def parts_of_row(
    row: np.ndarray, separator_id: int | None, mark: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The query of a row, and the wordings of its document, between which ``mark`` stands.

    Raises:
        ValueError: it is no row of a :class:`DualEncoderPairTokenizer`.
    """
    if separator_id is None:
        raise ValueError(
            "the configuration names no separator_id, so a row cannot be split behind its query"
        )
    ends = np.flatnonzero(row == separator_id)
    if not len(ends) or ends[0] == len(row) - 1:
        raise ValueError(
            "a row has no document behind its query; join the texts with DualPairTokenizer"
        )
    return row[: ends[0] + 1], split(row[ends[0] + 1 :], mark)
