"""The last layer of an encoder, computed only at the tokens whose states are used.

Other tokens enter the layer as keys and values, and their own states behind it are not used. The
states of the used tokens are those of the full layer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.electra.modeling_electra import ElectraLayer
from transformers.models.modernbert.modeling_modernbert import (
    ModernBertEncoderLayer,
    apply_rotary_pos_emb,
)
from transformers.models.roberta.modeling_roberta import RobertaLayer
from transformers.models.xlm_roberta.modeling_xlm_roberta import XLMRobertaLayer

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


class PooledRobertaLayer(_PooledLayer, RobertaLayer):
    """The last layer of RoBERTa."""


class PooledXLMRobertaLayer(_PooledLayer, XLMRobertaLayer):
    """The last layer of XLM-R."""


class PooledModernBertLayer(ModernBertEncoderLayer):
    """The last layer of ModernBERT; the tokens whose states are used are the first of each text."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: Any = None,
        packed: PackedBatch | None = None,
        rows: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """[1, T, d] -> [1, T, d], or [1, B, d] at the rows."""
        if rows is None:
            options |= {"packed": packed, "position_embeddings": position_embeddings}
            return super().forward(hidden_states, attention_mask, **options)
        assert packed is not None
        attention = self.attn
        qkv = attention.Wqkv(self.attn_norm(hidden_states))
        qkv = qkv.view(*hidden_states.shape[:-1], 3, -1, attention.head_dim)
        # From [1, T, heads, -] to [1, heads, T, -], the layout of the rotation.
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(dim=-3))
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings, unsqueeze_dim=1)
        queries = query[0, :, rows].transpose(0, 1)[:, :, None]  # [B, heads, 1, -]
        keys = packed.pad(key[0].transpose(0, 1)).transpose(1, 2)  # [B, heads, n, -]
        values = packed.pad(value[0].transpose(0, 1)).transpose(1, 2)
        mask = packed.padding_mask()
        if attention.sliding_window is not None:
            # The first token sees those less than a window away.
            places = torch.arange(packed.max_length, device=mask.device)
            mask = mask & (places < attention.sliding_window)
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, mask[:, None, None], scale=attention.head_dim**-0.5
        )
        pooled = hidden_states[:, rows] + attention.out_drop(attention.Wo(mixed.flatten(1)[None]))
        return pooled + self.mlp(self.mlp_norm(pooled))


_CLASSES: dict[type, type] = {
    BertLayer: PooledBertLayer,
    ElectraLayer: PooledElectraLayer,
    RobertaLayer: PooledRobertaLayer,
    XLMRobertaLayer: PooledXLMRobertaLayer,
    ModernBertEncoderLayer: PooledModernBertLayer,
}


def pool_last_layer(backbone: PreTrainedModel) -> bool:
    """Use this to let the last layer of an encoder take ``rows``.

    Returns:
        False where the backbone is of another type, or reads left to right.
    """
    layers = getattr(getattr(backbone, "encoder", backbone), "layer", None)
    if layers is None:
        layers = getattr(backbone, "layers", None)
    is_decoder = getattr(backbone.config, "is_decoder", False)
    if layers is None or type(layers[-1]) not in _CLASSES or is_decoder:
        return False
    layers[-1].__class__ = _CLASSES[type(layers[-1])]
    return True
