"""First stages: where the candidates come from that a ranker re-ranks.

Each class has a ``name`` (a row label in reports) and ``candidates(collection) -> Run``. Every query of the
collection is a key of the run, in the collection's order; a query without candidates has an empty dictionary.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import bm25s
import numpy as np
import Stemmer
from filelock import FileLock

from backpack_rank.checks import finite, fraction, one_of, whole
from backpack_rank.data.collection import Collection, DocumentStore, Queries, Run, missing_message
from backpack_rank.data.trec import read_run, sorted_run
from backpack_rank.files import atomic_path, cache_dir
from backpack_rank.progress import Progress

# bm25l and bm25+ score documents without any word of the query, so "above zero" would not mean a match.
METHODS = ("lucene", "robertson", "atire")
_SHOW_PROGRESS_FROM = 50_000
_FORMAT = 1
_IDS_FILE = "doc_ids.npy"
_SETTINGS_FILE = "settings.json"


@dataclass(frozen=True)
class Bm25Settings:
    """Everything that decides what an index holds; see :class:`backpack_rank.data.first_stage.Bm25`."""

    k1: float
    b: float
    stemmer: str | None
    stopwords: bool | str
    token_pattern: str
    method: str

    def __post_init__(self) -> None:
        finite("BM25: k1", self.k1, 0)
        fraction("BM25: b", self.b)
        one_of("BM25: method", self.method, METHODS)
        if self.stemmer is not None:
            one_of("BM25: stemmer", self.stemmer, Stemmer.algorithms())
        # An unknown list of stop words or a broken pattern must fail now, not after the corpus was read.
        self.tokenize(["a"])

    def tokenize(self, texts: Iterable[str], show_progress: bool = False) -> bm25s.tokenization.Tokenized:
        """Token ids of each text and the vocabulary, with bm25s's tokenizer."""
        return bm25s.tokenize(
            texts,
            lower=True,
            token_pattern=self.token_pattern,
            stopwords=self.stopwords,
            stemmer=Stemmer.Stemmer(self.stemmer) if self.stemmer else None,
            show_progress=show_progress,
        )


class Bm25Index:
    """A searchable index. Documents are never held: only their ids and the scores of their words."""

    def __init__(self, settings: Bm25Settings, model: bm25s.BM25, doc_ids: np.ndarray) -> None:
        self._settings = settings
        self._model = model
        self._doc_ids = doc_ids

    @classmethod
    def of(cls, documents: DocumentStore, settings: Bm25Settings, *, cache: bool) -> Bm25Index:
        """The index of these documents, from the cache if it is there.

        With ``cache``, the index lies in ``bm25/`` of the cache folder under a key of documents, settings
        and version of bm25s; jobs that need it at the same time wait for the one that builds it, and it is
        read memory-mapped.

        Raises:
            ValueError: no document has a word.
        """
        if not cache:
            return cls._build(documents, settings)
        folder = cache_dir() / "bm25" / _key(documents, settings)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                cls._build(documents, settings)._save(folder)
        model = bm25s.BM25.load(folder, mmap=True)
        return cls(settings, model, np.load(folder / _IDS_FILE, mmap_mode="r"))

    def search(self, queries: Queries, depth: int, threads: int = 1) -> Run:
        """Each query's ``depth`` best documents with a score above zero, ties by ascending document id."""
        if not queries:
            return {}
        tokens = self._settings.tokenize(queries.values())
        words = {token_id: word for word, token_id in tokens.vocab.items()}
        known = self._model.vocab_dict
        ids = [[known[words[token]] for token in query if words[token] in known] for query in tokens.ids]
        with ThreadPoolExecutor(max_workers=threads) as pool:
            found = pool.map(lambda query_ids: self._best(query_ids, depth), ids)
            few = max(len(self._doc_ids), len(ids)) < _SHOW_PROGRESS_FROM
            shown = Progress(found, desc="BM25", total=len(ids), unit="query", disable=few)
            return dict(zip(queries, shown, strict=True))

    def _best(self, query_ids: list[int], depth: int) -> dict[str, float]:
        if not query_ids:
            return {}
        scores = self._model.get_scores_from_ids(query_ids)
        matches = np.flatnonzero(scores > 0)
        if len(matches) > depth:
            # Everything that ties with the last place takes part, so that ids and not chance decide about it.
            values = scores[matches]
            last = np.partition(values, len(values) - depth)[len(values) - depth]
            matches = matches[values >= last]
        found = [(-float(scores[match]), self._doc_ids[match].decode("utf-8")) for match in matches]
        return {doc_id: -negative for negative, doc_id in sorted(found)[:depth]}

    @classmethod
    def _build(cls, documents: DocumentStore, settings: Bm25Settings) -> Bm25Index:
        show = len(documents) >= _SHOW_PROGRESS_FROM
        doc_ids: list[bytes] = []

        def texts() -> Iterable[str]:
            for doc_id, text in documents:
                doc_ids.append(doc_id.encode("utf-8"))
                yield text

        tokens = settings.tokenize(texts(), show_progress=show)
        if not tokens.vocab:
            raise ValueError(
                f"none of the {len(doc_ids)} documents has a word that BM25 could index; check their texts, "
                f"token_pattern ({settings.token_pattern}) and stopwords ({settings.stopwords})"
            )
        model = bm25s.BM25(k1=settings.k1, b=settings.b, method=settings.method)
        # Only bm25s's own retrieve needs an empty token.
        model.index(tokens, create_empty_token=False, show_progress=show)
        return cls(settings, model, np.array(doc_ids, dtype=np.bytes_))

    def _save(self, folder: Path) -> None:
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            self._model.save(temporary)
            np.save(temporary / _IDS_FILE, self._doc_ids)
            settings = json.dumps(asdict(self._settings), indent=2)
            (temporary / _SETTINGS_FILE).write_text(settings, encoding="utf-8")


