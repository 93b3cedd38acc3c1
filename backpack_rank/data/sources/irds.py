"""A collection from an ir_datasets id (MacAvaney et al. 2021)."""

from __future__ import annotations

import difflib
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import ir_datasets
from filelock import FileLock

from backpack_rank.checks import whole_number
from backpack_rank.constructors import AllDocuments, AllQueries, Count, Name, Seed
from backpack_rank.data.collection import Collection, Qrels, Queries, Run, missing_message
from backpack_rank.data.document_fields import no_such_field
from backpack_rank.data.public.names import QUERIES_ARE_DOCUMENTS
from backpack_rank.data.sources.filters import drawn_queries, make_collection, read_candidates
from backpack_rank.data.trec import ranking, sorted_run
from backpack_rank.digests import digest, with_lengths
from backpack_rank.files import cache_dir, kept_or_rebuilt

# The process that imported this module; a process forked from it has another number.
_IMPORTED_BY = os.getpid()
_QUERIES_ARE_DOCUMENTS = [["beir", name] for name in QUERIES_ARE_DOCUMENTS]
_BLOCK = 1000
"""Documents that are fetched at once for a field."""


def load_irds(
    dataset_id: Name,
    *,
    candidates: Name = "scoreddocs",
    depth: Count | AllDocuments = None,
    judged_queries_only: bool = True,
    answerable_only: bool = False,
    max_queries: Count | AllQueries = None,
    seed: Seed = 0,
    name: Name | None = None,
    ignore_identical_ids: bool | None = None,
) -> Collection:
    """Any ir_datasets id with documents, queries, and qrels or scoreddocs.

        collection = load_irds("beir/nfcorpus/test")

    It is downloaded on first use.

    ``msmarco-qna/train`` gives training lists: its scoreddocs are the about 10 passages that a
    search engine showed for a query, in that order, and its qrels label the same passages 1 (used
    for the answer) or 0. ``answerable_only=True`` leaves out queries without a used passage.
    Documents stay on disk; queries, qrels and candidates are in memory with one string per document
    id: about 1.6 GB (1.9 GB while loading) for all 808,731 queries of that set, in proportion less
    with ``max_queries``, since the files are read twice and only what belongs to a kept query is
    stored. The library needs ``ijson`` for this set.

    A document that a dataset judges twice for a query keeps its highest relevance, one that it
    lists twice its highest score.

    Args:
        dataset_id: for example ``msmarco-passage/dev/small`` or ``beir/nfcorpus/test``.
        candidates: ``scoreddocs``, ``none``, or the path of a TREC run.
        depth: keep this many candidates per query. Lists without an order (all scores of a query
            equal, as in MS MARCO's top 1000 files) cannot be cut and are refused.
        judged_queries_only: when the dataset has qrels, leave out queries without a judgement.
        answerable_only: keep queries with at least one relevant document (above 0).
        max_queries: a random sample of this many queries, drawn with ``seed``, in the order of the
            dataset.
        seed: of the sample.
        name: shown in reports; the dataset id when None.
        ignore_identical_ids: leave a query's own document out of its candidates and rankings;
            None: of ``beir/arguana`` and ``beir/quora``, whose queries are documents.

    Raises:
        ValueError: an unknown id (close matches are named), a dataset without documents, queries or
            the candidates asked for, a query without text, lists without an order, no query left.
        FileNotFoundError: ``candidates`` is a path and there is no such file.
    """
    dataset = known_dataset(dataset_id)
    _check_parts(dataset_id, dataset, candidates, depth, max_queries)
    documents = IrDatasetsStore(dataset_id)
    documents.prepare()
    with library_lock():  # ir_datasets downloads and unpacks while it reads
        queries = {query.query_id: query.default_text() for query in dataset.queries_iter()}
        kept = _select(dataset, queries, judged_queries_only, answerable_only, max_queries, seed)
        doc_ids: dict[str, str] = {}
        qrels = _read_qrels(dataset, kept, doc_ids)
        run = None
        if candidates == "scoreddocs":
            run = _read_scoreddocs(dataset_id, dataset, kept, depth, doc_ids)
    for query_id, text in kept.items():
        if not text.strip():
            raise ValueError(f"{dataset_id}: the text of query {query_id!r} is empty")
    if candidates not in ("scoreddocs", "none"):
        path = Path(candidates).expanduser()
        run = read_candidates(path, depth, queries, Path(dataset_id), documents)
    return make_collection(
        name or dataset_id,
        documents,
        kept,
        qrels,
        run,
        answerable_only=False,
        fields=documents.field_values,
        ignore_identical_ids=dataset_id.split("/")[:2] in _QUERIES_ARE_DOCUMENTS
        if ignore_identical_ids is None
        else ignore_identical_ids,
    )


