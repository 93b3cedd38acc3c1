"""Starts of the weight network: a pretrained backbone's last attention, or sharp random weights.

Notation: d hidden size, k senses, m = d / k dimensions of a sense's queries and keys, c width of an
attention head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backpack_rank.checks import one_of
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.sense_weights import SenseWeightNetwork
from backpack_rank.models.utils import eval_mode

WEIGHTS = ("random", "attention", "sharp", "auto")


def check_start(weights: str) -> None:
    """Raise ``ValueError`` for a start of the weight network that is not known."""
    one_of("start.weights", weights, WEIGHTS)


@torch.no_grad()
def start_weights(
    backpack: BackpackModel,
    weights: str,
    texts: Sequence[Sequence[int] | np.ndarray],
    seed: int = 0,
) -> None:
    """Give the weight network of a new Backpack over a pretrained backbone its start.

    - ``random``: the weights that it was made with, which is nearly the same weight for all tokens.
    - ``attention``: the pooled token's attention in the backbone's last layer
      (:func:`start_from_attention`).
    - ``sharp``: random, with half of the greatest entropy over the tokens of a text
      (:func:`init_with_entropy`).
    - ``auto``: ``attention`` where the backbone's is known, else ``sharp``.

    Args:
        backpack: over a pretrained backbone.
        weights: one of these.
        texts: token ids of some texts as the ranker will read them, for ``sharp``.
        seed: of the random weights of ``sharp``.

    Raises:
        ValueError: an unknown start, a backbone whose attention is not known, or texts that no
            weights can tell apart.
    """
    check_start(weights)
    if weights == "auto":
        weights = "attention" if knows_attention(backpack.backbone) else "sharp"
    with eval_mode(backpack):
        if weights == "attention":
            start_from_attention(backpack.sense_weight_net, backpack.backbone)
        elif weights == "sharp":
            batch = PackedBatch.from_sequences(texts).to(backpack.device)
            init_with_entropy(backpack, batch, seed)


@dataclass(frozen=True)
class Attention:
    """Queries and keys of one layer's heads, all in float64.

    Head a scores token j from token i by ``scaling * (W_q[a] x_i + b_q[a]) . (W_k[a] x_j)``; a bias
    of the keys adds the same to all j, so that it drops out of the softmax.

    Attributes:
        queries, keys: W_q and W_k. [heads, c, d]
        biases: b_q. [heads, c]
        scaling: of the products.
    """

    queries: Tensor
    biases: Tensor
    keys: Tensor
    scaling: float


def start_from_attention(network: SenseWeightNetwork, backbone: PreTrainedModel) -> None:
    """Start c_attn from the attention of the backbone's last layer: sense l is head l mod heads.

    The layer reads hidden states from before it, the weight network those behind it: x is replaced
    by the backbone's last hidden state. (With ``sense_keys=below_last`` keys see what the layer's
    own keys see.) Where the backbone has a norm in front of its attention and
    one at its end, both are of the same vectors up to gain and shift, and these are put right (see
    :func:`behind_last_norm`). Rotary positions are left out: a query looks for a key as if both
    stood at the same place.

    A head wider than m is cut to the m strongest directions of W_q^T W_k (the closest matrix of
    that rank); a narrower one is filled with queries of 0, whose keys keep their random start so
    that both can learn.

    Raises:
        ValueError: the backbone's attention is of a kind that is not known here.
    """
    attention = last_attention(backbone)
    senses = network.num_senses
    width = network.c_attn.in_features // senses  # m
    # The weight network divides products by sqrt(m), the head multiplies them by its scaling. What
    # is left is divided evenly between queries and keys.
    factor = (attention.scaling * width**0.5) ** 0.5
    heads = attention.queries.shape[0]
    weight, bias = network.c_attn.weight, network.c_attn.bias
    queries, keys = weight.unflatten(0, (2, senses, width))
    query_bias, key_bias = bias.unflatten(0, (2, senses, width))
    bias.zero_()
    for sense in range(senses):
        head = sense % heads
        head_queries, head_bias, head_keys = truncated(
            attention.queries[head], attention.biases[head], attention.keys[head], width
        )
        rank = head_keys.shape[0]
        queries[sense].zero_()
        queries[sense, :rank] = (factor * head_queries).to(weight.dtype)
        query_bias[sense, :rank] = (factor * head_bias).to(bias.dtype)
        keys[sense, :rank] = (factor * head_keys).to(weight.dtype)
    key_bias.zero_()


def truncated(
    queries: Tensor, biases: Tensor, keys: Tensor, rank: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A head cut to ``rank`` dimensions so that [W_q, b_q]^T W_k changes least.

    Eckart and Young 1936: the strongest singular directions of the product are kept.

    Args:
        queries, keys: [c, d].
        biases: [c].

    Returns:
        Queries [r, d], biases [r] and keys [r, d] with r = min(rank, c); the same ones where
        nothing is cut.
    """
    if queries.shape[0] <= rank:
        return queries, biases, keys
    # The product has rank c at most: its singular vectors are those of a c x c matrix between two
    # orthonormal bases.
    left, left_factor = torch.linalg.qr(torch.cat([queries, biases[:, None]], dim=1).T)
    right, right_factor = torch.linalg.qr(keys.T)
    u, values, v = torch.linalg.svd(left_factor @ right_factor.T)
    # Each side takes the square root of the singular values.
    root = values[:rank].sqrt()[:, None]
    cut_queries = root * (left @ u[:, :rank]).T
    cut_keys = root * (right @ v[:rank].T).T
    return cut_queries[:, :-1], cut_queries[:, -1], cut_keys


