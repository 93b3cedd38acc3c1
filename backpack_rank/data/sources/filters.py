"""Steps that the sources share: which queries are kept, and candidates from a run file."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backpack_rank.checks import whole_number
from backpack_rank.data.collection import (
    Collection,
    DocumentFields,
    DocumentStore,
    Qrels,
    Queries,
    Run,
    without_own,
)
from backpack_rank.data.text_files import line_of
from backpack_rank.data.trec import read_run
from backpack_rank.digests import digest


def has_relevant(judged: dict[str, int]) -> bool:
    """Leave out queries without an answer: whether one document is relevant (above 0).

    >>> has_relevant({"d1": 0, "d2": 1})
    True
    """
    return any(relevance > 0 for relevance in judged.values())


def drawn_queries(query_ids: Iterable[str], max_queries: int | None, seed: int) -> list[str]:
    """A random sample of at most ``max_queries`` ids; None takes all of them.

    >>> drawn_queries(["q1", "q2", "q3"], None, seed=0)
    ['q1', 'q2', 'q3']

    The sample keeps the order of the ids.

    Raises:
        ValueError: ``max_queries`` is below 1.
    """
    ids = list(query_ids)
    if max_queries is None:
        return ids
    whole_number("max_queries", max_queries, 1, null="for all queries")
    if max_queries >= len(ids):
        return ids
    sample = set(random.Random(seed).sample(ids, max_queries))
    return [query_id for query_id in ids if query_id in sample]


def is_held_out(query_id: str, dev_fraction: float) -> bool:
    """Whether a query is one of the share that becomes the dev split."""
    return hash_score("dev", query_id) < dev_fraction


def hash_score(query_id: str, doc_id: str) -> float:
    """A number in [0, 1) that looks random and is the same in every process."""
    return int(digest(f"{query_id} {doc_id}", size=4), 16) / 2**32


def require_known(path: Path, content: Qrels | Run, queries: Queries, where: Path) -> None:
    """On judgements or a run that were read: their queries must be in the queries file.

    Raises:
        ValueError: a query is not; file, line and id are named.
    """
    for query_id in content:
        if query_id not in queries:
            line = line_of(path, query_id, 0)
            raise ValueError(f"{path}, line {line}: query id {query_id!r} is not in {where}")


def require_some_judged(where: object, labels: Qrels, documents: DocumentStore) -> None:
    """On judgements from a separate file, which may belong to another collection.

    Raises:
        ValueError: there are judged documents, and none of them is in the collection, so that every
            measure would be 0.
    """
    judged: list[str] = []
    for labels_of_query in labels.values():
        judged += labels_of_query
    if judged and not any(doc_id in documents for doc_id in judged):
        raise ValueError(
            f"{where}: none of its {len(set(judged))} judged documents, such as {judged[0]!r}, is "
            "in the collection; are they of another collection, or have ids another form?"
        )


def read_candidates(
    path: Path, depth: int | None, queries: Queries, where: Path, documents: DocumentStore
) -> Run:
    """Read candidates: a run whose queries and documents must all exist.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: as :func:`~backpack_rank.data.trec.read_run`, or an id that is in neither
            ``queries`` (read from ``where``) nor ``documents``; file, line and id are named.
    """
    run = read_run(path, depth=depth)
    require_known(path, run, queries, where)
    known: set[str] = set()
    for query_id, scores in run.items():
        for doc_id in scores:
            if doc_id in known:
                continue
            if doc_id not in documents:
                line = line_of(path, doc_id, 2)
                raise ValueError(
                    f"{path}, line {line}: document id {doc_id!r} of query {query_id!r} is not in "
                    "the collection"
                )
            known.add(doc_id)
    return run


def make_collection(
    name: str,
    documents: DocumentStore,
    queries: Queries,
    qrels: Qrels,
    candidates: Run | None,
    *,
    answerable_only: bool,
    fields: DocumentFields | None = None,
    ignore_identical_ids: bool = False,
) -> Collection:
    """The last step of a source: it keeps what belongs to the queries that are kept.

    Raises:
        ValueError: no query is left.
    """
    kept: list[str] = []
    for query_id in queries:
        if not answerable_only or has_relevant(qrels.get(query_id, {})):
            kept.append(query_id)
    if not kept:
        what = "queries with a relevant document" if answerable_only else "queries"
        raise ValueError(f"{name} has no {what}; look at the split, the qrels and the filters")
    collection = Collection(
        name,
        documents,
        queries,
        qrels,
        candidates,
        fields=fields,
        ignore_identical_ids=ignore_identical_ids,
    )
    if candidates is not None:
        collection = replace(collection, candidates=without_own(candidates, collection))
    return collection.select_queries(kept)
