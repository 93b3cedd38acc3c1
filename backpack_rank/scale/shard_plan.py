"""A large re-ranking cut into shards: whole queries, balanced by tokens, ids only.

A plan is a folder: ``plan.json`` says what the scores hang on and how large each shard is, ``00000.tsv`` holds the
pairs of the first shard as ``query id<TAB>document id``, sorted. It is there when it is complete.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from backpack_rank.checks import located, whole
from backpack_rank.data.collection import Collection, missing_message
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.trec import run_tag
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, no_space
from backpack_rank.progress import Progress

log = logging.getLogger(__name__)
FORMAT = 1
PLAN, FILE, LOCKS = "plan", "plan.json", "locks"
PAIRS_PER_SHARD = 10_000
SHARDS = 40
"""At least so many where there are so many queries: 20 for each of two workers, so that they end together."""
_ROWS = 4096
_BUFFERED = 200_000
_SAMPLE = 256


@dataclass(frozen=True)
class Shard:
    """Some queries with all their documents.

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
    """What is to be scored.

    Attributes:
        folder: of the re-ranking; the plan lies in ``plan/`` in it.
        fingerprint: everything that the scores hang on, by name.
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
            shards = tuple(Shard(**shard) for shard in content.pop("shards"))
            plan = cls(Path(folder).expanduser(), shards=shards, **{**content, "labels": tuple(content["labels"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error}): give another folder=, or remove this one") from error
        for label in plan.labels:
            # It names a folder of a run: nothing else may, as what wrote the plan may be anybody.
            if not isinstance(label, str) or label != run_tag(label) or label in ("", ".", "..") or "\0" in label:
                raise ValueError(f"{path}: {str(label)[:80]!r} is no label of a run: plan again in another folder=")
        if len(set(plan.labels)) < len(plan.labels):
            raise ValueError(f"{path}: two runs have the same label: plan again in another folder=")
        if version != FORMAT:
            raise ValueError(f"{path} is of format {version}, this version of backpack-rank reads {FORMAT}")
        return plan

    def check(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse to go on with other scores; names everything that differs.

        Raises:
            ValueError: with what was planned and what is there now.
        """
        differing = [
            f"{name} ({_shown(self.fingerprint.get(name))} was planned, now it is {_shown(value)})"
            for name, value in fingerprint.items()
            if self.fingerprint.get(name) != value
        ]
        if differing:
            raise ValueError(
                f"{self.folder} holds the plan of another re-ranking; it differs in {', '.join(differing)}. Give the "
                "options that it was planned with, or another folder="
            )

    def pairs(self, number: int) -> Iterator[tuple[str, str]]:
        """(query id, document id) of a shard, one after the other.

        Raises:
            FileNotFoundError: its file is gone.
            ValueError: its file is not as it was planned.
        """
        path = self.folder / PLAN / _name(number)
        with open(path, "rb") as handle:
            if digest(handle) != self.shards[number].digest:
                raise ValueError(f"{path} is damaged: it is not as it was planned. Plan again in another folder=")
            handle.seek(0)
            for line in handle:
                query_id, _, doc_id = line.decode("utf-8").rstrip("\n").partition("\t")
                yield query_id, doc_id

    def __len__(self) -> int:
        return len(self.shards)


@dataclass(frozen=True)
class Candidates:
    """Pairs to score, which are read twice.

    Attributes:
        name: of the run, for errors.
        rows: gives (query id, document id) of all pairs, in the same order each time.
        digest: of the run.
        total: how many there are, where that is known.
    """

    name: str
    rows: Callable[[], Iterable[tuple[str, str]]]
    digest: str
    total: int | None = None


@dataclass(frozen=True)
class Sharding:
    """How many shards: their number, or how many pairs each has; with neither about 10,000 pairs, and 40 at least."""

    shards: int | None = None
    pairs_per_shard: int | None = None

    def __post_init__(self) -> None:
        if self.shards is not None and self.pairs_per_shard is not None:
            raise ValueError(
                f"shards={self.shards} and pairs_per_shard={self.pairs_per_shard} say the same twice: leave one out"
            )
        for name, value in asdict(self).items():
            if value is not None:
                whole(name, value, 1, ", or null")

    def number(self, pairs: int) -> int:
        """Shards of so many pairs."""
        if self.shards is not None:
            return self.shards
        return math.ceil(pairs / (self.pairs_per_shard or PAIRS_PER_SHARD)) if pairs else 1


