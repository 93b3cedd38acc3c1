"""Closed-form starts of a Backpack's new parts over a pretrained backbone.

Notation: B texts, T tokens, d hidden size, k senses, f width of the sense network's last hidden layer h(x). Only the
last layer of the sense network is solved for: senses are linear in h(x), and h(x) stays as it was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.attention_start import knows_attention, start_from_attention, start_sharp
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.modes import evaluating
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.models.regression import Ridge

SENSES = ("random", "embedding", "projections", "context")
WEIGHTS = ("random", "attention", "sharp", "auto")

Text: TypeAlias = Sequence[int] | np.ndarray
"""Token ids of a text as the ranker reads it."""

_PENALTY = 1e-2
_ROWS_PER_FEATURE = 8
"""Tokens of a large vocabulary that a regression takes; on MiniLM-L6, 8 explain 92.9% of unseen ones and all 93.3%."""
_CHUNK = 2048
"""Tokens whose h(x) is held at a time."""
_PROBES, _PROBE_LENGTH = 32, 64


@torch.no_grad()
def start_senses(
    ranker: BackpackForRanking,
    tokenizer: PreTrainedTokenizerBase,
    *,
    senses: str = "random",
    weights: str = "random",
    seed: int = 0,
    texts: Sequence[Text] = (),
) -> None:
    """Give the sense network and the weight network of a new ranker their first values.

    Senses:

    - ``random``: as they were made.
    - ``embedding``: every sense of a token is the same share of its word embedding.
    - ``projections``: every sense is the embedding's part along other principal axes of the embeddings (axis i goes to
      sense i mod k, so that all senses vary about equally); their sum is the embedding.
    - ``context``: as ``projections``, of the mean last hidden state of a token in ``texts`` in place of its embedding
      (a token that no text has gets what the regression makes of its embedding).

    All but ``random`` are shifted and scaled so that over ``texts`` every sense is 0 on average and the sum over
    senses at the pooled token varies as much as the backbone's own last hidden state there.

    Weights:

    - ``random``: as they were made, which is nearly the same weight for all tokens.
    - ``attention``: the pooled token's attention in the backbone's last layer
      (:func:`~backpack_rank.models.attention_start.start_from_attention`).
    - ``sharp``: random, with half of the greatest entropy over the tokens of a text.
    - ``auto``: ``attention`` where the backbone's is known, else ``sharp``.

    Args:
        ranker: over a pretrained backbone.
        tokenizer: of the backbone.
        seed: of random tokens, of tokens drawn from a large vocabulary and of ``sharp``.
        texts: what the ranker will read, some hundred of them. Without any, texts of random tokens stand in, which
            have no frequent words: sums over senses of real texts then vary two to three times as much as they should.

    Raises:
        ValueError: an unknown start, ``context`` without texts, fewer than two texts, or a backbone whose attention is
            not known.
    """
    check_starts(senses, weights)
    if senses == "context" and not len(texts):
        raise ValueError("senses=context needs texts to learn from; senses=projections does without")
    if len(texts) == 1:
        raise ValueError("a start needs two texts and more to measure how much they vary, or none")
    backpack = ranker.backpack
    if not len(texts):
        texts = _random_texts(backpack, tokenizer, seed)
    if weights == "auto":
        weights = "attention" if knows_attention(backpack.backbone) else "sharp"
    with evaluating(ranker):
        if weights == "attention":
            start_from_attention(backpack.sense_weight_net, backpack.backbone)
        if weights == "sharp":
            start_sharp(backpack, _packed(texts[:_PROBES], backpack), seed)
        if senses in ("embedding", "projections"):
            ridge = _on_embeddings(backpack, len(tokenizer), seed)
            _share_out(backpack, ridge, by_axes=senses == "projections")
        if senses == "context":
            _share_out(backpack, _on_contexts(backpack, texts), by_axes=True)
        if senses != "random":
            _shift_and_scale(backpack, texts)


def check_starts(senses: str, weights: str) -> None:
    """Raise ``ValueError`` for a start that is not known."""
    if senses not in SENSES:
        raise ValueError(f"senses={senses!r} is not a start of senses; known are {', '.join(SENSES)}")
    if weights not in WEIGHTS:
        raise ValueError(f"weights={weights!r} is not a start of weights; known are {', '.join(WEIGHTS)}")


def senses_and_pooled(backpack: BackpackModel, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Sense vectors of each text at its pooled token [B, k, d], and the backbone's last hidden state there [B, d].

    The backbone reads the texts once, without gradients.
    """
    with torch.no_grad():
        hidden = backpack.hidden_states(batch)
    positions = backpack.pooled_positions(batch)
    weights = backpack.sense_weight_net.pooled(hidden, batch, positions)
    return backpack.weighted_senses(weights, batch), hidden[positions]


