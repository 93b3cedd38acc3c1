"""A listwise ranker over candidates: it is shown a list at once, and orders it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.trec import ranking
from backpack_rank.position.lists.base import ListwiseRanker, Usage
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.pairwise import PairwiseRanker
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import PermutationSelfConsistency, shuffles
from backpack_rank.position.lists.ranking_cache import CachedRanker, RankingCache
from backpack_rank.position.lists.saved import load_listwise
from backpack_rank.position.lists.watched import watched
from backpack_rank.position.lists.windows import SlidingWindows
from backpack_rank.reranking.given_texts import Given, checked_documents, checked_text
from backpack_rank.reranking.pointwise import ranked_rows
from backpack_rank.reranking.rerankers import TextReranker

RANKINGS_FILE = "rankings.jsonl"
ORDERS = ("first_stage", "reversed", "shuffled")


class ListwiseReranker(TextReranker):
    """Reranks a run by a ranker that is shown a list at once.

    The first candidates of each query are ordered; those behind them keep their order, behind all
    others::

        reranker = ListwiseReranker(load_listwise(folder), depth=20)
        reranked = reranker.rerank(run, collection)
        reranker.rank("a query", ["a text", "another text"])
        # [{"corpus_id": 1, "score": -1.0}, {"corpus_id": 0, "score": -2.0}]

    Attributes:
        ranker: the listwise ranker, with windows, permutations and calibration around it.
        seconds: that ranking has taken so far.
    """

    def __init__(
        self,
        ranker: ListwiseRanker,
        *,
        depth: int | None = None,
        order: str = "first_stage",
        seed: int = 0,
        lists_per_call: int = 64,
        cache: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """A reranker around a listwise ranker.

        Args:
            ranker: the listwise ranker.
            depth: candidates of each query that are ranked; None: all.
            order: in which candidates are shown, one of :data:`ORDERS`.
            seed: of ``shuffled``.
            lists_per_call: lists that are ranked together; their rankings are then saved.
            cache: file of rankings to which every new one is appended; a job that was interrupted
                goes on from there.
            settings: everything that a ranking depends on but its list; rankings under others are
                not taken.

        Raises:
            ValueError: a wrong depth or order.
        """
        check_shown(depth, order)
        self.ranker = ranker
        self.depth = depth
        self.order = order
        self.seed = seed
        self.name = ranker.name
        self.seconds = 0.0
        self._cached = ranker
        if cache is not None:
            known = RankingCache(cache, {"name": ranker.name, **(settings or {})})
            self._cached = CachedRanker(ranker, known, lists_per_call)

    def rerank(self, run: Run, collection: Collection) -> Run:
        """Candidates in the ranker's order, with scores -1, -2, ..."""
        started = time.perf_counter()
        lists = [self._shown(passages) for passages in lists_of(run, collection, self.depth)]
        rankings = self._cached.rank(lists)
        # A query without a list (no candidates) stays in the run, with nothing in it.
        reranked: Run = {query_id: {} for query_id in run}
        for shown, ranked in zip(lists, rankings, strict=True):
            doc_ids = [shown.ids[position] for position in ranked.order]
            # Candidates behind the depth keep the order of the first stage.
            doc_ids += ranking(run[shown.query_id])[len(shown) :]
            for place, doc_id in enumerate(doc_ids, start=1):
                reranked[shown.query_id][doc_id] = -float(place)
        self.seconds += time.perf_counter() - started
        return reranked

    def rank(
        self,
        query: str,
        documents: Given,
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        alpha: float | None = None,
        rank_fields: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Documents from best to worst: ``[{"corpus_id": 3, "score": -1.0}]``.

        A score is minus the rank.

        Args:
            query: its text.
            documents: their texts, in the order in which they are shown.
            top_k: as many at most; None: all.
            return_documents: with the text as ``text``, and objects as ``document``.
            rank_fields: which fields of documents that are objects are read; None: ``text``.
            alpha: 1 or None: a listwise ranker has no dial.

        Raises:
            ValueError: the query is empty, or another alpha.
        """
        if alpha not in (None, 1):
            raise ValueError(
                f"alpha={alpha} turns the senses of a Backpack; {self.name}, a listwise ranker, "
                "has none"
            )
        if not checked_text(query, "query").strip():
            raise ValueError("the query is empty: a ranker needs at least one word of query text")
        texts = checked_documents(documents, rank_fields)
        scores = np.empty(len(texts))
        if texts:
            (ranked,) = self.ranker.rank([PassageList(query, tuple(texts))])
            scores[ranked.order] = -np.arange(1.0, len(texts) + 1)
        return ranked_rows(scores, texts, top_k, return_documents)

    def watched(self, look: Callable[[], None]) -> ListwiseReranker:
        """This reranker, which calls ``look`` every few lists and ends where that raises.

        Windows, permutations and comparisons of one request are many lists.
        """
        reranker = copy.copy(self)
        reranker.ranker = watched(self.ranker, look)
        return reranker

    def notes(self) -> list[str]:
        """Sentences about what ranking cost."""
        cost = f"{self.name}: {usage_in_words(self.ranker.usage)}, {self.seconds:.1f} s"
        shown = f"the first {self.depth} candidates of each query, shown in the order {self.order}"
        return [f"{cost}; {shown}", *remarks(self.ranker)]

    def _shown(self, passages: PassageList) -> PassageList:
        """The list in the order in which the ranker reads it."""
        order = np.arange(len(passages))
        if self.order == "reversed":
            order = order[::-1]
        elif self.order == "shuffled":
            order = next(shuffles(passages, self.seed))
        return passages.select(order)


def check_shown(depth: int | None, order: str) -> None:
    """Refuse a wrong depth or order by a ``ValueError``."""
    if order not in ORDERS:
        raise ValueError(f"listwise.input.order={order}: use one of {', '.join(ORDERS)}")
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
        raise ValueError(
            f"listwise.depth={depth} must be a number of candidates, or null for all of them"
        )


def remarks(ranker: ListwiseRanker) -> list[str]:
    """Sentences about what the wrappers of a ranker have counted so far.

    These are comparisons and ties, and aggregates that may not be optimal.
    """
    sentences = []
    # Wrappers hold the ranker inside as ``ranker``; the innermost, which runs a model, holds none.
    inner: ListwiseRanker | None = ranker
    while inner is not None:
        if isinstance(inner, PairwiseRanker) and inner.compared:
            sentences.append(
                f"{inner.compared:,} comparisons, each in both orders; {inner.tied:,} of them "
                f"({inner.tied / inner.compared:.0%}) are ties, in which the orders disagree"
            )
        if isinstance(inner, PermutationSelfConsistency) and inner.not_optimal:
            sentences.append(
                f"{inner.not_optimal} of {inner.aggregated} aggregates are not proven to be "
                "optimal; raise permutation.aggregator.time_limit"
            )
        inner = getattr(inner, "ranker", None)
    return sentences


def usage_in_words(usage: Usage) -> str:
    """What ranking has cost, by the counts that are not 0.

    >>> usage_in_words(Usage(lists=2, passes=2, prompt_tokens=1_500))
    '2 lists, 2 forward passes, 1,500 tokens read'
    """
    counts = {
        "lists": usage.lists,
        "forward passes": usage.passes,
        "tokens read": usage.prompt_tokens,
        "tokens generated": usage.generated_tokens,
        "requests": usage.requests,
        "answers from disk": usage.cached,
        "passages shortened": usage.shortened,
        "identifiers missing": usage.missing,
        "repeated": usage.repeated,
        "invented": usage.invented,
    }
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    if usage.cost:
        parts.append(f"cost {usage.cost:.4f}")
    return ", ".join(parts) or "nothing was ranked anew"


def load_list_reranker(
    folder: Path, device: str = "auto", dtype: str = "float32"
) -> ListwiseReranker:
    """Rerank with a saved listwise ranker, over windows of 20 passages.

    ``load_list_reranker("outputs/train/DATE/ranker").rerank(run, collection)``
    """
    return ListwiseReranker(SlidingWindows(load_listwise(folder, device=device, dtype=dtype)))