@dataclass
class _Size:
    """Pairs and tokens of a query."""

    query_tokens: int
    pairs: int = 0
    tokens: float = 0.0


@dataclass
class _Buckets:
    """Files that rows are appended to, a few hundred thousand at a time, so that few are open and little is held."""

    folder: Path
    rows: dict[int, list[str]] = field(default_factory=dict)
    held: int = 0

    def add(self, number: int, row: str) -> None:
        self.rows.setdefault(number, []).append(row)
        self.held += 1
        if self.held >= _BUFFERED:
            self.flush()

    def flush(self) -> None:
        for number, rows in self.rows.items():
            with open(self.folder / _name(number), "a", encoding="utf-8", newline="\n") as handle:
                handle.writelines(rows)
        self.rows, self.held = {}, 0


def make_plan(
    folder: str | Path,
    candidates: Candidates,
    collection: Collection,
    pair_tokenizer: PairTokenizer,
    fingerprint: Mapping[str, Any],
    labels: tuple[str, ...],
    *,
    sharding: Sharding | None = None,
    about: Mapping[str, str] | None = None,
) -> Plan:
    """Cut candidates into shards, or give the plan that the folder has already.

    Memory holds one line for each query and one shard. Tokens are estimated from characters: reading them exactly would
    tokenise every document once more.

    Args:
        folder: of the re-ranking.
        candidates: of the collection's queries.
        collection: texts.
        pair_tokenizer: of the ranker.
        fingerprint: what the scores hang on, beside the candidates.
        labels: of the rankings.
        sharding: how many shards.
        about: what else is known, for people.

    Raises:
        ValueError: the folder's plan is another one; a document that stands twice for a query or that the collection
            does not have; a query that is empty or too long; no query of the collection.
    """
    folder, sharding = Path(folder).expanduser(), sharding or Sharding()
    fingerprint = {**fingerprint, "candidates": candidates.digest}
    (folder / LOCKS).mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCKS / "plan.lock"):
        for leftover in folder.glob(f".{PLAN}.*"):  # of a process that was killed while it planned, or right after
            shutil.rmtree(leftover, ignore_errors=True)
        if (folder / PLAN).exists():
            return _known(folder, fingerprint, sharding)
        sizes = _sizes(candidates, collection, pair_tokenizer)
        number = sharding.number(sum(size.pairs for size in sizes.values()))
        if sharding == Sharding():
            number = max(number, min(SHARDS, len(sizes)))
        shard_of = _balanced({query_id: sizes[query_id].tokens for query_id in sorted(sizes)}, number)
        with room_for(folder / PLAN, "the plan"), atomic_path(folder / PLAN) as temporary:
            temporary.mkdir()
            shards = _write_pairs(temporary, candidates, sizes, shard_of)
            content = {
                "format": FORMAT,
                "fingerprint": fingerprint,
                "labels": labels,
                "about": dict(about or {}),
                "shards": [asdict(shard) for shard in shards],
            }
            (temporary / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return Plan.read(folder)


@contextmanager
def room_for(path: Path, what: str) -> Iterator[None]:
    """A full disk is said in a sentence."""
    try:
        yield
    except OSError as error:
        if no_space(error) is None:
            raise
        raise OSError(
            f"{path}: no room for {what} ({error.strerror}). What is scored is kept: make room and give the same "
            "command again"
        ) from error


def _known(folder: Path, fingerprint: Mapping[str, Any], sharding: Sharding) -> Plan:
    plan = Plan.read(folder)
    plan.check(fingerprint)
    if sharding.shards not in (None, len(plan)) or sharding.pairs_per_shard is not None:
        log.warning("%s is planned already, in %d shards: shards and pairs_per_shard change nothing", folder, len(plan))
    return plan


def _sizes(candidates: Candidates, collection: Collection, pair_tokenizer: PairTokenizer) -> dict[str, _Size]:
    """Pairs and tokens of every query that is in the collection."""
    sizes: dict[str, _Size] = {}
    strangers: set[str] = set()
    per_token = 0.0
    rows = iter(candidates.rows())
    with Progress(total=candidates.total, desc="planning", unit="pair") as bar:
        while chunk := list(islice(rows, _ROWS)):
            bar.update(len(chunk))
            strangers |= {query_id for query_id, _ in chunk if query_id not in collection.queries}
            known = [row for row in chunk if row[0] not in strangers]
            texts = _texts(candidates, collection, [doc_id for _, doc_id in known])
            per_token = per_token or _characters_per_token(pair_tokenizer, list(texts.values())[:_SAMPLE])
            for query_id, doc_id in known:
                size = sizes.get(query_id)
                if size is None:
                    with located(f"query {query_id} of {collection.name}"):
                        tokens = len(pair_tokenizer.encode_query(collection.queries[query_id]))
                    size = sizes[query_id] = _Size(tokens)
                size.pairs += 1
                size.tokens += min(pair_tokenizer.max_length, size.query_tokens + len(texts[doc_id]) / per_token)
    if not sizes:
        raise ValueError(
            f"{candidates.name}: none of its {len(strangers)} queries is in {collection.name}; "
            "is data= the collection that it ranks?"
        )
    if strangers:
        log.warning("%s: left out, as not in %s: %d queries", candidates.name, collection.name, len(strangers))
    return sizes


def _texts(candidates: Candidates, collection: Collection, doc_ids: list[str]) -> dict[str, str]:
    try:
        return collection.documents.get_many(dict.fromkeys(doc_ids))
    except KeyError:
        missing = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in collection.documents]
        raise ValueError(
            f"{candidates.name}: {missing_message(missing)} {collection.name}; is data= the collection that it ranks?"
        ) from None


