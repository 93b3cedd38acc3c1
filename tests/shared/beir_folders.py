"""Folders in BEIR's layout, from dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backpack_rank.data.json_lines import write_jsonl

HEADER = "query-id\tcorpus-id\tscore\n"


def write_beir(
    folder: Path,
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    split: str = "test",
) -> None:
    """Write a collection of texts without titles, with the judgements of one split."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": doc_id, "title": "", "text": text} for doc_id, text in documents.items()]
    write_jsonl(folder / "corpus.jsonl", corpus)
    rows = [{"_id": query_id, "text": text} for query_id, text in queries.items()]
    write_jsonl(folder / "queries.jsonl", rows)
    lines = [HEADER]
    for query_id, grades in qrels.items():
        lines += [f"{query_id}\t{doc_id}\t{grade}\n" for doc_id, grade in grades.items()]
    (folder / "qrels" / f"{split}.tsv").write_text("".join(lines))
