"""``explain.*``: the query and the document whose score is explained, as texts, files or ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from backpack_rank.checks import located
from backpack_rank.constructors import Called, FilePath, Name, Note, OneOf
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.text_files import check_text, shortened
from backpack_rank.files import read_text
from backpack_rank.reranking.pointwise import WAYS_TO_EXPLAIN

Text = Annotated[str, Called("a text")]
_SPLITS = ("test", "dev", "train")


@dataclass(frozen=True)
class PairToExplain:
    """One query and one document; each as a text, in a file, or by its id in the data.

    Attributes:
        query, document: the texts themselves.
        query_file, document_file: files that hold nothing else.
        query_id, doc_id: ids in the data that is evaluated.
        by: ``senses`` or ``words``, see
            :meth:`~backpack_rank.reranking.pointwise.PointwiseReranker.explain`.
    """

    # A text such as 1984 is a number to Hydra, and a text all the same.
    query: Text | float | None = None
    document: Text | float | None = None
    query_file: FilePath | None = None
    document_file: FilePath | None = None
    query_id: Name | int | None = None
    doc_id: Name | int | None = None
    by: Annotated[str, OneOf(WAYS_TO_EXPLAIN)] | Annotated[None, Note("by senses where it can")] = (
        None
    )

    @property
    def options(self) -> list[str]:
        """Names of the options that are given."""
        names = []
        for field in fields(self):
            if getattr(self, field.name) is not None:
                names.append(f"explain.{field.name}")
        return names

    def check(self) -> None:
        """Raise ``ValueError`` unless there is one query and one document."""
        for what, names in (
            ("query", ("query", "query_file", "query_id")),
            ("document", _DOCUMENT),
        ):
            given = [f"explain.{name}" for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise ValueError(
                    f"{' and '.join(given)} both name the {what}: leave one of them out"
                )
            if not given:
                raise ValueError(
                    "an explanation needs both texts: explain.query='...' explain.document='...', "
                    "or files (explain.query_file, explain.document_file), or ids of the data "
                    "(explain.query_id, explain.doc_id)"
                )

    def texts(self, dataset: Callable[[], Dataset]) -> tuple[str, str]:
        """Query and document.

        Args:
            dataset: gives the data that ids are of.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a text is empty or cannot be read, or an id is not in the data; the option
                is named.
        """
        self.check()
        query = _given_text(self, "query")
        document = _given_text(self, "document")
        if query is None:
            query = _query(dataset(), str(self.query_id))
        if document is None:
            document = _document(dataset(), str(self.doc_id))
        return query, document


_DOCUMENT = ("document", "document_file", "doc_id")


def _given_text(pair: PairToExplain, what: str) -> str | None:
    """The text that is given, or that of the file; None where an id is given."""
    value = getattr(pair, what)
    text = None if value is None else str(value)
    file = getattr(pair, f"{what}_file")
    if file is not None:
        with located(f"explain.{what}_file"):
            text = read_text(Path(file).expanduser()).strip()
        if not text:
            raise ValueError(f"explain.{what}_file={file} is empty")
    if text is not None:
        check_text(text, f"explain.{what}")
    if text is not None and what == "query" and not text.strip():
        raise ValueError("explain.query is empty: a ranker needs at least one word of it")
    return text


def _query(dataset: Dataset, query_id: str) -> str:
    for split in filter(dataset.has, _SPLITS):
        if (text := dataset.split(split).queries.get(query_id)) is not None:
            return text
    raise ValueError(
        f"explain.query_id={shortened(query_id)}: no query of {dataset.name} has this id"
    )


def _document(dataset: Dataset, doc_id: str) -> str:
    for split in filter(dataset.has, _SPLITS):
        documents = dataset.split(split).documents
        if doc_id in documents:
            return documents.get_many([doc_id])[doc_id]
    raise ValueError(
        f"explain.doc_id={shortened(doc_id)}: no document of {dataset.name} has this id"
    )