def _characters_per_token(pair_tokenizer: PairTokenizer, texts: list[str]) -> float:
    read = pair_tokenizer.beginnings(texts)
    tokens = sum(len(one.ids) for one in read)
    return max(sum(len(one.text) for one in read) / tokens, 0.1) if tokens else 4.0


def _balanced(tokens: Mapping[str, float], number: int) -> dict[str, int]:
    """Neighbouring queries in shards of about equal size: the one in which the middle of a query's tokens falls."""
    total, before = sum(tokens.values()), 0.0
    wanted = {}
    for query_id, own in tokens.items():
        wanted[query_id] = min(number - 1, int((before + own / 2) / total * number)) if total else 0
        before += own
    numbers = {old: new for new, old in enumerate(sorted(set(wanted.values())))}  # large queries leave gaps
    return {query_id: numbers[shard] for query_id, shard in wanted.items()}


def _write_pairs(
    folder: Path, candidates: Candidates, sizes: Mapping[str, _Size], shard_of: Mapping[str, int]
) -> list[Shard]:
    buckets = _Buckets(folder)
    for query_id, doc_id in candidates.rows():
        if query_id in shard_of:
            buckets.add(shard_of[query_id], f"{query_id}\t{doc_id}\n")
    buckets.flush()
    queries: dict[int, list[_Size]] = {}
    for query_id, shard in shard_of.items():
        queries.setdefault(shard, []).append(sizes[query_id])
    shards = []
    for number, own in queries.items():
        pairs = _sorted(folder / _name(number), candidates.name)
        data = "".join(f"{query_id}\t{doc_id}\n" for query_id, doc_id in pairs).encode()
        (folder / _name(number)).write_bytes(data)
        shards.append(Shard(len(own), len(pairs), round(sum(size.tokens for size in own)), digest(data)))
    return shards


def _sorted(path: Path, name: str) -> list[tuple[str, str]]:
    """The pairs of a file, by query, then document. Raises ``ValueError`` for one that stands twice."""
    rows = (line.partition("\t") for line in path.read_text(encoding="utf-8").split("\n") if line)
    pairs = sorted((query_id, doc_id) for query_id, _, doc_id in rows)
    for (query_id, doc_id), same in groupby(pairs):
        if len(list(same)) > 1:
            raise ValueError(f"{name}: document {doc_id!r} stands twice in the list of query {query_id!r}")
    return pairs


def _name(number: int) -> str:
    return f"{number:05d}.tsv"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
