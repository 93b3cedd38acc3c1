"""The Reranker: anything that turns candidates into a ranking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from backpack_rank.data.collection import Collection, Run, select_queries
from backpack_rank.data.run_order import untied
from backpack_rank.data.stored_run import MEMORY_LIMIT, open_run
from backpack_rank.notebook import ShownInNotebooks
from backpack_rank.parts import sharing
from backpack_rank.reranking.recalibration import deltas, recalibrate


class Reranker(ABC, ShownInNotebooks):
    """Derive from it to measure a ranker of your own beside others: it orders candidates.

    >>> class LongestFirst(Reranker):
    ...     name = "longest first"
    ...
    ...     def rerank(self, run, collection):
    ...         texts = collection.documents
    ...         return {query: {doc: len(texts[doc]) for doc in run[query]} for query in run}

    Attributes:
        name: row label in tables.
        alpha: position of the dial; None for a reranker without one.
        compares_texts: whether scores of two texts can be compared, so that swapped wordings can be
            measured.
    """

    name: str
    alpha: float | None = None
    compares_texts: bool = False

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> TextReranker:
        """What :func:`backpack_rank.load` gives, in the words of the Hugging Face libraries.

        >>> from backpack_rank import Reranker
        >>> Reranker.from_pretrained("outputs/train/DATE/ranker")  # doctest: +SKIP

        Args:
            name: a folder, an id of the hub, or the address of a server.
            options: of :func:`backpack_rank.load`.

        Raises:
            TypeError: the ranker is none of this class.
        """
        load = import_module("backpack_rank.reranking.load").load
        reranker: TextReranker = load(name, **options)
        if not isinstance(reranker, cls):
            raise TypeError(f"{name} is a {type(reranker).__name__}, and no {cls.__name__}")
        return reranker

    @abstractmethod
    def rerank(self, run: Run, collection: Collection) -> Run:
        """Scores of documents for the queries of the run.

        Args:
            run: candidates of the collection's queries.
            collection: texts of queries and documents.
        """


class TextReranker(Reranker):
    """A reranker that also ranks texts that are given to it.

    :func:`backpack_rank.load` gives one.

    Attributes:
        rank: ``rank(query, documents, top_k=None)``, documents from best to worst.
        source: the folder, hub id or address that it was loaded from; empty where there is none.
    """

    rank: Callable[..., list[dict[str, Any]]]
    source: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source or self.name!r})"

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """:func:`backpack_rank.save_pretrained` of this ranker."""
        sharing("save_pretrained")(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """:func:`backpack_rank.push_to_hub` of this ranker; gives the address of the commit."""
        address: str = sharing("push_to_hub")(self, repo_id, **options)
        return address


class FirstStageOrder(Reranker):
    """The candidates as the first stage ranks them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def rerank(self, run: Run, collection: Collection) -> Run:
        return run


class SavedRun(Reranker):
    """A finished run, whatever the candidates are."""

    def __init__(self, name: str, run: Run, tied: Run | None = None) -> None:
        """``tied``: the run with equal scores still equal, where ``run`` has them set apart."""
        self.name, self.run = name, run
        self._tied = tied

    @classmethod
    def read(
        cls,
        path: str | Path,
        name: str | None = None,
        ties: str = "trec_eval",
        memory_limit: int = MEMORY_LIMIT,
    ) -> SavedRun:
        """From a TREC run file, named after it; what is odd about its order is logged.

        >>> SavedRun.read("bm25.trec").name  # doctest: +SKIP
        'bm25'

        Args:
            path: the file.
            name: None takes the file's.
            ties: order of equal scores, one of :data:`backpack_rank.data.run_order.TIES`.
            memory_limit: bytes; a larger file is read query by query from a database.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is malformed (file and line are named) or empty.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"run={path}: there is no such file")
        if not (run := open_run(path, ties=ties, warn=True, memory_limit=memory_limit)):
            raise ValueError(f"{path} is empty: it ranks nothing")
        return cls(name or Path(path).name, untied(run), run)

    def with_ties(self) -> SavedRun:
        """The run with the scores of its file, for what knows of ties."""
        return SavedRun(self.name, self.run if self._tied is None else self._tied)

    def rerank(self, run: Run, collection: Collection) -> Run:
        return select_queries(self.run, collection)


class RecalibratedRun(Reranker):
    """Another system's run, moved by what alpha changes about a ranker's scores.

    The method is that of Afzali et al., appendix D.
    """

    def __init__(
        self, saved: SavedRun, plain: Reranker, controlled: Reranker, weight: float = 1.0
    ) -> None:
        """
        Args:
            saved: the other system's run.
            plain: the ranker at alpha = 1.
            controlled: the same ranker under alpha.
            weight: lambda, in standard deviations of the other system's scores.
        """
        self.saved, self.plain, self.controlled, self.weight = saved, plain, controlled, weight
        self.name = f"{Path(saved.name).name} + {weight:g} x change at {controlled.name}"

    def rerank(self, run: Run, collection: Collection) -> Run:
        saved = self.saved.rerank(run, collection)
        before = self.plain.rerank(saved, collection)
        after = self.controlled.rerank(saved, collection)
        return recalibrate(saved, deltas(before, after), self.weight)
