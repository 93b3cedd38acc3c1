"""The implementations that are compared. All of them share one set of parameters, in memory too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from benchmarks.published import PublishedRanker, pad_right
from benchmarks.workload import SEED, Size, pair_tokenizer

Sequences: TypeAlias = Sequence[np.ndarray]
Forward: TypeAlias = Callable[[Sequences], Tensor]
"""One batch of token id sequences to scores [B]."""

LABELS = {
    "ranker": "ranker: pooled, packed",
    "published_dynamic": "(a) published, dynamic padding",
    "own_full": "(a') own full path, dynamic padding",
    "published_512": "(b) published practice, 512",
    "gpt2_hf": "(c) HF GPT-2 classifier, dynamic",
}
SAME_FUNCTION = ("ranker", "published_dynamic", "own_full")
"""Variants that must give the reference's scores; (b) reads a padding position, (c) is another
model.
"""
TRAINED = ("ranker", "published_dynamic", "published_512")


@dataclass(frozen=True)
class Workbench:
    """What a variant needs: the ranker whose parameters all variants use, its size, and the batch
    size.
    """

    ranker: BackpackForRanking
    size: Size
    batch_size: int

    @property
    def device(self) -> torch.device:
        return self.ranker.device

    @property
    def dtype(self) -> str:
        return str(self.ranker.dtype).removeprefix("torch.")

    def converted(self, dtype: str) -> Workbench:
        """A copy in another number format."""
        ranker = copy.deepcopy(self.ranker).to(getattr(torch, dtype))
        return Workbench(ranker, self.size, self.batch_size)


def new_ranker(size: Size, device: str) -> BackpackForRanking:
    """A ranker with random weights; the sense weights are enlarged threefold, so that they are not
    uniform.
    """
    torch.manual_seed(SEED)
    ranker = BackpackForRanking(size.config())
    with torch.no_grad():
        ranker.backpack.sense_weight_net.c_attn.weight.mul_(3.0)
    nn.Module.to(ranker, device=torch.device(device))
    return ranker.eval()


def standardise(ranker: BackpackForRanking, sequences: Sequences) -> None:
    """Scale the head so that the texts' scores have a standard deviation of 1: differences are then
    in its units.
    """
    with torch.inference_mode():
        scores = ranker(PackedBatch.from_sequences(sequences).to(ranker.device)).scores
    factor = float(1.0 / scores.std())
    with torch.no_grad():
        ranker.head.out.weight.mul_(factor)


def scoring(name: str, bench: Workbench) -> Callable[[Sequences], np.ndarray]:
    """Scores of any number of texts: the ranker through its :class:`Scorer`, the others in batches
    as they come.
    """
    if name == "ranker":
        settings = ScoringSettings(device=str(bench.device), dtype=bench.dtype)
        scorer = Scorer(bench.ranker, pair_tokenizer(bench.size), settings)
        return lambda texts: scorer.score_tokens(list(texts))
    forward = forward_of(name, bench)

    def score(texts: Sequences) -> np.ndarray:
        starts = range(0, len(texts), bench.batch_size)
        with torch.inference_mode():
            parts = [
                forward(texts[start : start + bench.batch_size]).float().cpu().numpy()
                for start in starts
            ]
        return np.concatenate(parts)

    return score


def reference_scores(bench: Workbench, texts: Sequences) -> np.ndarray:
    """The published network, all positions, one text at a time without padding, fp32."""
    network = _published(bench).eval()
    with torch.inference_mode():
        scores = [float(_published_scores(network, bench, [text], None)[0]) for text in texts]
    return np.array(scores)


def forward_of(name: str, bench: Workbench) -> Forward:
    """The forward pass of one batch, with gradients unless the caller turns them off."""
    if name == "ranker":
        return lambda texts: bench.ranker(PackedBatch.from_sequences(texts).to(bench.device)).scores
    if name == "own_full":
        return lambda texts: _own_full_scores(bench, texts)
    if name == "gpt2_hf":
        return _classifier(bench)
    if name not in ("published_dynamic", "published_512"):
        raise ValueError(f"unknown variant {name}; known are {', '.join(LABELS)}")
    network = _published(bench)
    length = bench.size.positions if name == "published_512" else None
    return lambda texts: _published_scores(network, bench, texts, length)


def _published_scores(
    network: PublishedRanker, bench: Workbench, texts: Sequences, length: int | None
) -> Tensor:
    ids, mask = (part.to(bench.device) for part in pad_right(texts, bench.size.pad_id, length))
    if (
        length is not None
    ):  # the published practice: no mask, read at the last position, padding or not
        return network(ids, None, torch.full((len(texts),), length - 1, device=ids.device))
    return network(ids, None if len(texts) == 1 else mask, mask.sum(dim=1) - 1)


def _own_full_scores(bench: Workbench, texts: Sequences) -> Tensor:
    ids, mask = (part.to(bench.device) for part in pad_right(texts, bench.size.pad_id))
    mixed = bench.ranker.backpack(ids, mask).mixed
    return bench.ranker.head(
        mixed[torch.arange(len(texts), device=ids.device), mask.sum(dim=1) - 1]
    )


def _classifier(bench: Workbench) -> Forward:
    shape = bench.size.config().backbone_config
    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.n_positions,
        n_embd=shape.n_embd,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        scale_attn_by_inverse_layer_idx=True,
        pad_token_id=bench.size.pad_id,
        num_labels=1,  # type: ignore[call-arg]
    )
    classifier = GPT2ForSequenceClassification(config)
    nn.Module.to(classifier, device=bench.device, dtype=bench.ranker.dtype)
    classifier.eval()
    _share(classifier, bench.ranker, {"backpack.backbone.": "transformer."})

    def forward(texts: Sequences) -> Tensor:
        ids, mask = (part.to(bench.device) for part in pad_right(texts, bench.size.pad_id))
        return classifier(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 0]

    return forward


def _published(bench: Workbench) -> PublishedRanker:
    network = PublishedRanker(bench.size.config()).to(bench.device, bench.ranker.dtype)
    _share(network, bench.ranker, {"backpack.": "backpack.", "head.": "head."})
    return network


def _share(network: nn.Module, ranker: BackpackForRanking, prefixes: dict[str, str]) -> None:
    """Put the ranker's own parameters into another network, by name."""
    own = ranker.state_dict(keep_vars=True)
    wanted = network.state_dict().keys()
    renamed = {
        new + key.removeprefix(old): own[key]
        for old, new in prefixes.items()
        for key in own
        if key[: len(old)] == old
    }
    shared = {key: value for key, value in renamed.items() if key in wanted}
    missing = set(wanted) - set(shared) - {"score.weight"}
    if missing:
        raise ValueError(
            f"the ranker has no parameter for {sorted(missing)[:5]} of {type(network).__name__}"
        )
    network.load_state_dict(shared, strict=False, assign=True)
