"""Files as their owners publish them, made of folders in BEIR's layout, and a server that has them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from backpack_rank.files import open_text


def records(path: Path) -> list[dict[str, Any]]:
    with open_text(path if path.is_file() else path.with_name(f"{path.name}.gz")) as file:
        return [json.loads(line) for line in file]


def judgements(path: Path) -> list[list[str]]:
    with open_text(path if path.is_file() else path.with_name(f"{path.name}.gz")) as file:
        return [line.split() for line in file][1:]


class PublicServer(ThreadingHTTPServer):
    """Serves files by path, with ranges; the first ``breaks`` answers end after ``after`` bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.breaks = 0
        self.after = 1000
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: PublicServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if self.server.breaks:
            self.server.breaks -= 1
            rest = rest[: self.server.after]
            self.close_connection = True
        self.wfile.write(rest)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[PublicServer]:
    with PublicServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def squad_json(folder: Path) -> bytes:
    """SQuAD's JSON, XQuAD's too: articles in another order, titles as in addresses."""
    questions: dict[str, list[dict[str, Any]]] = {}
    texts = {row["_id"]: row["text"] for row in records(folder / "queries.jsonl")}
    answers: dict[str, list[dict[str, Any]]] = {}
    for row in records(folder / "answers.jsonl"):
        answer = {"answer_start": row["start"], "text": row["text"]}
        # Several annotators chose the same words.
        answers.setdefault(row["query_id"], []).extend([answer, answer])
    pairs: dict[str, str] = {}
    for path in sorted((folder / "qrels").iterdir()):
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        for query_id, doc_id, _ in judgements(plain):
            pairs[query_id] = doc_id
    for query_id, text in texts.items():
        qa = {"id": query_id, "question": f" {text}", "answers": answers[query_id]}
        questions.setdefault(pairs[query_id], []).append(qa)
    articles: dict[str, list[dict[str, Any]]] = {}
    for row in records(folder / "corpus.jsonl"):
        title = quote(row["title"].replace(" ", "_"), safe="(),.'!&-éí")
        paragraph = {"context": row["text"], "qas": questions.get(row["_id"], [])}
        articles.setdefault(title, []).append(paragraph)
    data = [{"title": title, "paragraphs": parts} for title, parts in articles.items()]
    random.Random(0).shuffle(data)
    return json.dumps({"version": "1.1", "data": data}).encode()


def nq_open_oracle(folder: Path) -> bytes:
    """``nq-open-oracle.jsonl.gz``: a question on each line, with its one passage in ``ctxs``."""
    passages = {row["_id"]: row for row in records(folder / "corpus.jsonl")}
    doc_ids = {}
    for split in ("train", "dev", "test"):
        for query_id, doc_id, _ in judgements(folder / "qrels" / f"{split}.tsv"):
            doc_ids[query_id] = doc_id
    answers: dict[str, list[str]] = {}
    for row in records(folder / "answers.jsonl"):
        answers.setdefault(row["query_id"], []).append(row["text"])
    lines = []
    for query in records(folder / "queries.jsonl"):
        passage = passages[doc_ids[query["_id"]]]
        found = answers.get(query["_id"], [])
        gold = {"title": passage["title"], "text": passage["text"]}
        record = {
            "question": query["text"],
            # Answers come twice, or stand in other words in the passage.
            "answers": [*found, *found[:1], "an answer in words that no passage has"],
            "ctxs": [{**gold, "hasanswer": bool(found), "isgold": True}],
            "nq_annotated_gold": {
                "title": passage["title"],
                "long_answer": f"<P> {passage['text']} </P>",
                "chunked_long_answer": passage["text"],
                "short_answers": found,
            },
        }
        lines.append(json.dumps(record) + "\n")
    return gzip.compress("".join(lines).encode())


def geneval_files(pairs: Path) -> dict[tuple[str, str], bytes]:
    """English sentences of MT-GenEval by split and form, with others where the folder has none."""
    files = {}
    for split, number in (("dev", 1200), ("test", 300)):
        for form in ("masculine", "feminine"):
            lines = [f"Sentence {line} is left out." for line in range(number)]
            for row in records(pairs):
                if row["split"] == split:
                    lines[int(row["_id"].rpartition("-")[2])] = row[form]
            files[split, form] = ("\n".join(lines) + "\n").encode()
    return files


