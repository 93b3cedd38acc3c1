"""A large re-ranking cut into shards of about equal size, between queries; a plan holds ids only.

A plan is a folder: ``plan.json`` says what the scores depend on and how large each shard is,
``00000.tsv`` holds the pairs of the first shard as ``query id<TAB>document id``, sorted. The folder
appears once it is complete.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from backpack_rank.checks import located, whole_number
from backpack_rank.data.collection import Collection, missing_message
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.trec import run_tag
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, no_space
from backpack_rank.progress import Progress

log = logging.getLogger(__name__)
FORMAT = 2
PLAN, FILE, LOCKS = "plan", "plan.json", "locks"
PAIRS_PER_SHARD = 10_000
SHARDS = 40
"""Shards at least, where there are as many queries: 20 for each of two workers, so that workers end
at about the same time.
"""
POLICY_DIGEST = "what the policy does"
"""Name in a fingerprint of the digest of a policy at all alphas."""
_ROWS = 4096
"""Pairs whose texts are fetched together."""
_SAMPLE = 256
"""Texts that are tokenised to estimate the characters per token of all."""
_CHARACTERS = 4.0
"""Of a token of English prose, about."""


@dataclass(frozen=True)
class Shard:
    """The size of a shard, which has some queries with all their documents.

    Attributes:
        queries, pairs: how many.
        tokens: of its texts, estimated from their characters.
        digest: of its pairs.
    """

    queries: int
    pairs: int
    tokens: int
    digest: str


@dataclass(frozen=True)
class Plan:
    """What is to be scored: :func:`make_plan` writes it, every worker reads it.

        plan = Plan.read("outputs/rerank/bm25.trec")
        plan.check(sweep.fingerprint(collection))
        next(plan.pairs(0))  # ("q1", "d17")

    Attributes:
        folder: of the re-ranking; the plan lies in ``plan/`` in it.
        fingerprint: everything that the scores depend on, by name.
        labels: of the rankings, one for each alpha.
        about: what else is known of the re-ranking, for people.
        shards: by number.
    """

    folder: Path
    fingerprint: Mapping[str, Any]
    labels: tuple[str, ...]
    about: Mapping[str, str]
    shards: tuple[Shard, ...]

    @classmethod
    def read(cls, folder: str | Path) -> Plan:
        """The plan of a folder.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is damaged, or of another version.
        """
        path = Path(folder).expanduser() / PLAN / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: nothing is planned there; begin with action=plan or action=all"
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            version = content.pop("format")
            listed = content.pop("shards")
            whole = content.pop("digest of the shards", None)
            shards = tuple(Shard(**shard) for shard in listed)
            labels = tuple(content.pop("labels"))
            plan = cls(Path(folder).expanduser(), labels=labels, shards=shards, **content)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} is damaged ({error}): give another folder=, or remove this one"
            ) from error
        for label in plan.labels:
            if not _is_label(label):
                raise ValueError(
                    f"{path}: {str(label)[:80]!r} is no label of a run: "
                    "plan again in another folder="
                )
        if len(set(plan.labels)) < len(plan.labels):
            raise ValueError(f"{path}: two runs have the same label: plan again in another folder=")
        # A plan that lost a shard would give whole runs of fewer queries.
        if version == FORMAT and whole != digest(json.dumps(listed)):
            raise ValueError(
                f"{path} is damaged: its list of shards is not as it was planned. Plan again in "
                "another folder="
            )
        if version != FORMAT:
            raise ValueError(
                f"{path} is of format {version}, this version of backpack-rank reads {FORMAT}"
            )
        return plan

    def check(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse to go on with other scores; names everything that differs.

        Raises:
            ValueError: with what was planned and what is there now.
        """
        differing = {}
        for name, value in fingerprint.items():
            planned = self.fingerprint.get(name)
            if planned != value:
                differing[name] = (
                    f"{name} ({_shortened(planned)} was planned, now it is {_shortened(value)})"
                )
        if differing.keys() & {"alpha", "policy"}:
            # It differs with them, and two digests would say no more.
            differing.pop(POLICY_DIGEST, None)
        if differing:
            raise ValueError(
                f"{self.folder} holds the plan of another re-ranking; it differs in "
                f"{', '.join(differing.values())}. Give the options that it was planned with, or "
                "another folder="
            )

    def pairs(self, number: int) -> Iterator[tuple[str, str]]:
        """(query id, document id) of a shard, one after the other.

        Raises:
            FileNotFoundError: its file is gone.
            ValueError: its file is not as it was planned.
        """
        path = self.folder / PLAN / pair_file(number)
        with open(path, "rb") as handle:
            if digest(handle) != self.shards[number].digest:
                raise ValueError(
                    f"{path} is damaged: it is not as it was planned. Plan again in another folder="
                )
            handle.seek(0)
            for line in handle:
                query_id, _, doc_id = line.decode("utf-8").rstrip("\n").partition("\t")
                yield query_id, doc_id

    def __len__(self) -> int:
        return len(self.shards)


