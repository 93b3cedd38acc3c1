"""Which lists a listwise ranker is trained on and asked to rank.

They are a collection's candidates, or a sorting task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from backpack_rank.constructors import Range
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.trec import read_run
from backpack_rank.pipelines.run_folder import plain_values
from backpack_rank.pipelines.settings import EvaluationSettings, check_positive_ints, texts_of
from backpack_rank.position.lists.passages import (
    FixedLists,
    ListSource,
    ListwiseExample,
    check_size,
    collection_lists,
)
from backpack_rank.position.lists.prompt import Prompt
from backpack_rank.position.lists.sorting_tasks import (
    MATHSORT,
    WORDSORT,
    MathSort,
    WordSort,
    dictionary,
    shown_order,
)

log = logging.getLogger(__name__)
COLLECTION = "collection"
KINDS = (COLLECTION, MATHSORT, WORDSORT)
ListSize = Annotated[int, Range(least=2, most=100_000)]
"""Passages of a list."""
_HELD_OUT_SEED = 7_919  # lists that are drawn to be measured on are not those of training
_SORTED = 2_000  # lists of an epoch of a sorting task
_PROMPTS = 5_000  # whose texts a tokenizer is trained on
_ORDER = 5  # keeps the draws of orders apart from those of other modules


@dataclass(frozen=True)
class ListwiseDataConfig:
    """What lists there are (``conf/task/listwise.yaml``).

    Attributes:
        kind: ``collection``, ``mathsort`` or ``wordsort``.
        size: passages of a list at most.
        number: lists of an epoch of a sorting task; of a collection at most so many, None for all.
        held_out: lists that are measured on.
        imbalance: how near to their target order passages are shown to train on, from 0 (random
            order) to 1 (target order;
            :func:`~backpack_rank.position.lists.sorting_tasks.shown_order`); None: a collection's
            passages in first-stage order, the items of a sorting task in random order.
        teacher: TREC run whose scores order a collection's passages of the same grade.
        seed: of sorting tasks.
    """

    kind: str = COLLECTION
    size: int = 10
    number: int | None = None
    held_out: int = 200
    imbalance: float | None = None
    teacher: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"task.lists={self.kind}: use one of {', '.join(KINDS)}")
        check_size(self.size)
        check_positive_ints(self, ("number", "held_out"), null=("number",))
        if self.imbalance is not None and not 0 <= self.imbalance <= 1:
            raise ValueError(f"task.imbalance={self.imbalance} must lie in [0, 1], or be null")
        if self.kind != COLLECTION and self.teacher is not None:
            raise ValueError(
                f"task.teacher={self.teacher} orders a collection's passages; {self.kind} has an "
                "order"
            )

    def source(self, dataset: Dataset | None, split: str = "train") -> ListSource:
        """The lists of a split; of a sorting task those to train on.

        Raises:
            ValueError: there are none.
        """
        if self.kind == COLLECTION:
            return self._collection(dataset, split, self.number, self.imbalance)
        return self._sorting(dataset, self.number or _SORTED, self.seed, self.imbalance or 0.0)

    def held_out_lists(self, dataset: Dataset | None) -> list[ListwiseExample]:
        """Lists to measure on.

        They are those of the dev split in first-stage order, or of the task in random order.
        """
        if self.kind == COLLECTION:
            return self._collection(dataset, "dev", self.held_out, None).lists(0)
        return self._sorting(dataset, self.held_out, self.seed + _HELD_OUT_SEED, 0.0).lists(0)

    def texts(self, dataset: Dataset | None, source: ListSource, prompt: Prompt) -> Iterator[str]:
        """Texts to train a tokenizer on: prompts, and all of a collection."""
        for item in source.lists(0)[:_PROMPTS]:
            yield "\n".join(message["content"] for message in prompt.messages(item.passages))
        if self.kind == COLLECTION:
            yield from texts_of(_needed(dataset).split("train"))

    def _collection(
        self, dataset: Dataset | None, split: str, number: int | None, imbalance: float | None
    ) -> FixedLists:
        collection = _needed(dataset).split(split)
        _, candidates = _needed(dataset).candidates(split, collection)
        teacher = None if self.teacher is None else read_run(self.teacher)
        chosen = collection_lists(collection, candidates, self.size, teacher)
        log.info(
            "%s: %d lists; %d queries without two candidates, %d without candidates of different "
            "relevance",
            collection.name,
            len(chosen.lists),
            chosen.without_candidates,
            chosen.without_relevant,
        )
        lists = chosen.lists[:number]
        if imbalance is not None:
            rng = np.random.default_rng([self.seed, _ORDER])
            lists = tuple(item.permute(shown_order(item.ranks, imbalance, rng)) for item in lists)
        return FixedLists(collection.name, lists)

    def _sorting(
        self, dataset: Dataset | None, number: int, seed: int, imbalance: float
    ) -> ListSource:
        if self.kind == MATHSORT:
            return MathSort(number, self.size, seed, imbalance)
        words = dictionary(texts_of(_needed(dataset).split("train")))
        return WordSort(words, number, self.size, seed, imbalance)


def trained_lists(checkpoint: Path | None, kind: str | None, size: int | None) -> tuple[str, int]:
    """Kind and size of the lists asked for, or of those that a ranker was trained on.

    Raises:
        ValueError: neither is known.
    """
    task = {} if checkpoint is None else plain_values(checkpoint.parent).get("task") or {}
    kind, size = kind or task.get("lists"), size or task.get("size")
    if kind is None or size is None:
        raise ValueError(
            "it is not known what lists the ranker was trained on: add task.lists=collection and "
            "task.size=20"
        )
    return kind, size


def dataset_of_lists(
    settings: EvaluationSettings, checkpoint: Path | None, kind: str
) -> Dataset | None:
    """The data asked for, or that of a trained ranker; MathSort needs none."""
    if checkpoint is not None:
        return settings.dataset(checkpoint)
    if settings.chosen_dataset is None and kind == MATHSORT:
        return None
    return settings.needed_dataset()


def _needed(dataset: Dataset | None) -> Dataset:
    if dataset is None:
        raise ValueError("these lists are of a collection: add data=..., one of conf/data")
    return dataset
