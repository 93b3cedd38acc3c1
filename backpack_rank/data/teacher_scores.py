"""A teacher's scores of training pairs, read from run files.

They are looked up for lists, and it is counted how many pairs have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.text_files import numbered_lines
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.data.trec import read_run

TrainingPairs: TypeAlias = dict[str, list[str]]
"""``{query id: document ids}``"""


class TeacherRun:
    """The teacher of a training whose scores are in a run.

    >>> TeacherRun({"q1": {"d1": 2.0}}).scores("q1", ["d1", "d2"])
    array([ 2., nan], dtype=float32)

    A :class:`~backpack_rank.data.datamodule.Teacher`.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def scores(self, query_id: str, doc_ids: Sequence[str]) -> np.ndarray:
        """One score per document, nan where the run has none. [m] float32"""
        known = self.run.get(query_id, {})
        return np.array([known.get(doc_id, np.nan) for doc_id in doc_ids], dtype=np.float32)


def read_runs(files: Iterable[str | Path], query_ids: Iterable[str]) -> Run:
    """Join a teacher's scores of several TREC runs; other queries are left out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a malformed line, or a pair with scores in two files; file and line are named.
    """
    merged: Run = {query_id: {} for query_id in query_ids}
    for path in files:
        for query_id, scores in read_run(path).items():
            if query_id not in merged:
                continue
            scored_twice = scores.keys() & merged[query_id].keys()
            if scored_twice:
                doc_id = min(scored_twice)
                raise ValueError(
                    f"{path}, line {_line_of_pair(path, query_id, doc_id)}: document {doc_id!r} of "
                    f"query {query_id!r} has a score in an earlier file already; a teacher gives "
                    "one score to a pair"
                )
            merged[query_id].update(scores)
    return merged


def training_pairs(lists: TrainingLists, collection: Collection, candidates: Run) -> TrainingPairs:
    """Let a teacher score what lists take: relevant documents and candidates per query.

    What a list borrows from other queries is not among them.
    """
    pairs: TrainingPairs = {}
    for query_id in lists.query_ids:
        relevant = _relevant(collection, query_id)
        pairs[query_id] = list(dict.fromkeys((*relevant, *candidates.get(query_id, ()))))
    return pairs


def drawn_pairs(
    pairs: TrainingPairs, lists: TrainingLists, epochs: int, limit: int
) -> TrainingPairs:
    """Where scoring all pairs is too dear: the pairs that the lists of these epochs draw.

    Of each query these are all relevant documents that are drawn, and the first ``limit`` of the
    others, in the order in which its lists draw them.
    """
    drawn: TrainingPairs = {}
    others: dict[str, int] = {}
    for epoch in range(epochs):
        for item in lists.epoch(epoch):
            known = set(pairs[item.query_id])
            chosen = drawn.setdefault(item.query_id, [])
            for doc_id, label in zip(item.doc_ids, item.labels, strict=True):
                if doc_id not in known or doc_id in chosen:
                    continue
                if label <= 0:
                    if others.get(item.query_id, 0) == limit:
                        continue
                    others[item.query_id] = others.get(item.query_id, 0) + 1
                chosen.append(doc_id)
    return drawn


@dataclass(frozen=True)
class Coverage:
    """Shows how much of the training pairs a teacher has scored.

        print(Coverage.of(run, training_pairs(lists, collection, candidates), collection))

    Attributes:
        pairs: relevant documents and candidates of the training queries.
        scored: those with a score.
        queries: training queries.
        several: those with two scores or more.
        comparable: those with a score for a relevant document and for one that is not, which
            margins need.
    """

    pairs: int
    scored: int
    queries: int
    several: int
    comparable: int

    @classmethod
    def of(
        cls,
        run: Mapping[str, Mapping[str, float]],
        pairs: TrainingPairs,
        collection: Collection,
    ) -> Coverage:
        """Count over the documents of each training query."""
        scored = several = comparable = 0
        for query_id, doc_ids in pairs.items():
            known = run.get(query_id, {}).keys() & set(doc_ids)
            relevant = known & set(_relevant(collection, query_id))
            scored += len(known)
            several += len(known) > 1
            comparable += 0 < len(relevant) < len(known)
        return cls(
            pairs=sum(map(len, pairs.values())),
            scored=scored,
            queries=len(pairs),
            several=several,
            comparable=comparable,
        )

    def __str__(self) -> str:
        return (
            f"{self.scored} of {self.pairs} training pairs have a teacher's score, "
            f"{self.pairs - self.scored} have none; {self.comparable} of {self.queries} queries "
            "have one for a relevant and for another document"
        )


def _relevant(collection: Collection, query_id: str) -> list[str]:
    relevant: list[str] = []
    for doc_id, label in collection.qrels.get(query_id, {}).items():
        if label > 0 and doc_id in collection.documents:
            relevant.append(doc_id)
    return relevant


def _line_of_pair(path: str | Path, query_id: str, doc_id: str) -> int | None:
    """Number of the line of a run that gives this pair its score."""
    for number, line in numbered_lines(path):
        fields = line.split()
        if fields[0] == query_id and fields[2] == doc_id:
            return number
    return None
