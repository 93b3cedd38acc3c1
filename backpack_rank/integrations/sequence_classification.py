"""``AutoModelForSequenceClassification`` of transformers loads saved rankers, and takes alpha.

Importing this module makes Backpacks and cross-encoders known to transformers, and
:func:`backpack_rank.load` imports it. For ``CrossEncoder`` of sentence-transformers, import
:mod:`backpack_rank.integrations.sentence_transformers`.

>>> import backpack_rank.integrations.sequence_classification
>>> model = AutoModelForSequenceClassification.from_pretrained(folder)  # doctest: +SKIP
>>> model(**tokenizer(query, document, return_tensors="pt"), alpha=0.5).logits  # doctest: +SKIP
"""

from __future__ import annotations

import functools
import inspect
import sys
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.factory import split_attribute
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.pooled_map import mapped_vectors
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.policy_names import DefaultPolicy, named_policy
from backpack_rank.senses.views import IDENTITY, View

RERANKER_OPTIONS = ("alpha", "policy", "long_documents", "max_chunks_per_doc", "chunk_overlap")
"""Options of a reranker that a model behind ``CrossEncoder`` may not have."""


class _PaddedRanker:
    """Mixin for rankers: a forward pass over padded texts."""

    def __init__(self, config: Any) -> None:
        config.num_labels = 1
        super().__init__(config)  # type: ignore[call-arg]
        self._source: tuple[Any, str | None] | None = None
        self._last_setting: tuple[Policy | str | None, float | None] = (None, None)
        self._last_views: tuple[View, ...] = IDENTITY

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **options):
        """As of the ranker; the tokenizer beside the weights is read when alpha is first given."""
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **options)  # type: ignore[misc]
        # With output_loading_info=True, transformers gives the model and what it says of the
        # weights.
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model._source = pretrained_model_name_or_path, options.get("revision")
        return loaded

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        alpha: float | None = None,
        policy: Policy | str | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Raw logits [B, 1] of padded texts [B, n].

        ``alpha`` and ``policy`` are those of ``PointwiseReranker.predict``.

        Token types are not looked at: a ranker knows them by its separator.

        Raises:
            ValueError: the policy rewrites texts, which are tokens by now, or does not fit the
                ranker.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        rows = input_ids.cpu().numpy()
        is_token = attention_mask.cpu().numpy().astype(bool)
        sequences = [row[kept] for row, kept in zip(rows, is_token, strict=True)]
        batch = PackedBatch.from_sequences(sequences).to(input_ids.device)
        views = self._views(alpha, policy)
        scores = self._scores_under(views, batch)
        is_left_out = self._left_out(views, batch)
        if is_left_out.any():
            scores = scores.where(~is_left_out, self._scores_under(IDENTITY, batch))
        return SequenceClassifierOutput(logits=scores[:, None])

    def _scores_under(self, views: tuple[View, ...], batch: PackedBatch) -> Tensor:
        """Scores of texts as tokens. [B]"""
        scores: Any = 0
        for view in views:
            with mapped_vectors(self, view.pooled_map):
                output = super().forward(  # type: ignore[misc]
                    batch, sense_weights=view.sense_weights, token_shift=view.token_shift
                )
            scores = scores + view.coefficient * output.scores
        return scores

    def _left_out(self, views: tuple[View, ...], batch: PackedBatch) -> Tensor:
        """Which texts have a query that asks for a group, and are scored unchanged. bool [B]"""
        is_left_out = torch.zeros(len(batch), dtype=torch.bool)
        asks_for_a_group = views[0].leaves_out
        if asks_for_a_group is not None:
            # Texts are tokens by now, so the words of a query are read back from its tokens. A word
            # that the tokenizer does not know is lost here, and not to a reranker, which has texts.
            in_query = ~behind_separator(batch, self._pair_tokenizer.separator_id)
            for number in range(len(batch)):
                tokens = batch.input_ids[in_query & (batch.text_ids == number)].tolist()
                query: Any = self._pair_tokenizer.tokenizer.decode(tokens, skip_special_tokens=True)
                is_left_out[number] = asks_for_a_group(query)
        return is_left_out.to(batch.input_ids.device)

    @cached_property
    def _attribute(self) -> Attribute:
        return Attribute.named("gender")

    @cached_property
    def _pair_tokenizer(self) -> PairTokenizer:
        if self._source is None:
            raise ValueError(
                "alpha needs the ranker's tokenizer: load the ranker with from_pretrained"
            )
        tokenizer = load_tokenizer(self._source[0], self._source[1])
        return make_pair_tokenizer(tokenizer, self, self.config.n_positions)  # type: ignore

    @cached_property
    def _context(self) -> PolicyContext:
        pair_tokenizer = self._pair_tokenizer
        tokenizer = pair_tokenizer.tokenizer
        # backpack_rank.load does so too: without attribute senses the same alpha would give other
        # scores here.
        split_attribute(self, pair_tokenizer, self._attribute)  # type: ignore[arg-type]
        return PolicyContext.of(self, tokenizer, self._attribute)  # type: ignore[arg-type]

    def _views(self, alpha: float | None, policy: Policy | str | None) -> tuple[View, ...]:
        if alpha is None and policy is None:
            return IDENTITY
        # The batches of a call share one setting, whose views are computed once.
        if (policy, alpha) != self._last_setting:
            self._last_views = self._new_views(alpha, policy)
            self._last_setting = policy, alpha
        return self._last_views

    def _new_views(self, alpha: float | None, policy: Policy | str | None) -> tuple[View, ...]:
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
        return views


