"""Files read line by line, whatever stands in their lines; used by the readers of every format.

An error names the file and the line. Names that end in ``.gz`` are compressed, blank lines are
skipped, a byte order mark is ignored.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, TextIO, TypeVar, cast

from backpack_rank.files import SMALL_FILE, check_not_packed

Row = TypeVar("Row")
LONGEST_LINE = 64 * 10**6
"""Bytes of a line at most: a file without line ends would fill the memory."""
LARGEST_RATIO = 200
"""Size of an unpacked gzip file over its packed size, at most. A file above it was made to fill
memory or disk, because text shrinks to a tenth at best.
"""
# What an id is of, and how it is called: a header's first cell is a pair of these, such as docno,
# page_id, corpus-id or query.id, whatever stands between them.
_OF = (
    *("", "doc", "document", "page", "passage", "corpus", "article", "item", "work", "entity"),
    *("query", "topic", "question", "q", "d", "p"),
)
_CALLED = ("id", "ids", "no", "number", "identifier", "name")
# Of one letter, or nothing, "id" alone is clear: a document may be called "no" or "name".
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ID_COLUMNS = frozenset(
    [of + called for of in _OF for called in _CALLED if len(of) > 1 or called in ("id", "ids")]
    + ["number", "qno", "document", "doc", "uri", "url"]
)


def read_rows(path: str | Path, parse: Callable[[str], Row]) -> Iterator[tuple[int, Row]]:
    """Read a file line by line with a parser that need not know file and line.

    Gives, of every line that is not blank, its number from 1 and what ``parse`` returns for it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line that is not UTF-8, a damaged gzip file, or an error of ``parse``, with
            file and line put before its message.
    """
    for number, line in numbered_lines(path):
        try:
            row = parse(line)
        except ValueError as error:
            fail(path, number, str(error))
        yield number, row


def check_text(text: str, what: str) -> None:
    """On a text of JSON, which may be one that UTF-8 cannot encode.

        check_text(title, "the title of d1")

    Raises:
        ValueError: it holds half of a surrogate pair.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds half of a surrogate pair: {error}") from error


def check_id(identifier: str, what: str = "an id") -> None:
    """On every id that is read or written: one with white space breaks a run's columns.

    One with a control character would act on the terminal of whoever looks at the run.

    >>> check_id("d 1")
    Traceback (most recent call last):
    ValueError: an id must not be empty or contain white space, got 'd 1'

    Raises:
        ValueError: it is such an id, or holds half of a surrogate pair; the sentence begins with
            ``what``.
    """
    if identifier.split() != [identifier]:
        raise ValueError(f"{what} must not be empty or contain white space, got {identifier!r}")
    if not identifier.isprintable() and _CONTROL.search(identifier):
        raise ValueError(f"{what} must not contain control characters, got {identifier!r}")
    if not identifier.isascii() and any("\ud800" <= letter <= "\udfff" for letter in identifier):
        raise ValueError(f"{what} must not hold half of a surrogate pair, got {identifier!r}")


def is_header(fields: Sequence[str]) -> bool:
    """On the first line of a file that may have a header: its first cell names ids.

    >>> is_header(["docno", "gender"]), is_header(["Corpus-ID", "label"]), is_header(["q1", "text"])
    (True, True, False)
    """
    first = "".join(letter for letter in fields[0].lower() if letter.isalnum())
    return len(fields) > 1 and first in _ID_COLUMNS


def refuse_header(fields: Sequence[str]) -> None:
    """On the first line of a file without header: ``qid<TAB>query`` is refused as one.

    >>> refuse_header(["q1", "electrician"])

    Raises:
        ValueError: it is such a line.
    """
    if is_header(fields):
        raise ValueError(
            f"{cut_text(' '.join(fields))!r} looks like a header, and this file has none: "
            "delete the line"
        )


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read a text file: every line that is not blank, with its number from 1.

        for number, line in numbered_lines("topics.tsv"):
            ...

    Lines end at ``\\n`` only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line that is not UTF-8, or a damaged gzip file.
    """
    for number, raw in numbered_bytes(path):
        try:
            # utf-8-sig drops a byte order mark, which can stand in the first line only.
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            fail(path, number, f"not UTF-8 text: {error}")
        line = line.rstrip("\r\n")
        if line.strip():
            yield number, line


def numbered_bytes(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Read a file without decoding it: every line with its end, and its number from 1.

        for number, line in numbered_bytes("corpus.jsonl.gz"):
            ...

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a damaged gzip file, a line too long, or a file that unpacks to too much.
    """
    path = Path(path)
    check_not_packed(path)
    number = 0  # of the last complete line, for the error of a damaged file
    size = path.stat().st_size
    packed = path.suffix == ".gz"
    most_unpacked = max(SMALL_FILE, LARGEST_RATIO * size)
    unpacked = 0
    with cast("IO[bytes]", gzip.open(path, "rb") if packed else open(path, "rb")) as handle:
        try:
            # Lines of a file that is shorter than the longest line need no bound, and reading
            # without one is faster.
            if not packed and size <= LONGEST_LINE:
                lines: Iterable[bytes] = handle
            else:
                lines = iter(partial(handle.readline, LONGEST_LINE + 1), b"")
            for number, raw in enumerate(lines, start=1):
                if len(raw) > LONGEST_LINE:
                    fail(
                        path,
                        number,
                        f"longer than {LONGEST_LINE / 1e6:g} MB, which no document is",
                    )
                if packed:
                    unpacked += len(raw)
                    if unpacked > most_unpacked:
                        fail(
                            path,
                            number,
                            f"unpacks to {LARGEST_RATIO} times its size, as no text does; "
                            "unpack it first",
                        )
                yield number, raw
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}: damaged or incomplete gzip file after line {number}: {error}"
            ) from error


def line_of(path: str | Path, identifier: str, column: int) -> int | None:
    """An error message: the number of the first line with this id in a column.

    Columns are separated by white space and counted from 0. None where no line has the id.
    """
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) > column and fields[column] == identifier:
            return number
    return None


@contextmanager
def open_writer(path: Path) -> Iterator[TextIO]:
    """Write a text file, compressed where its name ends in ``.gz``.

    with open_writer(Path("run.txt.gz")) as handle:
        handle.write("...")
    """
    with open(path, "wb") as raw:
        if path.suffix != ".gz":
            with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as handle:
                yield handle
            return
        # Name and time stay out of the header, so equal content gives equal bytes.
        with (
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
            io.TextIOWrapper(cast("IO[bytes]", packed), encoding="utf-8", newline="\n") as handle,
        ):
            yield handle


def cut_text(text: str, limit: int = 80) -> str:
    """Quote a text in an error: it is cut to ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shortened(value: object) -> str:
    """Quote a value in an error: as Python writes it, cut to 80 characters."""
    return cut_text(repr(value))


def fail(path: str | Path, number: int, message: str) -> NoReturn:
    """Raise ``ValueError`` that names the file and the line."""
    raise ValueError(f"{path}, line {number}: {message}")
