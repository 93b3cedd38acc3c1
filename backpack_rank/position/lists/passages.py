"""Lists of passages and the order to rank them in: what listwise rankers are trained on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.trec import ranking

LONGEST = 20
"""Passages of a list at most: the window of listwise rankers."""


@dataclass(frozen=True)
class PassageList:
    """A query and the passages that a ranker is shown, in input order.

    >>> passages = PassageList("who wrote it", ("by Ann", "a book"), ids=("d7", "d3"))
    >>> len(passages)
    2

    Attributes:
        query: its text.
        passages: texts, in the order in which they are shown.
        ids: of the passages, for error messages; the ranker is not shown them. Empty where there
            are none.
        query_id: of the query, likewise.
    """

    query: str
    passages: tuple[str, ...]
    ids: tuple[str, ...] = ()
    query_id: str = ""

    def __post_init__(self) -> None:
        if not self.passages:
            raise ValueError(f"query {self.query_id or self.query!r}: there is no passage to rank")
        if self.ids and len(self.ids) != len(self.passages):
            raise ValueError(
                f"query {self.query_id or self.query!r}: {len(self.passages)} passages but "
                f"{len(self.ids)} ids"
            )

    def __len__(self) -> int:
        return len(self.passages)

    def select(self, positions: Sequence[int] | np.ndarray) -> PassageList:
        """The passages at these input positions, in this order: a permutation, a window, or both.

        >>> PassageList("a query", ("first", "second", "third")).select([2, 0]).passages
        ('third', 'first')
        """
        passages = tuple(self.passages[position] for position in positions)
        ids = tuple(self.ids[position] for position in positions) if self.ids else ()
        return PassageList(self.query, passages, ids, self.query_id)


class ListwiseExample:
    """A list in the order in which it is shown, and its target order.

    Attributes:
        passages: the query and the passages, in input order.
        ranks: target rank of the passage at each input position, from 0; a permutation. int64 [m]
        relevance_levels: 0 for the best passages, then 1 and so on; passages of a level are tied,
            and their ``ranks`` are only the order in which a target has to name them. int64 [m]
        grades: relevance of each passage as it was judged; of a sorting task, the number of
            passages that belong behind it. int64 [m]
    """

    def __init__(
        self,
        passages: PassageList,
        ranks: np.ndarray,
        relevance_levels: np.ndarray,
        grades: np.ndarray,
    ) -> None:
        """Raises ``ValueError`` for ranks, levels or grades that do not fit together."""
        size = len(passages)
        if not np.array_equal(np.sort(ranks), np.arange(size)):
            raise ValueError(
                f"list {passages.query_id!r}: target ranks {ranks} are no permutation of {size}"
            )
        if len(relevance_levels) != size or len(grades) != size:
            raise ValueError(
                f"list {passages.query_id!r}: {size} passages need {size} levels and {size} grades"
            )
        if (np.diff(relevance_levels[np.argsort(ranks)]) < 0).any():
            raise ValueError(
                f"list {passages.query_id!r}: a better level stands behind a worse one"
            )
        self.passages = passages
        self.ranks = ranks
        self.relevance_levels = relevance_levels
        self.grades = grades

    @classmethod
    def by_keys(
        cls,
        passages: PassageList,
        keys: Sequence[Sequence[float]],
        ties: Sequence[float],
        grades: np.ndarray,
    ) -> ListwiseExample:
        """A list sorted by keys, smallest first.

        Args:
            keys: what the order is made by, for each passage; equal keys are ties. [m][n]
            ties: in what order tied passages are named, smallest first. [m]
            grades: see the class. [m]
        """
        size = len(passages)
        order = sorted(range(size), key=lambda place: (tuple(keys[place]), ties[place], place))
        ranks = np.empty(size, dtype=np.int64)
        ranks[order] = np.arange(size)
        levels = np.zeros(size, dtype=np.int64)
        for before, place in itertools.pairwise(order):
            levels[place] = levels[before]
            if tuple(keys[before]) != tuple(keys[place]):
                levels[place] += 1
        return cls(passages, ranks, levels, np.asarray(grades, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def order(self) -> np.ndarray:
        """Input positions in target order, best first. int64 [m]"""
        return np.argsort(self.ranks)

    def permute(self, positions: Sequence[int] | np.ndarray) -> ListwiseExample:
        """The same passages in another order: a permutation of the input positions."""
        places = np.asarray(positions)
        return ListwiseExample(
            self.passages.select(places.tolist()),
            self.ranks[places],
            self.relevance_levels[places],
            self.grades[places],
        )


class ListSource(Protocol):
    """What a training loop asks for the lists of every epoch."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int:
        """Lists of an epoch."""
        ...

    def lists(self, epoch: int) -> list[ListwiseExample]:
        """The lists of an epoch; they depend on the epoch, never on earlier calls."""
        ...


