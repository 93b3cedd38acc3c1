"""Scores of pairs under policies.

A :class:`ReadingPlan` says what is read, and a scorer reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from backpack_rank.data.batching import JoinedPairs, Pairs, join_pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.reading_plan import ReadingPlan, TextPair
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import TextScorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.hook import linear_components
from backpack_rank.senses.views import View


def scores_of_pairs(
    policies: Sequence[Sequence[View]],
    scorer: TextScorer,
    pairs: Pairs,
    cache: SenseCache | None = None,
) -> np.ndarray:
    """The pairs of a collection: raw logits under the views of A policies.

    >>> pairs = Pairs.from_run(candidates, collection)  # doctest: +SKIP
    >>> views = reranker.with_policy("lowest_senses", 0.5).hook.views  # doctest: +SKIP
    >>> (scores,) = scores_of_pairs([views], reranker.scorer, pairs)  # doctest: +SKIP

    Args:
        policies: the views of each.
        scorer: the ranker.
        pairs: N pairs, whose texts are streamed.
        cache: keeps sense vectors of the pairs on disk.

    Returns:
        float32 [A, N]
    """

    def score_rows(view: View) -> np.ndarray:
        return scorer.scores(pairs, view, cache)

    def score_new(texts: list[TextPair], view: View) -> np.ndarray:
        # As a collection, so that rewritten texts are streamed and cached too.
        documents: dict[str, str] = {}
        queries: dict[str, str] = {}
        for number, (query, document) in enumerate(texts):
            queries[str(number)] = query
            documents[str(number)] = document
        name = f"{pairs.collection.name} (rewritten)"
        rewritten = Collection(name, MemoryStore(documents), queries, {})
        ids = tuple(queries)
        return scorer.scores(Pairs(rewritten, ids, ids), view, cache)

    plan = _plan_of_cut_texts(policies, len(pairs), pairs.texts, scorer)
    return _sums_by_column(plan, score_rows, score_new)


def scores_of_texts(
    policies: Sequence[Sequence[View]],
    scorer: TextScorer,
    pairs: Sequence[TextPair],
) -> np.ndarray:
    """(query, document) texts: raw logits under the views of A policies.

    Args:
        policies: the views of each.
        scorer: the ranker.
        pairs: N texts.

    Returns:
        float32 [A, N]
    """

    def score_rows(view: View) -> np.ndarray:
        return scorer.score_texts(pairs, view)

    def score_new(texts: list[TextPair], view: View) -> np.ndarray:
        return scorer.score_texts(texts, view)

    plan = _plan_of_cut_texts(policies, len(pairs), lambda: pairs, scorer)
    return _sums_by_column(plan, score_rows, score_new)


def scores_of_tokens(
    policies: Sequence[Sequence[View]],
    scorer: Scorer,
    joined: JoinedPairs,
    pairs: Sequence[TextPair],
) -> np.ndarray:
    """Few texts under many alphas: raw logits under A policies, from few passes.

    All texts are in memory, and so are the sense vectors of a ranker that has them. Equal texts
    have one score. Of a text that is read in chunks, the best one is chosen at each alpha.

    Args:
        policies: the views of each, none of which rewrites texts.
        scorer: the ranker.
        joined: token ids of N pairs.
        pairs: their texts.

    Returns:
        float32 [A, N]
    """
    plan = ReadingPlan(policies, len(joined), lambda: pairs)
    return _scores_by_plan(plan, scorer, joined)


def scores_of_all_texts(
    policies: Sequence[Sequence[View]], scorer: Scorer, pairs: Pairs
) -> np.ndarray:
    """Compare many policies on one collection: raw logits under A policies.

    As :func:`scores_of_tokens`, for policies that may rewrite texts: all texts and their sense
    vectors are in memory, and a text that several policies ask for is read once for all of them.

    Args:
        policies: the views of each.
        scorer: the ranker.
        pairs: N pairs.

    Returns:
        float32 [A, N]
    """
    texts = list(pairs.texts())
    plan = _plan_of_cut_texts(policies, len(texts), lambda: texts, scorer)
    names = [f"query {query_id} of {pairs.collection.name}" for query_id in pairs.query_ids]
    names += ["a rewritten text"] * len(plan.new_texts)
    scorer.say_long_queries(query for query, _ in texts)
    joined = join_pairs(
        scorer.pair_tokenizer,
        [*texts, *plan.new_texts],
        long_documents=scorer.long_documents,
        names=names,
    )
    return _scores_by_plan(plan, scorer, joined)


def _scores_by_plan(plan: ReadingPlan, scorer: Scorer, joined: JoinedPairs) -> np.ndarray:
    """The sums of a plan of which all texts are in memory. [A, N] float32"""
    plan.share(joined.ids_of_pairs())
    shared_vectors = SenseVectors(scorer, joined.sequences)
    scores = plan.empty_scores()
    for reading in plan.passes():
        # Tokens that move in what the contextual network reads change its weights too: no other
        # shift has a use for the sense vectors of such a pass, and they are kept for this one
        # alone.
        is_shared = reading.shift is None or reading.shift.scope == "senses"
        score: Callable[[np.ndarray, View], np.ndarray]
        if scorer.ranker.has_senses and (is_shared or len(reading.weights) > 1):
            vectors = shared_vectors if is_shared else SenseVectors(scorer, joined.sequences)
            score = vectors.scores
        elif len(reading.columns) > 1 and scorer.ranker.scores_stored_vectors:
            # Without senses, only maps of the pooled vector tell views of one pass apart.
            score = PooledVectors(scorer, joined.sequences, reading.shift).scores
        else:
            score = partial(_scores_of_sequences, scorer, joined.sequences)
        for column, view in zip(reading.columns, reading.views(), strict=True):
            scores[column, reading.texts] = joined.best_scores(
                partial(score, view=view), reading.texts
            )
    return plan.sums(scores)


def _scores_of_sequences(
    scorer: Scorer, sequences: Sequence[np.ndarray], numbers: np.ndarray, view: View
) -> np.ndarray:
    return scorer.score_tokens([sequences[number] for number in numbers], view)


class SenseVectors:
    """Scores joined texts under many weights per sense and shifts of senses.

    It holds the sense vectors of the texts, on a GPU that has room for them. Each text is read once
    under each shift that its scores are made of.
    """

    def __init__(self, scorer: Scorer, sequences: Sequence[np.ndarray]) -> None:
        self._scorer = scorer
        self._sequences = sequences
        self._vectors: dict[str | None, Tensor] = {}
        self._is_read: dict[str | None, np.ndarray] = {}

    def scores(self, texts: np.ndarray, view: View) -> np.ndarray:
        """Raw logits of texts, by number, under a view that rewrites none. [n] float32"""
        parts = []
        for factor, shift in linear_components(view.token_shift):
            parts.append((factor, self._read(texts, shift)))
        return self._scorer.score_senses(parts, view.sense_weights, texts, view.pooled_map)

    def _read(self, texts: np.ndarray, shift: TokenShift | None) -> Tensor:
        """Sense vectors under a shift; those of the given texts are filled in. [T, k, d]"""
        key = None if shift is None else shift.key
        if key not in self._vectors:
            self._vectors[key] = self._scorer.empty_senses(len(self._sequences))
            self._is_read[key] = np.zeros(len(self._sequences), dtype=bool)
        vectors, is_read = self._vectors[key], self._is_read[key]
        new = texts[~is_read[texts]]
        if len(new):
            sequences = [self._sequences[text] for text in new]
            self._scorer.fill_token_senses(sequences, vectors, new, shift)
            is_read[new] = True
        return vectors


class PooledVectors:
    """Scores joined texts of a ranker without senses under many maps.

    It holds the pooled vectors of the texts, each of which is read once, and their own scores.
    """

    def __init__(
        self, scorer: Scorer, sequences: Sequence[np.ndarray], shift: TokenShift | None
    ) -> None:
        self._scorer = scorer
        self._sequences = sequences
        self._shift = shift
        self._read_together: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def scores(self, texts: np.ndarray, view: View) -> np.ndarray:
        """Raw logits of texts, by number, under a view with this shift. [n] float32"""
        # Every view asks for the same texts in the same portions: first chunks, then further ones.
        key = texts.tobytes()
        if key not in self._read_together:
            sequences = [self._sequences[text] for text in texts]
            self._read_together[key] = self._scorer.token_vectors(sequences, self._shift)
        vectors, scores = self._read_together[key]
        if view.pooled_map is None:
            return scores
        return self._scorer.score_vectors(vectors, view.pooled_map)


def _plan_of_cut_texts(
    policies: Sequence[Sequence[View]],
    rows: int,
    texts: Callable[[], Iterable[TextPair]],
    scorer: TextScorer,
) -> ReadingPlan:
    """A plan of pairs of which the beginnings are read: no more of a text is rewritten.

    Cut texts of two wordings end at different words. Those of which the ranker reads the same
    tokens are one text all the same.
    """

    def cut_texts() -> Iterator[TextPair]:
        for query, document in texts():
            yield scorer.cut(query), scorer.cut(document)

    def reading(pair: TextPair) -> Hashable:
        query, document = pair
        return scorer.reading(query), scorer.reading(document)

    return ReadingPlan(policies, rows, cut_texts, reading)


def _sums_by_column(
    plan: ReadingPlan,
    score_rows: Callable[[View], np.ndarray],
    score_new: Callable[[list[TextPair], View], np.ndarray],
) -> np.ndarray:
    """The sums of a plan, by a scorer that gives scores under one view at a time. [A, N] float32

    Args:
        plan: which scores are needed.
        score_rows: the scores of all N pairs under a view.
        score_new: the scores of new texts under a view.
    """
    scores = plan.empty_scores()
    for column, needed in enumerate(plan.needed()):
        view = plan.views[column]
        # Rows are scored all or none: a cache holds whole collections, and errors name a pair by
        # its row.
        if needed[: plan.rows].any():
            scores[column, : plan.rows] = score_rows(view)
        new = np.flatnonzero(needed[plan.rows :])
        if len(new):
            new_texts = [plan.new_texts[text] for text in new]
            scores[column, plan.rows + new] = score_new(new_texts, view)
    return plan.sums(scores)
