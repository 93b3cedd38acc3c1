"""Folders in BEIR's layout: written, and told by a digest of what they say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from backpack_rank.data.sources.beir import optional_file
from backpack_rank.digests import digest
from backpack_rank.files import open_text


def shipped(name: str) -> str:
    """A file of ids that the package brings: ``shipped("dl19/corpus.txt")``."""
    packed = files("backpack_rank.data.public") / "ids" / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()).decode()


def shipped_files(folder: str) -> list[str]:
    """Names of the shipped files of a folder, without ``.gz``."""
    root = files("backpack_rank.data.public") / "ids" / folder
    if not root.is_dir():
        return []
    return sorted(entry.name.removesuffix(".gz") for entry in root.iterdir())


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """``corpus.jsonl``, ``queries.jsonl`` and ``answers.jsonl``: a record on a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_qrels(path: Path, rows: Iterable[tuple[str, str, int]]) -> None:
    """``qrels/SPLIT.tsv``, from query id, document id and label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for query_id, doc_id, label in rows:
            file.write(f"{query_id}\t{doc_id}\t{label}\n")


def content_digest(path: Path) -> str:
    """A digest of what a file says: ids, titles, texts, forms and labels in their order.

    White space counts as one space, as tokenizers have it, and ``.gz`` says the same as without.
    Other keys, such as metadata, do not count.
    """
    lines: list[str] = []
    with open_text(path) as file:
        for line in file:
            if ".jsonl" in path.name:
                record = json.loads(line)
                if "text" in record:
                    kept = [record["_id"], record.get("title", ""), record["text"]]
                else:
                    kept = [record["_id"], record["masculine"], record["feminine"]]
                line = "\t".join(" ".join(str(part).split()) for part in kept)
            lines.append(line.strip())
    return digest("\n".join(lines))


def digests_of(folder: Path) -> dict[str, str]:
    """Digests of the corpus, queries, judgements and candidates of a folder, or of its pairs."""
    found: dict[str, str] = {}
    for name in ("corpus.jsonl", "queries.jsonl", "mt_geneval_pairs.jsonl"):
        path = optional_file(folder / name)
        if path is not None:
            found[name] = content_digest(path)
    for path in sorted([*folder.glob("qrels/*"), *folder.glob("candidates/*")]):
        name = path.relative_to(folder).as_posix().removesuffix(".gz")
        found[name] = content_digest(path)
    return found
