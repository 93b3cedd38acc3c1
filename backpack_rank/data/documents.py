"""Documents of line files (BEIR ``corpus.jsonl``, ``collection.tsv``), small ones in memory, big ones on disk."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeAlias

import numpy as np
from filelock import FileLock

from backpack_rank.checks import located
from backpack_rank.data.collection import DocumentStore, MemoryStore, missing_message
from backpack_rank.data.trec import check_id, check_text, fail, is_jsonl, json_record, numbered_bytes, refuse_header
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, cache_dir, intact, kept_or_rebuilt
from backpack_rank.progress import Progress

MEMORY_LIMIT = 64 * 2**20
"""Files up to this many bytes are read into memory."""
_PACKED_FACTOR = 4  # gzip shrinks English text about so much
_READ = 4096
_CHUNK = 2**18
_VERSION = 2
_BOM = b"\xef\xbb\xbf"

Document: TypeAlias = tuple[str, str, str]
"""(id, title, text)"""
Parser: TypeAlias = Callable[[bytes], Document]


def open_documents(path: str | Path, *, title: bool = True, memory_limit: int = MEMORY_LIMIT) -> DocumentStore:
    """The documents of a line file: a :class:`MemoryStore` up to ``memory_limit`` bytes, else an :class:`OffsetStore`.

    Args:
        path: ``.jsonl`` with ``_id``, ``title``, ``text`` per line, else ``id<TAB>text`` or
            ``id<TAB>title<TAB>text``; ``.gz`` by name.
        title: put a title that is not empty and a space before the text (BEIR's convention).
        memory_limit: bytes; a compressed file counts four times.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a malformed line, an id with white space, a document id that stands twice, no documents. With
            an :class:`OffsetStore` these are raised on first use, when the file is read through once.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no document file {path}")
    size = path.stat().st_size * (_PACKED_FACTOR if path.suffix == ".gz" else 1)
    return read_documents(path, title=title) if size <= memory_limit else OffsetStore(path, title=title)


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
    """Title, a space and the text; only the text when the title is empty."""
    return f"{title} {text}" if title else text


class OffsetStore:
    """A :class:`DocumentStore` that keeps texts on disk and 16 bytes per document in a memory map.

    On first use the file is read through once, checked line by line, and the 64-bit hashes of the ids and the
    places of their lines are saved in the cache folder under a key of path, size and time of the file; later uses
    map these arrays. A ``.gz`` file is unpacked into the cache folder in the same pass. A cache that cannot be written
    is left out, with a warning. While the arrays are built, 24 bytes per document are in memory (8.8 million documents:
    210 MB), afterwards only the pages that are used. An id found by its hash is compared with the id in the file, so
    equal hashes do no harm.

    It can be pickled, forked and used by threads: it reads with ``os.pread`` and holds no position.
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
        return f"{self._opened().meta.digest}-{'title' if self._title else 'text'}"

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        wanted = list(dict.fromkeys(doc_ids))
        found = self._opened().find(wanted)
        missing = [doc_id for doc_id in wanted if doc_id not in found]
        if missing:
            raise KeyError(missing_message(missing))
        return {doc_id: self._text(found[doc_id]) for doc_id in wanted}

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and bool(self._opened().find([doc_id]))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        index = self._opened()
        for number, line in numbered_bytes(index.data):
            if line.strip():
                document = _parse(index.data, number, line, index.parse)
                yield document[0], self._text(document)

    def __len__(self) -> int:
        return self._opened().meta.documents

    def __getstate__(self) -> dict[str, object]:
        return {"_path": self._path, "_title": self._title, "_index": None}

    def _text(self, document: Document) -> str:
        return document_text(document[1], document[2]) if self._title else document[2]

    def _opened(self) -> _Index:
        if self._index is None:
            kept, built = partial(_kept_index, self._path), partial(_temporary_index, self._path)
            self._index = kept_or_rebuilt(kept, built, f"the index of {self._path}")
        return self._index


@dataclass(frozen=True)
class _Meta:
    """What is known of a file that was read through; written last, so it marks a complete index."""

    columns: int  # 0 for JSON lines
    documents: int
    digest: str


class _Index:
    """An open data file with the sorted hashes of its ids and the places of their lines."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.meta = _Meta(**json.loads((folder / "meta.json").read_text(encoding="utf-8")))
        self.data = folder / "documents" if path.suffix == ".gz" else path
        self.parse = _parser(self.meta.columns)
        self.hashes = np.asarray(np.memmap(folder / "hashes", dtype="<u8", mode="r"))
        self.offsets = np.asarray(np.memmap(folder / "offsets", dtype="<i8", mode="r"))
        self._file = os.open(self.data, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._stamp = _stamp(self._file)

    def find(self, doc_ids: list[str]) -> dict[str, Document]:
        """The documents that are there, by id."""
        keys = np.fromiter((_hash(doc_id) for doc_id in doc_ids), dtype="<u8", count=len(doc_ids))
        first = np.searchsorted(self.hashes, keys, side="left")
        last = np.searchsorted(self.hashes, keys, side="right")
        places = sorted(
            (int(self.offsets[position]), row)
            for row in range(len(doc_ids))
            for position in range(first[row], last[row])
        )
        found: dict[str, Document] = {}
        for offset, row in places:  # in the order of the file, which spares seeks
            document = self._read(offset)
            if document[0] == doc_ids[row]:
                found[document[0]] = document
        if len(found) < len(doc_ids):
            self._check_unchanged()
        return found

    def _read(self, offset: int) -> Document:
        data = b""
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
            raise ValueError(f"{self.data} was changed while it was in use; start again to read it anew")


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
    hashes, offsets = array("Q"), array("q")
    columns = _columns(path)
    parse = _parser(columns)
    unpacked = open(folder / "documents", "wb") if path.suffix == ".gz" else None  # noqa: SIM115
    try:
        content = digest(_indexed(path, parse, hashes, offsets, unpacked))
    finally:
        if unpacked is not None:
            unpacked.close()
    if not hashes:
        raise ValueError(f"{path}: holds no documents")
    _write_sorted(path, folder, hashes, offsets)
    meta = _Meta(columns=columns, documents=len(hashes), digest=content)
    (folder / "meta.json").write_text(json.dumps(asdict(meta)), encoding="utf-8")


def _indexed(
    path: Path, parse: Parser, hashes: array[int], offsets: array[int], unpacked: BinaryIO | None
) -> Iterator[bytes]:
    """Fill the arrays, and give each line for the digest, so that the file is read once."""
    offset = 0
    for number, line in _with_progress(path):
        if line.strip():
            hashes.append(_hash(_parse(path, number, line, parse)[0]))
            offsets.append(offset + (len(_BOM) if number == 1 and line.startswith(_BOM) else 0))
        offset += len(line)
        if unpacked is not None:
            unpacked.write(line)
        yield line


def _write_sorted(path: Path, folder: Path, hashes: array[int], offsets: array[int]) -> None:
    keys, places = np.frombuffer(hashes, dtype=np.uint64), np.frombuffer(offsets, dtype=np.int64)
    order = np.argsort(keys)
    equal: set[int] = set()
    previous = np.empty(0, dtype=np.uint64)
    with open(folder / "hashes", "wb") as key_file, open(folder / "offsets", "wb") as place_file:
        for start in range(0, len(order), _CHUNK):  # in pieces, so no further array of full size stands in memory
            piece = order[start : start + _CHUNK]
            sorted_keys = np.concatenate([previous, keys[piece]])
            equal.update(sorted_keys[1:][sorted_keys[1:] == sorted_keys[:-1]].tolist())
            sorted_keys[len(previous) :].astype("<u8", copy=False).tofile(key_file)
            places[piece].astype("<i8", copy=False).tofile(place_file)
            previous = sorted_keys[-1:]
    if equal:
        _refuse_duplicates(path, equal)


def _refuse_duplicates(path: Path, equal: set[int]) -> None:
    """Read the file again and compare the ids whose hashes are equal."""
    seen: dict[str, int] = {}
    for number, doc_id, _, _ in _documents(path):
        if _hash(doc_id) in equal:
            if doc_id in seen:
                _fail_twice(path, doc_id, seen[doc_id], number)
            seen[doc_id] = number


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
        raise ValueError(f"expected {columns} columns as in the first line, got {len(fields)} (id {fields[0]!r})")
    check_id(fields[0])
    if b"\r" in line and any(b"\t" in part for part in line.split(b"\r")[1:]):
        raise ValueError("lines end with lone carriage returns, so documents would run together: end them with \\n")
    return fields


def _hash(doc_id: str) -> int:
    return int(digest(doc_id, size=8), 16)


def _stamp(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def _fail_twice(path: str | Path, doc_id: str, first: int, second: int) -> NoReturn:
    raise ValueError(f"{path}, line {second}: document id {doc_id!r} stands twice, first in line {first}")
