"""A ranker that scores one document at a time, under a policy and alpha."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore, Run
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.attribution import Explanation, attribute, explanation
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.counterfactual import SwappedSenses
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import Policy, PolicyContext, named_policy
from backpack_rank.senses.sensitivity import Sensitivity


class PointwiseReranker(Reranker):
    """Scores of one ranker; :func:`backpack_rank.load` makes it.

    >>> reranker = backpack_rank.load("outputs/train/DATE/ranker")  # doctest: +SKIP
    >>> reranker.with_policy("paired_tokens", alpha=0).rank("who can rewire a house?", documents)  # doctest: +SKIP

    Attributes:
        scorer: the ranker with its tokenizer.
        hook: policy and alpha.
        cache: sense vectors on disk, shared by all alphas; None: every alpha is a pass of its own.
    """

    compares_texts = True

    def __init__(
        self,
        scorer: Scorer,
        hook: InferenceHook | None = None,
        *,
        attribute: Attribute | None = None,
        cache: SenseCache | None = None,
        swapped: Callable[[], SwappedSenses] | None = None,
    ) -> None:
        """
        Args:
            scorer: the ranker with its tokenizer.
            hook: policy and alpha; None leaves the ranker unchanged.
            attribute: whose words policies are about; None: gender.
            cache: see above.
            swapped: sense vectors that policies are fitted to.
        """
        self.scorer, self.cache = scorer, cache
        self.attribute = attribute or Attribute.named("gender")
        self.hook = hook or InferenceHook(
            PolicyContext(scorer.ranker, scorer.pair_tokenizer.tokenizer, self.attribute.pairs().pairs, swapped)
        )
        ranker, policy = scorer.ranker, self.hook.policy
        has_dial = ranker.has_senses or (policy is not None and not policy.needs_senses())
        self.alpha = self.hook.alpha if has_dial else None
        self.name = f"alpha={self.hook.alpha:g}" if has_dial else ranker.label

    @property
    def sensitivity(self) -> Sensitivity | None:
        """s_l of every sense (paper 004, eq. 4); None for a ranker without senses."""
        return self.hook.context.sensitivity

    def with_policy(self, policy: Policy | str, alpha: float) -> PointwiseReranker:
        """The same ranker under a policy at an alpha; weights, sensitivities and the cache are shared.

        Args:
            policy: a policy, or the name of one (:data:`backpack_rank.senses.policies.POLICIES`).
            alpha: 1 leaves the ranker unchanged, 0 is all that the policy can do.

        Raises:
            ValueError: there is no such policy, alpha is not a finite number >= 0, or the policy does not fit.
        """
        if isinstance(policy, str):
            policy = named_policy(policy, self.attribute)
        hook = InferenceHook(self.hook.context, policy, alpha)
        _ = hook.views  # whatever does not fit is said here, not when texts are scored
        return PointwiseReranker(self.scorer, hook, attribute=self.attribute, cache=self.cache)

    def rerank(self, run: Run, collection: Collection) -> Run:
        """The documents of the run with raw logits in place of its scores.

        Raises:
            ValueError: a query is not in the collection, empty or too long, or a score is not finite.
            KeyError: documents that the collection does not have.
        """
        pairs = Pairs.from_run(run, collection)
        return pairs.to_run(self._scores(pairs))

    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Raw logits of (query, document) texts, higher is better; no sigmoid is applied. [N] float32

        Raises:
            ValueError: a query is empty or too long, or a score is not finite.
        """
        if not pairs:
            return np.empty(0, dtype=np.float32)
        ids = tuple(str(number) for number in range(len(pairs)))
        documents = MemoryStore(dict(zip(ids, (document for _, document in pairs), strict=True)))
        queries = dict(zip(ids, (query for query, _ in pairs), strict=True))
        rows = Pairs(Collection("texts", documents, queries, {}), ids, ids)
        scores = self._scores(rows, cached=False)
        rows.check_finite(scores)
        return scores

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """Documents from best to worst, in the form of sentence-transformers: ``[{"corpus_id": 3, "score": 2.4}]``.

        Args:
            query: its text.
            documents: their texts.
            top_k: as many at most; None: all.
            return_documents: with the text as ``text``.
        """
        scores = self.predict([(query, document) for document in documents])
        order = np.argsort(-scores, kind="stable")[:top_k]
        rows: list[dict[str, Any]] = [{"corpus_id": int(place), "score": float(scores[place])} for place in order]
        if return_documents:
            rows = [{**row, "text": documents[int(row["corpus_id"])]} for row in rows]
        return rows

    def sweep(
        self, query: str, documents: Sequence[str], alphas: Sequence[float], policy: Policy | str | None = None
    ) -> np.ndarray:
        """Raw logits of the documents at every alpha. [A, m] float32

        Args:
            query, documents: their texts.
            alphas: A positions of the dial.
            policy: None takes the one of this reranker, or else the paper's rule, ``lowest_senses``.
        """
        policy = policy or self.hook.policy or "lowest_senses"
        pairs = [(query, document) for document in documents]
        return np.stack([self.with_policy(policy, alpha).predict(pairs) for alpha in alphas])

    def explain(self, query: str, document: str, lexicon: Lexicon | None = None) -> Explanation:
        """The contributions of senses and words to a score; under alpha also what it changes.

        Raises:
            ValueError: the ranker has no senses, the policy reads several texts, or the query is empty or too long.
        """
        ranker, tokenizer = self.scorer.ranker, self.scorer.pair_tokenizer
        if self.sensitivity is None:
            raise ValueError(f"{ranker.label} has no sense vectors, so its score does not split into senses")
        plain = attribute(ranker, tokenizer, query, document)
        view, policy = self.hook.view, self.hook.policy
        untouched = view.sense_weights is None and view.token_shift is None
        found = plain if untouched else attribute(ranker, tokenizer, query, document, view)
        return explanation(
            found,
            title=self.name if untouched or policy is None else f"{self.name}, {policy.name}",
            lexicon=lexicon or self.attribute.lexicon(),
            sensitivity=self.sensitivity.values,
            weights=view.sense_weights,
            before=None if untouched else plain,
        )

    def _scores(self, pairs: Pairs, cached: bool = True) -> np.ndarray:
        """Sum over the policy's views of coefficient times score. [N] float32"""
        cache = self.cache if cached else None
        (first, *others) = self.hook.views
        scores = self.scorer.scores(pairs, first, cache)
        if not others and first.coefficient == 1:
            return scores
        scores = first.coefficient * scores
        for view in others:
            scores = scores + view.coefficient * self.scorer.scores(pairs, view, cache)
        return scores