class FixedLists:
    """The source of training lists that are the same in every epoch::

    source = FixedLists("dl19", collection_lists(collection, candidates).lists)
    """

    def __init__(self, name: str, items: tuple[ListwiseExample, ...]) -> None:
        self.name = name
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def lists(self, epoch: int) -> list[ListwiseExample]:
        """All of them, whatever the epoch."""
        return list(self.items)


@dataclass(frozen=True)
class CollectionLists:
    """What :func:`collection_lists` gives.

    Attributes:
        lists: one for each query that has one, by query id.
        without_relevant: queries whose list would hold no two passages of different levels.
        without_candidates: queries with fewer than two candidates.
    """

    lists: tuple[ListwiseExample, ...]
    without_relevant: int
    without_candidates: int


def collection_lists(
    collection: Collection, candidates: Run, size: int = LONGEST, teacher: Run | None = None
) -> CollectionLists:
    """Train on the best candidates of every query, in first-stage order::

        lists = collection_lists(collection, candidates, size=20).lists

    Passages are wanted by relevance grade, highest first; equal grades by a teacher's score where
    there is one (a passage without a score behind those with one), else they are tied. Tied
    passages are named in first-stage order. Relevant passages that are no candidate are not added,
    so relevance lies over input positions as the first stage has laid it (DebiasFirst, section 3).

    Args:
        collection: documents, queries and judgements.
        candidates: of the first stage.
        size: passages of a list at most.
        teacher: run whose scores order passages of the same grade.

    Raises:
        ValueError: a wrong size, or no query has a list.
    """
    check_size(size)
    examples: list[ListwiseExample] = []
    equally_relevant = too_few = 0
    for query_id in sorted(collection.queries):
        ranked = ranking(candidates.get(query_id, {}))
        doc_ids = [doc_id for doc_id in ranked if doc_id in collection.documents][:size]
        if len(doc_ids) < 2:
            too_few += 1
            continue
        # A grade below 0 (spam, in some judgements) is no worse than not relevant.
        judged = collection.qrels.get(query_id, {})
        grades = np.array([max(judged.get(doc_id, 0), 0) for doc_id in doc_ids])
        scores = (teacher or {}).get(query_id, {})
        # Keys sort smallest first: the highest grade, then the teacher's highest score.
        keys = []
        for grade, doc_id in zip(grades, doc_ids, strict=True):
            keys.append((-grade, -scores.get(doc_id, -np.inf)))
        if len(set(keys)) < 2:
            equally_relevant += 1
            continue
        texts = collection.documents.get_many(doc_ids)
        passages = PassageList(
            query=collection.queries[query_id],
            passages=tuple(texts[doc_id] for doc_id in doc_ids),
            ids=tuple(doc_ids),
            query_id=query_id,
        )
        examples.append(ListwiseExample.by_keys(passages, keys, range(len(doc_ids)), grades))
    if not examples:
        raise ValueError(
            f"{collection.name}: none of its {len(collection.queries)} queries has a list: "
            f"{too_few} have fewer than two candidates, and among the first {size} candidates of "
            f"{equally_relevant} all passages are equally relevant"
        )
    return CollectionLists(tuple(examples), equally_relevant, too_few)


def check_size(size: int) -> None:
    """Refuse a size that a training list cannot have, by a ``ValueError``."""
    if not 2 <= size <= LONGEST:
        raise ValueError(f"task.size={size} must be from 2 to {LONGEST} passages of a list")
