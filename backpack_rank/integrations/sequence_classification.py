"""Rankers as ``AutoModelForSequenceClassification`` of transformers gives them, with alpha as an argument.

``import backpack_rank`` registers them. ``CrossEncoder`` of sentence-transformers loads a saved ranker through them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.factory import make_pair_tokenizer, split_attribute
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.policy_names import DefaultPolicy, named_policy
from backpack_rank.senses.views import IDENTITY, View


class _PaddedRanker:
    """Mixin for rankers: a forward pass over padded texts."""

    def __init__(self, config: Any) -> None:
        config.num_labels = 1
        super().__init__(config)  # type: ignore[call-arg]
        self._source: tuple[Any, str | None] | None = None
        self._turned: tuple[Any, float | None, tuple[View, ...]] = (None, None, IDENTITY)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **options):
        """As of the ranker; the tokenizer beside the weights is read when alpha is first turned."""
        found = super().from_pretrained(pretrained_model_name_or_path, *args, **options)  # type: ignore[misc]
        model = found[0] if isinstance(found, tuple) else found
        model._source = pretrained_model_name_or_path, options.get("revision")
        return found

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        alpha: float | None = None,
        policy: Policy | str | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Raw logits [B, 1] of padded texts [B, n]; ``alpha`` and ``policy`` as of ``PointwiseReranker.predict``.

        Token types are not looked at: a ranker knows them by its separator.

        Raises:
            ValueError: the policy rewrites texts, which are tokens by now, or does not fit the ranker.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        rows = [row[kept] for row, kept in zip(input_ids.cpu().numpy(), mask.cpu().numpy().astype(bool), strict=True)]
        batch = PackedBatch.from_sequences([np.asarray(row) for row in rows]).to(input_ids.device)
        scores = sum(
            view.coefficient
            * super(_PaddedRanker, self)
            .forward(batch, sense_weights=view.sense_weights, token_shift=view.token_shift)  # type: ignore[misc]
            .scores
            for view in self._views(alpha, policy)
        )
        return SequenceClassifierOutput(logits=scores[:, None])  # type: ignore[index]

    @cached_property
    def _context(self) -> PolicyContext:
        if self._source is None:
            raise ValueError("alpha needs the ranker's tokenizer: load the ranker with from_pretrained")
        tokenizer = load_tokenizer(self._source[0], self._source[1])
        pair_tokenizer = make_pair_tokenizer(tokenizer, self, self.config.n_positions)  # type: ignore
        split_attribute(self, pair_tokenizer, self._attribute)  # type: ignore[arg-type]  # as backpack_rank.load does
        return PolicyContext.of(self, tokenizer, self._attribute)  # type: ignore[arg-type]

    @cached_property
    def _attribute(self) -> Attribute:
        return Attribute.named("gender")

    def _views(self, alpha: float | None, policy: Policy | str | None) -> tuple[View, ...]:
        if alpha is None and policy is None:
            return IDENTITY
        if self._turned[:2] != (policy, alpha):
            chosen = policy or DefaultPolicy(self._attribute)
            if isinstance(chosen, str):
                chosen = named_policy(chosen, self._attribute)
            if isinstance(chosen, DefaultPolicy):
                chosen = chosen.of_ranker(self)  # type: ignore[arg-type]
            views = InferenceHook(self._context, chosen, 1.0 if alpha is None else alpha).views
            if any(view.rewrite is not None for view in views):
                raise ValueError(
                    f"policy {chosen.name} rewrites texts, which are tokens here: use "
                    "backpack_rank.integrations.sentence_transformers.cross_encoder(backpack_rank.load(folder))"
                )
            self._turned = policy, alpha, views
        return self._turned[2]


class BackpackForSequenceClassification(_PaddedRanker, BackpackForRanking):  # type: ignore[misc]
    """A Backpack ranker that reads padded texts."""


class CrossEncoderForSequenceClassification(_PaddedRanker, CrossEncoderForRanking):  # type: ignore[misc]
    """A plain cross-encoder that reads padded texts."""