def init_with_entropy(backpack: BackpackModel, batch: PackedBatch, seed: int) -> None:
    """Start c_attn from random weights whose softmax has half of its greatest entropy.

    The entropy is the mean over the texts of a batch.

    Raises:
        ValueError: no text has two tokens, or hidden states do not differ within the texts.
    """
    network = backpack.sense_weight_net
    width = backpack.config.hidden_size // network.num_senses
    weight = network.c_attn.weight
    drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
    weight.copy_(drawn * weight.shape[1] ** -0.5)
    network.c_attn.bias.zero_()
    queries, keys = network.split(*backpack.weight_states(batch))  # [B, k, d / k] and [T, k, d / k]
    queries, keys = queries.double(), keys.double()
    logits = []
    for query, key in zip(queries, keys.split(batch.lengths), strict=True):
        products = torch.einsum("km,nkm->kn", query, key)
        logits.append(products * width**-0.5)
    # Logits are products of queries and keys: each takes the square root of the factor.
    weight.mul_(sharpness(logits) ** 0.5)


def sharpness(logits: list[Tensor], share: float = 0.5) -> float:
    """Factor of logits that gives their softmax ``share`` of its greatest entropy on average.

    The greatest entropy over n tokens is log n.

    Args:
        logits: of each text. [k, n]
        share: of the greatest entropy.

    Raises:
        ValueError: there is none, because the logits of each text are equal or no text has two
            tokens.
    """
    logits = [part for part in logits if part.shape[-1] > 1]

    def entropy(factor: float) -> float:
        shares = []
        for part in logits:
            logs = (factor * part).log_softmax(dim=-1)
            greatest = math.log(part.shape[-1])
            shares.append(-(logs.exp() * logs).sum(dim=-1) / greatest)
        return float(torch.cat(shares).mean())

    low, high = 0.0, 1.0
    while logits and entropy(high) > share and high < 1e12:
        low, high = high, 2 * high
    if not logits or entropy(high) > share:
        raise ValueError(
            "a sharp start needs texts of two and more tokens with hidden states that differ"
        )
    # Bisection: entropy falls as the factor grows. 60 halvings are as exact as float64.
    for _ in range(60):
        middle = (low + high) / 2
        if entropy(middle) > share:
            low = middle
        else:
            high = middle
    return high


def knows_attention(backbone: PreTrainedModel) -> bool:
    """Whether :func:`start_from_attention` knows backbones of this type."""
    return backbone.config.model_type in _READERS


def last_attention(backbone: PreTrainedModel) -> Attention:
    """Queries and keys of a backbone's last layer, as functions of its last hidden states.

    Raises:
        ValueError: the backbone is of a type that is not known here; the known ones are named.
    """
    name = backbone.config.model_type
    if not knows_attention(backbone):
        raise ValueError(
            f"start.weights=attention does not know the attention of a backbone of type {name!r}; "
            f"known are {', '.join(sorted(_READERS))}. Use start.weights=random or "
            "start.weights=sharp"
        )
    return _READERS[name](backbone)


