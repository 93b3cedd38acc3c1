"""How each public collection becomes a folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from backpack_rank.data.public.downloads import Downloads, PublicFile
from backpack_rank.data.public.layout import shipped, shipped_files, write_lines, write_qrels
from backpack_rank.data.text_files import fail

MOST_UNPACKED = 200_000_000
"""Bytes that a file of an archive may unpack to; the largest that is published has 12 MB."""
_PASSAGES = "msmarco-passage"


def build_squad(folder: Path, source: Path, name: str) -> None:
    """SQuAD 1.1 as retrieval, from ``train-v1.1.json``, ``dev-v1.1.json`` or XQuAD's English part.

    Articles get the ids, the order and the split that the shipped list gives them. Questions of the
    training set have no ids of their own there, so they are counted; the others keep the official
    ones.

    Raises:
        ValueError: an article is not in the list, or one of the list is missing.
    """
    articles = {}
    for article in json.loads(source.read_text(encoding="utf-8"))["data"]:
        articles[unquote(article["title"]).replace("_", " ")] = article["paragraphs"]
    corpus: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    judged: dict[str, list[tuple[str, str, int]]] = {}
    for line in shipped(f"{name}/articles.tsv").splitlines():
        prefix, title, split = line.split("\t")
        if title not in articles:
            raise ValueError(f"{source}: there is no article {title!r}")
        for index, paragraph in enumerate(articles.pop(title)):
            doc_id = f"{prefix}-{index}"
            text = paragraph["context"]
            corpus.append({"_id": doc_id, "title": title, "text": text})
            for number, question in enumerate(paragraph["qas"]):
                query_id = f"{doc_id}-{number}" if name == "squad_train" else question["id"]
                queries.append({"_id": query_id, "text": " ".join(question["question"].split())})
                judged.setdefault(split, []).append((query_id, doc_id, 1))
                for start, answer in _distinct(question["answers"]):
                    row = {"query_id": query_id, "doc_id": doc_id, "start": start, "text": answer}
                    answers.append(row)
    if articles:
        raise ValueError(f"{source}: articles that {name} has not: {', '.join(articles)[:200]}")
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", queries)
    write_lines(folder / "answers.jsonl", answers)
    for split, rows in judged.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", rows)


def build_from_ids(folder: Path, name: str, dataset_id: str) -> None:
    """Passages of MS MARCO by shipped ids, with candidates and labels; texts by ir_datasets.

    Raises:
        ValueError: the dataset has not all of the queries.
        KeyError: it has not all of the passages.
    """
    from backpack_rank.data.sources.irds import IrDatasetsStore, known_dataset, library_lock

    doc_ids = shipped(f"{name}/corpus.txt").split()
    texts = IrDatasetsStore(_PASSAGES).get_many(doc_ids)
    with library_lock():
        questions = {
            query.query_id: query.text for query in known_dataset(dataset_id).queries_iter()
        }
    query_ids = shipped(f"{name}/queries.txt").split()
    missing = [query_id for query_id in query_ids if query_id not in questions]
    if missing:
        raise ValueError(f"{dataset_id} has no queries {', '.join(missing[:5])}")
    write_lines(
        folder / "corpus.jsonl",
        ({"_id": doc_id, "title": "", "text": texts[doc_id]} for doc_id in doc_ids),
    )
    write_lines(
        folder / "queries.jsonl",
        ({"_id": query_id, "text": questions[query_id]} for query_id in query_ids),
    )
    for part in ("qrels", "candidates"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for file in shipped_files(f"{name}/{part}"):
            (folder / part / file).write_text(shipped(f"{name}/{part}/{file}"), encoding="utf-8")


def build_trec_dl(folder: Path) -> None:
    """The complete labels of TREC Deep Learning 2019 and 2020, in NIST's form."""
    from backpack_rank.data.sources.irds import known_dataset, library_lock

    folder.mkdir(parents=True, exist_ok=True)
    for year in (19, 20):
        with (
            library_lock(),
            open(folder / f"qrels.dl{year}-passage.txt", "w", encoding="utf-8") as file,
        ):
            for row in known_dataset(f"{_PASSAGES}/trec-dl-20{year}").qrels_iter():
                file.write(f"{row.query_id} {row.iteration} {row.doc_id} {row.relevance}\n")


