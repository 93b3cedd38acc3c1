"""A collection from a folder in BEIR's layout (Thakur et al. 2021).

The layout: corpus.jsonl, queries.jsonl, qrels/<split>.tsv.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

from backpack_rank.checks import fraction, located
from backpack_rank.constructors import (
    AllDocuments,
    AllQueries,
    Count,
    FilePath,
    Name,
    PathText,
    Range,
    Seed,
)
from backpack_rank.data.collection import (
    Collection,
    DocumentStore,
    MissingSplitError,
    Qrels,
    Queries,
    Run,
)
from backpack_rank.data.document_fields import LineFields
from backpack_rank.data.documents import open_documents
from backpack_rank.data.public.names import IDENTICAL_IDS, SOURCE, how_to_get
from backpack_rank.data.queries import read_queries_jsonl
from backpack_rank.data.sources.filters import (
    drawn_queries,
    hash_score,
    is_held_out,
    make_collection,
    read_candidates,
    require_known,
    require_some_judged,
)
from backpack_rank.data.trec import read_qrels, sorted_run
from backpack_rank.files import read_text

JUDGED = "judged"
log = logging.getLogger(__name__)


def load_beir(
    folder: FilePath,
    split: Name,
    *,
    candidates: FilePath | None = None,
    qrels: PathText | None = None,
    title: bool = True,
    judged_queries_only: bool = True,
    dev_fraction: Annotated[float, Range(above=0, below=1)] | None = None,
    answerable_only: bool = False,
    depth: Count | AllDocuments = None,
    max_queries: Count | AllQueries = None,
    seed: Seed = 0,
    name: Name | None = None,
    ignore_identical_ids: bool | None = None,
) -> Collection:
    """A folder in BEIR's layout; it loads one split.

        collection = load_beir("nfcorpus", "test")

    Every file may end in ``.gz``.

    Args:
        folder: holds ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.
        split: ``train``, ``dev``, ``test``. Its qrels file says which queries belong to it. In a
            folder without any judgements ``test`` has all queries, and effectiveness cannot be
            measured.
        candidates: a TREC run to re-rank, relative to the folder or absolute. It may hold queries
            of other splits. ``judged`` takes the judged documents of each query that are in the
            corpus, in an order by a hash of their ids, which says nothing about relevance.
        qrels: judgements to use in place of the split's (TREC or BEIR form), relative to the folder
            or absolute, for example complete official labels. Judged documents that are not in the
            corpus are kept, since they count for the ideal ranking. Without a qrels file of the
            split they also say which queries belong to it.
        title: put the title before the text.
        judged_queries_only: False takes every query of ``queries.jsonl``.
        dev_fraction: where there is no ``qrels/dev.tsv``, this share of the training queries is the
            dev split and no longer of the training split, chosen by a hash of the query id; None:
            there is no dev split then.
        answerable_only: keep queries with at least one relevant document (above 0).
        depth: keep this many candidates per query.
        max_queries: a random sample of this many of the queries that are left, in their order.
        seed: of the sample.
        name: shown in reports; ``<folder name>/<split>`` when None.
        ignore_identical_ids: leave a query's own document out of its candidates and rankings;
            None: as ``source.json`` of the folder says, which ``data get`` writes (ArguAna, Quora).

    Raises:
        FileNotFoundError: the folder or a file is missing; the sentence says which was expected.
        MissingSplitError: there are judgements, but none of this split.
        ValueError: a malformed file, or an id that its file refers to and that does not exist.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(
            f"there is no folder {root}; expected corpus.jsonl, queries.jsonl and "
            f"qrels/{split}.tsv in it{how_to_get(root)}"
        )
    queries_path = existing_file(root / "queries.jsonl")
    queries = read_queries_jsonl(queries_path)
    if qrels is not None:
        labels, of_split = _labels_in_place(root, split, qrels, queries, queries_path)
    elif split == "test" and not _splits(root):
        log.info("%s has no judgements: effectiveness is not measured, bias and scores are", root)
        labels, of_split = {}, set(queries)
    else:
        labels = _split_labels(root, split, queries, queries_path, dev_fraction)
        of_split = set(labels)
    corpus = existing_file(root / "corpus.jsonl")
    documents = open_documents(corpus, title=title)
    require_some_judged(root / (qrels or "qrels"), labels, documents)
    run = None
    if candidates == JUDGED:
        run = _judged(labels, documents, depth)
    elif candidates is not None:
        path = existing_file(root / Path(candidates).expanduser())
        run = read_candidates(path, depth, queries, queries_path, documents)
    if judged_queries_only:
        queries = {query_id: text for query_id, text in queries.items() if query_id in of_split}
    name = name or f"{root.resolve().name}/{split}"
    collection = make_collection(
        name,
        documents,
        queries,
        labels,
        run,
        answerable_only=answerable_only,
        fields=LineFields(corpus),
        ignore_identical_ids=_queries_are_documents(root)
        if ignore_identical_ids is None
        else ignore_identical_ids,
    )
    return collection.select_queries(drawn_queries(collection.queries, max_queries, seed))


