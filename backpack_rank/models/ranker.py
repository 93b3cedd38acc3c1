"""Rankers: one score per (query, document) text, for Backpack and for plain GPT-2 with the same head and inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, GPT2PreTrainedModel

from backpack_rank.models.attention import packed_trunk
from backpack_rank.models.backpack import BackpackModel, BackpackPreTrainedModel, Mixin, SenseMixing, use_fast_paths
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.loading import CheckedLoading
from backpack_rank.models.packing import PackedBatch


@dataclass(frozen=True)
class RankerOutput:
    """Scores (raw logits) [B] and, on request, the sense vectors of each text [B, k, d]."""

    scores: Tensor
    senses: Tensor | None = None


class RankingHead(nn.Module):
    """Two-layer MLP d -> d -> 1 (paper 004 section 3). Gives raw logits; a sigmoid would not change a ranking."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(size, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """[..., d] -> [...]"""
        return self.out(self.dropout(F.gelu(self.dense(vectors)))).squeeze(-1)


class SenseSum(nn.Module):
    """Sum over the senses. A module of its own so that a hook can weigh the senses first (eq. 5)."""

    def forward(self, senses: Tensor) -> Tensor:
        """[B, k, d] -> [B, d]"""
        return senses.sum(dim=-2)


class SenseRanking(Mixin):
    """A ranking head on the mix of senses: what all Backpack rankers share."""

    config: Any
    backpack: SenseMixing
    sense_sum: SenseSum
    head: RankingHead
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)

    def forward(self, batch: PackedBatch, return_senses: bool = False) -> RankerOutput:
        """Scores of the B texts of a packed batch; with ``return_senses`` also their sense vectors."""
        senses = self.backpack.pooled_senses(batch)
        return RankerOutput(self.score_senses(senses), senses if return_senses else None)

    def score_senses(self, senses: Tensor) -> Tensor:
        """Scores from sense vectors: the part of the forward pass that depends on alpha. [B, k, d] -> [B]"""
        return self.head(self.sense_sum(senses))


class BackpackForRanking(SenseRanking, BackpackPreTrainedModel):
    """Backpack with a ranking head on the mix of senses at the last token."""

    backpack: BackpackModel

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backpack = BackpackModel(config)
        self.sense_sum = SenseSum()
        self.head = RankingHead(config.n_embd, config.resid_pdrop)
        self.post_init()

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for the warm-up."""
        return F.linear(self.backpack(input_ids).mixed, self.backpack.gpt2_model.wte.weight)


class GPT2ForRanking(CheckedLoading, GPT2PreTrainedModel):
    """GPT-2 with the same head on its last hidden state: the baseline of paper 004 (Table 1)."""

    config: GPT2Config
    config_class = GPT2Config
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)
    _keys_to_ignore_on_load_unexpected = [r"\.attn\.(masked_)?bias$"]

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = GPT2Model(config)
        self.head = RankingHead(config.n_embd, config.resid_pdrop)
        self.post_init()
        use_fast_paths(self.transformer)

    def forward(self, batch: PackedBatch, return_senses: bool = False) -> RankerOutput:
        """Scores of the B texts of a packed batch. Raises ``ValueError`` when asked for sense vectors."""
        if return_senses:
            raise ValueError("GPT-2 has no sense vectors, so alpha cannot turn it; use a Backpack ranker")
        hidden = packed_trunk(self.transformer, batch)
        return RankerOutput(self.head(hidden[batch.last_positions]))

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for the warm-up."""
        hidden = self.transformer(input_ids=input_ids, use_cache=False).last_hidden_state
        return F.linear(hidden, self.transformer.wte.weight)
