"""Readers and writers of TREC runs and of judgements (qrels).

Every reader checks what it reads; an error names the file, the line and the id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from backpack_rank.checks import decimal, integer, one_of, whole_number
from backpack_rank.data.collection import Qrels, Run
from backpack_rank.data.run_order import TIES, in_order, warn_of_order
from backpack_rank.data.text_files import check_id, cut_text, fail, numbered_lines, open_writer
from backpack_rank.files import atomic_path

BEIR_QRELS_HEADER = ("query-id", "corpus-id", "score")
LARGEST_SCORE = float(np.finfo(np.float32).max)
RUN_COLUMNS = "query id, Q0, document id, rank, score, tag"
QRELS_COLUMNS = "query id, iteration, document id, relevance"


def ranking(scores: Mapping[str, float]) -> list[str]:
    """Rank one query's documents: ids from best to worst, equal scores by ascending id.

    >>> ranking({"d2": 0.5, "d3": 0.9, "d1": 0.5})
    ['d3', 'd1', 'd2']
    """
    return in_order(scores)


def sorted_run(run: Mapping[str, Mapping[str, float]], *, depth: int | None = None) -> Run:
    """Order a run made in memory: best document first, cut after ``depth``.

    >>> sorted_run({"q": {"d1": 0.5, "d2": 0.9, "d3": 0.5}}, depth=2)
    {'q': {'d2': 0.9, 'd1': 0.5}}

    Raises:
        ValueError: ``depth`` is below 1.
    """
    whole_number("depth", depth, 1, null="for all documents")
    return _in_order(run, "id", depth)


def read_run(
    path: str | Path, *, depth: int | None = None, ties: str = "id", warn: bool = False
) -> Run:
    """Read a TREC run: six columns separated by any white space.

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
    whole_number("depth", depth, 1, null="for all documents")
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
    """A run that does not fit into memory: its lines, one after the other.

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
                f"expected 6 columns ({RUN_COLUMNS}), got {len(fields)}: {cut_text(line)!r}",
            )
        query_id, _, doc_id, rank, text, _ = fields
        try:
            score = decimal(text)
            if abs(score) > LARGEST_SCORE:
                raise ValueError
        except ValueError:
            fail(
                path,
                number,
                f"score of query {query_id!r}, document {doc_id!r} must be finite in 32 bits, as "
                f"trec_eval reads it, got {text!r}",
            )
        yield number, query_id, doc_id, rank, score


def write_run(path: str | Path, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    """Write a TREC run that every tool ranks in the same way.

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
    """In place of :func:`write_run` where rankings come one at a time, as of a large run.

    Queries are written in the order they come in.
    """
    check_id(tag, "the tag of a run")
    with atomic_path(path) as temporary, open_writer(temporary) as handle:
        for query_id, scores in rankings:
            check_id(query_id, "a query id in a run")
            ranked = ranking(scores)
            values = _decreasing(query_id, ranked, [scores[doc_id] for doc_id in ranked])
            for rank, (doc_id, value) in enumerate(zip(ranked, values, strict=True), start=1):
                check_id(doc_id, f"a document id of query {query_id!r}")
                handle.write(f"{query_id} Q0 {doc_id} {rank} {value:.9g} {tag}\n")


def read_qrels(path: str | Path) -> Qrels:
    """Read judgements, in one of two forms.

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
                f"got {cut_text(text)!r}",
            )
        judged = qrels.setdefault(query_id, {})
        if doc_id in judged:
            fail(path, number, f"document {doc_id!r} is judged twice for query {query_id!r}")
        judged[doc_id] = relevance
    if not qrels:
        only = ", only a header" if beir else ""
        raise ValueError(f"{path} holds no judgement{only}")
    return qrels


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
            f"{' '.join(BEIR_QRELS_HEADER)!r}, 3; got {len(fields)}: {cut_text(line)!r}",
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


def run_tag(label: str) -> str:
    """Turn a system's label into the tag and file name of its TREC run.

    A tag has no white space, a file name no slash, and "=" would break ``run=FILE`` on a command
    line.

    >>> run_tag("Backpack alpha=0.5")
    'Backpack-alpha-0.5'
    """
    return re.sub(r"[\s/=]+", "-", label)
