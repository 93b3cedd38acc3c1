"""The one type of collection that every source gives and every other room takes.

What reads a collection is in :mod:`backpack_rank.data.sources`, which this module does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from backpack_rank.digests import digest, with_lengths
from backpack_rank.notebook import ShownInNotebooks

Queries: TypeAlias = dict[str, str]
"""``{query id: text}``"""
Qrels: TypeAlias = dict[str, dict[str, int]]
"""``{query id: {document id: relevance}}``; 0 is judged and not relevant."""
Run: TypeAlias = dict[str, dict[str, float]]
"""``{query id: {document id: score}}``; higher scores rank first, equal scores by ascending
document id.
"""
DocumentFields: TypeAlias = Callable[[str, Iterable[str]], dict[str, Any]]
"""Values of a field by document id, of the documents that have one; ``ValueError`` for a field that
no document has.
"""


class MissingSplitError(FileNotFoundError):
    """Raised where a folder or a collection has no such split."""


class DocumentStore(Protocol):
    """Implement it for documents of another source: texts by document id.

    :class:`MemoryStore` is the shortest example.

    Large stores read from disk and hold no text in memory.
    """

    @property
    def fingerprint(self) -> str:
        """Changes when the documents change; keys of caches are made from it."""
        ...

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        """Texts of the documents. Raises ``KeyError`` that names the ids that are missing."""
        ...

    def __contains__(self, doc_id: object) -> bool: ...

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Every (id, text), in the order of the source."""
        ...

    def __len__(self) -> int: ...


