"""Training lists: some relevant documents of a query, filled up with documents that are not."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from backpack_rank.checks import whole_number
from backpack_rank.data.collection import Collection, Run
from backpack_rank.digests import digest

NEGATIVES = ("random", "bias_aware")
"""How the documents of a list that are not relevant are chosen."""
AUGMENTATIONS = ("swap",)
"""What may stand beside every list: a copy in swapped wording."""

# Draws per missing document before all documents are searched, which only a tiny collection can
# need.
_DRAWS = 20


@dataclass(frozen=True)
class TrainingList:
    """One list of a query: relevant documents, highest label first, then the others.

    Attributes:
        query_id: the query.
        doc_ids: at most ``size`` documents, all different; the first is relevant.
        labels: relevance of each document as judged; 0 for documents that are not judged relevant.
    """

    query_id: str
    doc_ids: tuple[str, ...]
    labels: tuple[int, ...]


class Negatives(Protocol):
    """Write a function like this to choose which candidates a list takes as not relevant.

    :func:`random_negatives` is the shortest example.
    """

    def __call__(
        self, rng: random.Random, query_id: str, candidates: Sequence[str], room: int
    ) -> list[str]:
        """At most ``room`` of the candidates, all different.

        Args:
            rng: of this list; draws of others must not change what it gives.
            query_id: the query.
            candidates: of the query, without relevant ones, sorted.
            room: places of the list that are left.
        """
        ...


def random_negatives(
    rng: random.Random, query_id: str, candidates: Sequence[str], room: int
) -> list[str]:
    """Draws candidates at random, as is the default."""
    return rng.sample(candidates, min(room, len(candidates)))


class TrainingLists:
    """Trains a listwise ranker: it draws a fresh list for each query in each epoch.

        lists = TrainingLists(collection, candidates, size=10, seed=1)
        for item in lists.epoch(0):
            print(item.query_id, item.doc_ids, item.labels)

    A list takes, in this order:

    1. relevant documents (label above 0), at least one and at most ``max_relevant``, drawn in
       proportion to 2^label - 1 (the gain of nDCG), so with binary labels all with the same chance;
    2. candidates of the query that are not judged relevant (judged 0 or not judged), drawn at
       random, or as ``negatives`` chooses;
    3. when those do not suffice, candidates and relevant documents of other queries that are not
       relevant to this one.

    A list is shorter than ``size`` only when all of that does not suffice. A list depends on seed,
    epoch, query id and the content of collection and candidates alone: not on the order of queries,
    the hash seed, or earlier draws.

    Attributes:
        query_ids: queries with a relevant document in the collection, sorted.
        skipped: number of queries without one.
        missing: number of judged-relevant documents that are not in the collection; they are left
            out.
    """

    def __init__(
        self,
        collection: Collection,
        candidates: Run,
        *,
        size: int = 10,
        seed: int = 0,
        max_relevant: int | None = None,
        per_epoch: int | None = None,
        negatives: Negatives = random_negatives,
    ) -> None:
        """
        Args:
            collection: documents, queries and judgements.
            candidates: candidates of the queries; a query may be absent, its list is then filled
                from others.
            size: documents per list; 10 and 36 are in use.
            seed: of all draws.
            max_relevant: relevant documents per list at most; None is half the list. 1 is the
                paper's setting (one relevant, nine others) with ``size`` 10.
            per_epoch: lists in an epoch at most, of queries drawn anew each time; None takes every
                query.
            negatives: chooses among candidates that are not judged relevant.

        Raises:
            ValueError: ``size`` below 2, ``max_relevant`` outside 1 .. size - 1, or no query has a
                relevant document.
        """
        whole_number("training list: size", size, 2)
        if max_relevant is None:
            max_relevant = size // 2
        elif not 1 <= max_relevant < size:
            raise ValueError(
                f"max_relevant must be between 1 and size - 1 = {size - 1}, got {max_relevant}"
            )
        self._size = size
        self._seed = seed
        self._max_relevant = max_relevant
        whole_number("training lists: per_epoch", per_epoch, 1, null="for every query")
        self._per_epoch = per_epoch
        self._negatives = negatives
        self._candidates = candidates
        self._relevant, self.missing = _relevant_documents(collection)
        self.query_ids = tuple(sorted(self._relevant))
        self.skipped = len(collection.queries) - len(self.query_ids)
        if not self.query_ids:
            raise ValueError(
                f"collection {collection.name!r}: none of its {len(collection.queries)} queries "
                "has a relevant document in the collection, so there is nothing to train on"
            )

    def __len__(self) -> int:
        """Lists per epoch."""
        return min(len(self.query_ids), self._per_epoch or len(self.query_ids))

    def epoch(self, epoch: int) -> list[TrainingList]:
        """One list for each query of this epoch, in an order drawn for it."""
        return [self.sample(query_id, epoch) for query_id in self.order(epoch)]

    def order(self, epoch: int) -> list[str]:
        """Queries of an epoch, in the order drawn for it."""
        order = list(self.query_ids)
        self._rng("order", epoch, "").shuffle(order)
        return order[: len(self)]

    def sample(self, query_id: str, epoch: int) -> TrainingList:
        """The list of one query in one epoch.

        Raises:
            KeyError: the query has no list (it is not in :attr:`query_ids`).
        """
        if query_id not in self._relevant:
            raise KeyError(
                f"query {query_id!r} has no relevant document in the collection, "
                "so it has no training list"
            )
        rng = self._rng("list", epoch, query_id)
        relevant = self._relevant[query_id]
        chosen = self._draw_relevant(rng, relevant)
        room = self._size - len(chosen)
        # Sorted, so that the order of the candidates does not decide what is drawn.
        candidates = self._candidates.get(query_id, ())
        others = sorted(doc_id for doc_id in candidates if doc_id not in relevant)
        drawn = self._negatives(rng, query_id, others, room)
        if len(drawn) < room:
            drawn += self._draw_from_other_queries(rng, relevant, set(drawn), room - len(drawn))
        labels = [relevant[doc_id] for doc_id in chosen] + [0] * len(drawn)
        return TrainingList(query_id, (*chosen, *drawn), tuple(labels))

    def _draw_relevant(self, rng: random.Random, relevant: Mapping[str, int]) -> list[str]:
        """Relevant documents, highest label first, drawn without replacement.

        They are drawn in proportion to 2^label - 1: many documents of a low grade would else crowd
        out the few of the highest.
        """
        # Efraimidis and Spirakis 2006: the documents with the largest u^(1/weight), u uniform, are
        # such a sample. Sorted, so that the order of the judgements does not decide the draws.
        keys: dict[str, float] = {}
        for doc_id in sorted(relevant):
            weight = 2 ** relevant[doc_id] - 1
            keys[doc_id] = rng.random() ** (1 / weight)
        chosen = sorted(keys, key=lambda doc_id: -keys[doc_id])[: self._max_relevant]
        return sorted(chosen, key=lambda doc_id: -relevant[doc_id])

    def _draw_from_other_queries(
        self, rng: random.Random, relevant: Mapping[str, int], taken: set[str], wanted: int
    ) -> list[str]:
        drawn: list[str] = []
        for _ in range(_DRAWS * wanted):
            doc_id = rng.choice(self._documents_of(rng.choice(self.query_ids)))
            if doc_id not in relevant and doc_id not in taken:
                taken.add(doc_id)
                drawn.append(doc_id)
                if len(drawn) == wanted:
                    return drawn
        left: list[str] = []
        for doc_id in self._all_documents:
            if doc_id not in relevant and doc_id not in taken:
                left.append(doc_id)
        return drawn + rng.sample(left, min(wanted - len(drawn), len(left)))

    def _documents_of(self, query_id: str) -> list[str]:
        return sorted({*self._relevant[query_id], *self._candidates.get(query_id, ())})

    @cached_property
    def _all_documents(self) -> list[str]:
        documents: set[str] = set()
        for query_id in self.query_ids:
            documents.update(self._documents_of(query_id))
        return sorted(documents)

    def _rng(self, purpose: str, epoch: int, query_id: str) -> random.Random:
        """A generator of its own for each draw, so that no draw depends on those before it."""
        seed = bytes.fromhex(digest(f"{purpose} {self._seed} {epoch} {query_id}", size=8))
        return random.Random(int.from_bytes(seed, "little"))


def _relevant_documents(collection: Collection) -> tuple[dict[str, dict[str, int]], int]:
    """Labels of each query's relevant documents that the collection has, and how many it lacks."""
    relevant: dict[str, dict[str, int]] = {}
    missing = 0
    for query_id in collection.queries:
        present: dict[str, int] = {}
        for doc_id, label in collection.qrels.get(query_id, {}).items():
            if label <= 0:
                continue
            if doc_id in collection.documents:
                present[doc_id] = label
            else:
                missing += 1
        if present:
            relevant[query_id] = present
    return relevant, missing