def _on_embeddings(backpack: BackpackModel, tokens: int, seed: int) -> Ridge:
    """Word embeddings, as wide as hidden states, on h(x)."""
    table = backpack.get_input_embeddings().weight
    ridge = _ridge(backpack)
    drawn = torch.randperm(min(tokens, len(table)), generator=torch.Generator().manual_seed(seed))
    for ids in drawn[: _ROWS_PER_FEATURE * ridge.features].to(table.device).split(_CHUNK):
        widened = backpack.sense_network.widen(table[ids].to(backpack.sense_network.ln.weight.dtype))
        ridge.add(backpack.token_hidden(ids), widened)
    return ridge


def _on_contexts(backpack: BackpackModel, texts: Sequence[Text]) -> Ridge:
    """Last hidden states of tokens in texts on h(x): every occurrence counts alike, so only means are needed."""
    table = backpack.get_input_embeddings().weight
    counts = torch.zeros(len(table), dtype=torch.float64, device=table.device)
    sums = counts.new_zeros((len(table), backpack.config.hidden_size))
    for batch in _batches(texts, backpack):
        counts.index_add_(0, batch.input_ids, torch.ones_like(batch.input_ids, dtype=counts.dtype))
        sums.index_add_(0, batch.input_ids, backpack.hidden_states(batch).to(sums.dtype))
    ridge = _ridge(backpack)
    for ids in counts.nonzero()[:, 0].split(_CHUNK):
        ridge.add(backpack.token_hidden(ids), sums[ids] / counts[ids, None], counts[ids])
    return ridge


def _ridge(backpack: BackpackModel) -> Ridge:
    projection = backpack.sense_network.final_mlp.c_proj.weight
    return Ridge(projection.shape[0], backpack.config.hidden_size, projection.device)


def _share_out(backpack: BackpackModel, ridge: Ridge, by_axes: bool) -> None:
    """Make the senses' sum what a regression predicts: equal shares, or shares along the targets' principal axes."""
    projection = backpack.sense_network.final_mlp.c_proj
    senses = backpack.config.num_senses
    weight, _ = ridge.solve(_PENALTY)
    if by_axes:
        axes = torch.linalg.eigh(ridge.target_covariance).eigenvectors
        parts = [weight @ axes[:, sense::senses] @ axes[:, sense::senses].T for sense in range(senses)]
    else:
        parts = [weight / senses] * senses
    projection.weight.copy_(torch.cat(parts, dim=1))


def _shift_and_scale(backpack: BackpackModel, texts: Sequence[Text]) -> None:
    """Every sense 0 on average over texts, and their sum as far from it as the pooled vector is from its mean.

    What all texts share says nothing of any: it would only make the senses of all words more alike.
    """
    read = [senses_and_pooled(backpack, batch) for batch in _batches(texts, backpack)]
    senses, pooled = (torch.cat(parts).double() for parts in zip(*read, strict=True))
    spread = _spread(senses.sum(dim=1))
    if not spread > 0:
        raise ValueError("the texts are all alike to the senses, so their scale cannot be measured; give other texts")
    factor = _spread(pooled) / spread
    projection = backpack.sense_network.final_mlp.c_proj
    projection.bias.sub_(senses.mean(dim=0).flatten()).mul_(factor)
    projection.weight.mul_(factor)


def _spread(vectors: Tensor) -> Tensor:
    """Root mean squared distance from the mean. [N, d] -> []"""
    return (vectors - vectors.mean(dim=0)).square().sum(dim=-1).mean().sqrt()


def _random_texts(backpack: BackpackModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> list[np.ndarray]:
    """Texts of random tokens in the form of (query, document)."""
    start = tokenizer.cls_token_id if backpack.config.pooling == "first" else None
    encoder = PairEncoder(tokenizer, min(_PROBE_LENGTH, backpack.config.n_positions), start)
    usable = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    drawn = np.random.default_rng(seed).choice(usable, (_PROBES, encoder.max_length))
    return [encoder.join(row[:8], row[8:]) for row in drawn]


def _batches(texts: Sequence[Text], backpack: BackpackModel, size: int = 32) -> Iterator[PackedBatch]:
    for start in range(0, len(texts), size):
        yield _packed(texts[start : start + size], backpack)


def _packed(texts: Sequence[Text], backpack: BackpackModel) -> PackedBatch:
    return PackedBatch.from_sequences(texts).to(backpack.get_input_embeddings().weight.device)
