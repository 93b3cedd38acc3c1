"""Sense vectors of texts from the last hidden layers of their tokens, without [B, n, f] or [k, f, d] between.

The products are those of plain tensor operations (paper 004, eq. 1, at one position). On CPUs, where a tensor of tens
of megabytes costs more to make than to compute, large ones have forward and backward passes of their own that write
every result once, where it belongs; small ones are faster as one product over padded texts. Notation as in
:mod:`backpack_rank.models.backpack`; U distinct tokens.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from backpack_rank.models.packing import PackedBatch

_LARGE = 1 << 23
"""Numbers that plain operations would write in both passes beside their results."""


def token_logits(probes: Tensor, hidden: Tensor, batch: PackedBatch) -> Tensor:
    """Inner products of a text's probes with its tokens, p_l . e_j, -inf at padding. [B, k, n]; at least fp32

    Args:
        probes: one for each sense. [B, k, d]
        hidden: hidden states of the tokens. [T, d]
        batch: the texts.
    """
    if _has_own_passes(hidden, 4 * len(batch) * batch.max_length * hidden.shape[1]):
        offsets = batch.offsets.tolist()
        logits: Tensor = _TokenLogits.apply(_as_product(probes), _as_product(hidden), offsets, batch.max_length)
        return logits
    products = torch.bmm(probes, batch.pad(hidden).transpose(1, 2))
    # Half precision is too coarse for a softmax over hundreds of tokens.
    products = products.to(torch.promote_types(products.dtype, torch.float32))
    return products.masked_fill(~batch.padding_mask()[:, None], float("-inf"))


def pooled_tokens(weights: Tensor, hidden: Tensor, rows: Tensor, batch: PackedBatch) -> Tensor:
    """Token vectors of each text pooled per sense, sum_j a[l, j] h(x_j). [B, k, f]

    Args:
        weights: contextual weights, 0 at padding. [B, k, n]
        hidden: h(x) of the distinct tokens. [U, f]
        rows: row of each token of the batch among them. [T]
        batch: the texts.
    """
    weights, hidden = _as_product(weights.to(hidden.dtype)), _as_product(hidden)
    if _has_own_passes(hidden, 2 * len(batch) * batch.max_length * hidden.shape[1]):
        pooled: Tensor = _PooledTokens.apply(weights, hidden, rows, batch.offsets.tolist())
        return pooled
    # Padding gets the first token's vector, with a weight of 0.
    return weights @ F.embedding(batch.pad(rows), hidden)


def per_sense(pooled: Tensor, weight: Tensor) -> Tensor:
    """Each sense's own product, W_l p_l. [B, k, f], [f, k d] -> [B, k, d]"""
    if torch.is_grad_enabled() and _has_own_passes(weight, 2 * weight.numel()):
        product: Tensor = _PerSense.apply(_as_product(pooled), _as_product(weight))
        return product
    return _per_sense(pooled, weight)


def _has_own_passes(values: Tensor, numbers: int) -> bool:
    return values.device.type == "cpu" and numbers >= _LARGE and not torch.compiler.is_compiling()


def _as_product(values: Tensor) -> Tensor:
    """In the number format in which autocast multiplies; it does not see into passes of one's own."""
    kind = values.device.type
    return values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values


def _per_sense(pooled: Tensor, weight: Tensor) -> Tensor:
    """One matrix product per sense: [k, B, f] @ [k, f, d]."""
    of_senses = weight.unflatten(1, (pooled.shape[1], -1)).transpose(0, 1)
    return torch.bmm(pooled.transpose(0, 1), of_senses).transpose(0, 1)


class _TokenLogits(torch.autograd.Function):
    """Text by text, so that hidden states are neither padded nor copied."""

    @staticmethod
    def forward(ctx: Any, probes: Tensor, hidden: Tensor, offsets: list[int], longest: int) -> Tensor:
        """[B, k, d], [T, d] -> [B, k, longest]"""
        ctx.save_for_backward(probes, hidden)
        ctx.offsets = offsets
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        logits = probes.new_full((*probes.shape[:2], longest), float("-inf"), dtype=dtype)
        for text, (first, last) in enumerate(pairwise(offsets)):
            logits[text, :, : last - first] = probes[text] @ hidden[first:last].T
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Of the probes, sum_j g[l, j] e_j; of the hidden states, sum_l g[l, j] p_l."""
        probes, hidden = ctx.saved_tensors
        of_probes, of_hidden = torch.empty_like(probes), torch.empty_like(hidden)
        gradient = gradient.to(hidden.dtype)
        for text, (first, last) in enumerate(pairwise(ctx.offsets)):
            own = gradient[text, :, : last - first]
            torch.mm(own, hidden[first:last], out=of_probes[text])
            torch.mm(own.T, probes[text], out=of_hidden[first:last])
        return of_probes, of_hidden, None, None


class _PooledTokens(torch.autograd.Function):
    """Text by text, so that no token's vector is copied for longer than its text is read."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, hidden: Tensor, rows: Tensor, offsets: list[int]) -> Tensor:
        """[B, k, n], [U, f] -> [B, k, f]"""
        ctx.save_for_backward(weights, hidden, rows)
        ctx.offsets = offsets
        pooled = hidden.new_empty((*weights.shape[:2], hidden.shape[1]))
        for text, (first, last) in enumerate(pairwise(offsets)):
            torch.mm(weights[text, :, : last - first], hidden[rows[first:last]], out=pooled[text])
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Of the weights, g_l . h(x_j), 0 at padding; of h(x), sum_l a[l, j] g_l over all places where x stands."""
        weights, hidden, rows = ctx.saved_tensors
        of_weights = torch.zeros_like(weights)
        # A frequent token is summed over many texts: in single precision at least.
        of_hidden = torch.zeros_like(hidden, dtype=torch.promote_types(hidden.dtype, torch.float32))
        for text, (first, last) in enumerate(pairwise(ctx.offsets)):
            own, length = rows[first:last], last - first
            of_weights[text, :, :length] = gradient[text] @ hidden[own].T
            of_hidden.index_add_(0, own, (weights[text, :, :length].T @ gradient[text]).to(of_hidden.dtype))
        return of_weights, of_hidden.to(hidden.dtype), None, None


class _PerSense(torch.autograd.Function):
    """The gradient of the weight is written as the parameter lies in memory; autograd's is transposed, then copied."""

    @staticmethod
    def forward(ctx: Any, pooled: Tensor, weight: Tensor) -> Tensor:
        """[B, k, f], [f, k d] -> [B, k, d]"""
        ctx.save_for_backward(pooled, weight)
        return _per_sense(pooled, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Of the pooled vectors, g_l W_l^T; of the weight, sum over texts of p_l^T g_l in its own columns."""
        pooled, weight = ctx.saved_tensors
        senses = pooled.shape[1]
        of_senses = weight.unflatten(1, (senses, -1)).permute(1, 2, 0)
        of_pooled = torch.bmm(gradient.transpose(0, 1), of_senses).transpose(0, 1)
        of_weight = torch.empty_like(weight)
        parts = of_weight.unflatten(1, (senses, -1)).transpose(0, 1)
        torch.bmm(pooled.permute(1, 2, 0), gradient.transpose(0, 1), out=parts)
        return of_pooled, of_weight
