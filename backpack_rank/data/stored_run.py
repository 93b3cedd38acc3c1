"""TREC runs that do not fit into memory: lists lie in a file, and are read query by query."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from backpack_rank.checks import one_of
from backpack_rank.data.collection import Run
from backpack_rank.data.run_order import TIES, OrderWarning, in_order, untied
from backpack_rank.data.text_files import fail
from backpack_rank.data.trec import read_run, run_rows

MEMORY_LIMIT = 128 * 2**20
"""Run files up to this many bytes are read into memory, of which they take eight times as much."""
_PACKED_FACTOR = 8  # gzip shrinks runs about so much
_LINES = 200_000
"""Lines that are held while the file is read."""

Row: TypeAlias = tuple[str, float, str]
"""(document id, score, rank as it is written)"""


def open_run(
    path: str | Path, *, ties: str = "id", warn: bool = False, memory_limit: int = MEMORY_LIMIT
) -> Run:
    """In place of ``read_run`` for a run of any size.

        run = open_run("bm25.trec")
        run["q1"]  # {"d7": 12.5, ...}, best first

    Args:
        path: the run file; ``.gz`` by name.
        ties: order of equal scores, one of :data:`backpack_rank.data.run_order.TIES`.
        warn: log when most scores are tied, or when the rank column contradicts them.
        memory_limit: bytes; a compressed file counts eight times.

    Returns:
        A dictionary up to ``memory_limit`` bytes, else a :class:`StoredRun`, which can be read in
        the same way.

    Raises:
        ValueError: as :func:`backpack_rank.data.trec.read_run`.
    """
    path = Path(path)
    size = path.stat().st_size * (_PACKED_FACTOR if path.suffix == ".gz" else 1)
    if size <= memory_limit:
        return read_run(path, ties=ties, warn=warn)
    return cast(Run, StoredRun.read(path, ties=ties, warn=warn))


class StoredRun(Mapping[str, dict[str, float]]):
    """Reads a run query by query: :func:`open_run` gives it for a large file.

        run = StoredRun.read("bm25.trec")
        for query_id in run:
            best = next(iter(run[query_id]))

    Memory holds the ids of the queries, and the list that is asked for. The lists are in an SQLite
    database in the system's folder for temporary files (``TMPDIR``), about as large as the run
    file, which goes with the last view of the run.
    """

    def __init__(self, database: Path, queries: Iterable[str], apart: bool = False) -> None:
        """``apart``: give no two documents of a list the same score, as :func:`untied` does."""
        self._database = database
        self._connection = sqlite3.connect(database, check_same_thread=False)
        self._queries = dict.fromkeys(queries)
        self._apart = apart
        self._folder: object = None

    @classmethod
    def read(cls, path: str | Path, *, ties: str = "id", warn: bool = False) -> StoredRun:
        """From a TREC run file; arguments and errors as of :func:`open_run`."""
        one_of("ties", ties, TIES)
        path = Path(path)
        folder = _Folder()
        database = folder.path / "run.sqlite"
        connection = sqlite3.connect(database, isolation_level=None)
        # Nobody needs the file after a crash, so SQLite keeps no journal and waits for no disk.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE parts (query INTEGER, lines TEXT)")
        connection.execute("CREATE TABLE lists (query TEXT PRIMARY KEY, ids TEXT, scores BLOB)")
        connection.execute("BEGIN")
        numbers = _write_parts(connection, path)
        connection.execute("CREATE INDEX places ON parts (query)")
        warning = OrderWarning(path, ties)
        for query_id, number in numbers.items():
            rows = _rows_of(connection, number)
            scores = {doc_id: score for doc_id, score, _ in rows}
            if len(scores) < len(rows):
                _fail_twice(path, query_id)
            if warn:
                warning.add(query_id, scores, [rank for _, _, rank in rows])
            ordered = in_order(scores, ties)
            values = np.array([scores[doc_id] for doc_id in ordered], dtype=np.float64)
            connection.execute(
                "INSERT INTO lists VALUES (?, ?, ?)", (query_id, "\n".join(ordered), values.data)
            )
        connection.execute("COMMIT")
        connection.close()
        if warn:
            warning.give()
        run = cls(database, numbers)
        run._folder = folder
        return run

    def select(self, query_ids: Iterable[str]) -> StoredRun:
        """The lists of these queries alone, in this order; those without a list are left out."""
        kept = [query_id for query_id in query_ids if query_id in self._queries]
        return self._view(kept, self._apart)

    def untied(self) -> StoredRun:
        """The same run with no two scores of a list equal, as of
        :func:`backpack_rank.data.run_order.untied`.
        """
        return self._view(self._queries, True)

    def _view(self, queries: Iterable[str], apart: bool) -> StoredRun:
        view = StoredRun(self._database, queries, apart)
        view._folder = self._folder
        return view

    def __getitem__(self, query_id: str) -> dict[str, float]:
        if query_id not in self._queries:
            raise KeyError(query_id)
        ids, scores = self._connection.execute(
            "SELECT ids, scores FROM lists WHERE query = ?", (query_id,)
        ).fetchone()
        ranking = dict(zip(ids.split("\n"), np.frombuffer(scores).tolist(), strict=True))
        if self._apart:
            ranking = untied({query_id: ranking})[query_id]
        return ranking

    def __contains__(self, query_id: object) -> bool:
        # Mapping's own would read the list.
        return query_id in self._queries

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


class _Folder:
    """A temporary folder that goes with the last run that reads from it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="backpack_rank.run."))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _write_parts(connection: sqlite3.Connection, path: Path) -> dict[str, int]:
    """Copy the lines into the database, a row for those of a query that come together.

    Lines of a query may stand anywhere in the file, so those of a stretch of the file are sorted
    by query in memory, and the parts of a query are found again through an index.

    Returns:
        The queries in their order, with the numbers that their parts have.
    """
    numbers: dict[str, int] = {}
    lines: dict[int, list[str]] = {}

    def write() -> None:
        rows = [(number, "\n".join(of_query)) for number, of_query in lines.items()]
        connection.executemany("INSERT INTO parts VALUES (?, ?)", rows)
        lines.clear()

    for held, (_, query_id, doc_id, rank, score) in enumerate(run_rows(path), start=1):
        number = numbers.setdefault(query_id, len(numbers))
        lines.setdefault(number, []).append(f"{doc_id} {score!r} {rank}")
        if held % _LINES == 0:
            write()
    write()
    return numbers


def _rows_of(connection: sqlite3.Connection, number: int) -> list[Row]:
    rows: list[Row] = []
    # Rows of a table come in the order that they were written in.
    for (lines,) in connection.execute(
        "SELECT lines FROM parts WHERE query = ? ORDER BY rowid", (number,)
    ):
        for line in lines.split("\n"):
            doc_id, score, rank = line.split(" ")
            rows.append((doc_id, float(score), rank))
    return rows


def _fail_twice(path: Path, query_id: str) -> None:
    """Say in which line a document stands for the second time."""
    seen: set[str] = set()
    for number, of_query, doc_id, _, _ in run_rows(path):
        if of_query != query_id:
            continue
        if doc_id in seen:
            fail(
                path, number, f"document {doc_id!r} stands twice in the list of query {query_id!r}"
            )
        seen.add(doc_id)
