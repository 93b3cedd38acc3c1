"""The order of a run's documents: equal scores, and ranks that contradict the scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from backpack_rank.data.collection import Run

log = logging.getLogger(__name__)
TIES = ("trec_eval", "id", "file")
"""Orders of equal scores: ``trec_eval``'s (scores as float32, then the document id, descending), by
ascending id as this project orders its own, and as the lines of the file stand."""
_SHARE_TO_WARN = 0.5
"""Share of tied documents above which a run's order says little, and a warning is given."""


def in_order(scores: Mapping[str, float], ties: str = "id") -> list[str]:
    """Order one query's documents by score, ties in one of the orders of :data:`TIES`.

    >>> in_order({"d2": 1.0, "d1": 1.0, "d3": 2.0})
    ['d3', 'd1', 'd2']
    """
    # Sorting is stable: what has equal scores stays in the order that it is given in.
    if ties == "file":
        return sorted(scores, key=lambda doc_id: -scores[doc_id])
    if ties == "trec_eval":
        # A score beyond float32 becomes infinite there, too.
        with np.errstate(over="ignore"):
            values = np.array(list(scores.values()), dtype=np.float64).astype(np.float32)
        rounded = dict(zip(scores, values.tolist(), strict=True))
        ids_descending = sorted(scores, reverse=True)
        return sorted(ids_descending, key=lambda doc_id: -rounded[doc_id])
    return sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))


def untied(run: Run) -> Run:
    """Before a run is given to a tool that sorts by score: no two scores stay equal.

    >>> scores = untied({"q1": {"d2": 1.0, "d1": 1.0}})["q1"]
    >>> scores["d2"] > scores["d1"]
    True

    A score that is not below its predecessor is lowered to the next smaller float64, so that
    whoever sorts by score finds the order of the run.
    """
    # A run that lies on disk stays there.
    if not isinstance(run, dict):
        return run.untied()
    strict: Run = {}
    for query_id, scores in run.items():
        lowered: dict[str, float] = {}
        last = np.inf
        for doc_id, score in scores.items():
            last = score if score < last else float(np.nextafter(last, -np.inf))
            lowered[doc_id] = last
        strict[query_id] = lowered
    return strict


def warn_of_order(
    path: str | Path, run: Run, ranks: Mapping[str, Sequence[str]], ties: str
) -> None:
    """On a run from elsewhere: it warns where scores are tied or contradict the ranks.

    Args:
        path: of the run file.
        run: its scores, with the documents of every query as the lines of the file stand.
        ranks: the rank column, likewise.
        ties: how equal scores are ordered.
    """
    warning = OrderWarning(path, ties)
    for query_id, scores in run.items():
        warning.add(query_id, scores, ranks[query_id])
    warning.give()


class OrderWarning:
    """The same on a run that comes query by query.

    >>> warning = OrderWarning("bm25.trec", ties="id")
    >>> warning.add("q1", {"d1": 2.0, "d2": 1.0}, ranks=["1", "2"])
    >>> warning.give()
    """

    def __init__(self, path: str | Path, ties: str) -> None:
        self._path = path
        self._ties = ties
        self._queries = self._documents = self._tied = 0
        self._contradicting = 0
        self._example = ""

    def add(self, query_id: str, scores: Mapping[str, float], ranks: Sequence[str]) -> None:
        """Look at one list, in the order of the file."""
        values = np.fromiter(scores.values(), dtype=np.float64)
        _, counts = np.unique(values, return_counts=True)
        self._tied += int(counts[counts > 1].sum())
        self._documents += len(scores)
        self._queries += 1
        if _contradicts(ranks, list(scores.values())):
            self._example = self._example or query_id
            self._contradicting += 1

    def give(self) -> None:
        """Log what was odd."""
        if self._tied > _SHARE_TO_WARN * self._documents:
            log.warning(
                "%s: %d of %d documents have the same score as another one of their query; ties=%s "
                "orders them, and ties=%s would give other figures",
                self._path,
                self._tied,
                self._documents,
                self._ties,
                "|".join(other for other in TIES if other != self._ties),
            )
        if self._contradicting:
            log.warning(
                "%s: in %d of %d queries, such as %s, the rank column is not the order of the "
                "scores; the scores count, as in trec_eval. Are they distances, where the smallest "
                "is the best?",
                self._path,
                self._contradicting,
                self._queries,
                self._example,
            )


def _contradicts(ranks: Sequence[str], scores: Sequence[float]) -> bool:
    """Whether a document with a better rank has a lower score.

    A column without distinct whole numbers says nothing.
    """
    if not all(map(str.isdecimal, ranks)):
        return False
    score_by_rank = dict(zip(map(int, ranks), scores, strict=True))
    if len(score_by_rank) < len(ranks):
        return False
    scores_in_order = [score_by_rank[rank] for rank in sorted(score_by_rank)]
    return any(later > earlier for earlier, later in pairwise(scores_in_order))
