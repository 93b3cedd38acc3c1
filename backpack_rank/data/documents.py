"""Documents of line files, such as BEIR's ``corpus.jsonl``: small in memory, big ones on disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeAlias

from filelock import FileLock

from backpack_rank.checks import located
from backpack_rank.data.collection import DocumentStore, MemoryStore, missing_message
from backpack_rank.data.json_lines import is_jsonl, json_record
from backpack_rank.data.text_files import check_id, check_text, fail, numbered_bytes, refuse_header
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, cache_dir, intact, kept_or_rebuilt
from backpack_rank.progress import Progress

MEMORY_LIMIT = 64 * 2**20
"""Files up to this many bytes are read into memory."""
_PACKED_FACTOR = 4  # gzip shrinks English text about so much
_READ = 4096
"""Bytes of the first read of a document; most documents end within them."""
_DATABASE = "places.sqlite"
_CACHE_KIB = 8192
"""Of the documents database: memory that SQLite keeps pages in, and that it sorts in."""
_ROWS = 10_000
"""Rows that are written to the database at once."""
_VERSION = 2
_BOM = b"\xef\xbb\xbf"

Document: TypeAlias = tuple[str, str, str]
"""(id, title, text)"""
Parser: TypeAlias = Callable[[bytes], Document]


def open_documents(
    path: str | Path, *, title: bool = True, memory_limit: int = MEMORY_LIMIT
) -> DocumentStore:
    """The documents of a line file, of any size.

        documents = open_documents("nfcorpus/corpus.jsonl")
        documents.get_many(["MED-10", "MED-14"])

    Args:
        path: ``.jsonl`` with ``_id``, ``title``, ``text`` per line, else ``id<TAB>text`` or
            ``id<TAB>title<TAB>text``; ``.gz`` by name.
        title: put a title that is not empty and a space before the text (BEIR's convention).
        memory_limit: bytes; a compressed file counts four times.

    Returns:
        A :class:`MemoryStore` up to ``memory_limit`` bytes, else an :class:`OffsetStore`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a malformed line, an id with white space, a document id that stands twice, no
            documents. With an :class:`OffsetStore` these are raised on first use, when the file is
            read through once.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no document file {path}")
    size = path.stat().st_size * (_PACKED_FACTOR if path.suffix == ".gz" else 1)
    if size <= memory_limit:
        return read_documents(path, title=title)
    return OffsetStore(path, title=title)


def read_documents(path: str | Path, *, title: bool = True) -> MemoryStore:
    """Read a line file into memory; arguments and errors as in :func:`open_documents`."""
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, doc_id, heading, text in _documents(Path(path)):
        if doc_id in lines:
            _fail_twice(path, doc_id, lines[doc_id], number)
        lines[doc_id] = number
        texts[doc_id] = document_text(heading, text) if title else text
    if not texts:
        raise ValueError(f"{path}: holds no documents")
    return MemoryStore(texts)


def document_text(title: str, text: str) -> str:
    """Join title and text as BEIR does: with a space, and none where the title is empty.

    >>> document_text("Saws", "A saw cuts.")
    'Saws A saw cuts.'
    """
    return f"{title} {text}" if title else text


class OffsetStore:
    """Documents that do not fit into memory: texts stay in their file.

        documents = OffsetStore("msmarco/corpus.jsonl")
        documents.get_many(["7067032"])

    A :class:`DocumentStore`; places of texts are kept in SQLite.

    On first use the file is read through once, checked line by line, and the ids with the places of
    their lines are saved as an SQLite database in the cache folder, under a key of path, size and
    time of the file; later uses open it. Texts are not copied: they may be tens of gigabytes, and
    what is kept in the cache is checked completely whenever it is opened. A ``.gz`` file is
    unpacked into the cache folder in the same pass. A cache that cannot be written is left out,
    with a warning. While the database is written, memory holds about 20 MB, whatever the number of
    documents; what is sorted beyond that lies in the system's folder for temporary files.

    It can be pickled, forked and used by threads: it reads with ``os.pread``, which holds no
    position, and every thread of every process opens the database for itself.
    """

    def __init__(self, path: str | Path, *, title: bool = True) -> None:
        """Args: as in :func:`open_documents`. The file is not read before its first use.

        Raises:
            FileNotFoundError: there is no such file.
        """
        self._path = Path(path).expanduser().absolute()
        self._title = title
        self._index: _Index | None = None
        if not self._path.is_file():
            raise FileNotFoundError(f"there is no document file {self._path}")

    @property
    def fingerprint(self) -> str:
        """Made from the content of the file, not from its place, so caches survive a move."""
        return f"{self._opened().digest}-{'title' if self._title else 'text'}"

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        wanted = list(dict.fromkeys(doc_ids))
        documents = self._opened().find(wanted)
        missing = [doc_id for doc_id in wanted if doc_id not in documents]
        if missing:
            raise KeyError(missing_message(missing))
        return {doc_id: self._text(documents[doc_id]) for doc_id in wanted}

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and bool(self._opened().find([doc_id]))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        index = self._opened()
        for number, line in numbered_bytes(index.data):
            if line.strip():
                document = _parse(index.data, number, line, index.parse)
                yield document[0], self._text(document)

    def __len__(self) -> int:
        return self._opened().documents

    def __getstate__(self) -> dict[str, object]:
        return {"_path": self._path, "_title": self._title, "_index": None}

    def _text(self, document: Document) -> str:
        _, title, text = document
        return document_text(title, text) if self._title else text

    def _opened(self) -> _Index:
        if self._index is None:
            self._index = kept_or_rebuilt(
                partial(_kept_index, self._path),
                partial(_temporary_index, self._path),
                f"the index of {self._path}",
            )
        return self._index


class _Index:
    """An open data file, and a database with the places of its lines by id."""

    def __init__(self, path: Path, folder: Path) -> None:
        # Nothing changes the file once it has its name, so SQLite needs no locks and no files
        # beside it, which a folder that cannot be written would not have.
        self._address = f"{(folder / _DATABASE).absolute().as_uri()}?mode=ro&immutable=1"
        self._of_thread = threading.local()
        about = self._database().execute("SELECT * FROM about").fetchone()
        columns, self.documents, self.digest = about
        self.data = folder / "documents" if path.suffix == ".gz" else path
        self.parse = _parser(columns)
        self._file = os.open(self.data, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._stamp = _stamp(self._file)

    def _database(self) -> sqlite3.Connection:
        # SQLite forbids to use, or to close, a connection in a process that was forked from the one
        # that opened it.
        opened: dict[int, sqlite3.Connection] = self._of_thread.__dict__.setdefault("opened", {})
        process = os.getpid()
        if process not in opened:
            opened[process] = sqlite3.connect(self._address, uri=True)
        return opened[process]

    def find(self, doc_ids: list[str]) -> dict[str, Document]:
        """The documents that are there, by id."""
        database = self._database()
        places = []
        for doc_id in doc_ids:
            row = database.execute("SELECT place FROM documents WHERE id = ?", (doc_id,)).fetchone()
            if row is not None:
                places.append(row[0])
        documents: dict[str, Document] = {}
        for place in sorted(places):  # in the order of the file, which spares seeks
            document = self._read(place)
            documents[document[0]] = document
        # A document at a known place may also be another one by now.
        if len(documents) < len(doc_ids) or not documents.keys() <= set(doc_ids):
            self._check_unchanged()
        return documents

    def _read(self, offset: int) -> Document:
        data = b""
        # Each read takes as much again as there is, so a long line needs few of them.
        while b"\n" not in data:
            block = os.pread(self._file, max(_READ, len(data)), offset + len(data))
            if not block:
                break
            data += block
        try:
            return self.parse(data.split(b"\n", 1)[0])
        except ValueError as error:
            self._check_unchanged()
            raise ValueError(f"{self.data}, byte {offset}: {error}") from error

    def _check_unchanged(self) -> None:
        if _stamp(self._file) != self._stamp:
            raise ValueError(
                f"{self.data} was changed while it was in use; start again to read it anew"
            )


def _temporary_index(path: Path) -> _Index:
    """An index that goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="backpack_rank-"))
    try:
        _build_index(path, folder)
        index = _Index(path, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(index, shutil.rmtree, folder, ignore_errors=True)
    return index


def _kept_index(path: Path) -> _Index:
    folder = cache_dir() / "documents" / _index_name(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # parallel jobs wait for the first one
        if not intact(folder):
            with atomic_path(folder, sealed=True) as temporary:
                temporary.mkdir()
                _build_index(path, temporary)
                if _index_name(path) != folder.name:
                    raise ValueError(f"{path} was changed while it was indexed; start again")
    return _Index(path, folder)


def _index_name(path: Path) -> str:
    status = path.stat()
    return digest(f"{_VERSION}|{path}|{status.st_size}|{status.st_mtime_ns}", size=12)


def _build_index(path: Path, folder: Path) -> None:
    columns = _columns(path)
    with ExitStack() as stack:
        unpacked: BinaryIO | None = None
        if path.suffix == ".gz":
            unpacked = stack.enter_context(open(folder / "documents", "wb"))
        database = sqlite3.connect(folder / _DATABASE, isolation_level=None)
        stack.enter_context(closing(database))
        # Nobody sees the file before it is complete and on the disk, so SQLite need not take care
        # of that. Its own memory and what it sorts in have this size, whatever the number of
        # documents.
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = MEMORY")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        database.execute(
            "CREATE TABLE documents (place INTEGER PRIMARY KEY, line INTEGER, id TEXT)"
        )
        content_digest = digest(_indexed(path, columns, database, unpacked))
        (documents,) = database.execute("SELECT count(*) FROM documents").fetchone()
        if not documents:
            raise ValueError(f"{path}: holds no documents")
        # One sort finds ids that stand twice; a look for each id would cost a seek for each.
        try:
            database.execute("CREATE UNIQUE INDEX by_id ON documents (id)")
        except sqlite3.IntegrityError:
            _refuse_duplicate(path, database)
        database.execute("CREATE TABLE about (columns, documents, digest)")
        database.execute("INSERT INTO about VALUES (?, ?, ?)", (columns, documents, content_digest))


def _indexed(
    path: Path, columns: int, database: sqlite3.Connection, unpacked: BinaryIO | None
) -> Iterator[bytes]:
    """Write the place of every document; gives each line for the digest: one pass does both."""
    parse = _parser(columns)
    rows: list[tuple[int, int, str]] = []
    place = 0

    def write() -> None:
        database.execute("BEGIN")
        database.executemany("INSERT INTO documents VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")
        rows.clear()

    for number, line in _with_progress(path):
        if line.strip():
            # A byte order mark is no part of the first document.
            start = place + len(_BOM) if number == 1 and line.startswith(_BOM) else place
            rows.append((start, number, _parse(path, number, line, parse)[0]))
            if len(rows) == _ROWS:
                write()
        place += len(line)
        if unpacked is not None:
            unpacked.write(line)
        yield line
    write()


def _refuse_duplicate(path: Path, database: sqlite3.Connection) -> NoReturn:
    """Name the first line with an id that stood before."""
    first_lines = "SELECT id, line, min(line) OVER (PARTITION BY id) AS first FROM documents"
    row = database.execute(
        f"SELECT id, first, line FROM ({first_lines}) WHERE line > first ORDER BY line LIMIT 1"
    )
    _fail_twice(path, *row.fetchone())


def _documents(path: Path) -> Iterator[tuple[int, str, str, str]]:
    parse = _parser(_columns(path))
    for number, line in numbered_bytes(path):
        if line.strip():
            yield number, *_parse(path, number, line, parse)


def _with_progress(path: Path) -> Iterator[tuple[int, bytes]]:
    size = path.stat().st_size
    if size <= MEMORY_LIMIT:
        yield from numbered_bytes(path)
        return
    total = None if path.suffix == ".gz" else size
    with Progress(total=total, desc=f"indexing {path.name}", unit="B", unit_scale=True) as bar:
        for number, line in numbered_bytes(path):
            yield number, line
            bar.update(len(line))


def _parse(path: Path, number: int, line: bytes, parse: Parser) -> Document:
    try:  # a context manager would cost more than the line
        return parse(line.removeprefix(_BOM) if number == 1 else line)
    except ValueError as error:
        fail(path, number, str(error))


def _columns(path: Path) -> int:
    """Columns of a tab-separated file, by its first line; 0 for JSON lines."""
    if is_jsonl(path):
        return 0
    for number, line in numbered_bytes(path):
        if line.strip():
            columns = line.count(b"\t") + 1
            with located(f"{path}, line {number}"):
                refuse_header(line.decode("utf-8", "replace").removeprefix("\ufeff").split("\t"))
            if columns not in (2, 3):
                expected = "2 columns (id<TAB>text) or 3 (id<TAB>title<TAB>text)"
                raise ValueError(f"{path}, line {number}: expected {expected}, got {columns}")
            return columns
    raise ValueError(f"{path}: holds no documents")


def _parser(columns: int) -> Parser:
    return {0: _parse_json, 2: _parse_two, 3: _parse_three}[columns]


def _parse_json(line: bytes) -> Document:
    record = json_record(line)
    title = record.get("title") or ""
    if not isinstance(title, str):
        raise ValueError(f'{record["_id"]!r} needs a string under "title", got {title!r}')
    if not title.isascii():
        check_text(title, f"the title of {record['_id']!r}")
    return record["_id"], title, record["text"]


def _parse_two(line: bytes) -> Document:
    doc_id, text = _fields(line, 2)
    return doc_id, "", text


def _parse_three(line: bytes) -> Document:
    doc_id, title, text = _fields(line, 3)
    return doc_id, title, text


def _fields(line: bytes, columns: int) -> list[str]:
    try:
        fields = line.decode("utf-8").rstrip("\r\n").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: {error}") from error
    if len(fields) != columns:
        raise ValueError(
            f"expected {columns} columns as in the first line, got {len(fields)} (id {fields[0]!r})"
        )
    check_id(fields[0])
    if b"\r" in line and any(b"\t" in part for part in line.split(b"\r")[1:]):
        raise ValueError(
            "lines end with lone carriage returns, so documents would run together: end them with "
            "\\n"
        )
    return fields


def _stamp(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def _fail_twice(path: str | Path, doc_id: str, first: int, second: int) -> NoReturn:
    raise ValueError(
        f"{path}, line {second}: document id {doc_id!r} stands twice, first in line {first}"
    )