@dataclass(frozen=True)
class Candidates:
    """The pairs of a plan, which need not fit into memory.

        Candidates("bm25.trec", lambda: [("q1", "d1"), ("q1", "d2")], digest="5f1c")

    Attributes:
        name: of the run, for errors.
        rows: gives (query id, document id) of all pairs, in any order.
        digest: of the run.
        total: how many there are, where that is known.
    """

    name: str
    rows: Callable[[], Iterable[tuple[str, str]]]
    digest: str
    total: int | None = None


class Sharding:
    """Says how many shards a plan has: their number, or the pairs of each.

    >>> Sharding(pairs_per_shard=100).number(pairs=250, queries=20)
    3

    With neither, a shard has about 10,000 pairs, and there are 40 shards at least.
    """

    def __init__(self, shards: int | None = None, pairs_per_shard: int | None = None) -> None:
        """
        Args:
            shards: their number, or None.
            pairs_per_shard: pairs of each, or None.

        Raises:
            ValueError: both are given, or one is no whole number of at least 1.
        """
        if shards is not None and pairs_per_shard is not None:
            raise ValueError(
                f"shards={shards} and pairs_per_shard={pairs_per_shard} say the same "
                "twice: leave one out"
            )
        for name, value in (("shards", shards), ("pairs_per_shard", pairs_per_shard)):
            if value is not None:
                whole_number(name, value, 1, ", or null")
        self.shards = shards
        self.pairs_per_shard = pairs_per_shard

    def number(self, pairs: int, queries: int) -> int:
        """Shards of so many pairs and queries."""
        if self.shards is not None:
            return self.shards
        number = max(1, math.ceil(pairs / (self.pairs_per_shard or PAIRS_PER_SHARD)))
        if self.pairs_per_shard is not None:
            return number
        # Unless the user chose: enough shards for workers to end together, but no more than
        # queries, because a query is never cut.
        return max(number, min(SHARDS, queries))


class _Size:
    """Pairs and tokens of a query."""

    def __init__(self, query_tokens: int) -> None:
        self.query_tokens = query_tokens
        self.pairs = 0
        self.tokens = 0.0


