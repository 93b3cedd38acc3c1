"""A collection from one table of pairs: a query, a text, and what a system said of them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

from backpack_rank.constructors import FilePath, Name, Range
from backpack_rank.data.collection import Collection, MemoryStore, MissingSplitError, Qrels, Run
from backpack_rank.data.json_lines import is_jsonl, read_jsonl
from backpack_rank.data.sources.filters import is_held_out
from backpack_rank.data.text_files import LONGEST_LINE, check_id, numbered_bytes, shortened

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
Place: TypeAlias = str
"""Where a row stands in its file, such as ``line 3``."""
_WORDS = {"true": 1.0, "false": 0.0}
"""Words that stand for a label."""


def load_pairs(
    file: FilePath,
    split: Literal["test", "dev"] = "test",
    *,
    query: Name = "query",
    text: Name = "text",
    score: Name | None = None,
    label: Name | None = None,
    query_id: Name | None = None,
    doc_id: Name | None = None,
    dev_fraction: Annotated[float, Range(above=0, below=1)] | None = None,
) -> Collection:
    """A table with a row for each pair of query and text becomes a collection with candidates.

        load_pairs("pairs.csv", query="search", text="passage", score="our_score")

    Equal queries are one query, and equal texts one document. Ids are made (``q1``, ``d1``, in the
    order of the file) where no column has them. Further columns are fields of the documents.

    Args:
        file: ``.csv`` (between commas, semicolons or tabs), ``.tsv``, ``.jsonl`` or ``.parquet``;
            the first three also ``.gz``.
        split: ``test``, or ``dev`` for the queries that are held out of it.
        query: column of the queries.
        text: column of the texts.
        score: column of a system's scores, higher is better; None: the order of the rows.
        label: column of judgements, whole numbers, above 0 is relevant; an empty cell is none.
        query_id: column of ids of queries.
        doc_id: column of ids of texts.
        dev_fraction: share of the queries that is held out, chosen by a hash of the query's id.

    Raises:
        FileNotFoundError: there is no such file.
        MissingSplitError: ``split="dev"``, and no query is held out.
        ValueError: a column that is not there (those that are there are named), an empty text, a
            score or label that is no number, an id with two texts, a pair that stands twice; file
            and line are named.
    """
    path = Path(file).expanduser()
    if split == "dev" and dev_fraction is None:
        raise MissingSplitError(
            f"{path} has no dev queries: data.dev_fraction=0.5 makes half of its queries those"
        )
    table = _Table(path)
    columns = {
        "data.query": query,
        "data.text": text,
        "data.score": score,
        "data.label": label,
        "data.query_id": query_id,
        "data.doc_id": doc_id,
    }
    named = {option: column for option, column in columns.items() if column is not None}
    queries = _Texts("q", "query")
    documents = _Texts("d", "text")
    run: Run = {}
    qrels: Qrels = {}
    places: dict[tuple[str, str], Place] = {}
    for place, row in table.rows(named):
        query_text = table.text(place, row, query)
        document_text = table.text(place, row, text)
        of_query = queries.add(table, place, query_text, row, query_id)
        of_document = documents.add(table, place, document_text, row, doc_id)
        pair = (of_query, of_document)
        if pair in places:
            table.fail(place, f"this pair of query and text stands in {places[pair]} already")
        places[pair] = place
        scores = run.setdefault(of_query, {})
        if score is None:
            # Scores that fall by 1 from row to row keep the order of the file.
            scores[of_document] = -float(len(scores))
        else:
            scores[of_document] = table.score(place, row, score)
        judged = None if label is None else table.label(place, row, label)
        if judged is not None:
            qrels.setdefault(of_query, {})[of_document] = judged
    if not queries.by_id:
        raise ValueError(f"{path} has no rows")

    def fields(name: str, doc_ids: Iterable[str]) -> dict[str, Any]:
        wanted = set(doc_ids)
        values: dict[str, Any] = {}
        for place, row in table.rows({"field:": name}):
            document = documents.id_of(table, place, row, text, doc_id)
            if document in wanted and row[name] not in (None, ""):
                values.setdefault(document, row[name])
        return values

    collection = Collection(
        f"{path.name.split('.')[0]}/{split}",
        MemoryStore(documents.by_id),
        queries.by_id,
        qrels,
        run,
        fields=fields,
    )
    return collection if dev_fraction is None else _held_out(collection, path, dev_fraction, split)


def _held_out(collection: Collection, path: Path, dev_fraction: float, split: str) -> Collection:
    """The queries of one of the two splits."""
    kept = []
    for query_id in collection.queries:
        if is_held_out(query_id, dev_fraction) == (split == "dev"):
            kept.append(query_id)
    if not kept:
        raise MissingSplitError(
            f"data.dev_fraction={dev_fraction:g} leaves none of the {len(collection.queries)} "
            f"queries of {path} to {split}"
        )
    return collection.select_queries(kept)


class _Texts:
    """The texts of one kind with their ids, which are made where no column has them."""

    def __init__(self, letter: str, what: str) -> None:
        self._letter = letter
        self._what = what
        self.by_id: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def add(
        self, table: _Table, place: Place, text: str, row: dict[str, Any], column: str | None
    ) -> str:
        """The id of the text of a row."""
        if column is None:
            if text not in self._ids:
                self._ids[text] = f"{self._letter}{len(self._ids) + 1}"
            identifier = self._ids[text]
        else:
            identifier = table.identifier(place, row, column)
        known = self.by_id.setdefault(identifier, text)
        if known != text:
            table.fail(place, f"{self._what} {identifier!r} has another text in a row above")
        return identifier

    def id_of(
        self, table: _Table, place: Place, row: dict[str, Any], text: str, column: str | None
    ) -> str:
        """The same of a row that was read before."""
        if column is None:
            return self._ids[table.text(place, row, text)]
        return table.identifier(place, row, column)


class _Table:
    """The rows of a file, by its ending, with their places."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path} (data.file)")
        if not path.name.removesuffix(".gz").endswith(ENDINGS):
            raise ValueError(f"{path} must end in {', '.join(ENDINGS)} (data.file)")
        self.path = path

    def rows(self, columns: dict[str, str]) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Every row, by the names of its columns.

        Args:
            columns: that it must have, by the option that names them.
        """
        if is_jsonl(self.path):
            for number, record in read_jsonl(self.path, dict):
                # A key may be left out where it has no value.
                if number == 1:
                    self._check(columns, list(record))
                yield f"line {number}", {**dict.fromkeys(columns.values()), **record}
        elif self.path.suffix == ".parquet":
            yield from self._parquet_rows(columns)
        else:
            yield from self._csv_rows(columns)

    def text(self, place: Place, row: dict[str, Any], column: str) -> str:
        """The text in a cell, which must not be blank."""
        value = row[column]
        if not isinstance(value, str) or not value.strip():
            self.fail(place, f"column {column!r} must hold a text, and holds {shortened(value)}")
        return value

    def identifier(self, place: Place, row: dict[str, Any], column: str) -> str:
        """The id in a cell."""
        identifier = "" if row[column] is None else str(row[column])
        try:
            check_id(identifier, f"column {column!r}")
        except ValueError as error:
            self.fail(place, str(error))
        return identifier

    def number(self, place: Place, row: dict[str, Any], column: str) -> float | None:
        """The number in a cell; None where it is empty."""
        value = row[column]
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        try:
            number = _WORDS.get(str(value).strip().lower())
            if number is None:
                number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            self.fail(place, f"column {column!r} must hold a number, and holds {shortened(value)}")
        return number

    def score(self, place: Place, row: dict[str, Any], column: str) -> float:
        """The score in a cell, which must not be empty."""
        number = self.number(place, row, column)
        if number is None:
            self.fail(place, f"column {column!r} has no score")
        return number

    def label(self, place: Place, row: dict[str, Any], column: str) -> int | None:
        """The judgement in a cell; None where it is empty."""
        number = self.number(place, row, column)
        if number is not None and number != int(number):
            self.fail(place, f"column {column!r} has {number:g}, and labels are whole numbers")
        return None if number is None else int(number)

    def fail(self, place: Place, message: str) -> NoReturn:
        """Raise ``ValueError`` with file and place in front."""
        raise ValueError(f"{self.path}, {place}: {message}")

    def _check(self, columns: dict[str, str], there: list[str]) -> None:
        for option, column in columns.items():
            if column not in there:
                shown = json.dumps(there, ensure_ascii=False)
                raise ValueError(
                    f"{self.path} has no column {column!r} ({option}); its columns are {shown}. "
                    "data.query=COLUMN and data.text=COLUMN say which hold queries and texts; "
                    "data.score, data.label, data.query_id and data.doc_id name further ones"
                )

    def _csv_rows(self, columns: dict[str, str]) -> Iterator[tuple[Place, dict[str, Any]]]:
        # Passages may be longer than the 131,072 characters that csv takes for a sign of damage.
        csv.field_size_limit(LONGEST_LINE)
        lines = self._lines()
        first = next(lines, "")
        separator = max(",;\t", key=first.count)
        if self.path.name.removesuffix(".gz").endswith(".tsv"):
            separator = "\t"

        def all_lines() -> Iterator[str]:
            yield first
            yield from lines

        # A quoted cell may hold line breaks, so a row is named by its first line.
        reader = csv.reader(all_lines(), delimiter=separator, strict=True)
        line = 1
        header: list[str] | None = None
        try:
            for row in reader:
                place, line = f"line {line}", reader.line_num + 1
                if header is None:
                    header = [name.strip() for name in row]
                    self._check(columns, header)
                    continue
                if not row:
                    continue
                if len(row) != len(header):
                    self.fail(place, f"{len(header)} cells expected, found {len(row)}")
                yield place, dict(zip(header, row, strict=True))
        except csv.Error as error:
            self.fail(f"line {line}", str(error))

    def _lines(self) -> Iterator[str]:
        for number, raw in numbered_bytes(self.path):
            try:
                # utf-8-sig drops a byte order mark, which spreadsheets put in front.
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                self.fail(f"line {number}", f"not UTF-8 text: {error}")

    def _parquet_rows(self, columns: dict[str, str]) -> Iterator[tuple[Place, dict[str, Any]]]:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            raise ValueError(
                f"{self.path} needs pyarrow: pip install pyarrow, or write the table as CSV"
            ) from error
        number = 0
        try:
            with ParquetFile(self.path) as table:
                self._check(columns, list(table.schema_arrow.names))
                for batch in table.iter_batches():
                    for row in batch.to_pylist():
                        number += 1
                        yield f"row {number}", row
        except (ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is no Parquet file that can be read: {error}") from error
