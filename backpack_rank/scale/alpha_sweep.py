"""One ranker at several alphas, with as few passes as the policy allows.

Gives the scores of many pairs, and what they depend on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from backpack_rank.data.batching import Pairs, join_pairs
from backpack_rank.data.collection import Collection
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.digests import digest
from backpack_rank.reranking.planned_scores import scores_of_pairs, scores_of_tokens
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.reading_plan import rewrites
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.scale.shard_plan import POLICY_DIGEST
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.views import View

_DIGITS = 6
"""Digits of a weight per sense that count: fitted ones differ in their last bits between numbers of
threads.
"""


class AlphaSweep:
    """Scores many pairs by a ranker under a policy at A alphas.

    >>> reranker = backpack_rank.load("outputs/train/DATE/ranker")  # doctest: +SKIP
    >>> sweep = AlphaSweep(reranker, [1, 0.5, 0])  # doctest: +SKIP
    >>> sweep.scores(Pairs.from_run(candidates, collection)).shape  # doctest: +SKIP
    (20000, 3)

    Attributes:
        scorer: the ranker with its tokenizer, or a server's.
        policy: name of the policy; empty at alpha = 1 alone.
        alphas: positions of the dial.
        labels: of the rankings, such as ``alpha=0.5``.
    """

    def __init__(
        self,
        reranker: PointwiseReranker,
        alphas: Sequence[float],
        policy: Policy | str | None = None,
    ) -> None:
        """
        Args:
            reranker: with weights on this machine, or behind a server.
            alphas: positions of the dial, each once.
            policy: see :meth:`PointwiseReranker.at`.

        Raises:
            ValueError: no alpha, one twice or one that is no number >= 0, or a policy that does not
                fit the ranker.
        """
        if not alphas:
            raise ValueError(
                "alpha=[] names no position of the dial: "
                "give alpha=1, or several as alpha=[1,0.5,0]"
            )
        self.scorer = reranker.scorer
        self.hooks: list[InferenceHook] = []
        labels: list[str] = []
        for alpha in alphas:
            controlled = reranker.at(alpha, policy)
            self.hooks.append(controlled.hook)
            labels.append(controlled.name)
        self.alphas = tuple(hook.alpha for hook in self.hooks)
        self.labels = tuple(labels)
        if len(set(labels)) < len(labels):
            most_frequent = max(labels, key=labels.count)
            raise ValueError(f"alpha={list(alphas)}: {most_frequent} is given twice")
        self.policy = ""
        for hook in self.hooks:
            # At alpha = 1 no policy acts. At the other alphas it is the same policy.
            if hook.policy is not None and hook.alpha != 1:
                self.policy = hook.policy.name
                break

    @property
    def pair_tokenizer(self) -> PairTokenizer | None:
        """The ranker's tokenizer; None where a server has it."""
        return self.scorer.pair_tokenizer if isinstance(self.scorer, Scorer) else None

    def scores(self, pairs: Pairs) -> np.ndarray:
        """Raw logits of every pair at every alpha. [N, A] float32

        Raises:
            ValueError: a query is empty or too long, or a score is not finite; the ids are named.
            KeyError: documents that the collection does not have.
        """
        if not len(pairs):
            return np.empty((0, len(self.alphas)), dtype=np.float32)
        policies = [hook.views for hook in self.hooks]
        if rewrites(policies) or not isinstance(self.scorer, Scorer):
            # Several texts of each pair: they are tokenised as they are read, and no sense vectors
            # are held. A server has its own tokens.
            scores_by_alpha = scores_of_pairs(policies, self.scorer, pairs)
        else:
            names = [f"query {query_id} of {pairs.collection.name}" for query_id in pairs.query_ids]
            texts = list(pairs.texts())
            self.scorer.say_long_queries(query for query, _ in texts)
            joined = join_pairs(
                self.scorer.pair_tokenizer,
                texts,
                long_documents=self.scorer.long_documents,
                names=names,
            )
            scores_by_alpha = scores_of_tokens(policies, self.scorer, joined, texts)
        for scores in scores_by_alpha:
            pairs.check_finite(scores)
        return np.ascontiguousarray(scores_by_alpha.T, dtype=np.float32)

    def fingerprint(self, collection: Collection) -> dict[str, Any]:
        """Everything but the pairs that the scores depend on, by name, as values of JSON."""
        queries = json.dumps(sorted(collection.queries.items()))
        views = []
        for hook in self.hooks:
            views.append(list(map(_view_key, hook.views)))
        chunks = {}
        if self.scorer.long_documents.in_chunks:
            chunks = {"long documents": asdict(self.scorer.long_documents)}
        return {
            **chunks,
            **self.scorer.identity,
            "policy": self.policy,
            "alpha": list(self.alphas),
            POLICY_DIGEST: digest(json.dumps(views)),
            "documents": collection.documents.fingerprint,
            "queries": digest(queries),
        }


def _view_key(view: View) -> list[Any]:
    """What a view does to a score, as values of JSON."""
    weights = None
    if view.sense_weights is not None:
        weights = [f"{weight:.{_DIGITS}g}" for weight in view.sense_weights.tolist()]
    shift = None if view.token_shift is None else view.token_shift.key
    rewrite = None
    if view.rewrite is not None:
        # A rewriting of this package has a key of its rules; of another function the name is all
        # that is known.
        rewrite = getattr(view.rewrite, "key", None) or getattr(view.rewrite, "__qualname__", None)
    # Queries that are left out are told by their words.
    left_out = None
    if view.leaves_out is not None:
        words = getattr(view.leaves_out, "words", ())
        left_out = digest(json.dumps(sorted(words)))
    key = [view.coefficient, weights, shift, rewrite, left_out]
    # Added where there is one: other sweeps keep the key that they had before there were maps.
    return key if view.pooled_map is None else [*key, view.pooled_map.key]
