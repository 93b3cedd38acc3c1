"""Answers of questions with the documents they stand in: of BEIR, SQuAD and ir_datasets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import ir_datasets

from backpack_rank.checks import located
from backpack_rank.data.collection import DocumentStore, MemoryStore
from backpack_rank.data.documents import open_documents
from backpack_rank.data.json_lines import JSON_FILE, read_jsonl, text_under, unique_keys
from backpack_rank.data.queries import read_queries_jsonl
from backpack_rank.data.sources.beir import existing_file
from backpack_rank.data.sources.irds import IrDatasetsStore, known_dataset, library_lock
from backpack_rank.data.text_files import fail
from backpack_rank.files import read_text

_BATCH = 5000  # answers whose documents are fetched at once
_T = TypeVar("_T")


@dataclass(frozen=True)
class Answer:
    """One answer of a question in one document, without white space at its ends.

    >>> Answer("q1", "d1", "a saw", start=4).span
    (4, 9)

    Attributes:
        query_id: the question.
        doc_id: a document that answers it.
        text: the answer.
        start: its first character in the document's text, in Unicode code points; None where only
            the answer's text is known, which need not stand in the document.
        certain: False where ``start`` is the likeliest of several occurrences rather than an
            annotator's choice.
    """

    query_id: str
    doc_id: str
    text: str
    start: int | None = None
    certain: bool = True

    @property
    def span(self) -> tuple[int, int] | None:
        """First character and the one behind the last; None without a start."""
        return None if self.start is None else (self.start, self.start + len(self.text))


@dataclass(frozen=True)
class Answers:
    """The answers of a collection with the documents that they stand in.

        answers = Answers("tools", MemoryStore({"d1": "use a saw"}), (Answer("q1", "d1", "a saw"),))
        for answer, text in answers.with_texts():
            ...

    :func:`load_answers` makes it from files.

    Attributes:
        name: of the collection.
        documents: texts that the answers' places are in.
        rows: the answers, in the order of the source.
        unanswered: questions without any answer.
    """

    name: str
    documents: DocumentStore
    rows: tuple[Answer, ...]
    unanswered: int = 0

    def with_texts(self) -> Iterator[tuple[Answer, str]]:
        """Every answer with its document's text; documents are fetched a few thousand at a time."""
        for rows in _batches(self.rows):
            doc_ids = dict.fromkeys(row.doc_id for row in rows)
            texts = self.documents.get_many(doc_ids)
            for row in rows:
                yield row, texts[row.doc_id]


