"""The similarity of an encoder and its joint layers over padded rows, for a graph.

The same as :class:`~backpack_rank.models.similarity.JointLayers` over rows without padding, whose
weights it shares. B rows, n tokens, d hidden size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backpack_rank.models.similarity import JointLayers


class _Apart(NamedTuple):
    """Query and document of each row as texts of their own.

    Attributes:
        of_query, of_document: which tokens are theirs. bool [B, n]
        positions: of tokens, each text from 0. int64 [B, n]
        blocked: what is added to the logits of attention, 0 within a text. [B, 1, n, n]
        padding: the same within a row. [B, 1, 1, n]
    """

    of_query: Tensor
    of_document: Tensor
    positions: Tensor
    blocked: Tensor
    padding: Tensor


class PaddedJointLayers(nn.Module):
    """Reads rows [start, query, separator, start, document, end, padding ...]."""

    def __init__(self, backbone: Any, joint: JointLayers, separator_id: int) -> None:
        """
        Args:
            backbone: the encoder.
            joint: the layers that read query and document together.
            separator_id: token that a query ends with.
        """
        super().__init__()
        self.backbone = backbone
        self.joint = joint
        self.separator_id = separator_id

    def forward(self, vectors: Tensor, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States behind the joint layers and what the last of them reads, and the similarity.

        Args:
            vectors: word embeddings of the tokens. [B, n, e]
            ids: the tokens. int64 [B, n]
            mask: where there are tokens. bool [B, n]

        Returns:
            [B, d], [B, n, d] and [B].
        """
        apart = self._apart(ids, mask)
        lower = self._lower_states(vectors, apart)
        states = lower
        for layer in self.joint.layers[:-1]:
            states = layer(states, apart.padding)
        first_tokens = torch.zeros_like(ids[:, 0])
        pooled = self.joint.layers[-1](states, rows=first_tokens, is_token=mask)[:, 0]
        return pooled, states, self._cosines(lower, ids, apart)

    def similarity(self, vectors: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """The similarity alone [B]; arguments as of :meth:`forward`."""
        apart = self._apart(ids, mask)
        return self._cosines(self._lower_states(vectors, apart), ids, apart)

    def _apart(self, ids: Tensor, mask: Tensor) -> _Apart:
        separators = (ids == self.separator_id).long()
        is_behind = (separators.cumsum(1) - separators) > 0
        of_query = mask & ~is_behind
        query_lengths = of_query.sum(dim=1, keepdim=True)
        positions = torch.arange(ids.shape[1])[None] - is_behind.long() * query_lengths
        # Padding counts as document here: it is read, and nothing reads it.
        is_same_text = is_behind[:, :, None] == is_behind[:, None, :]
        allowed = is_same_text & mask[:, None, :]
        return _Apart(
            of_query,
            of_document=mask & is_behind,
            positions=positions,
            blocked=_as_logits(allowed)[:, None],
            padding=_as_logits(mask)[:, None, None],
        )

    def _lower_states(self, vectors: Tensor, apart: _Apart) -> Tensor:
        """Behind the layers that read texts apart. [B, n, d]"""
        states = self.backbone.embeddings(inputs_embeds=vectors, position_ids=apart.positions)
        if hasattr(self.backbone, "embeddings_project"):  # ELECTRA's embeddings may be narrower
            states = self.backbone.embeddings_project(states)
        for layer in self.backbone.encoder.layer[: self.joint.apart]:
            states = layer(states, apart.blocked)
        return states

    def _cosines(self, states: Tensor, ids: Tensor, apart: _Apart) -> Tensor:
        """Of the texts, and of their tokens where they are compared. [B]"""
        for layer in self.backbone.encoder.layer[self.joint.apart :]:
            states = layer(states, apart.blocked)
        of_query = self._vectors(states, apart.of_query)
        of_document = self._vectors(states, apart.of_document)
        cosine = self.joint.scale * (of_query * of_document).sum(dim=1)
        if not self.joint.token_scale:
            return cosine
        return cosine + self.joint.token_scale * self._of_tokens(states, ids, apart)

    def _of_tokens(self, states: Tensor, ids: Tensor, apart: _Apart) -> Tensor:
        """As of :func:`~backpack_rank.models.token_similarity.best_cosines`, its sum. [B]"""
        vectors = nn.functional.normalize(states, dim=-1)
        cosines = vectors @ vectors.transpose(1, 2)
        best = torch.where(apart.of_document[:, None, :], cosines, -1.0).amax(dim=2)
        # The query's first token is special, and so is the separator, which is its last.
        is_word = apart.of_query & (apart.positions > 0) & (ids != self.separator_id)
        return (best * is_word).sum(dim=1) / is_word.sum(dim=1).clamp(min=1)

    def _vectors(self, states: Tensor, is_token: Tensor) -> Tensor:
        """The unit vector of a text in each row. [B, d]"""
        if self.joint.pooling == "first":
            # The first of its tokens: behind it, more than one has been counted.
            is_token = is_token & (is_token.long().cumsum(1) == 1)
        # The mean's length does not matter to a unit vector: a sum will do.
        sums = (states * is_token[..., None]).sum(dim=1)
        return nn.functional.normalize(sums, dim=-1)


def _as_logits(allowed: Tensor) -> Tensor:
    """0 where attention is allowed, and the smallest number elsewhere."""
    smallest = torch.finfo(torch.float32).min
    return torch.where(allowed, 0.0, smallest)