def make_plan(
    folder: str | Path,
    candidates: Candidates,
    collection: Collection,
    pair_tokenizer: PairTokenizer | None,
    fingerprint: Mapping[str, Any],
    labels: tuple[str, ...],
    *,
    sharding: Sharding | None = None,
    about: Mapping[str, str] | None = None,
    long_documents: LongDocuments = CUT,
) -> Plan:
    """Cut candidates into shards, or get the plan that the folder has already.

        plan = make_plan(
            folder, candidates, collection, sweep.pair_tokenizer,
            sweep.fingerprint(collection), sweep.labels,
        )

    Memory holds one line for each query; pairs are sorted in a table on disk. Tokens are estimated
    from characters: reading them exactly would tokenise every document once more.

    Args:
        folder: of the re-ranking.
        candidates: of the collection's queries.
        collection: texts.
        pair_tokenizer: of the ranker; None: its tokens are a server's, and estimated too.
        fingerprint: what the scores depend on, beside the candidates.
        labels: of the rankings.
        sharding: how many shards.
        about: what else is known, for people.
        long_documents: how they are read, for the estimate.

    Raises:
        ValueError: the folder's plan is another one; a document that stands twice for a query or
            that the collection does not have; a query that is empty or too long; no query of the
            collection.
    """
    folder = Path(folder).expanduser()
    sharding = sharding or Sharding()
    fingerprint = {**fingerprint, "candidates": candidates.digest}
    (folder / LOCKS).mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCKS / "plan.lock"):
        # Left by a process that was killed while it planned. This process holds the lock, so no
        # other one can be writing them.
        for leftover in folder.glob(f".{PLAN}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if (folder / PLAN).exists():
            return _existing_plan(folder, fingerprint, sharding)
        with (
            room_for(folder / PLAN, "the plan"),
            _pair_table(folder) as table,
            atomic_path(folder / PLAN) as temporary,
        ):
            sizes = _read_candidates(table, candidates, collection, pair_tokenizer, long_documents)
            pairs = sum(size.pairs for size in sizes.values())
            number = sharding.number(pairs, queries=len(sizes))
            tokens = {query_id: sizes[query_id].tokens for query_id in sorted(sizes)}
            temporary.mkdir()
            shards = _write_shards(temporary, table, sizes, _balanced(tokens, number))
            listed = [asdict(shard) for shard in shards]
            content = {
                "format": FORMAT,
                "fingerprint": fingerprint,
                "labels": labels,
                "about": dict(about or {}),
                "shards": listed,
                "digest of the shards": digest(json.dumps(listed)),
            }
            (temporary / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return Plan.read(folder)


@contextmanager
def room_for(path: Path, what: str) -> Iterator[None]:
    """Around what is written: the error of a full disk becomes a sentence with advice.

        with room_for(path, "the run"):
            write_run(path, run, "bm25")

    Other errors pass unchanged.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        number = no_space(error)
        if number is None:
            raise
        raise OSError(
            f"{path}: no room for {what} ({os.strerror(number)}). What is scored is kept: make "
            "room and give the same command again"
        ) from error


def _is_label(label: object) -> bool:
    """Whether a label of a plan may become the name of a folder.

    A plan may come from anybody, and a label such as ".." would write outside its folder.
    """
    if not isinstance(label, str) or label in ("", ".", ".."):
        return False
    return label == run_tag(label) and "\0" not in label


@contextmanager
def _pair_table(folder: Path) -> Iterator[sqlite3.Connection]:
    """A table of pairs that sorts itself, in a file that goes with the block."""
    with (
        tempfile.TemporaryDirectory(prefix=f".{PLAN}.", dir=folder) as scratch,
        closing(sqlite3.connect(Path(scratch) / "pairs.sqlite", isolation_level=None)) as table,
    ):
        # Nobody needs the file after a crash, so SQLite keeps no journal and waits for no disk.
        table.execute("PRAGMA journal_mode = OFF")
        table.execute("PRAGMA synchronous = OFF")
        # Text is compared by its UTF-8, which is the order of code points: that of sorted() in
        # Python.
        table.execute(
            "CREATE TABLE pairs (query TEXT, document TEXT, PRIMARY KEY (query, document)) "
            "WITHOUT ROWID"
        )
        table.execute("BEGIN")  # one transaction: each row as its own is five times as slow
        yield table


def _existing_plan(folder: Path, fingerprint: Mapping[str, Any], sharding: Sharding) -> Plan:
    plan = Plan.read(folder)
    plan.check(fingerprint)
    if sharding.shards not in (None, len(plan)) or sharding.pairs_per_shard is not None:
        log.warning(
            "%s is planned already, in %d shards: shards and pairs_per_shard change nothing",
            folder,
            len(plan),
        )
    return plan


def _read_candidates(
    table: sqlite3.Connection,
    candidates: Candidates,
    collection: Collection,
    pair_tokenizer: PairTokenizer | None,
    long_documents: LongDocuments,
) -> dict[str, _Size]:
    """Fill the table; gives pairs and tokens of every query that is in the collection."""
    sizes: dict[str, _Size] = {}
    unknown_queries: set[str] = set()
    per_token = 0.0
    most_tokens = sys.maxsize if pair_tokenizer is None else pair_tokenizer.max_length
    rows = iter(candidates.rows())
    with Progress(total=candidates.total, desc="planning", unit="pair") as bar:
        while chunk := list(islice(rows, _ROWS)):
            bar.update(len(chunk))
            known = []
            for query_id, doc_id in chunk:
                if query_id in collection.queries:
                    known.append((query_id, doc_id))
                else:
                    unknown_queries.add(query_id)
            _insert(table, known, candidates.name)
            texts = _texts(candidates, collection, [doc_id for _, doc_id in known])
            # Estimated once, from the first texts.
            per_token = per_token or _characters_per_token(
                pair_tokenizer, list(texts.values())[:_SAMPLE]
            )
            for query_id, doc_id in known:
                size = sizes.get(query_id)
                if size is None:
                    with located(f"query {query_id} of {collection.name}"):
                        size = _Size(_query_tokens(pair_tokenizer, collection.queries[query_id]))
                    sizes[query_id] = size
                size.pairs += 1
                size.tokens += long_documents.estimated_tokens(
                    size.query_tokens, len(texts[doc_id]) / per_token, most_tokens
                )
    if not sizes:
        raise ValueError(
            f"{candidates.name}: none of its {len(unknown_queries)} queries is in "
            f"{collection.name}; is data= the collection that it ranks?"
        )
    if unknown_queries:
        log.warning(
            "%s: left out, as not in %s: %d queries",
            candidates.name,
            collection.name,
            len(unknown_queries),
        )
    return sizes


def _texts(candidates: Candidates, collection: Collection, doc_ids: list[str]) -> dict[str, str]:
    distinct_ids = dict.fromkeys(doc_ids)
    try:
        return collection.documents.get_many(distinct_ids)
    except KeyError:
        missing = [doc_id for doc_id in distinct_ids if doc_id not in collection.documents]
        raise ValueError(
            f"{candidates.name}: {missing_message(missing)} {collection.name}; is data= the "
            "collection that it ranks?"
        ) from None


def _query_tokens(pair_tokenizer: PairTokenizer | None, query: str) -> int:
    if pair_tokenizer is None:
        if not query.strip():
            raise ValueError("the query is empty")
        return math.ceil(len(query) / _CHARACTERS)
    return len(pair_tokenizer.encode_query(query))


def _characters_per_token(pair_tokenizer: PairTokenizer | None, texts: list[str]) -> float:
    if pair_tokenizer is None:
        return _CHARACTERS
    # Only beginnings are tokenised, so their characters are counted and not those of the texts.
    tokens = characters = 0
    for beginning in pair_tokenizer.beginnings(texts):
        tokens += len(beginning.ids)
        characters += len(beginning.text)
    if not tokens:
        return _CHARACTERS
    return max(characters / tokens, 0.1)


def _balanced(tokens: Mapping[str, float], number: int) -> dict[str, int]:
    """The shard of each query: neighbours together, shards of about equal size.

    All tokens, in the order of the queries, are cut into ``number`` equal stretches. A query goes
    to the stretch in which the middle of its tokens lies.
    """
    total = sum(tokens.values())
    tokens_before = 0.0
    shard_by_query: dict[str, int] = {}
    # A query that is larger than a stretch leaves stretches without a query, so shards are
    # numbered as they come: the stretch of a query is never before that of an earlier query.
    shard_by_stretch: dict[int, int] = {}
    for query_id, tokens_of_query in tokens.items():
        middle = tokens_before + tokens_of_query / 2
        stretch = min(number - 1, int(middle / total * number)) if total else 0
        shard_by_query[query_id] = shard_by_stretch.setdefault(stretch, len(shard_by_stretch))
        tokens_before += tokens_of_query
    return shard_by_query


def _write_shards(
    folder: Path, table: sqlite3.Connection, sizes: Mapping[str, _Size], shard_of: Mapping[str, int]
) -> list[Shard]:
    """Write a file for each shard.

    Queries of a shard are neighbours in the order of the table, so the table is read once.
    """
    queries_of_shard: dict[int, list[str]] = {}
    for query_id, number in shard_of.items():
        queries_of_shard.setdefault(number, []).append(query_id)

    rows = table.execute("SELECT query, document FROM pairs ORDER BY query, document")
    shards = []
    for number, query_ids in queries_of_shard.items():
        pairs = 0
        tokens = 0.0
        for query_id in query_ids:
            pairs += sizes[query_id].pairs
            tokens += sizes[query_id].tokens
        lines = [f"{query_id}\t{doc_id}\n" for query_id, doc_id in islice(rows, pairs)]
        data = "".join(lines).encode()
        (folder / pair_file(number)).write_bytes(data)
        shards.append(Shard(len(query_ids), pairs, round(tokens), digest(data)))
    return shards


def _insert(table: sqlite3.Connection, pairs: list[tuple[str, str]], name: str) -> None:
    """Add pairs to the table. Raises ``ValueError`` for one that is there."""
    before = table.total_changes
    try:
        table.executemany("INSERT INTO pairs VALUES (?, ?)", pairs)
    except sqlite3.IntegrityError:
        # Rows before the refused one were inserted, so their number is its index.
        query_id, doc_id = pairs[table.total_changes - before]
        raise ValueError(
            f"{name}: document {doc_id!r} stands twice in the list of query {query_id!r}"
        ) from None


def pair_file(number: int) -> str:
    return f"{number:05d}.tsv"


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
