"""Scores of pairs under policies: a :class:`ReadingPlan` says what is read, and a scorer reads
it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.reading_plan import ReadingPlan, TextPair
from backpack_rank.reranking.scorer import Scorer, TextScorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.hook import linear_components
from backpack_rank.senses.views import View

_PICKED_ROWS = 256
"""Sense vectors that are picked from an array at a time: numpy copies them."""


def scores_of_pairs(
    policies: Sequence[Sequence[View]],
    scorer: TextScorer,
    pairs: Pairs,
    cache: SenseCache | None = None,
) -> np.ndarray:
    """Raw logits of a collection's pairs under the views of A policies; texts are streamed. [A, N]
    float32
    """

    def score_new(texts: list[TextPair], view: View) -> np.ndarray:
        ids = tuple(map(str, range(len(texts))))
        documents = MemoryStore(
            {row: document for row, (_, document) in zip(ids, texts, strict=True)}
        )
        queries = {row: query for row, (query, _) in zip(ids, texts, strict=True)}
        rewritten = Collection(f"{pairs.collection.name} (rewritten)", documents, queries, {})
        return scorer.scores(Pairs(rewritten, ids, ids), view, cache)

    plan = _plan_of_cut(policies, len(pairs), pairs.texts, scorer)
    return _scored_by_column(plan, lambda view: scorer.scores(pairs, view, cache), score_new)


def scores_of_texts(
    policies: Sequence[Sequence[View]],
    scorer: TextScorer,
    pairs: Sequence[TextPair],
    long_documents: str = "cut",
) -> np.ndarray:
    """Raw logits of (query, document) texts under the views of A policies. [A, N] float32

    Args:
        policies: the views of each.
        scorer: the ranker.
        pairs: the texts.
        long_documents: see :meth:`TextScorer.score_texts`.
    """

    def score(texts: Sequence[TextPair], view: View) -> np.ndarray:
        return scorer.score_texts(texts, view, long_documents)

    if long_documents == "cut":
        plan = _plan_of_cut(policies, len(pairs), lambda: pairs, scorer)
    else:
        plan = ReadingPlan(policies, len(pairs), lambda: pairs)
    return _scored_by_column(plan, lambda view: score(pairs, view), score)


def scores_of_tokens(
    policies: Sequence[Sequence[View]], scorer: Scorer, sequences: Sequence[np.ndarray]
) -> np.ndarray:
    """Raw logits of joined texts under the views of A policies that rewrite nothing, from few
    passes. [A, N] float32

    All texts are in memory, and so are the sense vectors of a ranker that has them. Equal texts
    have one score.
    """
    plan = ReadingPlan(policies, len(sequences))
    plan.share(sequences)
    kept = SenseVectors(scorer, sequences)
    scores = plan.empty_scores()
    for one in plan.passes():
        # Tokens that move in what the contextual network reads change its weights too: no other
        # shift has a use for the sense vectors of such a pass.
        is_kept = one.shift is None or one.shift.scope == "senses"
        if scorer.ranker.has_senses and (is_kept or len(one.weights) > 1):
            vectors = kept if is_kept else SenseVectors(scorer, sequences)
            score = partial(vectors.scores, one.texts)
        else:
            score = partial(scorer.score_tokens, [sequences[text] for text in one.texts])
        for column, view in zip(one.columns, one.views(), strict=True):
            scores[column, one.texts] = score(view)
    return plan.sums(scores)


class SenseVectors:
    """The sense vectors of joined texts, each text read once under each shift that its scores are
    made of.
    """

    def __init__(self, scorer: Scorer, sequences: Sequence[np.ndarray]) -> None:
        self._scorer, self._sequences = scorer, sequences
        self._vectors: dict[str | None, np.ndarray] = {}
        self._is_read: dict[str | None, np.ndarray] = {}

    def scores(self, texts: np.ndarray, view: View) -> np.ndarray:
        """Raw logits of texts, by number, under a view that rewrites none. [n] float32"""
        parts = [
            (factor, self._read(texts, shift))
            for factor, shift in linear_components(view.token_shift)
        ]
        scores = np.empty(len(texts), dtype=np.float32)
        for start in range(0, len(texts), _PICKED_ROWS):
            rows = texts[start : start + _PICKED_ROWS]
            picked = [(factor, vectors[rows]) for factor, vectors in parts]
            scores[start : start + len(rows)] = self._scorer.score_senses(
                picked, view.sense_weights
            )
        return scores

    def _read(self, texts: np.ndarray, shift: TokenShift | None) -> np.ndarray:
        """Sense vectors under a shift, of which those of the texts are known. [T, k, d]"""
        key = None if shift is None else shift.key
        if key not in self._vectors:
            self._vectors[key] = self._scorer.empty_senses(len(self._sequences))
            self._is_read[key] = np.zeros(len(self._sequences), dtype=bool)
        new = texts[~self._is_read[key][texts]]
        if len(new):
            self._scorer.fill_token_senses(
                [self._sequences[text] for text in new], self._vectors[key], new, shift
            )
            self._is_read[key][new] = True
        return self._vectors[key]


def _plan_of_cut(
    policies: Sequence[Sequence[View]],
    rows: int,
    texts: Callable[[], Iterable[TextPair]],
    scorer: TextScorer,
) -> ReadingPlan:
    """A plan of pairs of which the beginnings are read: no more of a text is rewritten.

    Cut texts of two wordings end at different words; those that are read alike are one text all the
    same.
    """

    def cut_texts() -> Iterator[TextPair]:
        for query, document in texts():
            yield scorer.cut(query), scorer.cut(document)

    def reading(pair: TextPair) -> Hashable:
        query, document = pair
        return scorer.reading(query), scorer.reading(document)

    return ReadingPlan(policies, rows, cut_texts, reading)


def _scored_by_column(
    plan: ReadingPlan,
    score_rows: Callable[[View], np.ndarray],
    score_new: Callable[[list[TextPair], View], np.ndarray],
) -> np.ndarray:
    """The sums of a plan, by a scorer that gives scores under one view at a time. [A, N] float32"""
    scores = plan.empty_scores()
    for column, needed in enumerate(plan.needed()):
        view = plan.views[column]
        # Rows are scored all or none: a cache holds whole collections, and errors name a pair by
        # its row.
        if needed[: plan.rows].any():
            scores[column, : plan.rows] = score_rows(view)
        new = np.flatnonzero(needed[plan.rows :])
        if len(new):
            scores[column, plan.rows + new] = score_new(
                [plan.new_texts[text] for text in new], view
            )
    return plan.sums(scores)
