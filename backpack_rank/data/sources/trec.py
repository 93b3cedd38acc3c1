"""A collection from files in the forms of TREC: collection, topics, qrels, run."""

from __future__ import annotations

from pathlib import Path

from backpack_rank.constructors import AllDocuments, Count, FilePath, Name
from backpack_rank.data.collection import Collection, Qrels
from backpack_rank.data.document_fields import LineFields
from backpack_rank.data.documents import open_documents
from backpack_rank.data.queries import read_queries
from backpack_rank.data.sources.filters import make_collection, read_candidates, require_some_judged
from backpack_rank.data.trec import read_qrels


def load_trec(
    name: Name,
    collection: FilePath,
    topics: FilePath,
    qrels: FilePath | None = None,
    candidates: FilePath | None = None,
    *,
    title: bool = True,
    depth: Count | AllDocuments = None,
    judged_queries_only: bool = True,
    answerable_only: bool = False,
    ignore_identical_ids: bool = False,
) -> Collection:
    """A collection in single files; every file may end in ``.gz``.

        collection = load_trec("dl19", "collection.tsv", "topics.tsv", "qrels.txt")

    Args:
        name: shown in reports and used in file names.
        collection: ``id<TAB>text``, ``id<TAB>title<TAB>text``, or ``.jsonl`` with ``_id``,
            ``title``, ``text``.
        topics: ``id<TAB>text`` or ``.jsonl`` with ``_id``, ``text``.
        qrels: four columns (TREC) or BEIR's three with a header; None for queries that are only
            ranked. They may judge queries that are not in ``topics`` and documents that are not in
            ``collection``: official files cover more than a sample does.
        candidates: a TREC run to re-rank; its queries and documents must exist.
        title: put the title before the text.
        depth: keep this many candidates per query.
        judged_queries_only: with qrels, leave out queries without a judgement.
        answerable_only: keep queries with at least one relevant document (above 0).
        ignore_identical_ids: leave a query's own document out of its candidates and rankings.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a malformed file, an unknown id in ``candidates``, or no query left.
    """
    topics_path = _existing(topics, "topics")
    queries = read_queries(topics_path)
    labels: Qrels = {} if qrels is None else read_qrels(_existing(qrels, "qrels"))
    corpus = _existing(collection, "collection")
    documents = open_documents(corpus, title=title)
    require_some_judged(qrels, labels, documents)
    run = None
    if candidates is not None:
        candidates_path = _existing(candidates, "candidates")
        run = read_candidates(candidates_path, depth, queries, topics_path, documents)
    if qrels is not None and judged_queries_only:
        queries = {query_id: text for query_id, text in queries.items() if query_id in labels}
        if not queries:
            raise ValueError(f"{qrels}: none of its {len(labels)} queries is in {topics_path}")
    return make_collection(
        name,
        documents,
        queries,
        labels,
        run,
        answerable_only=answerable_only,
        fields=LineFields(corpus),
        ignore_identical_ids=ignore_identical_ids,
    )


def _existing(path: str | Path, argument: str) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file} ({argument})")
    return file
