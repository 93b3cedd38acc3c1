"""The last layer of an encoder, computed only at the tokens whose states are used.

Other tokens enter the layer as keys and values, and their own states behind it are not used. The
states of the used tokens are those of the full layer.

A Backpack may read the keys of its sense weights from below the last layer. So the layer can hand
on what it read, behind its own states: whatever the backbone does to the last states, such as a
final norm, is then done to both.

Texts stand in a packed row or in padded rows. Arguments of a layer's forward pass beside the
library's own say what is wanted:

- ``packed``: the texts of a packed row [1, T, d]; without it rows are padded, [B, n, d];
- ``rows``: where the used token of each text stands, in the packed row or in its padded row [B];
  without it all tokens are used, and the layer is the library's;
- ``is_token``: where padded rows have tokens, with ``rows``. bool [B, n]
- ``keep_input``: whether the states that the layer read follow its own.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import BELOW_LAST


class _PooledLayer(nn.Module):
    """Mixin of a layer of BERT's form; arguments as in the module's docstring."""

    attention: Any
    feed_forward_chunk: Any

    def forward(
        self,
        hidden_states: Tensor,
        *arguments: Any,
        packed: PackedBatch | None = None,
        rows: Tensor | None = None,
        is_token: Tensor | None = None,
        keep_input: bool = False,
        **options: Any,
    ) -> Tensor:
        """States at all tokens or at the rows [1, T | B, d] or [B, n | 1, d], then those read."""
        if rows is None:
            states = super().forward(hidden_states, *arguments, packed=packed, **options)
        else:
            states = self._at_rows(hidden_states, packed, rows, is_token)
        return torch.cat([states, hidden_states], dim=1) if keep_input else states

    def _at_rows(
        self,
        hidden_states: Tensor,
        packed: PackedBatch | None,
        rows: Tensor,
        is_token: Tensor | None,
    ) -> Tensor:
        attention = self.attention.self
        head = (-1, attention.attention_head_size)
        pooled = _used(hidden_states, rows, packed)  # [1, B, d] or [B, 1, d]
        queries = attention.query(pooled).view(rows.shape[0], 1, *head)
        keys = _by_text(attention.key(hidden_states), packed).unflatten(-1, head)
        values = _by_text(attention.value(hidden_states), packed).unflatten(-1, head)
        mixed = F.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            _attention_mask(packed, is_token),
            dropout_p=attention.dropout.p if self.training else 0.0,
            scale=attention.scaling,
        )  # [B, heads, 1, d / heads]
        mixed = mixed.flatten(1).view_as(pooled)
        return self.feed_forward_chunk(self.attention.output(mixed, pooled))


class _PooledModernBertLayer(nn.Module):
    """Mixin of a layer of ModernBERT; arguments as in the module's docstring."""

    attn: Any
    attn_norm: Any
    mlp: Any
    mlp_norm: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: Any = None,
        packed: PackedBatch | None = None,
        rows: Tensor | None = None,
        is_token: Tensor | None = None,
        keep_input: bool = False,
        **options: Any,
    ) -> Tensor:
        """States at all tokens or at the rows [1, T | B, d] or [B, n | 1, d], then those read."""
        if rows is None:
            options |= {"packed": packed, "position_embeddings": position_embeddings}
            states = super().forward(hidden_states, attention_mask, **options)
        else:
            states = self._at_rows(hidden_states, position_embeddings, packed, rows, is_token)
        return torch.cat([states, hidden_states], dim=1) if keep_input else states

    def _at_rows(
        self,
        hidden_states: Tensor,
        position_embeddings: Any,
        packed: PackedBatch | None,
        rows: Tensor,
        is_token: Tensor | None,
    ) -> Tensor:
        # Imported with the layer that this is a part of.
        from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

        attention = self.attn
        qkv = attention.Wqkv(self.attn_norm(hidden_states))
        qkv = qkv.view(*hidden_states.shape[:-1], 3, -1, attention.head_dim)
        # From [1, T, heads, -] to [1, heads, T, -], the layout of the rotation.
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(dim=-3))
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings, unsqueeze_dim=1)
        queries = _used(query.transpose(1, 2), rows, packed)
        queries = queries.reshape(rows.shape[0], -1, 1, attention.head_dim)  # [B, heads, 1, -]
        keys = _by_text(key.transpose(1, 2), packed)  # [B, n, heads, -]
        values = _by_text(value.transpose(1, 2), packed)
        mask = _attention_mask(packed, is_token)
        if attention.sliding_window is not None:
            # The used token sees those less than a window away.
            places = torch.arange(mask.shape[-1], device=mask.device)  # [n]
            used = rows if packed is None else packed.position_ids[rows]  # [B], in their texts
            distances = (places - used[:, None]).abs()  # [B, n]
            mask = mask & (distances < attention.sliding_window)[:, None, None]
        mixed = F.scaled_dot_product_attention(
            queries,
            keys.transpose(1, 2),
            values.transpose(1, 2),
            mask,
            dropout_p=attention.attention_dropout if self.training else 0.0,
            scale=attention.head_dim**-0.5,
        )
        pooled = _used(hidden_states, rows, packed)
        mixed = attention.Wo(mixed.flatten(1).view_as(pooled))
        pooled = pooled + attention.out_drop(mixed)
        return pooled + self.mlp(self.mlp_norm(pooled))


