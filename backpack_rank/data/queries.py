"""Readers of queries: two tab-separated columns, or BEIR's JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from backpack_rank.data.collection import Queries
from backpack_rank.data.json_lines import is_jsonl, json_record
from backpack_rank.data.text_files import check_id, cut_text, fail, read_rows, refuse_header


def read_queries(path: str | Path) -> Queries:
    """Read queries: JSON lines (``.jsonl``), or else two tab-separated columns.

    queries = read_queries("topics.tsv")
    queries["q1"]  # the text
    """
    return read_queries_jsonl(path) if is_jsonl(path) else read_queries_tsv(path)


def read_queries_tsv(path: str | Path) -> Queries:
    """Read ``id<TAB>text``, one query per line.

        queries = read_queries_tsv("topics.tsv")

    Raises:
        ValueError: not two columns, an empty text, an id with white space, or an id that stands
            twice.
    """
    return _unique_queries(path, _tsv_query)


def read_queries_jsonl(path: str | Path) -> Queries:
    """Read BEIR's ``{"_id": ..., "text": ...}``, one query per line.

        queries = read_queries_jsonl("nfcorpus/queries.jsonl")

    Other keys are ignored.

    Raises:
        ValueError: no JSON object, a key that is missing or no string, an empty text, or an id that
            stands twice.
    """
    return _unique_queries(path, _jsonl_query)


def _tsv_query(line: str) -> tuple[str, str]:
    fields = line.split("\t")
    if len(fields) != 2:
        raise ValueError(f"expected 2 columns (id<TAB>text), got {len(fields)}: {cut_text(line)!r}")
    check_id(fields[0])
    refuse_header(fields)
    return fields[0], fields[1]


def _jsonl_query(line: str) -> tuple[str, str]:
    record = json_record(line)
    return record["_id"], record["text"]


def _unique_queries(path: str | Path, parse: Callable[[str], tuple[str, str]]) -> Queries:
    queries: Queries = {}
    for number, (query_id, text) in read_rows(path, parse):
        if query_id in queries:
            fail(path, number, f"query id {query_id!r} stands twice")
        if not text.strip():
            fail(path, number, f"the text of query {query_id!r} is empty")
        queries[query_id] = text
    return queries