def _key(documents: DocumentStore, settings: Bm25Settings) -> str:
    parts = [_FORMAT, bm25s.__version__, documents.fingerprint, asdict(settings)]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


class FirstStage(Protocol):
    """Gives the candidates of every query of a collection."""

    name: str

    def candidates(self, collection: Collection) -> Run:
        """At most ``depth`` documents per query, best first, equal scores by ascending document id."""
        ...


class Bm25:
    """BM25 over the whole corpus, with bm25s.

    A document is a candidate if its score is above zero, so it shares a word with the query. A query whose
    words are all unknown to the corpus has no candidates. A word that is twice in the query counts twice, as
    in Lucene.
    """

    def __init__(
        self,
        k1: float = 0.9,
        b: float = 0.4,
        depth: int = 100,
        stemmer: str | None = None,
        stopwords: bool | str = False,
        token_pattern: str = r"(?u)\b\w+\b",
        method: str = "lucene",
        cache: bool = True,
        threads: int = 1,
        name: str = "BM25",
    ) -> None:
        """
        Args:
            k1: saturation of term frequency, >= 0.
            b: strength of length normalisation, in [0, 1].
            depth: candidates per query; a smaller corpus gives fewer.
            stemmer: a Snowball language such as ``english``, or None.
            stopwords: True for bm25s's English list, False for none, or the name of one of its lists.
            token_pattern: what a word is, after lower-casing. One-letter words count ("vitamin d"); in
                bm25s's own default they do not.
            method: ``lucene``, ``robertson`` or ``atire``.
            cache: keep the index on disk, under a key of documents and settings.
            threads: queries searched at the same time.
            name: row label in reports.

        Raises:
            ValueError: an option is out of its range or unknown.
        """
        whole("threads", threads, 1)
        self.depth = checked_depth(depth)
        self.settings = Bm25Settings(k1, b, stemmer, stopwords, token_pattern, method)
        self.cache = cache
        self.threads = threads
        self.name = name

    def candidates(self, collection: Collection) -> Run:
        """Search every query; the index is built, or loaded from the cache.

        Raises:
            ValueError: the collection has no documents, or none with a word.
        """
        if len(collection.documents) == 0:
            raise ValueError(f"collection {collection.name!r} has no documents to search")
        index = Bm25Index.of(collection.documents, self.settings, cache=self.cache)
        return index.search(collection.queries, self.depth, self.threads)


class RunFile:
    """Candidates from a TREC run file, plain or ``.gz``.

    A query that the file leaves out has no candidates.
    """

    def __init__(
        self, path: str | Path, depth: int = 100, name: str = "first stage", other_queries: bool = False
    ) -> None:
        """
        Args:
            path: the run file.
            depth: candidates per query.
            name: row label in reports.
            other_queries: the file may hold queries that the collection has not (other splits, a larger
                query set); they are left out. Otherwise they are an error.
        """
        self.path = Path(path)
        self.depth = checked_depth(depth)
        self.name = name
        self.other_queries = other_queries

    def candidates(self, collection: Collection) -> Run:
        """Read the file and check its ids.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a malformed line; a query or document that the collection has not; no query in common.
        """
        run = read_run(self.path, depth=self.depth)
        strangers = [query_id for query_id in run if query_id not in collection.queries]
        if len(strangers) == len(run):
            raise ValueError(f"{self.path}: no query of the file is in collection {collection.name!r}")
        if strangers and not self.other_queries:
            raise ValueError(
                f"{self.path}: query {strangers[0]!r} is not in collection {collection.name!r} "
                f"({len(strangers)} such queries); with other_queries=true they are left out"
            )
        kept = _for_queries(run, collection, self.depth)
        needed = dict.fromkeys(doc_id for ranking in kept.values() for doc_id in ranking)
        missing = [doc_id for doc_id in needed if doc_id not in collection.documents]
        if missing:
            raise ValueError(f"{self.path}: {missing_message(missing)} {collection.name!r}")
        return kept


class GivenCandidates:
    """What the source of the collection itself gives to re-rank: its scoreddocs or its candidates file."""

    def __init__(self, depth: int = 100, name: str = "first stage") -> None:
        self.depth = checked_depth(depth)
        self.name = name

    def candidates(self, collection: Collection) -> Run:
        """The candidates of the source, cut to ``depth``.

        Raises:
            ValueError: the source gives none.
        """
        if collection.candidates is None:
            raise ValueError(
                f"collection {collection.name!r} comes without candidates; use Bm25 "
                "or RunFile of backpack_rank.data.first_stage, or give the source a candidates file"
            )
        return _for_queries(collection.candidates, collection, self.depth)


def _for_queries(run: Run, collection: Collection, depth: int) -> Run:
    return sorted_run({query_id: run.get(query_id, {}) for query_id in collection.queries}, depth=depth)


def checked_depth(depth: int) -> int:
    """The number of candidates per query. Raises ``ValueError`` unless it is a whole number of at least 1."""
    whole("depth", depth, 1)
    return depth
