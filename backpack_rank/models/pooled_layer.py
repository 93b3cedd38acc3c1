"""The last layer of an encoder, computed only at the tokens whose states are used.

Other tokens enter the layer as keys and values, and their own states behind it are not used. The
states of the used tokens are those of the full layer.
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
    """Mixin of a layer that takes ``rows`` [B], the tokens whose states are used.

    Without rows it is the library's layer.
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
        attention = self.attention.self
        head = (-1, attention.attention_head_size)
        pooled = hidden_states[:, rows]
        queries = attention.query(pooled)[0].unflatten(-1, head)[:, :, None]  # [B, heads, 1, -]
        keys = packed.pad(attention.key(hidden_states)[0]).unflatten(-1, head)
        values = packed.pad(attention.value(hidden_states)[0]).unflatten(-1, head)
        mixed = F.scaled_dot_product_attention(
            queries,
            keys.transpose(1, 2),
            values.transpose(1, 2),
            packed.padding_mask()[:, None, None],
            scale=attention.scaling,
        )
        return self.feed_forward_chunk(self.attention.output(mixed.flatten(1)[None], pooled))


class PooledBertLayer(_PooledLayer, BertLayer):
    """The last layer of BERT."""


class PooledElectraLayer(_PooledLayer, ElectraLayer):
    """The last layer of ELECTRA."""


_CLASSES: dict[type, type] = {BertLayer: PooledBertLayer, ElectraLayer: PooledElectraLayer}


def pool_last_layer(backbone: PreTrainedModel) -> bool:
    """Use this to let the last layer of an encoder take ``rows``.

    Returns:
        False where the backbone is of another type, or reads left to right.
    """
    layers = getattr(getattr(backbone, "encoder", None), "layer", None)
    if layers is None or type(layers[-1]) not in _CLASSES or backbone.config.is_decoder:
        return False
    layers[-1].__class__ = _CLASSES[type(layers[-1])]
    return True
