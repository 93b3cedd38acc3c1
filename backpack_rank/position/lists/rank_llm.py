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
    """A document to rank, as a file of rank_llm gives it.

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
    """A query and its candidates, in the order of the file.

    >>> request = Request("q1", "a query", (Candidate("d2", "text"), Candidate("d1", "text")))
    >>> request.run()
    {'d2': 2.0, 'd1': 1.0}
    """

    query_id: str
    query: str
    candidates: tuple[Candidate, ...]

    def run(self) -> dict[str, float]:
        """Scores that sort into the order of the file.

        The scores of the file are kept where they do, else they are m, m - 1, ..., 1.
        """
        doc_ids = [candidate.doc_id for candidate in self.candidates]
        scores = {}
        for candidate in self.candidates:
            if candidate.score is not None:
                scores[candidate.doc_id] = candidate.score
        # Equal scores sort by document id, which need not be the order of the file.
        if ranking(scores) == doc_ids:
            return scores
        return {doc_id: float(len(doc_ids) - place) for place, doc_id in enumerate(doc_ids)}


def read_requests(path: str | Path) -> list[Request]:
    """Read requests or results of rank_llm::

        requests = read_requests("retrieve_results_dl19_top100.jsonl")
        run = requests_run(requests)

    Ids may be numbers; further keys are ignored.

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
    """Write requests or results as rank_llm does::

        write_requests("results.jsonl", reordered(requests, run))

    The file's name decides its form, as in reading. Documents keep all keys they were read with;
    those that had none get ``{"text": ...}``. An interruption leaves no half of a file.
    """
    records = []
    for request in requests:
        candidates = []
        for candidate in request.candidates:
            doc = dict(candidate.doc) or {"text": candidate.text}
            candidates.append({"docid": candidate.doc_id, "score": candidate.score, "doc": doc})
        query = {"text": request.query, "qid": request.query_id}
        records.append({"query": query, "candidates": candidates})
    if _is_list(Path(path)):
        write_text(path, json.dumps(records, ensure_ascii=False, indent=2) + "\n")
    else:
        write_jsonl(path, records)


def reordered(requests: Sequence[Request], run: Mapping[str, Mapping[str, float]]) -> list[Request]:
    """Make results of requests: candidates in the order of a run, with its scores.

    >>> request = Request("q1", "a query", (Candidate("d1", "text"), Candidate("d2", "text")))
    >>> (result,) = reordered([request], {"q1": {"d1": 0.1, "d2": 0.7}})
    >>> [candidate.doc_id for candidate in result.candidates]
    ['d2', 'd1']

    Candidates that the run does not have are left out, as are queries without any.

    Raises:
        ValueError: the run has a query or document that the requests do not have.
    """
    query_ids = {request.query_id for request in requests}
    for query_id in run:
        if query_id not in query_ids:
            raise ValueError(f"the run has query {query_id!r}, which is not among the requests")
    results = []
    for request in requests:
        scores = run.get(request.query_id, {})
        candidates = {candidate.doc_id: candidate for candidate in request.candidates}
        for doc_id in scores:
            if doc_id not in candidates:
                raise ValueError(
                    f"the run has document {doc_id!r}, which is no candidate of query "
                    f"{request.query_id!r}"
                )
        ranked = []
        for doc_id in ranking(scores):
            ranked.append(replace(candidates[doc_id], score=float(scores[doc_id])))
        if ranked:
            results.append(replace(request, candidates=tuple(ranked)))
    return results


def requests_run(requests: Iterable[Request]) -> Run:
    """Get the run of a file of requests; :meth:`Request.run` says which scores it has.

    >>> requests_run([Request("q1", "a query", (Candidate("d1", "text", score=0.5),))])
    {'q1': {'d1': 0.5}}

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
    """Rerank the requests of rank_llm: their queries, documents and candidates::

        collection = load_requests("dl19", "retrieve_results_dl19_top100.jsonl", depth=100)

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
        for number, record in enumerate(records, start=1):
            yield f"request {number}", record
        return
    for number, record in read_rows(path, json_value):
        yield f"line {number}", record


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
    records = record.get("candidates")
    if not isinstance(records, list):
        raise ValueError(
            f'query {query_id!r} needs a list of "candidates", got {shortened(records)}'
        )
    candidates: dict[str, Candidate] = {}
    for number, candidate_record in enumerate(records, start=1):
        with located(f"query {query_id!r}, candidate {number}"):
            candidate = _candidate(candidate_record)
            if candidate.doc_id in candidates:
                raise ValueError(f"document {candidate.doc_id!r} stands twice")
        candidates[candidate.doc_id] = candidate
    return Request(query_id, text, tuple(candidates.values()))


def _candidate(record: object) -> Candidate:
    if not isinstance(record, dict):
        raise ValueError(f'expected {{"docid", "score", "doc"}}, got {shortened(record)}')
    doc_id = _id(record.get("docid"), 'the "docid"')
    doc = record.get("doc")
    text = _text(doc) if isinstance(doc, dict) else None
    if not isinstance(doc, dict) or text is None:
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
    check_text(title + text, f"document {doc_id!r}")
    score = record.get("score")
    if score is not None:
        finite(f'document {doc_id!r}: the "score"', score)
        score = float(score)
    return Candidate(doc_id, document_text(title, text), score, doc)


def _text(doc: Mapping[str, Any]) -> str | None:
    """The text of a ``doc`` under the first key that it has; None where that is no text."""
    for key in TEXT_KEYS:
        if key in doc:
            return doc[key] if isinstance(doc[key], str) else None
    return None


def _id(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{what} must be a string or a whole number, got {shortened(value)}")
    check_id(str(value))
    return str(value)


def _is_list(path: Path) -> bool:
    """Whether a file is a JSON list of requests, in place of a request in each line."""
    return path.name.removesuffix(".gz").endswith(".json")
