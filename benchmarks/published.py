"""The published Backpack ranking network, computed the plain way: the thing to be faster than.

Sense vectors, contextual weights and outputs are built at all positions, the trunk is the library's
GPT-2 as it comes, the activation is composed of elementary operations (``gelu_new``). Written from
the formulas of Afzali et al. section 2 and Hewitt et al. 2023, without any code of
``backpack_rank.models.backpack``; parameter names are those of the published checkpoint, so one
state dict fits both networks.

Notation: B texts, n tokens of a (padded) text, d hidden size, k senses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Model
from transformers.pytorch_utils import Conv1D

from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.rankers import RankingHead


class PublishedRanker(nn.Module):
    """Published network and the two-layer head that all rankers share."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        self.backpack = PublishedBackpack(config)
        self.head = RankingHead(config.hidden_size, config.dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None, read_at: Tensor) -> Tensor:
        """Scores read at one position of each text. [B, n], [B, n] or None, [B] -> [B]"""
        mixed = self.backpack(input_ids, attention_mask)
        return self.head(mixed[torch.arange(len(mixed), device=mixed.device), read_at])


class PublishedBackpack(nn.Module):
    """o_i = sum_l sum_j a[l,i,j] C(x_j)_l at every position i (eq. 1)."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        self.backbone = GPT2Model(config.backbone_config)
        self.sense_network = _SenseNetwork(config)
        self.sense_weight_net = _SenseWeights(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """[B, n] -> [B, n, d]. A mask is 1 at tokens; padding stands to the right, so causal order
        hides it.
        """
        senses = self.sense_network(self.backbone.wte(input_ids))  # [B, k, n, d]
        hidden = self.backbone(
            input_ids, attention_mask=attention_mask, use_cache=False
        ).last_hidden_state
        return (self.sense_weight_net(hidden) @ senses).sum(dim=1)


def pad_right(
    sequences: Sequence[np.ndarray], pad_id: int, length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Token ids and mask [B, n], n the longest text or ``length``."""
    width = length or max(len(sequence) for sequence in sequences)
    ids = torch.full((len(sequences), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(sequences), width), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.from_numpy(np.asarray(sequence, dtype=np.int64))
        mask[row, : len(sequence)] = 1
    return ids, mask


class _SenseNetwork(nn.Module):
    """C(x): every occurrence of a token is computed anew. [B, n, d] -> [B, k, n, d]"""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        d = config.hidden_size
        self.num_senses = config.num_senses
        self.dropout = nn.Dropout(config.dropout)
        self.ln = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.block = _Block(config)
        self.final_mlp = _Mlp(d, config.sense_intermediate_scale * d, config.num_senses * d)

    def forward(self, embeddings: Tensor) -> Tensor:
        residual = self.dropout(embeddings)
        hidden = self.block(self.ln(residual), residual)
        senses = self.dropout(self.final_mlp(hidden))
        return senses.unflatten(-1, (self.num_senses, -1)).transpose(1, 2)


class _Block(nn.Module):
    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        d = config.hidden_size
        self.ln_1 = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.ln_2 = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.mlp = _Mlp(d, 4 * d, d)
        self.dropout_1 = nn.Dropout(config.dropout)
        self.dropout_2 = nn.Dropout(config.dropout)

    def forward(self, inputs: Tensor, residual: Tensor) -> Tensor:
        residual = self.dropout_1(inputs) + residual
        residual = self.dropout_2(self.mlp(self.ln_1(residual))) + residual
        return self.ln_2(residual)


class _Mlp(nn.Module):
    def __init__(self, size: int, width: int, out: int) -> None:
        super().__init__()
        self.c_fc = Conv1D(width, size)
        self.c_proj = Conv1D(out, width)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.c_proj(_gelu_new(self.c_fc(inputs)))


class _SenseWeights(nn.Module):
    """a[l,i,j]: causal softmax of one attention head per sense. [B, n, d] -> [B, k, n, n]"""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        self.num_senses = config.num_senses
        self.c_attn = nn.Linear(config.hidden_size, 2 * config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        queries, keys = self.c_attn(hidden).unflatten(-1, (2, self.num_senses, -1)).unbind(dim=2)
        logits = torch.einsum("bikc,bjkc->bkij", queries, keys) / math.sqrt(queries.shape[-1])
        n = hidden.shape[1]
        future = torch.ones(n, n, dtype=torch.bool, device=hidden.device).triu(1)
        return logits.masked_fill(future, float("-inf")).softmax(dim=-1)


def _gelu_new(x: Tensor) -> Tensor:
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )
