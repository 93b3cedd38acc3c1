"""Attention within each text of a packed row, causal or in both directions, as an attention backend
of transformers.

The trunk stays the library's own: it is called with one row of T tokens and hands queries, keys and
values to :func:`packed_attention`, which keeps texts apart. Called without a :class:`PackedBatch`
the backend is transformers' ``sdpa``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.shared_prefixes import SharedPrefixes

BACKEND = "packed_sdpa"
"""Name under which transformers finds the backend (``attn_implementation``)."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed: PackedBatch | None = None,
    shared: SharedPrefixes | None = None,
    **options,
) -> tuple[Tensor, None]:
    """Attention of each token to the tokens of its text; of decoders, to itself and the earlier
    ones.

    Args:
        query, key, value: [1, heads, T, d / heads].
        packed: where the texts are; without it the call is passed on to transformers' ``sdpa``.
        shared: which tokens of the texts the row has, if not all.

    Returns:
        The mixed values [1, T, heads, d / heads], and None for the weights, which no fast kernel
        gives.
    """
    if packed is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    causal = bool(getattr(module, "is_causal", True))
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    if shared is not None:
        query, key, value = (part[shared.rows] for part in (query, key, value))
    if groups := query.shape[1] // key.shape[1] - 1:  # several heads share keys and values
        key, value = (part.repeat_interleave(groups + 1, dim=1) for part in (key, value))
    if dropout == 0.0 and _VARIABLE_LENGTH is not None and _flash_takes(query):
        mixed = _VARIABLE_LENGTH(query, key, value, packed, scaling, causal)
    elif query.device.type == "cpu":
        mixed = _attention_per_text(query, key, value, packed, scaling, dropout, causal)
    else:
        mixed = _padded_attention(query, key, value, packed, scaling, dropout, causal)
    return (mixed if shared is None else mixed[shared.kept])[None], None


def packed_trunk(trunk: PreTrainedModel, batch: PackedBatch) -> Tensor:
    """Hidden states of a transformers decoder over a packed row. [T, d]

    In inference, beginnings that neighbours have in common are read once.
    """
    if trunk.training or (shared := SharedPrefixes.of(batch)) is None:
        return packed_hidden(trunk, batch, use_cache=False)
    # Embedded in full: hooks on the embeddings look at the tokens around a token.
    embeddings = trunk.get_input_embeddings()(batch.input_ids[None])[:, shared.kept]
    positions = batch.position_ids[None, shared.kept]
    own = {
        "input_ids": None,
        "inputs_embeds": embeddings,
        "position_ids": positions,
        "shared": shared,
    }
    return packed_hidden(trunk, batch, use_cache=False, **own)[shared.rows]


def packed_hidden(backbone: nn.Module, batch: PackedBatch, **options) -> Tensor:
    """Hidden states of any transformers model over a packed row. [T, d]"""
    inputs = {
        "input_ids": batch.input_ids[None],
        "position_ids": batch.position_ids[None],
    } | options
    output = backbone(
        # A 4-D mask is passed through as it is, so the library builds none over T x T tokens.
        attention_mask=batch.input_ids.new_zeros((1, 1, 1, 1), dtype=torch.bool),
        packed=batch,
        **inputs,
    )
    return output.last_hidden_state[0]


def fast_activation(name: str) -> nn.Module:
    """The activation of that name; ``gelu_new`` as torch's fused ``gelu(approximate="tanh")``."""
    return (
        nn.GELU(approximate="tanh") if name in ("gelu_new", "gelu_pytorch_tanh") else ACT2FN[name]
    )


def use_fast_gelu(gpt2: PreTrainedModel) -> None:
    """Torch's own tanh-gelu in a GPT-2, in place of the same function composed of seven operations."""
    for block in gpt2.h:  # type: ignore[union-attr]
        block.mlp.act = fast_activation(gpt2.config.activation_function)


def _attention_per_text(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: PackedBatch,
    scaling: float | None,
    dropout: float,
    causal: bool,
) -> Tensor:
    """One kernel call per text, nothing computed for padding: the fastest form on CPUs. [T, heads,
    -]
    """
    lengths = packed.lengths
    queries, keys, values = (
        part.transpose(0, 1)[None].split(lengths, dim=2) for part in (query, key, value)
    )
    # The kernel writes token by token: laid that way one behind the other, nothing is moved again.
    mixed = [
        F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=causal, scale=scaling
        ).transpose(1, 2)
        for q, k, v in zip(queries, keys, values, strict=True)
    ]
    return torch.cat(mixed, dim=1)[0]


def _padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: PackedBatch,
    scaling: float | None,
    dropout: float,
    causal: bool,
) -> Tensor:
    """Causal attention needs no mask: padding stands to the right, where it does not look. [T,
    heads, -]
    """
    q, k, v = (packed.pad(part).transpose(1, 2) for part in (query, key, value))
    mask = None if causal else packed.padding_mask()[:, None, None]
    mixed = F.scaled_dot_product_attention(
        q, k, v, mask, dropout_p=dropout, is_causal=causal, scale=scaling
    )
    return mixed.transpose(1, 2).flatten(0, 1)[packed.padded_rows]


def _flash_takes(query: Tensor) -> bool:
    return (
        query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] <= 256
    )


def _variable_length() -> Callable[..., Tensor] | None:
    """Torch's flash attention over rows of texts, or None where this torch has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    names = inspect.signature(varlen_attn).parameters
    # Torch 2.10 says is_causal, later versions say window_size; the scale came with the latter.
    windows = "window_size" in names

    def call(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        packed: PackedBatch,
        scaling: float | None,
        causal: bool,
    ) -> Tensor:
        """[T, heads, d / heads], as the padded form gives it."""
        scale: dict[str, Any] = {"scale": scaling} if "scale" in names else {}
        direction: dict[str, Any] = (
            {"window_size": (-1, 0 if causal else -1)} if windows else {"is_causal": causal}
        )
        if not scale and scaling is not None:
            query = query * (scaling * query.shape[-1] ** 0.5)
        return varlen_attn(  # type: ignore[return-value]
            query,
            key,
            value,
            packed.offsets,
            packed.offsets,
            packed.max_length,
            packed.max_length,
            **direction,
            **scale,
        )

    return call


_VARIABLE_LENGTH = _variable_length()
AttentionInterface.register(BACKEND, packed_attention)
AttentionMaskInterface.register(BACKEND, sdpa_mask)
