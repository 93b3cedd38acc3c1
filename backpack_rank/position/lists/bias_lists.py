"""Lists that the position bias of a listwise ranker is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.data.collection import Qrels
from backpack_rank.data.dataset import Dataset
from backpack_rank.position.lists.list_positions import with_one_relevant
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.passages import ListwiseExample, PassageList
from backpack_rank.position.lists.sources import COLLECTION, ListwiseDataConfig

_POOL = 100
"""Candidates of a query among which a relevant passage and others that are not relevant are looked
for.
"""


@dataclass(frozen=True)
class ListsToRank:
    """Lists to measure position bias on, as :func:`lists_to_rank` gives them.

    Attributes:
        name: what they are.
        lists: all of the same size.
        qrels: judgements of a collection; empty for a sorting task.
        targets: of a sorting task, the right place of the item at each input position, equal ones
            tied; empty for a collection.
        controlled: lists with exactly one relevant passage.
        relevant: its position in each of them.
        notes: sentences about them.
    """

    name: str
    lists: tuple[PassageList, ...]
    qrels: Qrels
    targets: tuple[np.ndarray, ...]
    controlled: tuple[PassageList, ...]
    relevant: tuple[int, ...]
    notes: tuple[str, ...]


def lists_to_rank(
    dataset: Dataset | None, settings: ListwiseDataConfig, minimum: int
) -> ListsToRank:
    """The held-out lists of a collection's test split, or of a sorting task in random order.

    Args:
        dataset: None for a sorting task that needs none.
        settings: of the lists.
        minimum: relevance from which a passage counts as relevant.
    """
    if settings.kind != COLLECTION:
        return _sorting_lists(settings.kind, settings.held_out_lists(dataset))
    assert dataset is not None
    test = dataset.split("test")
    _, candidates = dataset.candidates("test", test)
    pool = lists_of(candidates, test, _POOL, judged=True)
    grades = []
    lists = []
    for passages in pool:
        judgements = test.qrels.get(passages.query_id, {})
        grades.append([judgements.get(doc_id, 0) for doc_id in passages.ids])
        if len(passages) >= settings.size:
            lists.append(passages.select(range(settings.size)))
    lists = lists[: settings.held_out]
    chosen = with_one_relevant(pool, grades, settings.size, minimum)
    notes = (
        f"Lists for the position of the relevant passage: {len(chosen.lists)} queries, from "
        f"which {chosen.removed} further relevant passages were taken out; "
        f"{len(chosen.without_relevant)} queries have no relevant candidate and "
        f"{len(chosen.too_short)} too few others.",
        f"All else: the first {settings.size} candidates of {len(lists)} judged queries.",
    )
    return ListsToRank(
        name=test.name,
        lists=tuple(lists),
        qrels=test.qrels,
        targets=(),
        controlled=chosen.lists[: settings.held_out],
        relevant=chosen.relevant[: settings.held_out],
        notes=notes,
    )


def _sorting_lists(task: str, items: Sequence[ListwiseExample]) -> ListsToRank:
    lists = []
    targets = []
    controlled = []
    relevant = []
    for item in items:
        lists.append(item.passages)
        targets.append(item.relevance_levels)
        # Two items may tie for the first place, and then none is the relevant one.
        if (item.relevance_levels == 0).sum() == 1:
            controlled.append(item.passages)
            relevant.append(int(item.relevance_levels.argmin()))
    return ListsToRank(
        name=task,
        lists=tuple(lists),
        qrels={},
        targets=tuple(targets),
        controlled=tuple(controlled),
        relevant=tuple(relevant),
        notes=(
            "The relevant item is the one that belongs first; "
            f"{len(items) - len(controlled)} lists have several.",
        ),
    )
