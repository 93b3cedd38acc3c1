"""Rankings of several rerankers of one collection, with texts that a ranker reads once for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.reranking.planned_scores import scores_of_all_texts
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import TextScorer

_PAIRS = 2048
"""Whose texts and sense vectors are in memory at once."""


def rerank_together(rerankers: Sequence[Reranker], run: Run, collection: Collection) -> list[Run]:
    """Re-rank a run by several rerankers, such as one ranker at several alphas.

    >>> dials = [reranker.with_policy("lowest_senses", alpha) for alpha in (1, 0)]  # doctest: +SKIP
    >>> unchanged, fair = rerank_together(dials, candidates, collection)  # doctest: +SKIP

    The runs are those of each reranker alone, up to the rounding of scores. A ranker with a cache
    on disk reads each text once anyway.

    Raises:
        ValueError, KeyError: as :meth:`PointwiseReranker.rerank`.
    """
    runs: dict[int, Run] = {}
    for places in _places_by_scorer(rerankers):
        of_scorer = [rerankers[place] for place in places]
        together = _at_once(of_scorer, run, collection)  # type: ignore[arg-type]
        runs |= dict(zip(places, together, strict=True))
    for place, reranker in enumerate(rerankers):
        if place not in runs:
            runs[place] = reranker.rerank(run, collection)
    return [runs[place] for place in range(len(rerankers))]


def common_scorer(rerankers: Sequence[Reranker]) -> TextScorer | None:
    """The one ranker of all rerankers that read texts; None for several, or none."""
    scorers = {
        id(reranker.scorer): reranker.scorer
        for reranker in rerankers
        if isinstance(reranker, PointwiseReranker)
    }
    return next(iter(scorers.values())) if len(scorers) == 1 else None


def _places_by_scorer(rerankers: Sequence[Reranker]) -> list[list[int]]:
    """Places of the rerankers that share a ranker and have no cache, two or more together."""
    by_scorer: dict[int, list[int]] = {}
    for place, reranker in enumerate(rerankers):
        if not isinstance(reranker, PointwiseReranker) or reranker.cache is not None:
            continue
        if isinstance(reranker.scorer, Scorer):
            by_scorer.setdefault(id(reranker.scorer), []).append(place)
    return [places for places in by_scorer.values() if len(places) > 1]


def _at_once(rerankers: Sequence[PointwiseReranker], run: Run, collection: Collection) -> list[Run]:
    pairs = Pairs.from_run(run, collection)
    policies = [reranker.hook.views for reranker in rerankers]
    scores = np.empty((len(rerankers), len(pairs)), dtype=np.float32)
    for start in range(0, len(pairs), _PAIRS):
        rows = slice(start, start + _PAIRS)
        some = Pairs(collection, pairs.query_ids[rows], pairs.doc_ids[rows])
        scores[:, rows] = scores_of_all_texts(policies, rerankers[0].local_scorer, some)
    return [pairs.to_run(of_reranker) for of_reranker in scores]