def build_beir(folder: Path, name: str) -> None:
    """A collection of BEIR, whatever splits it has."""
    import ir_datasets

    from backpack_rank.data.sources.irds import known_dataset, library_lock

    with library_lock():
        whole = known_dataset(f"beir/{name}")
        write_lines(
            folder / "corpus.jsonl",
            (
                {
                    "_id": document.doc_id,
                    "title": getattr(document, "title", ""),
                    "text": document.text,
                }
                for document in whole.docs_iter()
            ),
        )
        write_lines(
            folder / "queries.jsonl",
            ({"_id": q.query_id, "text": q.text} for q in whole.queries_iter()),
        )
        splits = {f"beir/{name}/{split}": split for split in ("train", "dev", "test")}
        known = {key: split for key, split in splits.items() if key in ir_datasets.registry}
        for key, split in (known or {f"beir/{name}": "test"}).items():
            rows = ((r.query_id, r.doc_id, r.relevance) for r in known_dataset(key).qrels_iter())
            write_qrels(folder / "qrels" / f"{split}.tsv", rows)


def build_nq_open_oracle(folder: Path, source: Path) -> None:
    """Questions of Natural Questions with the passage that answers each, of "Lost in the Middle".

    Passages are numbered as they first appear, and questions as they stand. The shipped list has
    the split of each passage: all questions of a page are in one.

    Raises:
        ValueError: a line has not one passage, or not the fields that its owner describes; there
            are other passages than the list has.
    """
    splits = shipped("nq_open_oracle/splits.txt").split()
    corpus: dict[tuple[str, str], dict[str, Any]] = {}
    queries: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    pairs: list[tuple[str, str]] = []
    unpacked = 0
    with gzip.open(source, "rt", encoding="utf-8") as file:
        # A line at a time, and none longer than all of the file may be.
        for number, line in enumerate(iter(lambda: file.readline(MOST_UNPACKED), "")):
            unpacked += len(line)
            _check_unpacked(source, unpacked)
            try:
                record = json.loads(line)
                (passage,) = record["ctxs"]
                title, text = passage["title"], passage["text"]
                question, found = record["question"], record["answers"]
            except (KeyError, TypeError, ValueError) as error:
                fail(
                    source,
                    number + 1,
                    "expected question, answers, and one passage with title and text in ctxs, "
                    f"got {line[:80]!r} ({type(error).__name__}: {error})",
                )
            new = {"_id": f"p{len(corpus)}", "title": title, "text": text}
            doc_id = corpus.setdefault((title, text), new)["_id"]
            query_id = f"nq{number}"
            queries.append({"_id": query_id, "text": question})
            pairs.append((query_id, doc_id))
            for answer in dict.fromkeys(found):
                start = text.find(answer)
                if start >= 0:
                    row = {"query_id": query_id, "doc_id": doc_id, "start": start, "text": answer}
                    answers.append(row)
    if len(corpus) != len(splits):
        raise ValueError(
            f"{source} has {len(corpus)} passages in place of {len(splits)}: its owner has "
            "changed the file"
        )
    split_of = dict(zip((row["_id"] for row in corpus.values()), splits, strict=True))
    judged: dict[str, list[tuple[str, str, int]]] = {}
    for query_id, doc_id in pairs:
        judged.setdefault(split_of[doc_id], []).append((query_id, doc_id, 1))
    write_lines(folder / "corpus.jsonl", corpus.values())
    write_lines(folder / "queries.jsonl", queries)
    write_lines(folder / "answers.jsonl", answers)
    for split, rows in judged.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", rows)


def build_gender_sentences(folder: Path, sources: Mapping[tuple[str, str], Path]) -> None:
    """Pairs of sentences in masculine and feminine form, from the English files of MT-GenEval.

    Args:
        folder: that gets ``mt_geneval_pairs.jsonl``.
        sources: the file of each split and form; a pair is a line of both, and the shipped list
            says which lines.

    Raises:
        ValueError: a file is too short.
    """
    sentences = {}
    for split_and_form, path in sources.items():
        sentences[split_and_form] = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    pairs = []
    for pair_id in shipped("gender_sentences/pairs.txt").split():
        _, split, _, number = pair_id.split("-")
        pair = {"_id": pair_id, "split": split}
        for form in ("masculine", "feminine"):
            lines = sentences[split, form]
            if int(number) >= len(lines):
                raise ValueError(
                    f"{sources[split, form]} has {len(lines)} lines, and {pair_id} is "
                    f"line {int(number) + 1}: its owner has changed the file"
                )
            pair[form] = lines[int(number)]
        pairs.append(pair)
    write_lines(folder / "mt_geneval_pairs.jsonl", pairs)