class IrDatasetsStore:
    """The documents of an ir_datasets id, read from its docstore.

        documents = IrDatasetsStore("beir/nfcorpus")
        documents.get_many(["MED-10"])

    It is a :class:`~backpack_rank.data.collection.DocumentStore`.

    Texts are ``default_text()`` and are fetched from disk. It is pickled by its id. A forked
    process opens its own files, because the library's docstores seek.
    """

    def __init__(self, dataset_id: str) -> None:
        self._dataset_id = dataset_id
        self._reset()

    def prepare(self) -> None:
        """Download the documents and build the library's docstore, once; parallel jobs wait."""
        self._store()

    @property
    def fingerprint(self) -> str:
        """Made from the id of the documents, their number and the first hundred texts."""
        documents = f"{ir_datasets.docs_parent_id(self._dataset_id)} {len(self)}"
        return digest(chain([documents], with_lengths(islice(self, 100))))

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        wanted = list(dict.fromkeys(doc_ids))
        texts = self._fetch(wanted)
        missing = [doc_id for doc_id in wanted if doc_id not in texts]
        if missing:
            raise KeyError(missing_message(missing))
        return {doc_id: texts[doc_id] for doc_id in wanted}

    def field_values(self, name: str, doc_ids: Iterable[str]) -> dict[str, Any]:
        """Values of a field of these documents, such as ``gender`` of ``trec-fair/2022``.

        Documents that the dataset does not have are left out.

        Raises:
            ValueError: documents of this dataset have no such field; names those that there are.
        """
        fields = known_dataset(self._dataset_id).docs_cls()._fields
        if name not in fields:
            raise no_such_field(name, fields, self._dataset_id)
        store = self._store()
        wanted = iter(dict.fromkeys(doc_ids))
        values: dict[str, Any] = {}
        # Some documents at a time, because they come with their texts.
        while block := list(islice(wanted, _BLOCK)):
            with self._mutex:
                documents = store.get_many(block).values()
            for document in documents:
                values[document.doc_id] = getattr(document, name)
        return values

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and doc_id in self._fetch([doc_id])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.prepare()
        for document in known_dataset(self._dataset_id).docs_iter():
            yield document.doc_id, _text(document)

    def __len__(self) -> int:
        store = self._store()
        if hasattr(store, "count"):
            return int(store.count())
        return int(known_dataset(self._dataset_id).docs_count())

    def __getstate__(self) -> dict[str, str]:
        return {"dataset_id": self._dataset_id}

    def __setstate__(self, state: dict[str, str]) -> None:
        self._dataset_id = state["dataset_id"]
        self._reset()

    def _reset(self) -> None:
        self._docstore: Any = None
        self._process = os.getpid()
        self._mutex = threading.Lock()

    def _fetch(self, doc_ids: list[str]) -> dict[str, str]:
        store = self._store()
        with self._mutex:
            documents = store.get_many(doc_ids).values()
            return {document.doc_id: _text(document) for document in documents}

    def _store(self) -> Any:
        """The library's docstore, opened once in every process."""
        if self._process != os.getpid():
            self._reset()
        if self._docstore is None:
            with library_lock():
                store = known_dataset(self._dataset_id).docs_store()
                if os.getpid() != _IMPORTED_BY and hasattr(store, "lookup"):
                    # The library may keep files that were opened before the fork.
                    store.lookup.close()
                if hasattr(store, "build"):
                    store.build()
                self._docstore = store
        return self._docstore


def _text(document: Any) -> str:
    # BEIR documents without a title start with the space that joins title and text.
    return str(document.default_text()).lstrip()


def known_dataset(dataset_id: str) -> Any:
    """In place of ``ir_datasets.load``: an unknown id is answered with close ones.

        dataset = known_dataset("beir/nfcorpus/test")

    Raises:
        ValueError: the library knows no such id.
    """
    try:
        return ir_datasets.load(dataset_id)
    except KeyError as error:
        close = difflib.get_close_matches(dataset_id, list(ir_datasets.registry), n=5, cutoff=0.5)
        hint = f"; close ids: {', '.join(close)}" if close else ""
        raise ValueError(f"ir_datasets knows no dataset {dataset_id!r}{hint}") from error


