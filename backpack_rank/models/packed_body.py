"""The encoder inside a cross-encoder that was trained elsewhere, read without padding.

A classifier of transformers has a body, which gives hidden states, and a head, which makes a score
of them. Nearly all of the time goes into the body. :func:`pack_body` puts a :class:`PackedBody` in
its place: it takes a padded batch and gives padded hidden states as the body does, but computes on
a row of tokens without padding. The head is the library's and notices nothing.

Most heads look at the first token alone. Then the last layer is computed there alone, where the
body's layers allow it, and the hidden states have one position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attention import BACKEND, packed_hidden
from backpack_rank.models.pooled_layer import pool_last_layer

TYPES = ("bert", "electra", "distilbert", "roberta", "xlm-roberta", "camembert", "modernbert")
"""Encoders that read packed rows; each was tested against the library's own padded scores."""
_BEHIND_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Types whose positions begin behind the index of padding."""
_READ_FIRST_TOKEN = ("bert", "electra", "distilbert", "roberta", "xlm-roberta", "camembert")
"""Types whose classifiers of transformers look at the first token alone."""


class BodyOutput(NamedTuple):
    """What a classifier takes of its body.

    Attributes:
        last_hidden_state: [B, n, d], or [B, 1, d] where the head looks at the first token alone.
        pooler_output: of the body's pooler [B, d]; None without one.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: None = None
    attentions: None = None


class PackedBody(nn.Module):
    """Stands for an encoder: takes padded texts, and reads them as one row without padding."""

    def __init__(self, body: Any, first_token_alone: bool) -> None:
        """
        Args:
            body: an encoder of one of :data:`TYPES`.
            first_token_alone: whether nothing but the states of the first tokens is used.
        """
        super().__init__()
        body.set_attn_implementation(BACKEND)
        self.body = body
        self.config = body.config
        self.first_token_alone = first_token_alone
        self._pools_last_layer = first_token_alone and pool_last_layer(body)
        self._pooler = getattr(body, "pooler", None)
        if self._pooler is not None:
            # The body would run it on the packed row, whose first token is of the first text alone.
            body.pooler = None

    def padded(self) -> Any:
        """The encoder as the library has it; this body is not used again."""
        if self._pooler is not None:
            self.body.pooler = self._pooler
        return self.body

    def get_input_embeddings(self) -> nn.Module:
        """The word vectors."""
        return self.body.get_input_embeddings()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> BodyOutput:
        """Hidden states of right-padded texts [B, n], 0 at padding.

        Args:
            input_ids, attention_mask, token_type_ids: as the body takes them. [B, n]
        """
        mask = attention_mask.bool()
        batch = packed(input_ids, mask)
        options: dict[str, Any] = {}
        if token_type_ids is not None:
            options["token_type_ids"] = token_type_ids[mask][None]
        positions = positions_behind_padding(self.config, input_ids)
        if positions is not None:
            options["position_ids"] = positions[mask][None]
        first_tokens = batch.offsets[:-1].long()
        if self._pools_last_layer:
            options["rows"] = first_tokens
        hidden = packed_hidden(self.body, batch, **options)
        if self._pools_last_layer:
            states = hidden[:, None]
        elif self.first_token_alone:
            states = hidden[first_tokens][:, None]
        else:
            states = batch.pad(hidden)
        pooled = None if self._pooler is None else self._pooler(states)
        return BodyOutput(states, pooled)


def positions_behind_padding(config: Any, input_ids: Tensor) -> Tensor | None:
    """Positions of tokens where a type begins to count behind the index of padding. [B, n]

    None for other types, which count from 0.
    """
    if config.model_type not in _BEHIND_PADDING:
        return None
    # A text that spells the padding token has it without a position of its own.
    counts = (input_ids != config.pad_token_id).long()
    positions: Tensor = counts.cumsum(dim=1) * counts + config.pad_token_id
    return positions


def packed(input_ids: Tensor, mask: Tensor) -> PackedBatch:
    """Pack right-padded texts. [B, n] and bool [B, n]"""
    lengths = mask.sum(dim=1)
    ends = lengths.cumsum(0)
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    text_ids = torch.arange(len(mask), device=mask.device)[:, None].expand_as(mask)
    return PackedBatch(
        input_ids=input_ids[mask],
        position_ids=places[mask],
        text_ids=text_ids[mask],
        offsets=torch.cat([ends.new_zeros(1), ends]).int(),
        max_length=int(lengths.max()),
    )


def pack_body(classifier: Any, name: str | None = None, first_token_alone: bool = False) -> bool:
    """Let a classifier read its texts without padding; its scores stay the same.

    Args:
        classifier: of transformers, or a module with a body under ``name``. It is changed.
        name: of the body in it; None: where transformers keeps it.
        first_token_alone: whether the head looks at nothing else; known of transformers'
            classifiers.

    Returns:
        False where the body is of another type; then nothing is changed.
    """
    config = classifier.config
    if config.model_type not in TYPES or getattr(config, "is_decoder", False):
        return False
    if getattr(config, "position_embedding_type", "absolute") not in (None, "absolute"):
        return False
    if name is None:
        name = classifier.base_model_prefix
        if config.model_type == "modernbert":
            first_token_alone = config.classifier_pooling == "cls"
        else:
            first_token_alone = config.model_type in _READ_FIRST_TOKEN
    setattr(classifier, name, PackedBody(getattr(classifier, name), first_token_alone))
    return True
