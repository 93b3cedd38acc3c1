"""Which lists a listwise ranker is trained on and asked to rank: candidates, or a sorting task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

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
_HELD_OUT_SEED = 7_919  # added to the seed, so that lists to measure on are not those of training
_SORTED_LISTS = 2_000  # of an epoch of a sorting task
_PROMPTS = 5_000  # whose texts a tokenizer is trained on
_ORDER = 5  # a part of the seed, so that orders do not hang on what other modules draw


@dataclass(frozen=True)
class ListwiseDataConfig:
    """Gives lists of a collection or of a sorting task (``conf/task/listwise.yaml``)::

        config = ListwiseDataConfig("mathsort", size=10, number=2_000)
        source = config.source(dataset=None)
        held_out = config.held_out_lists(dataset=None)

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
        number = self.number or _SORTED_LISTS
        return self._sorting(dataset, number, self.seed, self.imbalance or 0.0)

    def held_out_lists(self, dataset: Dataset | None) -> list[ListwiseExample]:
        """Lists to measure on: of the dev split in first-stage order, of a task in random order."""
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
        dataset = _needed(dataset)
        collection = dataset.split(split)
        _, candidates = dataset.candidates(split, collection)
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
        if imbalance is None:
            return FixedLists(collection.name, lists)
        rng = np.random.default_rng([self.seed, _ORDER])
        ordered = []
        for item in lists:
            order = shown_order(item.ranks, imbalance, rng)
            ordered.append(item.permute(order))
        return FixedLists(collection.name, tuple(ordered))

    def _sorting(
        self, dataset: Dataset | None, number: int, seed: int, imbalance: float
    ) -> ListSource:
        if self.kind == MATHSORT:
            return MathSort(number, self.size, seed, imbalance)
        words = dictionary(texts_of(_needed(dataset).split("train")))
        return WordSort(words, number, self.size, seed, imbalance)


def trained_lists(checkpoint: Path | None, kind: str | None, size: int | None) -> tuple[str, int]:
    """Rank lists as a ranker was trained on them, where nothing else is asked for.

    >>> trained_lists(checkpoint=None, kind="mathsort", size=10)
    ('mathsort', 10)

    Raises:
        ValueError: neither is known.
    """
    task: Mapping[str, Any] = {}
    if checkpoint is not None:
        task = plain_values(checkpoint.parent).get("task") or {}
    kind = kind or task.get("lists")
    size = size or task.get("size")
    if kind is None or size is None:
        raise ValueError(
            "it is not known what lists the ranker was trained on: add task.lists=collection and "
            "task.size=20"
        )
    return kind, size


def dataset_of_lists(
    settings: EvaluationSettings, checkpoint: Path | None, kind: str
) -> Dataset | None:
    """The data that lists are of: those asked for, or those of the trained ranker.

    None for MathSort, which needs none.
    """
    if checkpoint is not None:
        return settings.dataset(checkpoint)
    if settings.chosen_dataset is None and kind == MATHSORT:
        return None
    return settings.needed_dataset()


def _needed(dataset: Dataset | None) -> Dataset:
    if dataset is None:
        raise ValueError("these lists are of a collection: add data=..., one of conf/data")
    return dataset
