"""Files of rank_llm: requests and results, as JSON lines or JSON.

One object per query:
``{"query": {"text": ..., "qid": ...}, "candidates": [{"docid": ..., "score": ..., "doc": {...}},
...]}``. Requests and results have the same form; in results the candidates stand in the ranker's
order. Names that end in ``.json`` hold one list of such objects, all others one object per line;
``.gz`` is compressed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backpack_rank.checks import finite, located
from backpack_rank.constructors import AllDocuments, Count, FilePath, Name
from backpack_rank.data.collection import Collection, MemoryStore, Qrels, Run
from backpack_rank.data.documents import document_text
from backpack_rank.data.json_lines import JSON_FILE, json_value, unique_keys, write_jsonl
from backpack_rank.data.text_files import check_id, check_text, read_rows, shortened
from backpack_rank.data.trec import ranking, read_qrels, sorted_run
from backpack_rank.files import read_text, write_text

TEXT_KEYS = ("text", "segment", "contents", "content", "body", "passage")
"""Where the text of a ``doc`` may stand; the first that is there counts, as in rank_llm."""


@dataclass(frozen=True)
class Candidate:
    """A document to rank.

    Attributes:
        doc_id: its id.
        text: its title, where there is one, a space, and its text.
        score: of the first stage, or of the ranker in results; None where the file gives none.
        doc: the object of the file, to be written back unchanged.
    """

    doc_id: str
    text: str
    score: float | None = None
    doc: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Request:
    """A query and its candidates, in the order of the file."""

    query_id: str
    query: str
    candidates: tuple[Candidate, ...]

    def run(self) -> dict[str, float]:
        """Scores that sort into the order of the file.

        They are the file's own where those do, else m, m - 1, ..., 1.
        """
        given = {one.doc_id: one.score for one in self.candidates}
        scores = {doc_id: score for doc_id, score in given.items() if score is not None}
        if len(scores) == len(given) and ranking(scores) == list(given):
            return scores
        return {doc_id: float(len(given) - place) for place, doc_id in enumerate(given)}


def read_requests(path: str | Path) -> list[Request]:
    """Read requests or results of rank_llm. Ids may be numbers; further keys are ignored.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no JSON, a key that is missing or of the wrong kind, an empty query, a query
            that stands twice, a document that stands twice for a query, or no request at all. File,
            line (in ``.json``: which object) and ids are named.
    """
    requests: list[Request] = []
    seen: set[str] = set()
    for place, record in _records(Path(path)):
        with located(f"{path}, {place}"):
            request = _request(record)
            if request.query_id in seen:
                raise ValueError(f"query {request.query_id!r} stands twice")
        seen.add(request.query_id)
        requests.append(request)
    if not requests:
        raise ValueError(f"{path} holds no request")
    return requests


def write_requests(path: str | Path, requests: Iterable[Request]) -> None:
    """Write requests or results as rank_llm does, whole file or no file.

    The file's name decides its form, as in reading.

    Documents keep all keys they were read with; those that had none get ``{"text": ...}``.
    """
    records = [_record(request) for request in requests]
    if _is_list(Path(path)):
        write_text(path, json.dumps(records, ensure_ascii=False, indent=2) + "\n")
    else:
        write_jsonl(path, records)


def reordered(requests: Sequence[Request], run: Mapping[str, Mapping[str, float]]) -> list[Request]:
    """Results: each request with its candidates in the order of a run and with the run's scores.

    Candidates that the run does not have are left out, as are queries without any.

    Raises:
        ValueError: the run has a query or document that the requests do not have.
    """
    known = {request.query_id: request for request in requests}
    if unknown := [query_id for query_id in run if query_id not in known]:
        raise ValueError(f"the run has query {unknown[0]!r}, which is not among the requests")
    results = []
    for request in requests:
        scores = run.get(request.query_id, {})
        candidates = {candidate.doc_id: candidate for candidate in request.candidates}
        if unknown := [doc_id for doc_id in scores if doc_id not in candidates]:
            raise ValueError(
                f"the run has document {unknown[0]!r}, which is no candidate of query "
                f"{request.query_id!r}"
            )
        chosen = tuple(
            replace(candidates[doc_id], score=float(scores[doc_id])) for doc_id in ranking(scores)
        )
        if chosen:
            results.append(replace(request, candidates=chosen))
    return results


def requests_run(requests: Iterable[Request]) -> Run:
    """A run in the order of the file; see :meth:`Request.run`.

    ``data.trec.write_run`` writes it as TREC.
    """
    return {request.query_id: request.run() for request in requests}


def load_requests(
    name: Name,
    path: FilePath,
    qrels: FilePath | None = None,
    *,
    depth: Count | AllDocuments = None,
) -> Collection:
    """The collection of a file of requests: their queries, documents and candidates.

    Args:
        name: shown in reports and used in file names.
        path: the file of requests.
        qrels: judgements, four columns (TREC) or BEIR's three with a header; None for none.
        depth: keep this many candidates per query.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a malformed file, or a document with two different texts.
    """
    requests = read_requests(Path(path).expanduser())
    texts: dict[str, str] = {}
    for request in requests:
        for candidate in request.candidates:
            if texts.setdefault(candidate.doc_id, candidate.text) != candidate.text:
                raise ValueError(
                    f"{path}: document {candidate.doc_id!r} of query {request.query_id!r} has "
                    "another text than in an earlier request; documents of one file must have one "
                    "text each"
                )
    queries = {request.query_id: request.query for request in requests}
    judged: Qrels = {} if qrels is None else read_qrels(Path(qrels).expanduser())
    candidates = sorted_run(requests_run(requests), depth=depth)
    return Collection(name, MemoryStore(texts), queries, judged, candidates).select_queries(queries)


def _records(path: Path) -> Iterator[tuple[str, object]]:
    """Every object with its place, in words."""
    if _is_list(path):
        text = read_text(path, JSON_FILE)
        try:
            records = json.loads(text, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: expected a JSON list of requests: {error}") from error
        if not isinstance(records, list):
            raise ValueError(
                f"{path}: expected a JSON list of requests, got {shortened(records)}; one per line "
                "is .jsonl"
            )
        yield from ((f"request {number}", record) for number, record in enumerate(records, start=1))
        return
    yield from ((f"line {number}", record) for number, record in read_rows(path, json_value))


def _request(record: object) -> Request:
    if not isinstance(record, dict) or not isinstance(record.get("query"), dict):
        raise ValueError(
            f'expected {{"query": {{"text", "qid"}}, "candidates": [...]}}, got {shortened(record)}'
        )
    query_id = _id(record["query"].get("qid"), 'the "qid" of the query')
    text = record["query"].get("text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f'query {query_id!r} needs a "text", got {shortened(text)}')
    check_text(text, f"the text of query {query_id!r}")
    given = record.get("candidates")
    if not isinstance(given, list):
        raise ValueError(f'query {query_id!r} needs a list of "candidates", got {shortened(given)}')
    candidates: dict[str, Candidate] = {}
    for number, one in enumerate(given, start=1):
        with located(f"query {query_id!r}, candidate {number}"):
            candidate = _candidate(one)
            if candidate.doc_id in candidates:
                raise ValueError(f"document {candidate.doc_id!r} stands twice")
        candidates[candidate.doc_id] = candidate
    return Request(query_id, text, tuple(candidates.values()))


def _candidate(record: object) -> Candidate:
    if not isinstance(record, dict):
        raise ValueError(f'expected {{"docid", "score", "doc"}}, got {shortened(record)}')
    doc_id = _id(record.get("docid"), 'the "docid"')
    doc = record.get("doc")
    key = next((key for key in TEXT_KEYS if key in doc), None) if isinstance(doc, dict) else None
    if not isinstance(doc, dict) or key is None or not isinstance(doc[key], str):
        keys = ", ".join(TEXT_KEYS)
        raise ValueError(
            f'document {doc_id!r} needs a "doc" with its text under one of {keys}; '
            f"got {shortened(doc)}"
        )
    title = doc.get("title") or ""
    if not isinstance(title, str):
        raise ValueError(
            f'document {doc_id!r}: the "title" must be a string, got {shortened(title)}'
        )
    check_text(title + doc[key], f"document {doc_id!r}")
    score = record.get("score")
    if score is not None:
        finite(f'document {doc_id!r}: the "score"', score)
    return Candidate(
        doc_id, document_text(title, doc[key]), None if score is None else float(score), doc
    )


def _id(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{what} must be a string or a whole number, got {shortened(value)}")
    check_id(str(value))
    return str(value)


def _record(request: Request) -> dict[str, Any]:
    candidates = [
        {"docid": one.doc_id, "score": one.score, "doc": dict(one.doc) or {"text": one.text}}
        for one in request.candidates
    ]
    return {"query": {"text": request.query, "qid": request.query_id}, "candidates": candidates}


def _is_list(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".json")
