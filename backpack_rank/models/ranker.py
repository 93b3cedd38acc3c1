"""Rankers: one score per (query, document) text; plain cross-encoders have the same head and input as a Backpack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, GPT2PreTrainedModel, PreTrainedModel

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.attention import BACKEND, packed_trunk, use_fast_gelu
from backpack_rank.models.backpack import BackpackModel, BackpackPreTrainedModel
from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.loading import CheckedLoading
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.reading import Reading, new_backbone


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


class BackpackForRanking(BackpackPreTrainedModel):
    """Backpack with a ranking head on the mix of senses at the pooled token, which alpha can turn."""

    new_parts: ClassVar[tuple[str, ...]] = ("head.",)
    pair_encoder: ClassVar[type[PairEncoder]] = PairEncoder

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backpack = BackpackModel(config)
        self.sense_sum = SenseSum()
        self.head = RankingHead(config.hidden_size, config.dropout)
        self.post_init()

    def forward(self, batch: PackedBatch, return_senses: bool = False) -> RankerOutput:
        """Scores of the B texts of a packed batch; with ``return_senses`` also their sense vectors."""
        senses = self.backpack.pooled_senses(batch)
        return RankerOutput(self.score_senses(senses), senses if return_senses else None)

    def score_senses(self, senses: Tensor) -> Tensor:
        """Scores from sense vectors: the part of the forward pass that depends on alpha. [B, k, d] -> [B]"""
        return self.head(self.sense_sum(senses))

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for the warm-up."""
        return F.linear(self.backpack(input_ids).mixed, self.backpack.get_input_embeddings().weight)


class BackboneRanker(Reading, CheckedLoading, PreTrainedModel):
    """A ranker whose only network is a backbone: what the cross-encoder and the dual encoder share."""

    base_model_prefix = "backbone"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    supports_gradient_checkpointing = True

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for the warm-up of decoders."""
        hidden = self.backbone(input_ids=input_ids, use_cache=False).last_hidden_state
        return F.linear(hidden, self.get_input_embeddings().weight)


class CrossEncoderForRanking(BackboneRanker):
    """Any backbone with the same head on its last hidden state at the pooled token (monoBERT, BERT_CAT)."""

    config: CrossEncoderConfig
    config_class = CrossEncoderConfig
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)
    pair_encoder: ClassVar[type[PairEncoder]] = PairEncoder

    def __init__(self, config: CrossEncoderConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self.head = RankingHead(config.hidden_size, config.dropout)
        self.post_init()

    def forward(self, batch: PackedBatch, return_senses: bool = False) -> RankerOutput:
        """Scores of the B texts of a packed batch. Raises ``ValueError`` when asked for sense vectors."""
        if return_senses:
            raise ValueError("a cross-encoder has no sense vectors, so alpha cannot turn it; use a Backpack ranker")
        hidden = self.hidden_states(batch)[self.pooled_positions(batch)]
        return RankerOutput(self.head(hidden.to(self.head.dense.weight.dtype)))


class GPT2ForRanking(CheckedLoading, GPT2PreTrainedModel):
    """GPT-2 with the same head on its last hidden state: the baseline of paper 004 (Table 1)."""

    config: GPT2Config
    config_class = GPT2Config
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)
    pair_encoder: ClassVar[type[PairEncoder]] = PairEncoder
    _keys_to_ignore_on_load_unexpected = [r"\.attn\.(masked_)?bias$"]

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = GPT2Model(config)
        self.head = RankingHead(config.n_embd, config.resid_pdrop)
        self.post_init()
        self.transformer.set_attn_implementation(BACKEND)
        use_fast_gelu(self.transformer)

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
