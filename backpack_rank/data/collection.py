"""The one type of collection that every source gives and every other room takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from backpack_rank.digests import digest, with_lengths

Queries: TypeAlias = dict[str, str]
"""``{query id: text}``"""
Qrels: TypeAlias = dict[str, dict[str, int]]
"""``{query id: {document id: relevance}}``; 0 is judged and not relevant."""
Run: TypeAlias = dict[str, dict[str, float]]
"""``{query id: {document id: score}}``; higher scores rank first, equal scores by ascending
document id.
"""


class MissingSplitError(FileNotFoundError):
    """A folder or a collection has no such split."""


class DocumentStore(Protocol):
    """Documents by id. Large stores read from disk and hold no text in memory."""

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
    """A :class:`DocumentStore` for documents that fit into memory."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._fingerprint: str | None = None

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            self._fingerprint = digest(with_lengths(self._texts.items()))
        return self._fingerprint

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        wanted = list(doc_ids)
        missing = [doc_id for doc_id in wanted if doc_id not in self._texts]
        if missing:
            raise KeyError(missing_message(missing))
        return {doc_id: self._texts[doc_id] for doc_id in wanted}

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._texts

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._texts.items())

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True)
class Collection:
    """Documents, queries, judgements and candidates of one dataset and split.

    Attributes:
        name: shown in reports and used in file names, for example ``wikiqa/test``.
        documents: the whole corpus (not only the split's part).
        queries: the queries of this split.
        qrels: judgements of these queries; may be empty for a set that is only ranked.
        candidates: what the source itself gives to re-rank (a run file, scoreddocs), or None.
        groups: optional attribute of documents known to the source (the synthetic collection's
            wording: ``male``, ``female``, ``neutral``); never shown to a ranker.
    """

    name: str
    documents: DocumentStore
    queries: Queries
    qrels: Qrels
    candidates: Run | None = None
    groups: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_beir(cls, folder: str | Path, split: str = "test", **options: Any) -> Collection:
        """A folder in BEIR's layout; options of
        :func:`backpack_rank.data.sources.beir.load_beir`.
        """
        from backpack_rank.data.sources.beir import load_beir

        return load_beir(folder, split, **options)

    @classmethod
    def from_ir_datasets(cls, dataset_id: str, **options: Any) -> Collection:
        """An id of ir_datasets; options of :func:`backpack_rank.data.sources.irds.load_irds`."""
        from backpack_rank.data.sources.irds import load_irds

        return load_irds(dataset_id, **options)

    @classmethod
    def from_trec(
        cls,
        collection: str | Path,
        topics: str | Path,
        qrels: str | Path | None = None,
        candidates: str | Path | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Collection:
        """Single files, named after the topics; options of
        :func:`backpack_rank.data.sources.trec.load_trec`.
        """
        from backpack_rank.data.sources.trec import load_trec

        return load_trec(
            name or Path(topics).name.partition(".")[0],
            collection,
            topics,
            qrels,
            candidates,
            **options,
        )

    @classmethod
    def from_texts(
        cls,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        *,
        name: str = "texts",
        **options: Any,
    ) -> Collection:
        """Texts by id, each a candidate of each query; see
        :func:`backpack_rank.data.sources.inline.load_inline`.
        """
        from backpack_rank.data.sources.inline import load_inline

        return load_inline(name, queries, documents, **options)

    def select_queries(self, query_ids: Iterable[str]) -> Collection:
        """The same collection restricted to these queries (unknown ids are left out, order
        kept).
        """
        kept = [query_id for query_id in query_ids if query_id in self.queries]
        return replace(
            self,
            queries={query_id: self.queries[query_id] for query_id in kept},
            qrels={query_id: self.qrels[query_id] for query_id in kept if query_id in self.qrels},
            candidates=None
            if self.candidates is None
            else {
                query_id: self.candidates[query_id]
                for query_id in kept
                if query_id in self.candidates
            },
        )


def select_queries(run: Run, collection: Collection) -> Run:
    """The part of a run that ranks for queries of the collection, in the collection's order."""
    return {query_id: run[query_id] for query_id in collection.queries if query_id in run}


def missing_message(doc_ids: list[str]) -> str:
    """Sentence that names up to five missing document ids."""
    shown = ", ".join(repr(doc_id) for doc_id in doc_ids[:5])
    more = f" and {len(doc_ids) - 5} more" if len(doc_ids) > 5 else ""
    return f"{len(doc_ids)} document ids are not in the collection: {shown}{more}"
