"""Contextual weights of senses: how much each token's senses count in a text.

Notation of the docstrings: B texts, T tokens of all texts together, n tokens of the longest text, d
hidden size, k senses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import BackpackConfig


class SenseWeightNetwork(nn.Module):
    """Contextual weights: one attention head for each sense, over the backbone's hidden states.

    Queries q and keys k of a sense have d / k dimensions::

        a[l, i, j] = softmax over j of q_l(i) . k_l(j) / sqrt(d / k)

    Queries are made of the last hidden states; keys too, or of those below the last layer.
    """

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        self.num_senses = config.num_senses
        self.c_attn = nn.Linear(config.hidden_size, 2 * config.hidden_size)

    def split(self, hidden: Tensor, below: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries and keys of every sense: [..., d] -> two of [..., k, d / k].

        Args:
            hidden: states that queries are made of.
            below: states that keys are made of, if not the same.
        """
        if below is None:
            queries, keys = self.c_attn(hidden).chunk(2, dim=-1)
        else:
            query_weight, key_weight = self.c_attn.weight.chunk(2)
            query_bias, key_bias = self.c_attn.bias.chunk(2)
            queries = F.linear(hidden, query_weight, query_bias)
            keys = F.linear(below, key_weight, key_bias)
        by_sense = (self.num_senses, -1)
        return queries.unflatten(-1, by_sense), keys.unflatten(-1, by_sense)

    def pooled(self, hidden: Tensor, batch: PackedBatch, positions: Tensor | None = None) -> Tensor:
        """:meth:`weights` of one token of each text, with queries and keys of the same states.

        Args:
            hidden: the backbone's hidden states. [T, d]
            batch: the texts.
            positions: row index of the token of each text [B]; None: each text's last token.
        """
        if positions is None:
            positions = batch.last_positions
        return self.weights(hidden[positions], hidden, batch)

    def weights(self, of_queries: Tensor, of_keys: Tensor, batch: PackedBatch) -> Tensor:
        """Weights of the tokens of each text: [B, k, n], rows sum to 1; at least fp32.

        With e_j the state that the key of token j is made of, and W_l and b_l the part of
        ``c_attn`` that makes the keys of sense l:

            q_l . (W_l e_j + b_l) = (W_l^T q_l) . e_j + q_l . b_l

        So keys need not be projected for every token: the query is projected back instead. The last
        term is the same for all j and drops out of the softmax.

        Args:
            of_queries: the state of each text that its queries are made of. [B, d]
            of_keys: e_j. [T, d]
            batch: the texts; padding gets a weight of 0.
        """
        d = of_keys.shape[-1]
        weight, bias = self.c_attn.weight, self.c_attn.bias
        by_sense = (self.num_senses, -1)
        queries = F.linear(of_queries, weight[:d], bias[:d])  # [B, d]
        queries = queries.unflatten(-1, by_sense).transpose(0, 1)  # q_l, [k, B, d / k]
        key_weight = weight[d:].unflatten(0, by_sense)  # W_l, [k, d / k, d]
        probes = torch.bmm(queries, key_weight)  # W_l^T q_l, [k, B, d]
        logits = torch.bmm(probes.transpose(0, 1), batch.pad(of_keys).transpose(1, 2))  # [B, k, n]
        # Half precision is too coarse for a softmax over hundreds of tokens.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = logits * (d / self.num_senses) ** -0.5
        is_padding = ~batch.padding_mask()[:, None]
        return logits.masked_fill(is_padding, float("-inf")).softmax(dim=-1)


class SignedWeightNetwork(nn.Module):
    """Contextual weights of either sign, of a Backpack that gives vectors.

    A vector of a text is no mean of senses: some count against it. Each weight is made of the
    backbone's state of its own token, which has read the text::

        a[l, j] = W_2 gelu(W_1 e_j)                                                   of sense l
    """

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        width = 2 * config.hidden_size
        self.hidden = nn.Linear(config.hidden_size, width)
        self.out = nn.Linear(width, config.num_senses)

    def split(self, hidden: Tensor, below: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Raise ``ValueError``: there are no queries and keys to mix senses at every position."""
        raise ValueError(
            "weights of either sign make one vector of a text, and no mix at every position; take "
            "pooled_senses of this Backpack"
        )

    def weights(self, of_queries: Tensor, of_keys: Tensor, batch: PackedBatch) -> Tensor:
        """As :meth:`SenseWeightNetwork.weights`, of ``of_keys`` alone; 0 at padding. [B, k, n]"""
        weights = self.out(F.gelu(self.hidden(of_keys)))  # [T, k]
        return batch.pad(weights).transpose(1, 2)
