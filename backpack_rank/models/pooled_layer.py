"""The last layer of an encoder, computed at the tokens alone that texts are read at.

All other tokens are read there once more, as keys and values, and what the layer makes of them
nobody looks at. The states of the read tokens are those of the whole layer.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.electra.modeling_electra import ElectraLayer

from backpack_rank.data.packing import PackedBatch


class _PooledLayer(nn.Module):
    """Mixin of a layer that takes ``rows`` [B], the tokens of interest; without them it is the
    library's own.
    """

    attention: Any
    feed_forward_chunk: Any

    def forward(
        self,
        hidden_states: Tensor,
        *arguments: Any,
        packed: PackedBatch | None = None,
        rows: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """[1, T, d] -> [1, T, d], or [1, B, d] at the rows."""
        if rows is None:
            return super().forward(hidden_states, *arguments, packed=packed, **options)
        assert packed is not None
        own, attention = hidden_states[:, rows], self.attention.self
        head = (-1, attention.attention_head_size)
        queries = attention.query(own)[0].unflatten(-1, head)[
            :, :, None
        ]  # [B, heads, 1, d / heads]
        keys, values = (
            packed.pad(linear(hidden_states)[0]).unflatten(-1, head).transpose(1, 2)
            for linear in (attention.key, attention.value)
        )
        mask = packed.padding_mask()[:, None, None]
        mixed = F.scaled_dot_product_attention(queries, keys, values, mask, scale=attention.scaling)
        return self.feed_forward_chunk(self.attention.output(mixed.flatten(1)[None], own))


class PooledBertLayer(_PooledLayer, BertLayer):
    """Of BERT."""


class PooledElectraLayer(_PooledLayer, ElectraLayer):
    """Of ELECTRA."""


_CLASSES: dict[type, type] = {BertLayer: PooledBertLayer, ElectraLayer: PooledElectraLayer}


def pool_last_layer(backbone: PreTrainedModel) -> bool:
    """Let the last layer take ``rows``; False where the backbone is of another type, or reads left
    to right.
    """
    layers = getattr(getattr(backbone, "encoder", None), "layer", None)
    if layers is None or type(layers[-1]) not in _CLASSES or backbone.config.is_decoder:
        return False
    layers[-1].__class__ = _CLASSES[type(layers[-1])]
    return True