def build_wikiqa(folder: Path, archive: Path) -> None:
    """WikiQA: the sentences of an article as candidates in their order, official splits.

    Raises:
        ValueError: a line of the archive's files has other columns.
    """
    corpus: dict[str, dict[str, Any]] = {}
    queries: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(archive) as files:
        for split in ("dev", "test", "train"):
            name = _only_member(files, f"WikiQA-{split}.tsv")
            rows: list[tuple[str, str, int]] = []
            text = _content(files, name).decode("utf-8")
            # Not splitlines: sentences may hold separators that only Unicode counts as line ends.
            for number, line in enumerate(
                text.replace("\r\n", "\n").rstrip("\n").split("\n")[1:], 2
            ):
                fields = line.split("\t")
                if len(fields) != 7:
                    fail(archive / name, number, f"expected 7 columns, got {len(fields)}")
                query_id, question, _, title, doc_id, sentence, label = fields
                corpus.setdefault(doc_id, {"_id": doc_id, "title": title, "text": sentence})
                queries.setdefault(query_id, {"_id": query_id, "text": question})
                rows.append((query_id, doc_id, int(label)))
            write_qrels(folder / "qrels" / f"{split}.tsv", rows)
            _write_in_order(folder / "candidates" / f"{split}.trec", rows)
    write_lines(folder / "corpus.jsonl", corpus.values())
    write_lines(folder / "queries.jsonl", queries.values())


def build_grep_biasir(folder: Path, archive: Path) -> None:
    """Grep-BiasIR from the CSV files of its repository.

    Raises:
        ValueError: a file lacks a column, or there are none.
    """
    rows: list[dict[str, str]] = []
    categories: dict[str, str] = {}
    with zipfile.ZipFile(archive) as files:
        for entry in sorted(files.namelist()):
            name = PurePosixPath(entry).name
            if "csv_formatted" not in entry or not name.endswith(".csv"):
                continue
            text = _content(files, entry).decode("utf-8-sig")
            table = list(_csv_rows(text, archive / entry))
            if name == "queries.csv":
                categories = {row["q_id"]: row["category"] for row in table}
            else:
                rows += table
    if not rows:
        raise ValueError(f"{archive}: there is no csv_formatted/queries-documents_CATEGORY.csv")
    corpus = []
    queries: dict[str, dict[str, Any]] = {}
    judged = []
    for row in rows:
        gender = {"content_gender": row["content_gender"]}
        record = {"_id": row["d_id"], "title": row["doc_title"], "text": row["document"]}
        corpus.append({**record, "metadata": gender})
        about = {
            "category": categories.get(row["q_id"], ""),
            "exp_stereotype": row["exp_stereotype"],
        }
        query = {"_id": row["q_id"], "text": row["query"], "metadata": about}
        queries.setdefault(row["q_id"], query)
        judged.append((row["q_id"], row["d_id"], int(row["relevant"])))
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", queries.values())
    write_qrels(folder / "qrels" / "test.tsv", judged)


def copy_files(folder: Path, downloads: Downloads, files: tuple[PublicFile, ...]) -> None:
    """Files that are used as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file.name).write_bytes(downloads.fetch(file).read_bytes())


def _distinct(answers: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Starts and texts; annotators often chose the same words."""
    return list(dict.fromkeys((answer["answer_start"], answer["text"]) for answer in answers))


def _only_member(files: zipfile.ZipFile, name: str) -> str:
    """The entry of an archive with this file name."""
    entries = [entry for entry in files.namelist() if _named(entry, name)]
    if len(entries) != 1:
        raise ValueError(f"{files.filename} has {len(entries)} files {name} in place of one")
    return entries[0]


def _content(files: zipfile.ZipFile, entry: str) -> bytes:
    """The bytes of an entry; what an archive says of their number is not believed."""
    with files.open(entry) as member:
        content = member.read(MOST_UNPACKED + 1)
    _check_unpacked(f"{files.filename}: {entry}", len(content))
    return content


def _check_unpacked(place: object, number: int) -> None:
    if number > MOST_UNPACKED:
        raise ValueError(f"{place} unpacks to more than {MOST_UNPACKED // 10**6} MB")


def _named(entry: str, name: str) -> bool:
    # An archive that a Mac made holds a shadow of each file.
    return PurePosixPath(entry).name == name and not entry.startswith("__MACOSX")


def _write_in_order(path: Path, rows: list[tuple[str, str, int]]) -> None:
    """A run in the order of the rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lists: dict[str, list[str]] = {}
    for query_id, doc_id, _ in rows:
        lists.setdefault(query_id, []).append(doc_id)
    with open(path, "w", encoding="utf-8") as file:
        for query_id, doc_ids in lists.items():
            for rank, doc_id in enumerate(doc_ids, start=1):
                score = len(doc_ids) - rank + 1
                file.write(f"{query_id} Q0 {doc_id} {rank} {score} docorder\n")


def _csv_rows(text: str, place: Path) -> Iterator[dict[str, str]]:
    header = text.partition("\n")[0]
    # The first column is q_id; what follows it separates.
    separator = next((mark for mark in ",;\t" if header.strip('"').startswith(f"q_id{mark}")), ",")
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    if "q_id" not in (reader.fieldnames or ()):
        raise ValueError(f"{place}: expected a column q_id, got {header[:100]!r}")
    yield from reader
