"""Readers and writers of the files of the field: TREC runs, qrels, queries and BEIR's JSON lines.

Every reader checks what it reads; an error names the file, the line and the id. Names that end in
``.gz`` are compressed, blank lines are skipped, a byte order mark is ignored.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO, TypeVar, cast

import numpy as np

from backpack_rank.checks import decimal, integer, one_of, whole
from backpack_rank.data.collection import Qrels, Queries, Run
from backpack_rank.data.run_order import TIES, in_order, warn_of_order
from backpack_rank.files import SMALL_FILE, atomic_path

Row = TypeVar("Row")
BEIR_QRELS_HEADER = ("query-id", "corpus-id", "score")
RUN_COLUMNS = "query id, Q0, document id, rank, score, tag"
LONGEST_LINE = 64 * 10**6
"""Bytes of a line at most: a file without line ends would fill the memory."""
LARGEST_RATIO = 200
"""Size of an unpacked gzip file over its packed size, at most. A file above it was made to fill
memory or disk, because text shrinks to a tenth at best.
"""
JSON_FILE = 10**9
"""Bytes of a file that is one JSON document, at most."""
# What stands behind a key of a JSON object: the end of its quotes, and a colon.
_TEXT_KEY = re.compile(r'"\s*:')
_BYTES_KEY = re.compile(rb'"\s*:')
# First cells, and further cells, by which a line is known as a header.
_HEADER_IDS = (
    "id",
    "_id",
    "qid",
    "query_id",
    "query-id",
    "queryid",
    "number",
    "docid",
    "doc_id",
    "did",
    "pid",
)
_HEADER_TEXTS = (
    "query",
    "text",
    "title",
    "question",
    "topic",
    "passage",
    "document",
    "contents",
    "query_text",
)
QRELS_COLUMNS = "query id, iteration, document id, relevance"


def ranking(scores: Mapping[str, float]) -> list[str]:
    """Use it to rank one query's documents: ids from best to worst, equal scores by ascending id.

    >>> ranking({"d2": 0.5, "d3": 0.9, "d1": 0.5})
    ['d3', 'd1', 'd2']
    """
    return in_order(scores)


def sorted_run(run: Mapping[str, Mapping[str, float]], *, depth: int | None = None) -> Run:
    """Use it to order a run made in memory: best document first, cut after ``depth``.

    >>> sorted_run({"q": {"d1": 0.5, "d2": 0.9, "d3": 0.5}}, depth=2)
    {'q': {'d2': 0.9, 'd1': 0.5}}

    Raises:
        ValueError: ``depth`` is below 1.
    """
    whole("depth", depth, 1, null="for all documents")
    return _in_order(run, "id", depth)


def read_run(
    path: str | Path, *, depth: int | None = None, ties: str = "id", warn: bool = False
) -> Run:
    """Use it to read a TREC run: six columns separated by any white space.

        run = read_run("bm25.trec", depth=100)
        best = next(iter(run["q1"]))

    The rank column is ignored, as ``trec_eval`` does; documents are ordered by score.

    Args:
        path: the run file.
        depth: keep only this many documents per query, the best ones.
        ties: order of equal scores, one of :data:`backpack_rank.data.run_order.TIES`.
        warn: log when most scores are tied, or when the rank column contradicts them.

    Raises:
        ValueError: wrong number of columns, a score that is no finite number, the same document
            twice for a query (file, line and ids are named), or ``depth`` below 1.
    """
    one_of("ties", ties, TIES)
    whole("depth", depth, 1, null="for all documents")
    run: Run = {}
    ranks: dict[str, list[str]] = {}
    for number, query_id, doc_id, rank, score in run_rows(path):
        scores = run.setdefault(query_id, {})
        if doc_id in scores:
            fail(
                path, number, f"document {doc_id!r} stands twice in the list of query {query_id!r}"
            )
        scores[doc_id] = score
        if warn:
            ranks.setdefault(query_id, []).append(rank)
    if warn:
        warn_of_order(path, run, ranks, ties)
    return _in_order(run, ties, depth)


def _in_order(run: Mapping[str, Mapping[str, float]], ties: str, depth: int | None) -> Run:
    ordered: Run = {}
    for query_id, scores in run.items():
        best = in_order(scores, ties)[:depth]
        ordered[query_id] = {doc_id: scores[doc_id] for doc_id in best}
    return ordered


def run_rows(path: str | Path) -> Iterator[tuple[int, str, str, str, float]]:
    """Use it for a run that does not fit into memory: its lines, one after the other.

    Returns:
        Number of the line, query id, document id, rank and score.

    Raises:
        ValueError: as :func:`read_run`, but a document that stands twice is not noticed.
    """
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != 6:
            fail(
                path,
                number,
                f"expected 6 columns ({RUN_COLUMNS}), got {len(fields)}: {_shorten(line)!r}",
            )
        query_id, _, doc_id, rank, text, _ = fields
        try:
            score = decimal(text)
        except ValueError:
            fail(
                path,
                number,
                f"score of query {query_id!r}, document {doc_id!r} must be finite, got {text!r}",
            )
        yield number, query_id, doc_id, rank, score


def write_run(path: str | Path, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    """Use it to write a TREC run that every tool ranks in the same way.

    >>> write_run("bm25.trec", {"q1": {"d1": 2.5, "d2": 0.5}}, tag="bm25")  # doctest: +SKIP

    Single spaces, sorted by query id, then rank; ranks from 1. Tools break ties differently, so
    written scores are strictly decreasing in float32: a score that is not below its predecessor is
    lowered to the next smaller float32. Nine significant digits are written, so reading gives the
    same float32. The file appears once it is complete; after an error there is none.

    Raises:
        ValueError: a score that is not finite in float32 (query and document are named), or an id
            or tag that is empty or contains white space.
    """
    write_rankings(path, ((query_id, run[query_id]) for query_id in sorted(run)), tag)


def write_rankings(
    path: str | Path, rankings: Iterable[tuple[str, Mapping[str, float]]], tag: str
) -> None:
    """Use it in place of :func:`write_run` where rankings come one at a time, as of a large run.

    Queries are written in the order they come in.
    """
    _check_token(tag, "the tag of a run")
    with atomic_path(path) as temporary, _open_writer(temporary) as handle:
        for query_id, scores in rankings:
            _check_token(query_id, "a query id in a run")
            ranked = ranking(scores)
            values = _decreasing(query_id, ranked, [scores[doc_id] for doc_id in ranked])
            for rank, (doc_id, value) in enumerate(zip(ranked, values, strict=True), start=1):
                _check_token(doc_id, f"a document id of query {query_id!r}")
                handle.write(f"{query_id} Q0 {doc_id} {rank} {value:.9g} {tag}\n")


def read_qrels(path: str | Path) -> Qrels:
    """Use it to read judgements, in one of two forms.

    TREC's has four columns; BEIR's has three, below the header ``query-id corpus-id score``.

    Raises:
        ValueError: no judgement at all, a wrong number of columns, relevance that is no integer, or
            a document judged twice for a query.
    """
    qrels: Qrels = {}
    beir = False
    # Not the line number: blank lines may stand above the header.
    first = True
    for number, line in numbered_lines(path):
        if first:
            first = False
            beir = tuple(line.split()) == BEIR_QRELS_HEADER
            if beir:
                continue
        query_id, doc_id, text = _qrels_fields(path, number, line, beir)
        relevance = _relevance(text)
        if relevance is None:
            fail(
                path,
                number,
                f"relevance of query {query_id!r}, document {doc_id!r} must be an integer, "
                f"got {_shorten(text)!r}",
            )
        judged = qrels.setdefault(query_id, {})
        if doc_id in judged:
            fail(path, number, f"document {doc_id!r} is judged twice for query {query_id!r}")
        judged[doc_id] = relevance
    if not qrels:
        only = ", only a header" if beir else ""
        raise ValueError(f"{path} holds no judgement{only}")
    return qrels


def read_queries(path: str | Path) -> Queries:
    """Use it to read queries: a ``.jsonl`` file as JSON lines, any other as two tab-separated
    columns.
    """
    return read_queries_jsonl(path) if is_jsonl(path) else read_queries_tsv(path)


def read_queries_tsv(path: str | Path) -> Queries:
    """Read ``id<TAB>text``, one query per line.

    Raises:
        ValueError: not two columns, an empty text, an id with white space, or an id that stands
            twice.
    """
    return _unique_queries(path, _tsv_query)


def read_queries_jsonl(path: str | Path) -> Queries:
    """Read BEIR's ``{"_id": ..., "text": ...}``, one query per line; other keys are ignored.

    Raises:
        ValueError: no JSON object, a key that is missing or no string, an empty text, or an id that
            stands twice.
    """
    return _unique_queries(path, _jsonl_query)


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line. The file appears once it is complete."""
    with atomic_path(path) as temporary, _open_writer(temporary) as handle:
        for record in records:
            handle.write(json.dumps(dict(record), ensure_ascii=False) + "\n")


