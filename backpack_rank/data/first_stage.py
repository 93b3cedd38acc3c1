"""First stages: where the candidates come from that a ranker re-ranks.

Each class has a ``name`` (a row label in reports) and ``candidates(collection) -> Run``. Every
query of the collection is a key of the run, in the collection's order; a query without candidates
has an empty dictionary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Protocol

from backpack_rank.checks import above, whole_number
from backpack_rank.constructors import (
    Count,
    FilePath,
    Length,
    Name,
    NonNegative,
    OneOf,
    Positive,
    Range,
    Share,
)
from backpack_rank.data.collection import Collection, Run, missing_message
from backpack_rank.data.trec import read_run, sorted_run


class FirstStage(Protocol):
    """Implement it for another retriever: the candidates of every query of a collection.

    :class:`GivenCandidates` is the shortest example.
    """

    name: str

    def candidates(self, collection: Collection) -> Run:
        """Up to ``depth`` documents per query, best first, equal scores by ascending id."""
        ...


class Bm25:
    """Retrieves candidates from the complete corpus by BM25, with bm25s.

        candidates = Bm25(depth=100).candidates(collection)

    The defaults are those that BM25's published figures on English collections stand on: Porter's
    stemmer and the 33 stop words of Lucene's English analyser, with Anserini's k1 and b.
    ``stemmer=None, stopwords=False`` takes words unchanged. Other languages need others, such as
    ``stemmer="german", stopwords="german"``.

    A document is a candidate if its score is above zero, so it shares a word with the query. A
    query whose words are all unknown to the corpus has no candidates. A word that is twice in the
    query counts twice, as in Lucene.
    """

    def __init__(
        self,
        k1: NonNegative = 0.9,
        b: Share = 0.4,
        depth: Count = 100,
        stemmer: Name | None = "porter",
        stopwords: bool | Name = True,
        token_pattern: Annotated[str, Length(1, 1000)] = r"(?u)\b\w+\b",
        method: Annotated[str, OneOf(("lucene", "robertson", "atire"))] = "lucene",
        cache: bool = True,
        threads: Annotated[int, Range(least=1, most=1024)] = 1,
        max_gb: Positive = 2.0,
        name: Name = "BM25",
    ) -> None:
        """
        Args:
            k1: saturation of term frequency, >= 0.
            b: strength of length normalisation, in [0, 1].
            depth: candidates per query; a smaller corpus gives fewer.
            stemmer: ``porter``, a Snowball language such as ``german`` (``english`` is Porter's
                second), or None.
            stopwords: True for Lucene's English list, False for none, or the name of one of bm25s's
                lists.
            token_pattern: what a word is, after lower-casing. One-letter words count ("vitamin d");
                in bm25s's own default they do not.
            method: ``lucene``, ``robertson`` or ``atire``.
            cache: keep the index on disk, under a key of documents and settings.
            threads: queries searched at the same time.
            max_gb: memory that building the index may take, beside the vocabulary.
            name: row label in reports.

        Raises:
            ValueError: an option is out of its range or unknown.
        """
        whole_number("threads", threads, 1)
        above("max_gb", max_gb, 0)
        # Imported here: other candidates need nothing of bm25s.
        from backpack_rank.data.bm25_index import Bm25Settings

        self.depth = checked_depth(depth)
        self.settings = Bm25Settings(k1, b, stemmer, stopwords, token_pattern, method)
        self.cache = cache
        self.threads = threads
        self.max_gb = max_gb
        self.name = name

    def candidates(self, collection: Collection) -> Run:
        """Search every query; the index is built, or loaded from the cache.

        Raises:
            ValueError: the collection has no documents, or none with a word.
        """
        if len(collection.documents) == 0:
            raise ValueError(f"collection {collection.name!r} has no documents to search")
        from backpack_rank.data.bm25_index import Bm25Index

        index = Bm25Index.of(
            collection.documents, self.settings, cache=self.cache, max_gb=self.max_gb
        )
        return index.search(collection.queries, self.depth, self.threads)


class RunFile:
    """Re-ranks the candidates of a TREC run file, plain or ``.gz``.

        candidates = RunFile("bm25.trec", depth=100).candidates(collection)

    A query that the file leaves out has no candidates.
    """

    def __init__(
        self,
        path: FilePath,
        depth: Count = 100,
        name: Name = "first stage",
        other_queries: bool = False,
    ) -> None:
        """
        Args:
            path: the run file.
            depth: candidates per query.
            name: row label in reports.
            other_queries: the file may hold queries that the collection has not (other splits, a
                larger query set); they are left out. Otherwise they are an error.
        """
        self.path = Path(path)
        self.depth = checked_depth(depth)
        self.name = name
        self.other_queries = other_queries

    def candidates(self, collection: Collection) -> Run:
        """Read the file and check its ids.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a malformed line; a query or document that the collection has not; no query
                in common.
        """
        run = read_run(self.path, depth=self.depth)
        unknown = [query_id for query_id in run if query_id not in collection.queries]
        if len(unknown) == len(run):
            raise ValueError(
                f"{self.path}: no query of the file is in collection {collection.name!r}"
            )
        if unknown and not self.other_queries:
            raise ValueError(
                f"{self.path}: query {unknown[0]!r} is not in collection {collection.name!r} "
                f"({len(unknown)} such queries); with other_queries=true they are left out"
            )
        kept = _for_queries(run, collection, self.depth)
        needed: dict[str, None] = {}
        for ranking in kept.values():
            needed.update(dict.fromkeys(ranking))
        missing = [doc_id for doc_id in needed if doc_id not in collection.documents]
        if missing:
            raise ValueError(f"{self.path}: {missing_message(missing)} {collection.name!r}")
        return kept


class GivenCandidates:
    """Candidates that come with a collection: its scoreddocs or its candidates file.

    candidates = GivenCandidates(depth=100).candidates(collection)
    """

    def __init__(self, depth: Count = 100, name: Name = "first stage") -> None:
        self.depth = checked_depth(depth)
        self.name = name

    def candidates(self, collection: Collection) -> Run:
        """The candidates of the source, cut to ``depth``.

        Raises:
            ValueError: the source gives none.
        """
        if collection.candidates is None:
            raise ValueError(
                f"collection {collection.name!r} comes without candidates; use Bm25 or RunFile of "
                "backpack_rank.data.first_stage, or give the source a candidates file"
            )
        return _for_queries(collection.candidates, collection, self.depth)


def _for_queries(run: Run, collection: Collection, depth: int) -> Run:
    rankings = {query_id: run.get(query_id, {}) for query_id in collection.queries}
    return sorted_run(rankings, depth=depth)


def checked_depth(depth: int) -> int:
    """On the option ``depth`` of a first stage: it must be a whole number of at least 1."""
    whole_number("depth", depth, 1)
    return depth