class BackpackForSequenceClassification(_PaddedRanker, BackpackForRanking):  # type: ignore[misc]
    """A Backpack ranker that reads padded texts."""


class CrossEncoderForSequenceClassification(_PaddedRanker, CrossEncoderForRanking):  # type: ignore[misc]
    """A plain cross-encoder that reads padded texts."""


def register() -> None:
    """Make these classes known to transformers; a second call changes nothing.

    Where sentence-transformers is imported already, its ``CrossEncoder`` refuses keywords that it
    would ignore: :func:`refuse_ignored_keywords`. Importing it here would take seconds.
    """
    Classifier = AutoModelForSequenceClassification  # noqa: N806
    Classifier.register(BackpackConfig, BackpackForSequenceClassification, exist_ok=True)
    Classifier.register(CrossEncoderConfig, CrossEncoderForSequenceClassification, exist_ok=True)
    if "sentence_transformers.cross_encoder" in sys.modules:
        refuse_ignored_keywords(sys.modules["sentence_transformers.cross_encoder"].CrossEncoder)


def refuse_ignored_keywords(cross_encoder: Any) -> None:
    """Make ``predict`` of a model raise ``ValueError`` for options of a reranker that it lacks.

    Without this, sentence-transformers drops keywords that a model does not know, and a user reads
    scores of alpha = 1 for those of alpha = 0, or of a cut document for those of all its chunks.

    Args:
        cross_encoder: the class of sentence-transformers.
    """
    original = cross_encoder.predict
    if hasattr(original, "refuses_ignored_keywords"):
        return

    @functools.wraps(original)
    def predict(self: Any, *args: Any, **options: Any) -> Any:
        ignored = []
        for name in RERANKER_OPTIONS:
            if options.get(name) is not None and not _takes(self, name):
                ignored.append(name)
        if ignored:
            why = "reads texts that are cut already"
            if "alpha" in ignored or "policy" in ignored:
                why = "has no dial"
            raise ValueError(
                f"{' and '.join(ignored)}: this CrossEncoder {why} and would ignore it; give "
                "it the ranker around the model: backpack_rank.integrations.sentence_transformers."
                "cross_encoder(backpack_rank.load(folder))"
            )
        return original(self, *args, **options)

    predict.refuses_ignored_keywords = True  # type: ignore[attr-defined]
    cross_encoder.predict = predict


def _takes(model: torch.nn.Module, name: str) -> bool:
    """Whether any module of the model has an argument of this name in its forward pass."""
    return any(name in inspect.signature(module.forward).parameters for module in model.modules())


register()