def _queries_are_documents(root: Path) -> bool:
    """What ``data get`` wrote about the collection."""
    path = root / SOURCE
    if not path.is_file():
        return False
    with located(str(path)):
        record = json.loads(read_text(path))
    return isinstance(record, dict) and record.get(IDENTICAL_IDS) is True


def _split_labels(
    root: Path, split: str, queries: Queries, queries_path: Path, dev_fraction: float | None
) -> Qrels:
    """Judgements of ``qrels/<split>.tsv``, whose queries are those of the split."""
    splits = _splits(root)
    # A dev split that the folder lacks is held out from the training queries.
    holds_out = split in ("train", "dev") and dev_fraction is not None and "dev" not in splits
    file_split = "train" if holds_out else split
    path = optional_file(root / "qrels" / f"{file_split}.tsv")
    if path is None:
        raise MissingSplitError(
            f"there is no {root / 'qrels' / split}.tsv (nor .gz); splits there: "
            f"{', '.join(splits) or 'none'}"
        )
    labels = read_qrels(path)
    require_known(path, labels, queries, queries_path)
    if holds_out and dev_fraction is not None:
        return _held_out(labels, split, dev_fraction, root)
    return labels


def _labels_in_place(
    root: Path, split: str, given: str, queries: Queries, queries_path: Path
) -> tuple[Qrels, set[str]]:
    """Judgements of a file in place of the split's, and the ids of the split's queries."""
    path = existing_file(root / Path(given).expanduser())
    labels = read_qrels(path)
    split_path = optional_file(root / "qrels" / f"{split}.tsv")
    if split_path is None:
        require_known(path, labels, queries, queries_path)
        return labels, set(labels)
    of_split = read_qrels(split_path)
    require_known(split_path, of_split, queries, queries_path)
    for query_id in of_split:
        if query_id not in labels:
            raise ValueError(
                f"{path} has no judgement of query {query_id!r}, which is in {split_path}"
            )
    return labels, set(of_split)


def _held_out(labels: Qrels, split: str, dev_fraction: float, root: Path) -> Qrels:
    """The training or the dev part of the training queries."""
    fraction("data.dev_fraction", dev_fraction, ends="()")
    kept: Qrels = {}
    for query_id, documents in labels.items():
        in_dev = is_held_out(query_id, dev_fraction)
        if in_dev == (split == "dev"):
            kept[query_id] = documents
    if not kept:
        raise MissingSplitError(
            f"{root} has no qrels/dev.tsv, and data.dev_fraction={dev_fraction:g} leaves none of "
            f"its {len(labels)} training queries to {split}"
        )
    log.info(
        "%s has no qrels/dev.tsv: data.dev_fraction=%g of the training queries are the dev split; "
        "%s: %d of %d",
        root,
        dev_fraction,
        split,
        len(kept),
        len(labels),
    )
    return kept


def _judged(labels: Qrels, documents: DocumentStore, depth: int | None) -> Run:
    """Judged documents with scores in [0, 1) that depend on query and document id only."""
    run: Run = {}
    for query_id, judged in labels.items():
        scores = run[query_id] = {}
        for doc_id in judged:
            if doc_id in documents:
                scores[doc_id] = hash_score(query_id, doc_id)
    return sorted_run(run, depth=depth)


def _splits(root: Path) -> list[str]:
    """Splits that the folder has judgements of."""
    names: set[str] = set()
    for path in root.glob("qrels/*.tsv*"):
        names.add(path.name.removesuffix(".gz").removesuffix(".tsv"))
    return sorted(names)


def existing_file(path: Path) -> Path:
    """A file that must be there, or else the same with ``.gz``.

        path = existing_file(Path("nfcorpus/corpus.jsonl"))

    Raises:
        FileNotFoundError: there is neither.
    """
    existing = optional_file(path)
    if existing is None:
        raise FileNotFoundError(f"there is no {path} (nor {path.name}.gz){how_to_get(path)}")
    return existing


def optional_file(path: Path) -> Path | None:
    """A file that may be there, or the same with ``.gz``; None where neither is."""
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    return None
