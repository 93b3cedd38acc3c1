"""JSON lines: a file with one JSON object per line, as BEIR writes queries and documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backpack_rank.data.text_files import (
    Row,
    check_id,
    check_text,
    open_writer,
    read_rows,
    shortened,
)
from backpack_rank.files import atomic_path, read_text

JSON_FILE = 10**9
"""Bytes of a file that is one JSON document, at most."""
# What stands behind a key of a JSON object: the end of its quotes, and a colon.
_TEXT_KEY = re.compile(r'"\s*:')
_BYTES_KEY = re.compile(rb'"\s*:')


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line; the file appears once it is complete.

    write_jsonl("queries.jsonl", [{"_id": "q1", "text": "electrician"}])
    """
    with atomic_path(path) as temporary, open_writer(temporary) as handle:
        for record in records:
            handle.write(json.dumps(dict(record), ensure_ascii=False) + "\n")


def read_jsonl(
    path: str | Path, parse: Callable[[dict[str, Any]], Row]
) -> Iterator[tuple[int, Row]]:
    """Read JSON lines: what ``parse`` makes of the object of every line.

        for number, text in read_jsonl("queries.jsonl", lambda record: record["text"]):
            ...

    Numbers, checks and errors are those of :func:`read_rows`.
    """
    return read_rows(path, lambda line: parse(json_object(line)))


def json_value(line: str | bytes, what: str = "a JSON object") -> Any:
    """In place of :func:`json.loads` where a key that stands twice must not pass.

    >>> json_value('{"_id": "q1"}')
    {'_id': 'q1'}

    Raises:
        ValueError: with what was expected, for a line of anything else, or an object that has a key
            twice.
    """
    try:
        value = json.loads(line)
        # json keeps the last value of a key that stands twice. The hook that notices costs more
        # than parsing, so a cheap count comes first: in a flat object without such a key, each
        # key, and nothing else, ends in a quote and a colon. Only where the counts differ (nested
        # objects, a colon in a text, a key twice) is the line parsed again with the hook.
        keys = _BYTES_KEY.findall(line) if isinstance(line, bytes) else _TEXT_KEY.findall(line)
        if not isinstance(value, dict) or len(keys) != len(value):
            json.loads(line, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected {what}: {error}") from error
    return value


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` of :func:`json.loads`, which loses a value without it.

    Raises:
        ValueError: a key stands twice.
    """
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return record


def json_object(line: str | bytes) -> dict[str, Any]:
    """Where a line must hold a JSON object; anything else raises ``ValueError``."""
    record = json_value(line)
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {shortened(record)}")
    return record


def json_file(path: str | Path) -> Any:
    """Read a small file that is one JSON document; an error names it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or has a key twice.
    """
    text = read_text(path)
    try:
        return json_value(text, "JSON")
    except ValueError as error:
        raise ValueError(f"{path} is damaged, copy it again: {error}") from error


def json_object_file(path: str | Path) -> dict[str, Any]:
    """A file that must hold a JSON object; errors are those of :func:`json_file`."""
    content = json_file(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, and holds {shortened(content)}")
    return content


def text_under(record: object, key: str, what: str = "") -> str:
    """A key of a JSON object that must hold a string.

    >>> text_under({"_id": "q1"}, "_id")
    'q1'

    Raises:
        ValueError: there is none, or another type; the sentence begins with ``what``.
    """
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"{what}expected a string under {key!r}, got {shortened(value)}")
    if not value.isascii():
        check_text(value, f"{what}the string under {key!r}")
    return value


def json_record(line: str | bytes) -> dict[str, Any]:
    """A line of BEIR's files: a JSON object with the strings ``_id`` and ``text``.

    Raises:
        ValueError: what is wrong with the line, without its place.
    """
    record = json_object(line)
    identifier = text_under(record, "_id")
    text_under(record, "text", f"{identifier!r}: ")
    check_id(identifier)
    return record


def is_jsonl(path: str | Path) -> bool:
    """Whether the file's name ends as that of JSON lines (``.jsonl``, ``.json``, also ``.gz``)."""
    return Path(path).name.removesuffix(".gz").endswith((".jsonl", ".json"))
