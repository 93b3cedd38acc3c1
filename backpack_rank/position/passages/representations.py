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
from backpack_rank.models.configuration import BELOW_LAST
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.rankers import BackpackForRanking, GPT2ForRanking

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
    """A document as a ranker reads it; :func:`document_rows` makes it.

    Attributes:
        ids: the joined row.
        start: where the document begins in it.
        length: tokens of the document, cut to fit.
    """

    ids: np.ndarray
    start: int
    length: int


def representations(ranker: Any) -> dict[str, Representation]:
    """Get a ranker's token vectors, by the names of :data:`KINDS`::

        vectors = representations(ranker)["contextual"](batch, chosen)  # [n, d]

    Encoders and decoders have the last hidden states of their backbone (of a dual encoder: query
    and document read apart; of a ranker with a similarity: what its last joint layer reads). A
    Backpack has those of the backbone that makes its contextual weights, the weights a[l, j]
    themselves that its pooled token gives each token j (k numbers per token), and the sense vectors
    C(x_j) (k d numbers). A ranker with a method ``token_representations(batch) -> [T, e]`` has what
    it gives: TK's e^, others' word vectors.

    Raises:
        ValueError: the ranker has no vectors of tokens.
    """
    if isinstance(ranker, BackpackForRanking):
        return _of_backpack(ranker.backpack)
    if isinstance(ranker, DualEncoderForRanking):
        return {CONTEXTUAL: lambda batch, chosen: apart(ranker, batch)[chosen]}
    if isinstance(ranker, GPT2ForRanking):
        return {CONTEXTUAL: lambda batch, chosen: packed_trunk(ranker.transformer, batch)[chosen]}
    if isinstance(ranker, BackboneMixin):
        return {CONTEXTUAL: lambda batch, chosen: _states(ranker, batch)[chosen]}
    if hasattr(ranker, "token_representations"):
        return {CONTEXTUAL: lambda batch, chosen: ranker.token_representations(batch)[chosen]}
    raise ValueError(
        f"{type(ranker).__name__} gives tokens no vectors that could be compared; take an encoder, "
        "a decoder, a Backpack or a word-embedding ranker"
    )


def _of_backpack(backpack: BackpackModel) -> dict[str, Representation]:
    # Two kinds need both, for the same batch, one after the other.
    hidden_states = _remember_last(partial(_states, backpack))
    as_read = _remember_last(partial(_as_read, backpack))

    def contextual(batch: PackedBatch, chosen: Tensor) -> Tensor:
        batch_read, places = as_read(batch)
        return hidden_states(batch_read)[places[chosen]]

    def weights(batch: PackedBatch, chosen: Tensor) -> Tensor:
        batch_read, places = as_read(batch)
        hidden = hidden_states(batch_read)
        return sense_weights(backpack, batch_read, hidden)[places[chosen]]

    def senses(batch: PackedBatch, chosen: Tensor) -> Tensor:
        return sense_vectors(backpack, batch, chosen)

    return {CONTEXTUAL: contextual, WEIGHTS: weights, SENSES: senses}


def _states(network: BackboneMixin, batch: PackedBatch) -> Tensor:
    """Hidden states of a network [T, d]; of one with a similarity, those of its joint layers."""
    if getattr(network, "joint", None) is not None:
        return network.read_jointly(batch).below
    return network.hidden_states(batch)


def _as_read(backpack: BackpackModel, batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
    """A batch as the contextual network reads it, and the place in it of each token. [T]

    With attribute senses a word of several tokens has one position, which all of its tokens share.
    """
    if backpack.attribute_senses is None:
        return batch, torch.arange(len(batch.input_ids), device=batch.input_ids.device)
    batch_read, kept = backpack.attribute_senses.read_and_kept(batch)
    # Tokens that are not kept have the place of the kept token before them.
    return batch_read, kept.long().cumsum(0) - 1


def sense_weights(backpack: BackpackModel, batch: PackedBatch, hidden: Tensor) -> Tensor:
    """The weights a[l, j] that the pooled token of each text gives its tokens. [T, k]

    Args:
        backpack: the model.
        batch: of texts.
        hidden: its hidden states. [T, d]
    """
    if backpack.config.sense_keys == BELOW_LAST:
        weights = backpack.pooled_weights(batch)  # the last hidden states do not give keys
    else:
        pooled = backpack.pooled_positions(batch)
        weights = backpack.sense_weight_net.pooled(hidden, batch, pooled)  # [B, k, n]
    return weights.transpose(1, 2)[batch.padding_mask()]


def sense_vectors(backpack: BackpackModel, batch: PackedBatch, chosen: Tensor) -> Tensor:
    """The k sense vectors of each chosen token [T], end to end. [n, k d]"""
    return backpack.senses(batch.input_ids[chosen]).flatten(1)


def apart(ranker: DualEncoderForRanking, batch: PackedBatch) -> Tensor:
    """The hidden states of a dual encoder, which reads queries apart. [T, d]

    Query and document of each row are read as two texts, and stand in the rows of the batch again.
    """
    assert ranker.config.separator_id is not None
    of_document = behind_separator(batch, ranker.config.separator_id)
    documents = ranker.hidden_states(batch.select(of_document))
    hidden = documents.new_zeros((len(of_document), documents.shape[1]))
    hidden[of_document] = documents
    hidden[~of_document] = ranker.hidden_states(batch.select(~of_document))
    return hidden


def document_rows(
    pair_tokenizer: PairTokenizer, documents: Sequence[np.ndarray], query: np.ndarray | None = None
) -> list[DocumentRow]:
    """Read documents without a query, or all behind the same query::

        rows = document_rows(pair_tokenizer, pair_tokenizer.encode(["first text", "second"]))

    Args:
        pair_tokenizer: of the ranker.
        documents: their token ids, as ``pair_tokenizer.encode`` gives them.
        query: token ids of a query; None for no query.

    Raises:
        ValueError: a row of the encoder does not hold the document in one piece.
    """
    if query is None:
        query = np.array([], dtype=np.int32)
    if not len(documents):
        return []
    # The row of an empty document: the query and all special tokens.
    empty = pair_tokenizer.join(query, documents[0][:0])
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
    """The same function, which computes its result once for a batch that is asked for again.

    It keeps the result of the last batch only: results are large.
    """
    known: list[tuple[PackedBatch, _Result]] = []

    def remembering(batch: PackedBatch) -> _Result:
        if not known or known[0][0] is not batch:
            known[:] = [(batch, compute(batch))]
        return known[0][1]

    return remembering
