"""Attention within each text of a packed row, as an attention backend of transformers.

The trunk stays the library's: it is called with one row of T tokens and hands queries, keys and
values to :func:`packed_attention`, which keeps texts apart. Called without a :class:`PackedBatch`
the backend is transformers' ``sdpa``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
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
    """Attention of each token to the tokens of its text; of decoders, to itself and earlier ones.

    Transformers calls this where a model was made with ``attn_implementation=BACKEND``.

    Args:
        query, key, value: [1, heads, T, d / heads].
        packed: where the texts are; without it the call is passed on to transformers' ``sdpa``.
        shared: which tokens of the texts the row has, if not all.
        options: of transformers; with ``sliding_window=w`` a token sees those less than w away.

    Returns:
        The mixed values [1, T, heads, d / heads], and None for the weights, which no fast kernel
        gives.
    """
    if packed is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    causal = bool(getattr(module, "is_causal", True))
    # From [1, heads, T, -] to the layout of packed rows, [T, heads, -].
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    if shared is not None:
        query, key, value = (part[shared.rows] for part in (query, key, value))
    heads_per_key = query.shape[1] // key.shape[1]
    if heads_per_key > 1:
        key = key.repeat_interleave(heads_per_key, dim=1)
        value = value.repeat_interleave(heads_per_key, dim=1)
    window = options.get("sliding_window")
    if window is not None and packed.max_length <= window:
        window = None  # no token of a text is further away
    if dropout == 0.0 and _flash_takes(query):
        mixed = _flash_attention(query, key, value, packed, scaling, causal, window)
    elif query.device.type == "cpu":
        mixed = _attention_per_text(query, key, value, packed, scaling, dropout, causal, window)
    else:
        mixed = _padded_attention(query, key, value, packed, scaling, dropout, causal, window)
    if shared is not None:
        mixed = mixed[shared.kept]
    return mixed[None], None


def packed_trunk(trunk: PreTrainedModel, batch: PackedBatch) -> Tensor:
    """Run a decoder of transformers over a packed row: its hidden states. [T, d]

    In inference, beginnings that neighbours have in common are read once.
    """
    # Dropout makes something else of the same beginning in each text.
    if trunk.training:
        return packed_hidden(trunk, batch, use_cache=False)
    # Embedded in full: hooks on the embeddings look at the tokens around a token.
    embeddings = trunk.get_input_embeddings()(batch.input_ids[None])
    shared = SharedPrefixes.of(batch, embeddings[0])
    if shared is None:
        return packed_hidden(
            trunk, batch, use_cache=False, input_ids=None, inputs_embeds=embeddings
        )
    hidden = packed_hidden(
        trunk,
        batch,
        use_cache=False,
        input_ids=None,
        inputs_embeds=embeddings[:, shared.kept],
        position_ids=batch.position_ids[None, shared.kept],
        shared=shared,
    )
    return hidden[shared.rows]


def packed_hidden(backbone: nn.Module, batch: PackedBatch, **options) -> Tensor:
    """Run any model of transformers over a packed row: its hidden states. [T, d]

    ``options`` are arguments of its forward pass; they may replace token ids and positions.
    """
    inputs = {"input_ids": batch.input_ids[None], "position_ids": batch.position_ids[None]}
    inputs |= options
    # A 4-D mask is passed through unchanged, so the library builds none over T x T tokens.
    no_mask = batch.input_ids.new_zeros((1, 1, 1, 1), dtype=torch.bool)
    output = backbone(attention_mask=no_mask, packed=batch, **inputs)
    return output.last_hidden_state[0]


def fast_activation(name: str) -> nn.Module:
    """The activation of that name; ``gelu_new`` as torch's fused ``gelu(approximate="tanh")``."""
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return nn.GELU(approximate="tanh")
    return ACT2FN[name]


def use_fast_gelu(gpt2: PreTrainedModel) -> None:
    """Put torch's tanh-gelu into a GPT-2, which composes the same function of seven operations."""
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
    window: int | None = None,
) -> Tensor:
    """One kernel call per text and no padding: the fastest form on CPUs. [T, heads, -]"""
    lengths = packed.lengths
    queries, keys, values = (
        part.transpose(0, 1)[None].split(lengths, dim=2) for part in (query, key, value)
    )
    texts = []
    for q, k, v in zip(queries, keys, values, strict=True):
        length = q.shape[2]
        mask = None
        if window is not None and length > window:
            mask = _within(window, length, causal, q.device)
        mixed = F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=dropout, is_causal=causal and mask is None, scale=scaling
        )
        # The kernel writes token by token: joined in that layout, nothing is moved in memory.
        texts.append(mixed.transpose(1, 2))
    return torch.cat(texts, dim=1)[0]


def _padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: PackedBatch,
    scaling: float | None,
    dropout: float,
    causal: bool,
    window: int | None = None,
) -> Tensor:
    """One kernel call for all texts, padded to the longest. [T, heads, -]"""
    q, k, v = (packed.pad(part).transpose(1, 2) for part in (query, key, value))
    # Causal attention needs no mask: padding stands to the right, where it does not look.
    mask = None if causal else packed.padding_mask()[:, None, None]
    if window is not None:
        near = _within(window, packed.max_length, causal, query.device)
        # Padding sees itself, or its softmax would have nothing to sum to 1.
        itself = torch.eye(packed.max_length, dtype=torch.bool, device=query.device)
        mask = near if mask is None else (near & mask) | itself
    mixed = F.scaled_dot_product_attention(
        q, k, v, mask, dropout_p=dropout, is_causal=causal and window is None, scale=scaling
    )
    return mixed.transpose(1, 2).flatten(0, 1)[packed.padded_rows]


def _within(window: int, length: int, causal: bool, device: torch.device) -> Tensor:
    """Which tokens of a text see which: those less than ``window`` away. bool [n, n]"""
    places = torch.arange(length, device=device)
    behind = places[:, None] - places
    near = behind.abs() < window
    return near & (behind >= 0) if causal else near


def _flash_takes(query: Tensor) -> bool:
    """Whether flash attention has a kernel for these heads.

    It has those of half precision, whose width is a multiple of 8 and at most 256.
    """
    width = query.shape[-1]
    half = query.dtype in (torch.float16, torch.bfloat16)
    return query.is_cuda and half and width % 8 == 0 and width <= 256


def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: PackedBatch,
    scaling: float | None,
    causal: bool,
    window: int | None,
) -> Tensor:
    """One kernel call for all texts and no padding: the fastest form on GPUs. [T, heads, -]"""
    # The kernel counts how many tokens on each side are seen; -1: all.
    before = -1 if window is None else window - 1
    behind = 0 if causal else before
    return varlen_attn(  # type: ignore[return-value]
        query,
        key,
        value,
        packed.offsets,
        packed.offsets,
        packed.max_length,
        packed.max_length,
        scale=scaling,
        window_size=(before, behind),
    )


AttentionInterface.register(BACKEND, packed_attention)
AttentionMaskInterface.register(BACKEND, sdpa_mask)