def library_lock() -> FileLock:
    """Around calls in which the library may download or unpack: one job at a time does so.

    with library_lock():
        queries = list(dataset.queries_iter())
    """
    # One lock for all datasets, because the library builds some of them from others.
    home = str(ir_datasets.util.home_path())
    place = digest(home, size=4)

    def kept() -> FileLock:
        folder = cache_dir() / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f"irds-{place}.lock")

    def elsewhere() -> FileLock:
        user = os.getuid() if hasattr(os, "getuid") else 0
        return FileLock(Path(tempfile.gettempdir(), f"backpack_rank-{user}-irds-{place}.lock"))

    return kept_or_rebuilt(kept, elsewhere, "the lock of ir_datasets, which parallel jobs share,")


def _check_parts(
    dataset_id: str, dataset: Any, candidates: str, depth: int | None, max_queries: int | None
) -> None:
    whole_number("depth", depth, 1, null="for all documents")
    whole_number("max_queries", max_queries, 1, null="for all queries")
    for part in ("docs", "queries"):
        if not getattr(dataset, f"has_{part}")():
            within = [other for other in ir_datasets.registry if other.startswith(f"{dataset_id}/")]
            hint = f"; ids below it: {', '.join(within[:8])}" if within else ""
            raise ValueError(f"{dataset_id} has no {part}{hint}")
    if candidates == "scoreddocs" and not dataset.has_scoreddocs():
        raise ValueError(
            f"{dataset_id} has no scoreddocs; set candidates to none or to the path of a TREC run"
        )
    if candidates not in ("scoreddocs", "none") and not Path(candidates).expanduser().is_file():
        raise FileNotFoundError(
            f"there is no run {candidates}; candidates is scoreddocs, none, or a path"
        )


def _select(
    dataset: Any,
    queries: Queries,
    judged_queries_only: bool,
    answerable_only: bool,
    max_queries: int | None,
    seed: int,
) -> Queries:
    chosen = list(queries)
    if dataset.has_qrels() and (judged_queries_only or answerable_only):
        judged: set[str] = set()
        for qrel in dataset.qrels_iter():
            if not answerable_only or qrel.relevance > 0:
                judged.add(qrel.query_id)
        chosen = [query_id for query_id in chosen if query_id in judged]
    elif answerable_only:
        raise ValueError("answerable_only needs a dataset with qrels")
    return {query_id: queries[query_id] for query_id in drawn_queries(chosen, max_queries, seed)}


def _read_qrels(dataset: Any, kept: Queries, doc_ids: dict[str, str]) -> Qrels:
    qrels: Qrels = {}
    if not dataset.has_qrels():
        return qrels
    for qrel in dataset.qrels_iter():
        if qrel.query_id in kept:
            judged = qrels.setdefault(qrel.query_id, {})
            # One string for qrels and candidates.
            doc_id = doc_ids.setdefault(qrel.doc_id, qrel.doc_id)
            relevance = int(qrel.relevance)
            judged[doc_id] = max(relevance, judged.get(doc_id, relevance))
    return qrels


def _read_scoreddocs(
    dataset_id: str, dataset: Any, kept: Queries, depth: int | None, doc_ids: dict[str, str]
) -> Run:
    run: Run = {}
    lowest: dict[str, float] = {}
    # Millions of lists often share few scores, such as ranks: each is then one object in memory.
    shared_scores: dict[float, float] = {}
    for row in dataset.scoreddocs_iter():
        if row.query_id not in kept:
            continue
        score = row.score
        if len(shared_scores) < 10_000:
            score = shared_scores.setdefault(score, score)
        lowest[row.query_id] = min(score, lowest.get(row.query_id, score))
        scores = run.setdefault(row.query_id, {})
        doc_id = doc_ids.setdefault(row.doc_id, row.doc_id)
        scores[doc_id] = max(score, scores.get(doc_id, score))
        # A list is cut when it is twice as long as needed, so that few sorts serve many rows. One
        # more than needed is kept, by which a list without an order is noticed below.
        if depth is not None and len(scores) > 2 * depth:
            run[row.query_id] = {best: scores[best] for best in ranking(scores)[: depth + 1]}
    for query_id, scores in run.items():
        if depth is not None and len(scores) > depth and max(scores.values()) == lowest[query_id]:
            raise ValueError(
                f"{dataset_id}: the {len(scores)} or more scoreddocs of query {query_id!r} all "
                f"have the score {lowest[query_id]:g}, so there is no best {depth}; use a first "
                "stage, or depth null for all"
            )
    return sorted_run(run, depth=depth)
