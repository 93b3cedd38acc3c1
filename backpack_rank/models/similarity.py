"""The similarity of an encoder in the score of a ranker of pairs, from one reading.

An encoder of texts, such as all-MiniLM-L6-v2, knows more of relevance than a pair network learns
from a few thousand labels. So a ranker may keep it whole and learn what it lacks::

    score = scale * cos(e(query), e(document)) + what the pair network adds

Query and document are read apart in the encoder's lower layers and by its upper ones; copies of the
upper layers read them together, and these alone are trained::

    embeddings, layers 1 .. L      of each text by itself, once in a batch
      |- layers L + 1 .. n         of each text by itself  -> mean over its tokens -> e(text)
      '- joint layers L + 1 .. n   of query and document   -> what a ranker reads of a pair

The head of a new ranker starts at 0, so that it begins as the encoder's cosine. The encoder is
never trained: e(text) stays what it was.

A vector of a text forgets much of its words. With ``token_similarity`` the encoder's states of
single tokens are compared too (:mod:`backpack_rank.models.token_similarity`). They are not trained.

Notation of the docstrings: B rows, each a query and a document as
:class:`~backpack_rank.models.rankers.JointPairTokenizer` joins them; T tokens of all rows; U
distinct texts; d hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from backpack_rank.checks import above, finite, one_of, whole_number
from backpack_rank.data.packing import PackedBatch, behind_separator, distinct, joined
from backpack_rank.models.pooled_layer import pool_layer
from backpack_rank.models.token_similarity import best_cosines

ENCODER_TYPES = ("bert", "electra")
"""Encoders whose layers can be called one by one on packed rows."""
POOLINGS = ("mean", "first")
"""How the vector of a text is made of those of its tokens."""
_OPTIONS = ("scale", "apart", "pooling", "token_similarity")


@dataclass(frozen=True)
class JointReading:
    """What is read of B rows.

    Attributes:
        pooled: last hidden states of the joint layers at each row's first token. [B, d]
        below: what the last of them reads. [T, d]
        similarity: scale * cosine of query and document, and the cosines of their tokens.
            float32 [B + b], behind those of the rows those of b others
    """

    pooled: Tensor
    below: Tensor
    similarity: Tensor


class JointLayers(nn.Module):
    """The upper layers that read query and document together, and the cosine beside them.

    Attributes:
        scale: factor of the cosine, the inverse of the temperature that the encoder was trained
            with.
        apart: L, lower layers in which query and document do not see each other.
        pooling: of a text's vector, one of :data:`POOLINGS`.
        layers: those that are trained, the last one of which is computed at one token.
        token_scale: factor of the cosines of single tokens; 0: they are not compared.
    """

    def __init__(self, backbone: PreTrainedModel, options: Mapping[str, Any]) -> None:
        """
        Args:
            backbone: the encoder; its upper layers give the joint layers their shape.
            options: ``scale``, ``apart``, ``pooling`` and, where it is not None,
                ``token_similarity``, of the ranker's configuration.

        Raises:
            ValueError: the encoder is of another type, or an option is unknown or out of its range.
        """
        super().__init__()
        model_type = backbone.config.model_type
        if model_type not in ENCODER_TYPES or getattr(backbone.config, "is_decoder", False):
            raise ValueError(
                f"similarity needs an encoder of type {' or '.join(ENCODER_TYPES)}, and this "
                f"backbone is of type {model_type!r}: leave it out (model.ranker.similarity=null)"
            )
        encoder_layers: Any = backbone.encoder.layer  # type: ignore[union-attr]
        for name in options:
            one_of("similarity", name, _OPTIONS)
        # What a folder's options lack is None here, which the checks below refuse.
        self.scale: Any = options.get("scale")
        self.apart: Any = options.get("apart")
        self.pooling: Any = options.get("pooling")
        above("similarity.scale", self.scale, 0)
        whole_number("similarity.apart", self.apart, 0, most=len(encoder_layers) - 1)
        one_of("similarity.pooling", self.pooling, POOLINGS)
        self.layers = copy.deepcopy(encoder_layers[self.apart :]).requires_grad_(True)
        pool_layer(self.layers[-1])
        self.token_scale: float = options.get("token_similarity", 0)
        finite("similarity.token_similarity", self.token_scale, least=0)

    def take_weights(self, backbone: PreTrainedModel) -> None:
        """Start as the encoder's own upper layers."""
        upper: Any = backbone.encoder.layer[self.apart :]  # type: ignore[union-attr,index]
        self.layers.load_state_dict(upper.state_dict())

    def read(
        self,
        backbone: PreTrainedModel,
        batch: PackedBatch,
        separator_id: int,
        others: PackedBatch | None = None,
    ) -> JointReading:
        """Read rows of a query and a document.

        Args:
            backbone: the encoder, whose word embeddings are moved already.
            batch: B rows.
            separator_id: token that a query ends with.
            others: b rows of which the similarity alone is wanted; read in the same pass.

        Raises:
            ValueError: a row has no document behind its query.
        """
        # Together, because they have queries in common, and a text is read once.
        rows = batch if others is None else joined(batch, others)
        texts, places = apart_texts(rows, separator_id)
        lower = self._lower_states(backbone, texts)
        last = self._last_states(backbone, lower, texts)
        similarity = self._similarity(last, texts, places)

        states = lower[rows_of_tokens(batch, texts, places[: len(batch)], separator_id)]
        # Above an encoder in half precision, layers that are trained are in float32.
        states = states.to(next(self.layers.parameters()).dtype)
        for layer in self.layers[:-1]:
            states = _layer_states(layer, states, batch)
        first_tokens = batch.offsets[:-1].long()
        pooled = _layer_states(self.layers[-1], states, batch, rows=first_tokens)
        return JointReading(pooled, states, similarity)

    def token_parts(
        self,
        backbone: PreTrainedModel,
        batch: PackedBatch,
        separator_id: int,
    ) -> Tensor:
        """What each token of a document adds to the similarity of its row. float32 [T]

        A mean over tokens is a sum, so these parts add up to the cosine::

            scale * cos(e(q), e(d)) = sum over tokens j of d: scale * e(q) . h_j / |sum_i h_i|

        Cosines of tokens add up too: a token of the document has what it is to those tokens of the
        query that find no better one. Tokens of queries have 0. With ``pooling=first`` the
        document's first token has the whole cosine of the texts.
        """
        texts, places = apart_texts(batch, separator_id)
        states = last = self._last_states(backbone, self._lower_states(backbone, texts), texts)
        vectors = unit_vectors(last, texts, self.pooling)
        if self.pooling == "first":
            is_first = F.one_hot(texts.offsets[:-1].long(), len(states)).sum(dim=0)
            states = states * is_first[:, None]
        sums = states.new_zeros((len(texts), states.shape[-1]))
        sums = sums.index_add(0, texts.text_ids, states)
        rows = rows_of_tokens(batch, texts, places, separator_id)
        of_queries = vectors[places[:, 0]][batch.text_ids]
        lengths = sums.norm(dim=-1)[places[:, 1]][batch.text_ids]
        parts = self.scale * (of_queries * states[rows]).sum(dim=-1) / lengths
        parts = parts * behind_separator(batch, separator_id)
        if self.token_scale:
            values, found = best_cosines(last, texts, places)
            query_lengths = (texts.offsets[1:] - texts.offsets[:-1]).long()[places[:, 0]]
            begins = batch.offsets[:-1].long() + query_lengths
            tokens = begins[:, None] + found
            parts = parts.index_add(0, tokens.flatten(), self.token_scale * values.flatten())
        return parts

    def _similarity(self, last: Tensor, texts: PackedBatch, places: Tensor) -> Tensor:
        """Of rows, whose texts have these last states. float32 [B]"""
        vectors = unit_vectors(last, texts, self.pooling)
        of_queries, of_documents = vectors[places[:, 0]], vectors[places[:, 1]]
        similarity = self.scale * (of_queries * of_documents).sum(dim=-1)
        if self.token_scale:
            values, _ = best_cosines(last, texts, places)
            similarity = similarity + self.token_scale * values.sum(dim=1)
        return similarity

    @torch.no_grad()
    def _lower_states(self, backbone: Any, texts: PackedBatch) -> Tensor:
        """Hidden states of texts behind the layers that read them apart. [T', d]"""
        states = backbone.embeddings(
            input_ids=texts.input_ids[None], position_ids=texts.position_ids[None]
        )
        if hasattr(backbone, "embeddings_project"):  # ELECTRA's embeddings may be narrower
            states = backbone.embeddings_project(states)
        states = states[0]
        for layer in backbone.encoder.layer[: self.apart]:
            states = _layer_states(layer, states, texts)
        return states

    @torch.no_grad()
    def _last_states(self, backbone: Any, states: Tensor, texts: PackedBatch) -> Tensor:
        """The encoder's own last states, from those behind the lower layers. float32 [T', d]"""
        for layer in backbone.encoder.layer[self.apart :]:
            states = _layer_states(layer, states, texts)
        # A cosine that is scaled by 20 has no digits to spare: half precision ends here.
        return states.float()


