"""Rankers as a network over padded texts that torch can export: alpha and weights per sense are inputs.

Everything else is in the graph: token types, which tokens are words of a class and not pieces of other words, and the
class means. So whoever runs it joins and pads texts, says where the dial is, and reads scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from backpack_rank.models.backbone import BackboneMixin
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking, GPT2ForRanking, Ranker
from backpack_rank.models.sense_network import SenseNetwork
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import input_embeddings


class RankerGraph(nn.Module):
    """Scores of padded texts. B texts, n tokens, k senses, d hidden size, e size of word embeddings."""

    head: Any
    backbone: nn.Module
    backpack: Any

    def __init__(self, ranker: Ranker, padding_id: int, shift: TokenShift | None = None) -> None:
        """
        Args:
            ranker: on the CPU, in fp32, in inference mode.
            padding_id: token that is read in place of whatever stands at padding.
            shift: tokens that the input ``alpha`` moves, at any alpha; None: the graph has no such input.

        Raises:
            ValueError: the ranker cannot be read as padded texts.
        """
        super().__init__()
        check_exportable(ranker)
        self.padding_id, self.shift = padding_id, shift
        self.ranker, self.head = ranker, ranker.head
        self.backpack = ranker.backpack if isinstance(ranker, BackpackForRanking) else None
        network: Any = ranker if self.backpack is None else self.backpack
        self.backbone = network.transformer if isinstance(ranker, GPT2ForRanking) else network.backbone
        self.reads_last = getattr(ranker.config, "pooling", "last") == "last"
        self.separator_id = None
        if getattr(getattr(ranker.config, "text_config", None), "type_vocab_size", 0) > 1:
            self.separator_id = ranker.config.separator_id
        own = None if self.backpack is None else self.backpack.attribute_senses
        self.attribute_senses = own
        with torch.no_grad():
            if self.backpack is not None:
                self.projection, self.offsets = _projection(self.backpack.sense_network)
            if own is not None:
                forms = torch.arange(len(own.pieces))
                self.form_vectors = own.context_vectors(self._embeddings.forward)  # [F, e]
                means, differences = own.split(forms, self.backpack.token_hidden)
                self.form_means, self.form_differences = means, differences  # [F, f]
                groups = torch.nn.functional.one_hot(own.group_of.long(), own.groups)
                self.form_groups = groups.to(means.dtype)  # [F, G]
        if shift is not None:
            _ = shift.classes.class_of  # a tensor that is kept must not be made while torch traces

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        alpha: Tensor | None = None,
        sense_weights: Tensor | None = None,
    ) -> Tensor:
        """Raw logits [B].

        Args:
            input_ids: token ids of joined texts, padded on the right. int64 [B, n]
            attention_mask: 1 at tokens, 0 at padding. int64 [B, n]
            alpha: how much of its difference from its class a moved token keeps, for each text. [B, 1]
            sense_weights: M_s, for each text; of Backpack rankers alone. [B, k]
        """
        mask = attention_mask.bool()
        ids = torch.where(mask, input_ids, self.padding_id)
        shift: Any = None if self.shift is None else replace(self.shift, alpha=alpha[:, :, None])  # type: ignore[index,arg-type]
        hidden = self._hidden(ids, attention_mask, shift)
        pooled = attention_mask.sum(dim=1) - 1 if self.reads_last else torch.zeros_like(ids[:, 0])
        at = hidden[torch.arange(ids.shape[0]), pooled]
        if self.backpack is None:
            return self.head(at)
        assert sense_weights is not None
        tokens = self.backpack.token_hidden(ids)  # h(x), [B, n, f]
        if shift is not None:
            whole = shift.whole_words(ids.flatten())
            tokens = shift.hidden(tokens, ids, None if whole is None else whole.view_as(ids))
        # sum_l M_l (W_l p_l + b_l) in one product, which a quantiser knows how to treat.
        weighted = (self._weights(hidden, at, mask) @ tokens) * sense_weights[:, :, None]
        return self.head(weighted.flatten(1) @ self.projection + sense_weights @ self.offsets)

    @property
    def _embeddings(self) -> nn.Embedding:
        found = input_embeddings(self.backbone)
        assert isinstance(found, nn.Embedding)
        return found

    def _hidden(self, ids: Tensor, attention_mask: Tensor, shift: TokenShift | None) -> Tensor:
        """The backbone's last hidden states. [B, n, d]"""
        vectors = self._embeddings.forward(ids)  # past the hook that merges classes
        if self.merged_means is not None:
            vectors = self.backpack.merged_embeddings(vectors, ids, self.merged_means)
        if shift is not None:
            vectors = shift.embeddings(vectors, ids)
        options = {}
        if self.separator_id is not None:
            separators = (ids == self.separator_id).long()
            options["token_type_ids"] = ((separators.cumsum(1) - separators) > 0).long() * attention_mask
        return self.backbone(inputs_embeds=vectors, attention_mask=attention_mask, **options).last_hidden_state

    def _weights(self, hidden: Tensor, pooled: Tensor, mask: Tensor) -> Tensor:
        """Contextual weights of each text, 0 at padding. [B, k, n]"""
        network = self.backpack.sense_weight_net
        queries, _ = network.split(pooled)  # [B, k, d / k]
        _, keys = network.split(hidden)  # [B, n, k, d / k]
        logits = (queries[:, :, None] @ keys.permute(0, 2, 3, 1))[:, :, 0] * queries.shape[-1] ** -0.5
        return logits.masked_fill(~mask[:, None], float("-inf")).softmax(dim=-1)


def check_exportable(ranker: Ranker) -> None:
    """Raise ``ValueError`` for a ranker whose scores are not those of padded texts under one network."""
    known = (BackpackForRanking, CrossEncoderForRanking, GPT2ForRanking)
    if not isinstance(ranker, known):
        raise ValueError(
            f"{ranker.label} cannot be exported: only Backpacks and cross-encoders that train.py saved can, which read "
            "query and document as one text"
        )
    network = ranker.backpack if isinstance(ranker, BackpackForRanking) else ranker
    if isinstance(network, BackboneMixin) and network.reads_one_by_one():
        name = network.config.backbone_config.model_type
        raise ValueError(
            f"a ranker over a backbone of type {name!r} cannot be exported: what it makes of a text depends on the "
            "padding beside it"
        )


def _projection(network: SenseNetwork) -> tuple[Tensor, Tensor]:
    """W_l of all senses, one below the other [k f, d], and b_l [k, d]."""
    layer, senses = network.final_mlp.c_proj, network.num_senses
    return layer.weight.unflatten(1, (senses, -1)).transpose(0, 1).flatten(0, 1), layer.bias.unflatten(0, (senses, -1))