def wikiqa_zip(folder: Path) -> bytes:
    """``WikiQACorpus.zip``: seven columns, a folder, a shadow of each file."""
    texts = {row["_id"]: row for row in records(folder / "corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in records(folder / "queries.jsonl")}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for split in ("train", "dev", "test"):
            lines = ["QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"]
            for query_id, doc_id, label in judgements(folder / "qrels" / f"{split}.tsv"):
                row = texts[doc_id]
                article = doc_id.partition("-")[0]
                fields = (queries[query_id], article, row["title"], doc_id, row["text"], label)
                lines.append("\t".join((query_id, *fields)))
            content = "\r\n".join(lines) + "\r\n"
            archive.writestr(f"WikiQACorpus/WikiQA-{split}.tsv", content)
            archive.writestr(f"__MACOSX/WikiQACorpus/WikiQA-{split}.tsv", "shadow")
    return packed.getvalue()


def grep_biasir_zip(folder: Path) -> bytes:
    """What GitHub packs of Grep-BiasIR: ``csv_formatted`` with a file for each category."""
    import csv

    queries = {row["_id"]: row for row in records(folder / "queries.jsonl")}
    texts = {row["_id"]: row for row in records(folder / "corpus.jsonl")}
    tables: dict[str, list[list[str]]] = {}
    for query_id, doc_id, label in judgements(folder / "qrels" / "test.tsv"):
        query, document = queries[query_id], texts[doc_id]
        row = [query_id, doc_id, label, query["text"], document["title"], document["text"]]
        row += [document["metadata"]["content_gender"], query["metadata"]["exp_stereotype"]]
        tables.setdefault(query["metadata"]["category"], []).append(row)
    columns = [
        "q_id",
        "d_id",
        "relevant",
        "query",
        "doc_title",
        "document",
        "content_gender",
        "exp_stereotype",
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        root = "GrepBiasIR-b68f597/csv_formatted"
        text = io.StringIO()
        rows = [[row["_id"], row["metadata"]["category"], row["text"]] for row in queries.values()]
        csv.writer(text).writerows([["q_id", "category", "query"], *rows])
        archive.writestr(f"{root}/queries.csv", text.getvalue())
        archive.writestr("GrepBiasIR-b68f597/README.md", "# GrepBiasIR")
        for category, rows in tables.items():
            text = io.StringIO()
            csv.writer(text).writerows([columns, *rows])
            archive.writestr(f"{root}/queries-documents_{category}.csv", text.getvalue())
    return packed.getvalue()


def broken_encoding(text: str) -> str:
    """UTF-8 that was decoded as Latin-1, as in MS MARCO's collection."""
    return text.encode().decode("latin-1")


def write_msmarco(home: Path, data: Path) -> None:
    """Downloads of ``msmarco-passage`` as ir_datasets keeps them, with the passages of a data folder."""
    home = home / "msmarco-passage"
    passages: dict[int, str] = {}
    for name in ("dl19", "dl20", "msmarco_dev600"):
        for row in records(data / name / "corpus.jsonl"):
            passages[int(row["_id"])] = row["text"]
    lines = []
    for number in sorted(passages):
        # A tab or line break would end the field; the collection has neither.
        lines.append(f"{number}\t{broken_encoding(' '.join(passages[number].split()))}\n")
    home.mkdir(parents=True)
    _tar(home / "collectionandqueries.tar.gz", {"collection.tsv": "".join(lines)})
    dev = records(data / "msmarco_dev600" / "queries.jsonl")
    queries = "".join(f"{row['_id']}\t{row['text']}\n" for row in dev)
    _tar(home / "queries.tar.gz", {"queries.dev.tsv": queries + "1\tanother query\n"})
    for year in (19, 20):
        folder = home / f"trec-dl-20{year}"
        folder.mkdir()
        topics = (data / "trec_dl" / f"topics.dl{year}-passage.tsv").read_bytes()
        if year == 19:
            (folder / "queries.tsv").write_bytes(topics)
        else:
            (folder / "queries.tsv.gz").write_bytes(gzip.compress(topics))
        labels = (data / "trec_dl" / f"qrels.dl{year}-passage.txt").read_bytes()
        (folder / "qrels").write_bytes(labels)


def write_nfcorpus(home: Path, folder: Path) -> None:
    """``nfcorpus.zip`` of BEIR where ir_datasets keeps it."""
    place = home / "beir" / "nfcorpus"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "source.zip", "w") as archive:
        for name in ("corpus", "queries"):
            rows = records(folder / f"{name}.jsonl")
            text = "".join(
                json.dumps({**row, "metadata": {"url": "http://x"}}) + "\n" for row in rows
            )
            archive.writestr(f"nfcorpus/{name}.jsonl", text)
        for split in ("train", "dev", "test"):
            rows = judgements(folder / "qrels" / f"{split}.tsv")
            text = "query-id\tcorpus-id\tscore\n" + "".join("\t".join(row) + "\n" for row in rows)
            archive.writestr(f"nfcorpus/qrels/{split}.tsv", text)


def _tar(path: Path, members: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, text in members.items():
            content = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