def unit_vectors(states: Tensor, texts: PackedBatch, pooling: str) -> Tensor:
    """Vectors of length 1 that an encoder makes of texts. [U, d]

    Args:
        states: its last hidden states. [T, d]
        texts: U texts.
        pooling: one of :data:`POOLINGS`.
    """
    if pooling == "first":
        return F.normalize(states[texts.offsets[:-1].long()], dim=-1)
    sums = states.new_zeros((len(texts), states.shape[-1]))
    sums = sums.index_add(0, texts.text_ids, states)
    lengths = (texts.offsets[1:] - texts.offsets[:-1])[:, None]
    return F.normalize(sums / lengths, dim=-1)


def with_similarity(vectors: Tensor, similarity: Tensor) -> Tensor:
    """Vectors with a number more, in float32: [..., d] and [...] -> [..., d + 1]."""
    return torch.cat([vectors.float(), similarity.float()[..., None]], dim=-1)


def apart_texts(batch: PackedBatch, separator_id: int) -> tuple[PackedBatch, Tensor]:
    """The distinct texts of rows: queries and documents, each as it is read by itself.

    >>> row = [101, 7, 102, 101, 8, 9, 102]  # [start] query [separator] [start] document [end]
    >>> texts, places = apart_texts(PackedBatch.from_sequences([row, row]), separator_id=102)
    >>> texts.lengths, places.tolist()
    ([3, 4], [[0, 1], [0, 1]])

    Returns:
        U texts, and which of them the query and the document of each row are [B, 2].

    Raises:
        ValueError: a row has no document behind its query.
    """
    in_document = behind_separator(batch, separator_id)
    # Query and document of row i are the texts 2 i and 2 i + 1; the tokens stay where they are.
    text_ids = 2 * batch.text_ids + in_document
    lengths = text_ids.bincount(minlength=2 * len(batch))
    if not bool(lengths.all()):
        row = int((lengths == 0).nonzero()[0]) // 2
        raise ValueError(
            f"row {row} has no query or no document: join them with JointPairTokenizer"
        )
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    tokens = torch.arange(len(text_ids), device=text_ids.device)
    apart = PackedBatch(
        input_ids=batch.input_ids,
        position_ids=tokens - offsets[text_ids],
        text_ids=text_ids,
        offsets=offsets.int(),
        max_length=int(lengths.max()),
    )
    texts, places = distinct(apart)
    return texts, places.view(-1, 2)


def rows_of_tokens(
    batch: PackedBatch, texts: PackedBatch, places: Tensor, separator_id: int
) -> Tensor:
    """Where each token of the rows stands among those of the distinct texts. [T]

    Args:
        batch: B rows.
        texts, places: of :func:`apart_texts`.
        separator_id: token that a query ends with.
    """
    in_document = behind_separator(batch, separator_id).long()
    text_of_token = places[batch.text_ids, in_document]
    # In a document, positions count from its own first token.
    query_lengths = (texts.offsets[1:] - texts.offsets[:-1]).long()[places[:, 0]]
    position = batch.position_ids - in_document * query_lengths[batch.text_ids]
    return texts.offsets.long()[text_of_token] + position


def _layer_states(
    layer: nn.Module, states: Tensor, batch: PackedBatch, rows: Tensor | None = None
) -> Tensor:
    """What a layer makes of packed states: [T, d] -> [T, d], or [B, d] at some rows."""
    options: dict[str, Any] = {} if rows is None else {"rows": rows}
    # A 4-D mask is passed through unchanged; packed attention looks at the batch alone.
    no_mask = states.new_zeros((1, 1, 1, 1), dtype=torch.bool)
    return layer(states[None], no_mask, packed=batch, **options)[0]