def read_rows(path: str | Path, parse: Callable[[str], Row]) -> Iterator[tuple[int, Row]]:
    """Use it to read a file line by line with a parser that need not know file and line.

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


def read_jsonl(
    path: str | Path, parse: Callable[[dict[str, Any]], Row]
) -> Iterator[tuple[int, Row]]:
    """What ``parse`` makes of the JSON object of every line; see :func:`read_rows`."""
    return read_rows(path, lambda line: parse(json_object(line)))


def json_value(line: str | bytes, what: str = "a JSON object") -> Any:
    """The value of a line of JSON; use it where a key that stands twice must not pass.

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
    """Use it as ``object_pairs_hook`` of :func:`json.loads`, which loses a value without it.

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
    """The JSON object of a line. Raises ``ValueError`` for anything else."""
    record = json_value(line)
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {shortened(record)}")
    return record


def text_under(record: object, key: str, what: str = "") -> str:
    """The string under a key of a JSON object.

    Raises:
        ValueError: there is none, or another type; the sentence begins with ``what``.
    """
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"{what}expected a string under {key!r}, got {shortened(value)}")
    if not value.isascii():
        check_text(value, f"{what}the string under {key!r}")
    return value


def check_text(text: str, what: str) -> None:
    """Raise ``ValueError`` for a text that UTF-8 cannot encode, with half of a surrogate pair;
    ``what`` names the text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds half of a surrogate pair: {error}") from error