def load_answers(source: str, *, title: bool = False) -> Answers:
    """The answers of a BEIR folder, a file of SQuAD, or an id of ir_datasets.

        answers = load_answers("train-v1.1.json")
        for answer, text in answers.with_texts():
            ...

    Args:
        source: a BEIR folder with ``answers.jsonl``, a file in SQuAD's format (``train-v1.1.json``,
            ``.gz`` too), or an ir_datasets id whose queries have answers (``msmarco-qna/train``).
        title: of a BEIR folder: the texts begin with their titles, as with ``title: true`` of its
            data; the answers' places are moved behind them.

    Raises:
        FileNotFoundError: the folder lacks a file.
        ValueError: none of these, or a malformed file; file and line, or the place in a JSON
            document, are named.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return read_beir_answers(path, title=title)
    if path.is_file():
        return read_squad(path)
    if source not in ir_datasets.registry:
        raise ValueError(
            f"answers of {source}: there is neither a folder nor a file of that name, nor such an "
            "ir_datasets id; give a BEIR folder with answers.jsonl, a file of SQuAD such as "
            "train-v1.1.json, or msmarco-qna/train"
        )
    return irds_answers(source)


def read_beir_answers(folder: str | Path, *, title: bool = False) -> Answers:
    """The answers of a BEIR folder, ``answers.jsonl``; all files may end in ``.gz``.

        answers = read_beir_answers("my_collection")

    A line holds ``{"query_id", "doc_id", "start", "text"}``.
    ``start`` counts code points of the document's ``text`` field; it may be absent or null. A row
    with ``n_occ`` above 1 says that ``start`` was found by searching an answer that occurs so
    often, so it is not certain.

    Args:
        folder: with ``answers.jsonl``, ``corpus.jsonl`` and ``queries.jsonl``.
        title: as in :func:`load_answers`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a malformed row, an unknown id, or a text that does not stand at its place; file
            and line are named.
    """
    root = Path(folder).expanduser()
    path = existing_file(root / "answers.jsonl")
    queries = read_queries_jsonl(existing_file(root / "queries.jsonl"))
    corpus = existing_file(root / "corpus.jsonl")
    # Places of answers are counted within the text alone, so they are checked without titles.
    untitled = open_documents(corpus, title=False)
    documents = open_documents(corpus) if title else untitled
    rows = []
    for batch in _batches(read_jsonl(path, lambda record: _answer(record, queries))):
        doc_ids = dict.fromkeys(row.doc_id for _, row in batch)
        texts = untitled.get_many([doc_id for doc_id in doc_ids if doc_id in untitled])
        titled = documents.get_many(texts) if title else texts
        for number, row in batch:
            if row.doc_id not in texts:
                message = f"document id {row.doc_id!r} of query {row.query_id!r} is not in {corpus}"
                fail(path, number, message)
            with located(f"{path}, line {number}"):
                start = _checked_start(row, texts[row.doc_id])
            if start is not None:
                # The answer moves behind a title and a space, or nothing.
                start += len(titled[row.doc_id]) - len(texts[row.doc_id])
            rows.append(_stripped(row, start))
    if not rows:
        raise ValueError(f"{path}: holds no answers")
    answered = {row.query_id for row in rows}
    unanswered = queries.keys() - answered
    return Answers(root.resolve().name, documents, tuple(rows), len(unanswered))


def read_squad(path: str | Path) -> Answers:
    """The answers of a file in SQuAD's format, 1.1 or 2.0.

        answers = read_squad("train-v1.1.json")

    Each paragraph is a document, ``<article>-<paragraph>`` its id, both counted from 0. Equal
    answers of several annotators count once. Questions of 2.0 that cannot be answered are
    ``unanswered``.

    Raises:
        ValueError: no JSON (the line is named), another layout, or an answer that does not stand at
            its place.
    """
    path = Path(path)
    texts: dict[str, str] = {}
    rows: list[Answer] = []
    unanswered = 0
    articles = _list(path, _squad_document(path), "data", "")
    for article_number, article in enumerate(articles):
        article_place = f"data[{article_number}]"
        paragraphs = _list(path, article, "paragraphs", article_place)
        for paragraph_number, paragraph in enumerate(paragraphs):
            paragraph_place = f"{article_place}.paragraphs[{paragraph_number}]"
            doc_id = f"{article_number}-{paragraph_number}"
            texts[doc_id] = _string(path, paragraph, "context", paragraph_place)
            questions = _list(path, paragraph, "qas", paragraph_place)
            for question_number, question in enumerate(questions):
                place = f"{paragraph_place}.qas[{question_number}]"
                query_id = _string(path, question, "id", place)
                answers = _squad_answers(path, question, place, query_id, doc_id, texts[doc_id])
                if not answers:
                    unanswered += 1
                rows += answers
    if not rows:
        raise ValueError(f"{path}: holds no answers")
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return Answers(name, MemoryStore(texts), tuple(rows), unanswered)


def irds_answers(dataset_id: str) -> Answers:
    """The answers of an ir_datasets id: each in every relevant document of its query.

        answers = irds_answers("msmarco-qna/train")

    A document with a judgement above 0 counts as relevant. The library gives texts only, so the
    answers have no ``start``; they may be worded in another way than the document. Empty ones are
    left out (``msmarco-qna`` has one where no answer is present).

    Raises:
        ValueError: an id that the library does not know, or one without answers, judgements or
            documents.
    """
    dataset = known_dataset(dataset_id)
    for part in ("docs", "queries", "qrels"):
        if not getattr(dataset, f"has_{part}")():
            raise ValueError(
                f"{dataset_id} has no {part}, so nothing is known of answers in documents"
            )
    if "answers" not in getattr(dataset.queries_cls(), "_fields", ()):
        raise ValueError(f"the queries of {dataset_id} have no answers; msmarco-qna/train has some")
    documents = IrDatasetsStore(dataset_id)
    documents.prepare()
    with library_lock():
        texts: dict[str, list[str]] = {}
        for query in dataset.queries_iter():
            answers = dict.fromkeys(answer.strip() for answer in query.answers)
            texts[query.query_id] = [text for text in answers if text]
        rows: list[Answer] = []
        for qrel in dataset.qrels_iter():
            if qrel.relevance > 0:
                for text in texts.get(qrel.query_id, ()):
                    rows.append(Answer(qrel.query_id, qrel.doc_id, text))
    if not rows:
        raise ValueError(f"{dataset_id}: no relevant document of a query with an answer")
    unanswered = list(texts.values()).count([])
    return Answers(dataset_id, documents, tuple(rows), unanswered)


def _batches(rows: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    left = iter(rows)
    while batch := tuple(islice(left, _BATCH)):
        yield batch


def _answer(record: dict[str, Any], queries: Mapping[str, str]) -> Answer:
    """A row as it stands in the file."""
    query_id = text_under(record, "query_id")
    doc_id = text_under(record, "doc_id")
    text = text_under(record, "text")
    start = record.get("start")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise ValueError(f"expected a whole number or null under 'start', got {start!r}")
    if query_id not in queries:
        raise ValueError(f"query id {query_id!r} is not in queries.jsonl")
    certain = record.get("n_occ", 1) == 1
    return Answer(query_id, doc_id, text, start, certain)


def _checked_start(row: Answer, text: str) -> int | None:
    if not row.text.strip():
        raise ValueError(
            f"the answer of query {row.query_id!r} in document {row.doc_id!r} is empty"
        )
    if row.span is None:
        return None
    start, end = row.span
    if start < 0 or text[start:end] != row.text:
        stands = repr(text[start:end]) if start >= 0 else "nothing"
        raise ValueError(
            f"the answer {row.text!r} of query {row.query_id!r} does not stand at {start} of "
            f"document {row.doc_id!r}, where there is {stands}; places count Unicode code points "
            "from 0"
        )
    return start


def _stripped(row: Answer, start: int | None) -> Answer:
    """The answer without white space at its ends, at that start."""
    text = row.text.strip()
    if start is not None:
        start += len(row.text) - len(row.text.lstrip())
    return Answer(row.query_id, row.doc_id, text, start, row.certain)


def _squad_document(path: Path) -> Any:
    try:
        return json.loads(read_text(path, JSON_FILE), object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        message = f"expected JSON in SQuAD's format: {error.msg} (column {error.colno})"
        fail(path, error.lineno, message)
    except RecursionError as error:
        raise ValueError(f"{path}: expected JSON in SQuAD's format: nested too deeply") from error


def _squad_answers(
    path: Path, question: Any, question_place: str, query_id: str, doc_id: str, text: str
) -> list[Answer]:
    # By place and text, because annotators often chose the same words.
    answers: dict[tuple[int | None, str], Answer] = {}
    for number, answer in enumerate(_list(path, question, "answers", question_place)):
        place = f"{question_place}.answers[{number}]"
        start = answer.get("answer_start") if isinstance(answer, dict) else None
        if isinstance(start, bool) or not isinstance(start, int):
            _fail_squad(path, place, f"expected a whole number under answer_start, got {start!r}")
        row = Answer(query_id, doc_id, _string(path, answer, "text", place), start)
        with located(f"{path}, {place}"):
            row = _stripped(row, _checked_start(row, text))
        answers.setdefault((row.start, row.text), row)
    return list(answers.values())


def _list(path: Path, node: Any, key: str, place: str) -> list[Any]:
    value = node.get(key) if isinstance(node, dict) else None
    if not isinstance(value, list):
        _fail_squad(path, place, f"expected a list under {key!r}, as in SQuAD's train-v1.1.json")
    return value


def _string(path: Path, node: Any, key: str, place: str) -> str:
    with located(f"{path}, {place}"):
        return text_under(node, key)


def _fail_squad(path: Path, place: str, message: str) -> NoReturn:
    raise ValueError(f"{path}, {place}: {message}" if place else f"{path}: {message}")
