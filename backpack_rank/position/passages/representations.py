"""Vectors that rankers give to the tokens of documents.

They serve the study of how far these vectors know their position. Hofstätter et al. 2021
(section 5) take the passage terms of TK, which reads a passage without its query, and leave out
BERT_CAT and BERT_DOT because they score by one vector alone. Here every ranker is asked, and
documents are read alone as in the paper: rankers that read query and document together get a row
with no query token, so that all documents begin at the same position. A query can be given; then
every document stands behind the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.attention import packed_trunk
from backpack_rank.models.backbone import BackboneMixin
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.rankers import BackpackForRanking, DualEncoderForRanking, GPT2ForRanking

Representation: TypeAlias = Callable[[PackedBatch, Tensor], Tensor]
"""Vectors of chosen tokens of a packed batch of joined rows: (batch, chosen bool [T]) -> [n, d]."""

_Result = TypeVar("_Result")

CONTEXTUAL, WEIGHTS, SENSES = "contextual", "weights", "senses"
KINDS = {
    CONTEXTUAL: "the token in its context: last hidden states, or what the interaction model "
    "compares",
    WEIGHTS: "Backpack's contextual weights: how much of each of its k senses the score takes from "
    "the token",
    SENSES: "Backpack's sense vectors of the token, one after the other; they know neither context "
    "nor position",
}


@dataclass(frozen=True)
class DocumentRow:
    """A document as a ranker reads it.

    Attributes:
        ids: the joined row.
        start: where the document begins in it.
        length: tokens of the document, cut to fit.
    """

    ids: np.ndarray
    start: int
    length: int


def representations(ranker: Any) -> dict[str, Representation]:
    """Use this to get a ranker's token vectors, by the names of :data:`KINDS`.

    Encoders and decoders have the last hidden states of their backbone (of a dual encoder: query
    and document read apart). A Backpack has those of the backbone that makes its contextual
    weights, the weights a[l, j] themselves that its pooled token gives each token j (k numbers per
    token), and the sense vectors C(x_j) (k d numbers). A ranker with a method
    ``token_representations(batch) -> [T, e]`` has what it gives: TK's e^, others' word vectors.

    Raises:
        ValueError: the ranker has no vectors of tokens.
    """
    if isinstance(ranker, BackpackForRanking):
        backpack = ranker.backpack
        # Two kinds are made of them, and both are asked for the same batch one after the other.
        hidden_states = _remember_last(backpack.hidden_states)
        as_read = _remember_last(partial(_as_read, backpack))

        def contextual(batch: PackedBatch, chosen: Tensor) -> Tensor:
            read, places = as_read(batch)
            return hidden_states(read)[places[chosen]]

        def weights(batch: PackedBatch, chosen: Tensor) -> Tensor:
            read, places = as_read(batch)
            return sense_weights(backpack, read, hidden_states(read))[places[chosen]]

        return {
            CONTEXTUAL: contextual,
            WEIGHTS: weights,
            SENSES: lambda batch, chosen: sense_vectors(backpack, batch, chosen),
        }
    if isinstance(ranker, DualEncoderForRanking):
        return {CONTEXTUAL: lambda batch, chosen: apart(ranker, batch)[chosen]}
    if isinstance(ranker, GPT2ForRanking):
        return {CONTEXTUAL: lambda batch, chosen: packed_trunk(ranker.transformer, batch)[chosen]}
    if isinstance(ranker, BackboneMixin):
        return {CONTEXTUAL: lambda batch, chosen: ranker.hidden_states(batch)[chosen]}
    if hasattr(ranker, "token_representations"):
        return {CONTEXTUAL: lambda batch, chosen: ranker.token_representations(batch)[chosen]}
    raise ValueError(
        f"{type(ranker).__name__} gives tokens no vectors that could be compared; take an encoder, "
        "a decoder, a Backpack or a word-embedding ranker"
    )


def _as_read(backpack: BackpackModel, batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
    """A batch as the contextual network reads it, and the place in it of each token. [T]

    With attribute senses a word of several tokens has one position, which all of its tokens share.
    """
    if backpack.attribute_senses is None:
        return batch, torch.arange(len(batch.input_ids), device=batch.input_ids.device)
    read, kept = backpack.attribute_senses.read_and_kept(batch)
    return read, kept.long().cumsum(0) - 1


def sense_weights(backpack: BackpackModel, batch: PackedBatch, hidden: Tensor) -> Tensor:
    """Weights a[l, j] that the pooled token of each text gives its tokens j. [T, k]

    Args:
        backpack: the model.
        batch: of texts.
        hidden: its hidden states. [T, d]
    """
    pooled = backpack.pooled_positions(batch)
    weights = backpack.sense_weight_net.pooled(hidden, batch, pooled)  # [B, k, n]
    return weights.transpose(1, 2)[batch.padding_mask()]


def sense_vectors(backpack: BackpackModel, batch: PackedBatch, chosen: Tensor) -> Tensor:
    """The k sense vectors of each chosen token [T], laid behind one another. [n, k d]"""
    return backpack.senses(batch.input_ids[chosen]).flatten(1)


def apart(ranker: DualEncoderForRanking, batch: PackedBatch) -> Tensor:
    """Hidden states of a dual encoder, which reads query and document of each row apart. [T, d]"""
    assert ranker.config.separator_id is not None
    behind = behind_separator(batch, ranker.config.separator_id)
    documents = ranker.hidden_states(batch.select(behind))
    hidden = documents.new_zeros((len(behind), documents.shape[1]))
    hidden[behind] = documents
    hidden[~behind] = ranker.hidden_states(batch.select(~behind))
    return hidden


def document_rows(
    pair_tokenizer: PairTokenizer, documents: Sequence[np.ndarray], query: np.ndarray | None = None
) -> list[DocumentRow]:
    """Documents as a ranker reads them, without a query or all behind the same one.

    Args:
        pair_tokenizer: of the ranker.
        documents: their token ids, as ``pair_tokenizer.encode`` gives them.
        query: token ids of a query; None is no token.

    Raises:
        ValueError: a row of the encoder does not hold the document in one piece.
    """
    query = np.array([], dtype=np.int32) if query is None else query
    empty = pair_tokenizer.join(query, documents[0][:0]) if len(documents) else query
    rows = []
    for document in documents:
        ids = pair_tokenizer.join(query, document)
        length = len(ids) - len(empty)
        # The row differs from that of an empty document from where the document begins.
        different = np.flatnonzero(ids[: len(empty)] != empty)
        start = len(empty)
        if length and len(different):
            start = int(different[0])
        if not np.array_equal(ids[start : start + length], document[:length]):
            raise ValueError(
                f"{type(pair_tokenizer).__name__} puts documents into rows in more than one piece"
            )
        rows.append(DocumentRow(ids, start, length))
    return rows


def _remember_last(compute: Callable[[PackedBatch], _Result]) -> Callable[[PackedBatch], _Result]:
    """The same function, which remembers its result for the batch that it was asked about last."""
    known: list[tuple[PackedBatch, _Result]] = []

    def remembering(batch: PackedBatch) -> _Result:
        if not known or known[0][0] is not batch:
            known[:] = [(batch, compute(batch))]
        return known[0][1]

    return remembering