def json_record(line: str | bytes) -> dict[str, Any]:
    """The JSON object of one line with the strings ``_id`` and ``text``.

    Raises:
        ValueError: what is wrong with the line, without its place.
    """
    record = json_object(line)
    identifier = text_under(record, "_id")
    text_under(record, "text", f"{identifier!r}: ")
    check_id(identifier)
    return record


def check_id(identifier: str) -> None:
    """Raise ``ValueError`` for an id that is empty or contains white space, because no run file
    could hold it.
    """
    if identifier.split() != [identifier]:
        raise ValueError(f"an id must not be empty or contain white space, got {identifier!r}")
    if not identifier.isascii() and any("\ud800" <= letter <= "\udfff" for letter in identifier):
        raise ValueError(f"an id must not hold half of a surrogate pair, got {identifier!r}")


def refuse_header(fields: Sequence[str]) -> None:
    """Refuse a line that names columns, such as ``qid<TAB>query``: these files begin with data.

    Raises:
        ValueError: it is such a line.
    """
    first, *others = (field.strip().lower() for field in fields)
    if first in _HEADER_IDS and all(field in _HEADER_TEXTS for field in others):
        raise ValueError(
            f"{_shorten(' '.join(fields))!r} looks like a header, and this file has none: "
            "delete the line"
        )