def behind_last_norm(attention: Attention, inner: Any, last: Any) -> Attention:
    """An attention on vectors behind its layer's norm, rewritten for those behind the last norm.

    Both norms give gain * z + shift of a normed z (RMS norms have no shift), so with g the quotient
    of gains, inner = g * last + (shift of inner - g * shift of last).
    """
    gain = last.weight.double()
    # A gain near 0 hides its dimension: what is behind the norm tells nothing of what was in front.
    hidden = gain.abs() < 1e-3 * gain.abs().mean()
    quotient = inner.weight.double() / gain.masked_fill(hidden, 1.0)
    quotient = torch.where(hidden, torch.zeros_like(gain), quotient)
    shift = _shift(inner, gain) - quotient * _shift(last, gain)
    return replace(
        attention,
        queries=attention.queries * quotient,
        biases=attention.biases + attention.queries @ shift,
        keys=attention.keys * quotient,
    )


def _shift(norm: Any, like: Tensor) -> Tensor:
    """The shift of a norm; 0 of an RMS norm, which has none."""
    bias = getattr(norm, "bias", None)
    return torch.zeros_like(like) if bias is None else bias.double()


def _heads(
    query: nn.Linear, key: nn.Linear, heads: int, key_heads: int, scaling: float
) -> Attention:
    """Heads from two linear layers; where several heads share keys, the keys are repeated."""
    queries = query.weight.double().unflatten(0, (heads, -1))
    biases = queries.new_zeros(queries.shape[:2])
    if query.bias is not None:
        biases = query.bias.double().unflatten(0, (heads, -1))
    keys = key.weight.double().unflatten(0, (key_heads, -1))
    keys = keys.repeat_interleave(heads // key_heads, dim=0)
    return Attention(queries, biases, keys, scaling)


def _bert(backbone: Any) -> Attention:
    attention = backbone.encoder.layer[-1].attention.self
    return _heads(
        attention.query,
        attention.key,
        attention.num_attention_heads,
        attention.num_attention_heads,
        attention.scaling,
    )


def _distilbert(backbone: Any) -> Attention:
    attention = backbone.transformer.layer[-1].attention
    return _heads(
        attention.q_lin, attention.k_lin, attention.n_heads, attention.n_heads, attention.scaling
    )


def _gpt2(backbone: Any) -> Attention:
    layer = backbone.h[-1]
    attention = layer.attn
    # Conv1D: weights are [in, out], and queries, keys and values stand side by side.
    queries, keys, _ = attention.c_attn.weight.double().T.unflatten(0, (3, attention.num_heads, -1))
    biases = attention.c_attn.bias.double().unflatten(0, (3, attention.num_heads, -1))[0]
    return behind_last_norm(
        Attention(queries, biases, keys, attention.scaling), layer.ln_1, backbone.ln_f
    )


def _llama(backbone: Any) -> Attention:
    layer, config = backbone.layers[-1], backbone.config
    attention = layer.self_attn
    heads = _heads(
        attention.q_proj,
        attention.k_proj,
        config.num_attention_heads,
        config.num_key_value_heads,
        attention.scaling,
    )
    return behind_last_norm(heads, layer.input_layernorm, backbone.norm)


def _modernbert(backbone: Any) -> Attention:
    layer = backbone.layers[-1]
    attention = layer.attn
    queries, keys, _ = attention.Wqkv.weight.double().unflatten(0, (3, -1, attention.head_dim))
    biases = queries.new_zeros(queries.shape[:2])
    if attention.Wqkv.bias is not None:
        biases = attention.Wqkv.bias.double().unflatten(0, (3, -1, attention.head_dim))[0]
    heads = Attention(queries, biases, keys, attention.head_dim**-0.5)
    # In a model of one layer, the embeddings' norm stands in front of the attention.
    if isinstance(layer.attn_norm, nn.Identity):
        return heads
    return behind_last_norm(heads, layer.attn_norm, backbone.final_norm)


_READERS: dict[str, Callable[[Any], Attention]] = {
    "bert": _bert,
    "electra": _bert,
    "roberta": _bert,
    "xlm-roberta": _bert,
    "distilbert": _distilbert,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "modernbert": _modernbert,
}
