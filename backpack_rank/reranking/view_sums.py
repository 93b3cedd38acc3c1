"""The score of a pair under a policy: the sum over its views, with every rewritten text scored once for all alphas."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.reranking.scorer import TextScorer, weighted_sum
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

TextPair = tuple[str, str]


def rewrites(policies: Sequence[Sequence[View]]) -> bool:
    """Whether a view reads other texts than those of the pair."""
    return any(view.rewrite is not None for views in policies for view in views)


def sums_of_scores(policies: Sequence[Sequence[View]], score: Callable[[View], np.ndarray]) -> np.ndarray:
    """Sums of coefficient times score over the views of A policies that rewrite nothing. [A, N] float32"""
    return np.stack([weighted_sum([(view.coefficient, score(view)) for view in views]) for views in policies])


def scores_of_pairs(
    policies: Sequence[Sequence[View]], scorer: TextScorer, pairs: Pairs, cache: SenseCache | None = None
) -> np.ndarray:
    """Raw logits of a collection's pairs under the views of A policies. [A, N] float32"""

    def score_texts(texts: list[TextPair], view: View) -> np.ndarray:
        ids = tuple(map(str, range(len(texts))))
        documents = MemoryStore({row: document for row, (_, document) in zip(ids, texts, strict=True)})
        queries = {row: query for row, (query, _) in zip(ids, texts, strict=True)}
        rewritten = Collection(f"{pairs.collection.name} (rewritten)", documents, queries, {})
        return scorer.scores(Pairs(rewritten, ids, ids), view, cache)

    return sums_of_views(policies, pairs.texts, lambda view: scorer.scores(pairs, view, cache), score_texts)


def sums_of_views(
    policies: Sequence[Sequence[View]],
    texts: Callable[[], Iterable[TextPair]],
    score: Callable[[View], np.ndarray],
    score_texts: Callable[[list[TextPair], View], np.ndarray],
) -> np.ndarray:
    """Sums of coefficient times score over the views of A policies. [A, N] float32

    A pair that no view rewrites has one score under all of them, which is taken as it is. Rewritten pairs that are
    equal, of several views, policies or rows, are scored once.

    Args:
        policies: the views of each policy, such as those of one policy at A alphas.
        texts: gives the N pairs; asked where a view rewrites them.
        score: scores of the N pairs under a view that rewrites nothing. [N]
        score_texts: scores of other pairs under such a view. [n]
    """
    if not rewrites(policies):
        return sums_of_scores(policies, score)
    rewritten = _Rewritten(policies, texts())
    plain: dict[Hashable, np.ndarray] = {}
    others: dict[Hashable, np.ndarray] = {}
    sums = np.zeros((len(policies), rewritten.count), dtype=np.float32)
    for total, views in zip(sums, policies, strict=True):
        for key, rest, alike in _by_rest(views):
            as_they_are = rewritten.weight_as_they_are(alike)
            if as_they_are.any():
                if key not in plain:
                    plain[key] = score(rest)
                total += as_they_are.astype(np.float32) * plain[key]
            if rewritten.distinct and key not in others:
                others[key] = score_texts(rewritten.distinct, rest)
            for view in alike:
                rows, read = rewritten.read(view)
                if len(rows):
                    total[rows] += np.float32(view.coefficient) * others[key][read]
    return sums


def _by_rest(views: Sequence[View]) -> list[tuple[Hashable, View, list[View]]]:
    """Views with a weight by what they ask of the ranker beside other texts."""
    found: dict[Hashable, tuple[View, list[View]]] = {}
    for view in views:
        if view.coefficient:
            key = (id(view.sense_weights), view.token_shift and view.token_shift.key)
            found.setdefault(key, (replace(view, rewrite=None, coefficient=1.0), []))[1].append(view)
    return [(key, rest, alike) for key, (rest, alike) in found.items()]


class _Rewritten:
    """What the views of several policies read in place of N pairs.

    Attributes:
        count: N.
        distinct: pairs that are read in place of another.
    """

    def __init__(self, policies: Sequence[Sequence[View]], texts: Iterable[TextPair]) -> None:
        weighty = [view for views in policies for view in views if view.coefficient]
        rewritings = dict.fromkeys(view.rewrite for view in weighty if view.rewrite is not None)
        index: dict[TextPair, int] = {}
        rows: dict[object, list[int]] = {rewrite: [] for rewrite in rewritings}
        places: dict[object, list[int]] = {rewrite: [] for rewrite in rewritings}
        self.count = 0
        for pair in texts:
            for rewrite in rewritings:
                if (own := rewrite(*pair)) != pair:
                    rows[rewrite].append(self.count)
                    places[rewrite].append(index.setdefault(own, len(index)))
            self.count += 1
        self.distinct = list(index)
        self._read = {one: (np.array(rows[one], np.int64), np.array(places[one], np.int64)) for one in rewritings}

    def read(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Rows that a view changes, and for each the index in ``distinct`` of what it reads. [n], [n]"""
        none = np.empty(0, dtype=np.int64)
        return (none, none) if view.rewrite is None else self._read[view.rewrite]

    def weight_as_they_are(self, views: Sequence[View]) -> np.ndarray:
        """Sum of the coefficients of the views that leave a row as it is. float64 [N]"""
        weight = np.zeros(self.count)
        for view in views:
            own = np.full(self.count, view.coefficient)
            own[self.read(view)[0]] = 0
            weight += own
        return weight