def is_jsonl(path: str | Path) -> bool:
    """Whether the file's name ends as that of JSON lines (``.jsonl``, ``.json``, also ``.gz``)."""
    return Path(path).name.removesuffix(".gz").endswith((".jsonl", ".json"))


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Every line that is not blank with its number from 1, without its end; lines end at ``\\n``
    only.

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
    """Every line as bytes, with its end and its number from 1.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a damaged gzip file, a line too long, or a file that unpacks to too much.
    """
    path = Path(path)
    number = 0
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
    """Number of the first line whose white-space-separated ``column`` (from 0) is this id; for
    error messages.
    """
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) > column and fields[column] == identifier:
            return number
    return None


def _tsv_query(line: str) -> tuple[str, str]:
    fields = line.split("\t")
    if len(fields) != 2:
        raise ValueError(f"expected 2 columns (id<TAB>text), got {len(fields)}: {_shorten(line)!r}")
    check_id(fields[0])
    refuse_header(fields)
    return fields[0], fields[1]


def _jsonl_query(line: str) -> tuple[str, str]:
    record = json_record(line)
    return record["_id"], record["text"]


def _unique_queries(path: str | Path, parse: Callable[[str], tuple[str, str]]) -> Queries:
    queries: Queries = {}
    for number, (query_id, text) in read_rows(path, parse):
        if query_id in queries:
            fail(path, number, f"query id {query_id!r} stands twice")
        if not text.strip():
            fail(path, number, f"the text of query {query_id!r} is empty")
        queries[query_id] = text
    return queries


def _qrels_fields(path: str | Path, number: int, line: str, beir: bool) -> tuple[str, str, str]:
    fields = line.split()
    if beir:
        if len(fields) != 3:
            fail(
                path,
                number,
                f"expected 3 columns ({', '.join(BEIR_QRELS_HEADER)}), got {len(fields)}",
            )
        return fields[0], fields[1], fields[2]
    if len(fields) != 4:
        fail(
            path,
            number,
            f"expected 4 columns ({QRELS_COLUMNS}) or, below the header "
            f"{' '.join(BEIR_QRELS_HEADER)!r}, 3; got {len(fields)}: {_shorten(line)!r}",
        )
    return fields[0], fields[2], fields[3]


def _decreasing(query_id: str, doc_ids: Sequence[str], scores: Sequence[float]) -> list[float]:
    """The scores in float32, each below the previous one; see :func:`write_run`."""
    with np.errstate(over="ignore"):
        values = np.asarray(scores, dtype=np.float64).astype(np.float32)
    values += np.float32(0)  # -0.0 becomes 0.0
    # Most lists have no ties; the slow loop is for those that have.
    if not (np.diff(values) < 0).all():
        for index in range(1, len(values)):
            if values[index] >= values[index - 1]:
                values[index] = np.nextafter(values[index - 1], np.float32(-np.inf))
    not_finite = np.flatnonzero(~np.isfinite(values))
    if len(not_finite):
        first = int(not_finite[0])
        raise ValueError(
            f"the score of query {query_id!r}, document {doc_ids[first]!r} is {scores[first]}, "
            "a run holds finite 32-bit numbers only"
        )
    return [float(value) for value in values]


def _relevance(text: str) -> int | None:
    """The integer, None for what is none or does not fit into the 32 bits of other tools."""
    try:
        relevance = integer(text)
    except ValueError:
        return None
    return relevance if abs(relevance) < 2**31 else None


def _check_token(token: str, what: str) -> None:
    if token.split() != [token]:
        raise ValueError(f"{what} must not be empty or contain white space, got {token!r}")


@contextmanager
def _open_writer(path: Path) -> Iterator[TextIO]:
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


def _shorten(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shortened(value: object) -> str:
    """A value as Python writes it, cut to 80 characters, for the sentence of an error."""
    return _shorten(repr(value))


def fail(path: str | Path, number: int, message: str) -> NoReturn:
    """Raise ``ValueError`` that names the file and the line."""
    raise ValueError(f"{path}, line {number}: {message}")


def run_tag(label: str) -> str:
    """A system's label as the tag and file name of its TREC run.

    A tag has no white space, a file name no slash, and "=" would break ``run=FILE`` on a command
    line.

    >>> run_tag("Backpack alpha=0.5")
    'Backpack-alpha-0.5'
    """
    return re.sub(r"[\s/=]+", "-", label)