class MemoryStore:
    """Documents that fit into memory, such as texts of your own.

    >>> store = MemoryStore({"d1": "a saw", "d2": "a hammer"})
    >>> store.get_many(["d2"])
    {'d2': 'a hammer'}

    A :class:`DocumentStore`.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._fingerprint: str | None = None

    @property
    def fingerprint(self) -> str:
        # Hashing reads every text, so it is done once, and only for those who keep a cache.
        if self._fingerprint is None:
            self._fingerprint = digest(with_lengths(self._texts.items()))
        return self._fingerprint

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        missing: list[str] = []
        for doc_id in doc_ids:
            if doc_id in self._texts:
                texts[doc_id] = self._texts[doc_id]
            else:
                missing.append(doc_id)
        if missing:
            raise KeyError(missing_message(missing))
        return texts

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._texts

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._texts.items())

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True, repr=False)
class Collection(ShownInNotebooks):
    """The data of one dataset and split: documents, queries, judgements, candidates.

    The loaders of :mod:`backpack_rank.data.sources` make it; by hand it is::

        Collection("trades", MemoryStore({"d1": "She repairs roofs."}), {"q1": "roofer"}, {})

    Attributes:
        name: shown in reports and used in file names, for example ``wikiqa/test``.
        documents: the complete corpus, not only the documents of this split.
        queries: the queries of this split.
        qrels: judgements of these queries; may be empty for a set that is only ranked.
        candidates: what the source itself gives to re-rank (a run file, scoreddocs), or None.
        groups: ``{document id: group}`` where the source knows it (of the synthetic collection
            ``male``, ``female`` or ``neutral``), else empty; never shown to a ranker.
        fields: gives further fields of documents, or None where the source has none.
        ignore_identical_ids: whether queries are documents of the collection, as in ArguAna and
            Quora: the document whose id is the query's is then no candidate of it.
        depth: how many candidates BM25 gives a query where nobody says otherwise.
    """

    name: str
    documents: DocumentStore
    queries: Queries
    qrels: Qrels
    candidates: Run | None = None
    groups: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Not the texts, which may be millions.
        counts = f"{len(self.documents)} documents, {len(self.queries)} queries"
        return f"Collection({self.name!r}, {counts})"

    fields: DocumentFields | None = None
    ignore_identical_ids: bool = False
    depth: int = 100

    def field_values(self, name: str, doc_ids: Iterable[str]) -> dict[str, Any]:
        """What documents say beside their text; ``group`` is that of ``groups``.

            collection.field_values("region", ["d1", "d2"])  # {"d1": "asia"}

        Returns:
            Values by document id; documents without one are left out.

        Raises:
            ValueError: the source has no such field.
        """
        if name == "group" and self.groups:
            return {doc_id: self.groups[doc_id] for doc_id in doc_ids if doc_id in self.groups}
        if self.fields is None:
            there = "group" if self.groups else "none"
            raise ValueError(f"{self.name} has no field {name!r}; fields there: {there}")
        return self.fields(name, doc_ids)

    def select_queries(self, query_ids: Iterable[str]) -> Collection:
        """The same collection with these queries alone, in this order; unknown ids are left out."""
        queries: Queries = {}
        qrels: Qrels = {}
        candidates: Run = {}
        for query_id in query_ids:
            if query_id not in self.queries:
                continue
            queries[query_id] = self.queries[query_id]
            if query_id in self.qrels:
                qrels[query_id] = self.qrels[query_id]
            if self.candidates is not None and query_id in self.candidates:
                candidates[query_id] = self.candidates[query_id]
        # None stays None: a source without candidates is not one with empty lists.
        return replace(
            self,
            queries=queries,
            qrels=qrels,
            candidates=None if self.candidates is None else candidates,
        )


def select_queries(run: Run, collection: Collection) -> Run:
    """The part of a run that ranks for queries of a collection, in its order.

    >>> collection = Collection("trades", MemoryStore({}), {"q1": "roofer"}, {})
    >>> select_queries({"q2": {"d1": 2.0}, "q1": {"d1": 1.0}}, collection)
    {'q1': {'d1': 1.0}}
    """
    # A run that lies on disk stays there.
    if not isinstance(run, dict):
        return run.select(collection.queries)
    return {query_id: run[query_id] for query_id in collection.queries if query_id in run}


def without_own(run: Run, collection: Collection) -> Run:
    """On rankings of a collection whose queries are documents: without the query's own.

    >>> queries = Collection("a", MemoryStore({}), {"d1": "x"}, {}, ignore_identical_ids=True)
    >>> without_own({"d1": {"d1": 9.0, "d2": 1.0}}, queries)
    {'d1': {'d2': 1.0}}

    BEIR, MTEB and pyserini have the same rule. Of other collections the run is as it was.
    """
    if not collection.ignore_identical_ids:
        return run
    kept: Run = {}
    for query_id, scores in run.items():
        if query_id in scores:
            scores = {doc_id: score for doc_id, score in scores.items() if doc_id != query_id}
        kept[query_id] = scores
    return kept


def note_on_own(run: Mapping[str, Mapping[str, float]], collection: Collection) -> str | None:
    """A sentence where queries are ranked for themselves, and nobody has said that they may be."""
    if collection.ignore_identical_ids:
        return None
    ranked = [query_id for query_id in collection.queries if query_id in run.get(query_id, ())]
    if not ranked:
        return None
    # Queries and documents that are numbered apart have ids in common.
    texts = collection.documents.get_many(ranked)
    same = [query_id for query_id in ranked if collection.queries[query_id] in texts[query_id]]
    if not same:
        return None
    return (
        f"{len(same)} of {len(collection.queries)} queries of {collection.name} are documents and "
        f"ranked for themselves, such as {same[0]!r}: ignore_identical_ids=true of the collection "
        "leaves them out, as BEIR, MTEB and pyserini do"
    )


def missing_message(doc_ids: list[str]) -> str:
    """In an error: a sentence that names up to five missing document ids."""
    shown = ", ".join(repr(doc_id) for doc_id in doc_ids[:5])
    more = f" and {len(doc_ids) - 5} more" if len(doc_ids) > 5 else ""
    return f"{len(doc_ids)} document ids are not in the collection: {shown}{more}"
