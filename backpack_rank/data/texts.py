"""Texts to train a language model on: plain files, JSON lines and collections, one document at a time."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from backpack_rank.data.collection import Collection
from backpack_rank.data.formats import fail, is_jsonl, numbered_bytes

DOCUMENTS, QUERIES = "documents", "queries"
LONGEST = 50_000_000
"""Characters of a document of a plain file at most; a file without blank lines must not end up in memory whole."""

Texts: TypeAlias = Iterable[str]
"""Documents that can be gone through any number of times; white space around them is not theirs, none is empty."""


class NamedTexts(Protocol):
    """Texts with a name for messages and summaries."""

    @property
    def name(self) -> str: ...

    def __iter__(self) -> Iterator[str]: ...


@dataclass(frozen=True)
class PlainFile:
    """Documents of a text file, plain or ``.gz``: a blank line ends a document, other line breaks are part of it."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def __iter__(self) -> Iterator[str]:
        """The documents.

        Raises:
            ValueError: a line is not UTF-8, the gzip file is damaged, or a document is too long to be one.
        """
        lines: list[str] = []
        size = start = 0
        for number, raw in numbered_bytes(self.path):
            line = _decoded(self.path, number, raw).rstrip("\r\n")
            if line.strip():
                start = start if lines else number
                lines.append(line)
                size += len(line)
                if size > LONGEST:
                    fail(
                        self.path,
                        start,
                        f"this document has more than {LONGEST} characters. A blank line ends a document; put blank "
                        "lines between the documents, or make the file JSON lines (.jsonl) with a document per line",
                    )
            elif lines:
                yield "\n".join(lines).strip()
                lines, size = [], 0
        if lines:
            yield "\n".join(lines).strip()


@dataclass(frozen=True)
class JsonLines:
    """Documents of a file with one JSON object per line, plain or ``.gz``, under the key ``field``."""

    path: Path
    field: str = "text"

    @property
    def name(self) -> str:
        return str(self.path)

    def __iter__(self) -> Iterator[str]:
        """The documents; empty ones are left out.

        Raises:
            ValueError: a line is no JSON object with a string under the key, or the gzip file is damaged.
        """
        for number, raw in numbered_bytes(self.path):
            if not (line := _decoded(self.path, number, raw)).strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                fail(self.path, number, f"expected a JSON object: {error}")
            if not isinstance(record, dict):
                fail(self.path, number, f"expected a JSON object, got {str(record)[:80]!r}")
            text = record.get(self.field)
            if not isinstance(text, str):
                known = ", ".join(repr(key) for key, value in record.items() if isinstance(value, str)) or "none"
                fail(
                    self.path,
                    number,
                    f"no string under {self.field!r}; keys with a string: {known}. Set task.field to that of the text",
                )
            try:
                text.encode()
            except UnicodeEncodeError as error:
                fail(self.path, number, f"the text holds half of a surrogate pair: {error}")
            if text.strip():
                yield text.strip()


@dataclass(frozen=True)
class CollectionTexts:
    """The documents or the queries of a collection."""

    collection: Collection
    part: str

    @property
    def name(self) -> str:
        return f"{self.part} of {self.collection.name}"

    def __iter__(self) -> Iterator[str]:
        """The texts; empty ones are left out."""
        queries = self.collection.queries.values()
        texts = queries if self.part == QUERIES else (text for _, text in self.collection.documents)
        return (text.strip() for text in texts if text.strip())


def text_sources(
    entries: Iterable[str | Mapping[str, str]], field: str, collection: Callable[[], Collection]
) -> list[NamedTexts]:
    """What ``task.texts`` names.

    Args:
        entries: each a file or a pattern of files (``.jsonl`` and ``.json`` are JSON lines, all others plain text; both
            also ``.gz``), a mapping ``{path: FILE, field: KEY}``, or ``documents`` or ``queries``.
        field: key of the text in JSON lines.
        collection: gives the collection whose documents and queries are meant; called at most once.

    Raises:
        FileNotFoundError: no file has that name.
        ValueError: nothing is named, or an entry is of another form.
    """
    sources: list[NamedTexts] = []
    loaded: list[Collection] = []
    for entry in entries:
        if isinstance(entry, str) and entry in (DOCUMENTS, QUERIES):
            loaded = loaded or [collection()]
            sources.append(CollectionTexts(loaded[0], entry))
        elif isinstance(entry, str):
            sources += [_file(path, field) for path in _paths(entry)]
        elif isinstance(entry, Mapping) and set(entry) == {"path", "field"}:
            sources += [JsonLines(path, str(entry["field"])) for path in _paths(str(entry["path"]))]
        else:
            raise ValueError(
                f"task.texts has {entry!r}: give files, {DOCUMENTS}, {QUERIES} or {{path: FILE, field: KEY}}"
            )
    if not sources:
        raise ValueError(f"task.texts names no text: give files, {DOCUMENTS} or {QUERIES}")
    return sources


def is_held_out(text: str, share: float, seed: int) -> bool:
    """Whether a document is held out of training, by a hash of its text and the seed.

    Equal documents are on the same side, whatever file they come from.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _file(path: Path, field: str) -> NamedTexts:
    return JsonLines(path, field) if is_jsonl(path) else PlainFile(path)


def _paths(entry: str) -> list[Path]:
    path = Path(entry).expanduser()
    if path.is_file():
        return [path]
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True)) if Path(name).is_file()]
    if not found:
        raise FileNotFoundError(
            f"task.texts: there is no file {entry}; the texts of the data are called {DOCUMENTS} and {QUERIES}"
        )
    return found


def _decoded(path: Path, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        fail(path, number, f"not UTF-8 text: {error}")