def _used(states: Tensor, rows: Tensor, packed: PackedBatch | None) -> Tensor:
    """States of the used tokens: [1, T, ...] -> [1, B, ...], or [B, n, ...] -> [B, 1, ...]."""
    if packed is not None:
        return states[:, rows]
    return states[torch.arange(states.shape[0], device=rows.device), rows][:, None]


def _by_text(states: Tensor, packed: PackedBatch | None) -> Tensor:
    """States of each text in a row of its own. [B, n, ...]"""
    return states if packed is None else packed.pad(states[0])


def _attention_mask(packed: PackedBatch | None, is_token: Tensor | None) -> Tensor:
    """No key is padding. bool [B, 1, 1, n]"""
    mask = is_token if packed is None else packed.padding_mask()
    assert mask is not None
    return mask[:, None, None]


POOLED_TYPES = ("bert", "electra", "roberta", "xlm-roberta", "modernbert")
"""Encoders whose last layer can be computed at some tokens alone."""
_LAYERS: dict[str, type] = {
    "transformers.models.bert.modeling_bert.BertLayer": _PooledLayer,
    "transformers.models.electra.modeling_electra.ElectraLayer": _PooledLayer,
    "transformers.models.roberta.modeling_roberta.RobertaLayer": _PooledLayer,
    "transformers.models.xlm_roberta.modeling_xlm_roberta.XLMRobertaLayer": _PooledLayer,
    "transformers.models.modernbert.modeling_modernbert.ModernBertEncoderLayer": (
        _PooledModernBertLayer
    ),
}
"""The library's layers, by name: a process imports the one that its ranker has, not all five."""


def _path(layer: object) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


@cache
def _pooled_class(path: str) -> type:
    """The library's layer with its mixin over it."""
    module, _, name = path.rpartition(".")
    library_layer = getattr(import_module(module), name)
    return type(f"Pooled{name}", (_LAYERS[path], library_layer), {})


def __getattr__(name: str) -> type:
    """The pooled layer of this name, for a process that unpickles a ranker."""
    for path in _LAYERS:
        if name == f"Pooled{path.rpartition('.')[2]}":
            return _pooled_class(path)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def can_pool_last_layer(backbone: PreTrainedModel) -> bool:
    """Whether the last layer of a backbone can be computed at some tokens alone.

    False where the backbone is of a type without such a layer here, or reads left to right.
    """
    is_decoder = getattr(backbone.config, "is_decoder", False)
    return _path(_last_layer(backbone)) in _LAYERS and not is_decoder


def pool_last_layer(backbone: PreTrainedModel) -> bool:
    """Let the last layer of an encoder take ``rows``.

    Returns:
        False where the backbone cannot: see :func:`can_pool_last_layer`.
    """
    if not can_pool_last_layer(backbone):
        return False
    pool_layer(_last_layer(backbone))
    return True


def pool_layer(layer: Any) -> None:
    """Let a layer of one of these encoders take ``rows`` and ``keep_input``."""
    path = _path(layer)
    if path in _LAYERS:
        layer.__class__ = _pooled_class(path)


def _last_layer(backbone: PreTrainedModel) -> nn.Module | None:
    """None where a backbone keeps its layers in another place."""
    layers = getattr(getattr(backbone, "encoder", backbone), "layer", None)
    if layers is None:
        layers = getattr(backbone, "layers", None)
    return None if layers is None else layers[-1]


def default_sense_keys(backbone: PreTrainedModel) -> str:
    """The keys of a new Backpack over a backbone: from below its last layer, or last.

    Keys from below are faster, and ranked better (benchmarks/README.md).
    """
    return BELOW_LAST if can_pool_last_layer(backbone) else "last"


def check_pools_last_layer(backbone: PreTrainedModel) -> None:
    """Let the last layer take ``keep_input``. Raises ``ValueError`` where it cannot."""
    if not pool_last_layer(backbone):
        raise ValueError(
            f"keys=below_last needs an encoder of type {', '.join(POOLED_TYPES)}, whose last layer "
            f"can be read from inside; this backbone is of type {backbone.config.model_type!r}: "
            "take keys=last"
        )
