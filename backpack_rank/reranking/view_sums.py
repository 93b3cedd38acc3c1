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

    return sums_of_views(policies, pairs.texts, lambda view: scorer.scores(pairs, view, cache), score_texts, scorer)


def sums_of_views(
    policies: Sequence[Sequence[View]],
    texts: Callable[[], Iterable[TextPair]],
    score: Callable[[View], np.ndarray],
    score_texts: Callable[[list[TextPair], View], np.ndarray],
    cutting: TextScorer | None = None,
) -> np.ndarray:
    """Sums of coefficient times score over the views of A policies. [A, N] float32

    A pair that no view rewrites, and that no other pair is rewritten to, has one score under all of them, which is
    taken as it is. Rewritten pairs that are equal, of several views, policies or rows, are scored once.

    Args:
        policies: the views of each policy, such as those of one policy at A alphas.
        texts: gives the N pairs, each time it is asked; asked where a view rewrites them.
        score: scores of the N pairs under a view that rewrites nothing. [N]
        score_texts: scores of other pairs under such a view. [n]
        cutting: says what of a long text is read, so that no more is rewritten; None: all of it is.
    """
    if not rewrites(policies):
        return sums_of_scores(policies, score)
    rewritten = _Rewritten(policies, texts, cutting)
    plain: dict[Hashable, np.ndarray] = {}
    read: dict[Hashable, np.ndarray] = {}
    sums = np.zeros((len(policies), rewritten.count), dtype=np.float32)
    for total, views in zip(sums, policies, strict=True):
        for key, rest, alike in _by_rest(views):
            weights = rewritten.weights_of_rows(alike)
            if key not in plain and (weights.any() or rewritten.reads_rows):
                plain[key] = score(rest)
            if key in plain:
                total += weights.astype(np.float32) * plain[key]
            of_texts = [view for view in alike if view.rewrite is not None]
            if of_texts and key not in read:
                read[key] = rewritten.values(score_texts, rest, plain.get(key))
            for view in of_texts:
                total[rewritten.touched] += np.float32(view.coefficient) * rewritten.scores(view, read[key])
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

    Equal texts have one score: that of the first row with the text, where there is one.

    Attributes:
        count: N.
        touched: rows that a view changes, and those that another row is rewritten to. [T]
        reads_rows: whether the score of a row is read as that of a rewritten one.
    """

    def __init__(
        self,
        policies: Sequence[Sequence[View]],
        texts: Callable[[], Iterable[TextPair]],
        cutting: TextScorer | None = None,
    ) -> None:
        weighty = [view for views in policies for view in views if view.coefficient]
        rewritings = list(dict.fromkeys(view.rewrite for view in weighty if view.rewrite is not None))
        # Cut texts of two wordings end at different words; those that are read alike share a number all the same.
        numbers: dict[Hashable, int] = {}
        self._texts: list[TextPair] = []
        self._rows: dict[int, int] = {}
        touched, read = list[int](), list[list[int]]()
        self.count = 0

        def number_of(pair: TextPair) -> int:
            number = numbers.setdefault(_reading(pair, cutting), len(numbers))
            if number == len(self._texts):
                self._texts.append(pair)
            return number

        for pair in _cut(texts(), cutting):
            own = [rewrite(*pair) for rewrite in rewritings]
            if any(one != pair for one in own):
                touched.append(self.count)
                read.append([number_of(one) for one in own])
            self.count += 1
        changed = set(touched)
        for row, pair in enumerate(_cut(texts(), cutting) if numbers else ()):
            number = numbers.get(_reading(pair, cutting))
            if number is not None:
                self._rows.setdefault(number, row)
                if row not in changed:
                    touched.append(row)
                    read.append([number] * len(rewritings))
        self.touched = np.array(touched, dtype=np.int64)
        self.reads_rows = bool(self._rows)
        self._read = dict(zip(rewritings, np.array(read, dtype=np.int64).reshape(-1, len(rewritings)).T, strict=True))

    def weights_of_rows(self, views: Sequence[View]) -> np.ndarray:
        """Weight of the scores of the N pairs themselves: all of it where no view changes the pair. float64 [N]"""
        weights = np.full(self.count, sum(view.coefficient for view in views))
        weights[self.touched] = sum(view.coefficient for view in views if view.rewrite is None)
        return weights

    def values(
        self, score_texts: Callable[[list[TextPair], View], np.ndarray], rest: View, plain: np.ndarray | None
    ) -> np.ndarray:
        """Scores of all that is read in place of a pair; ``plain`` are those of the pairs themselves. [n]"""
        values = np.empty(len(self._texts), dtype=np.float32)
        new = [number for number in range(len(self._texts)) if number not in self._rows]
        if new:
            values[new] = score_texts([self._texts[number] for number in new], rest)
        for number, row in self._rows.items():
            assert plain is not None
            values[number] = plain[row]
        return values

    def scores(self, view: View, values: np.ndarray) -> np.ndarray:
        """What a view reads for the touched rows. [T]"""
        assert view.rewrite is not None
        return values[self._read[view.rewrite]]


def _cut(pairs: Iterable[TextPair], cutting: TextScorer | None) -> Iterable[TextPair]:
    if cutting is None:
        return pairs
    return ((cutting.cut(query), cutting.cut(document)) for query, document in pairs)


def _reading(pair: TextPair, cutting: TextScorer | None) -> Hashable:
    if cutting is None:
        return pair
    return cutting.reading(pair[0]), cutting.reading(pair[1])
