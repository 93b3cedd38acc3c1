"""Which lists a listwise ranker is trained on and asked to rank: a collection's candidates, or a sorting task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection
from backpack_rank.data.formats import read_run
from backpack_rank.data.ordered_lists import FixedLists, ListSource, OrderedList, check_size, collection_lists
from backpack_rank.data.sorting import MATHSORT, WORDSORT, MathSort, WordSort, dictionary, shown_order
from backpack_rank.models.listwise.prompt import Prompt
from backpack_rank.pipelines.common import CONFIG, candidates_of, check_whole, chosen_data, load_split, needed_data
from backpack_rank.pipelines.evaluate import data_of
from backpack_rank.pipelines.train import texts_of

log = logging.getLogger(__name__)
COLLECTION = "collection"
KINDS = (COLLECTION, MATHSORT, WORDSORT)
_HELD_OUT_SEED = 7_919  # lists that are drawn to be measured on are not those of training
_SORTED = 2_000
_PROMPTS = 5_000
_ORDER = 5


@dataclass(frozen=True)
class ListSettings:
    """What lists there are (``conf/task/listwise.yaml``).

    Attributes:
        kind: ``collection``, ``mathsort`` or ``wordsort``.
        size: passages of a list at most.
        number: lists of an epoch of a sorting task; of a collection at most so many, None for all.
        held_out: lists that are measured on.
        imbalance: how near to their target order passages are shown to train on, from 0 (random order) to 1 (target
            order; :func:`~backpack_rank.data.sorting.shown_order`); None: a collection's passages in first-stage order,
            the items of a sorting task in random order.
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
        check_whole(self, ("number", "held_out"), null=("number",))
        if self.imbalance is not None and not 0 <= self.imbalance <= 1:
            raise ValueError(f"task.imbalance={self.imbalance} must lie in [0, 1], or be null")
        if self.kind != COLLECTION and self.teacher is not None:
            raise ValueError(f"task.teacher={self.teacher} orders a collection's passages; {self.kind} has an order")

    def source(self, data: DictConfig, split: str = "train") -> ListSource:
        """The lists of a split; of a sorting task those to train on.

        Raises:
            ValueError: there are none.
        """
        if self.kind == COLLECTION:
            return self._collection(data, split, self.number, self.imbalance)
        return self._sorting(data, self.number or _SORTED, self.seed, self.imbalance or 0.0)

    def held_out_lists(self, data: DictConfig) -> list[OrderedList]:
        """Lists to measure on: of the dev split in first-stage order, or of the task in random order."""
        if self.kind == COLLECTION:
            return self._collection(data, "dev", self.held_out, None).lists(0)
        return self._sorting(data, self.held_out, self.seed + _HELD_OUT_SEED, 0.0).lists(0)

    def texts(self, data: DictConfig, source: ListSource, prompt: Prompt) -> Iterator[str]:
        """Texts to train a tokenizer on: prompts, and all of a collection."""
        for item in source.lists(0)[:_PROMPTS]:
            yield "\n".join(message["content"] for message in prompt.messages(item.passages))
        if self.kind == COLLECTION:
            yield from texts_of(load_split(data, "train"))

    def _collection(self, data: DictConfig, split: str, number: int | None, imbalance: float | None) -> FixedLists:
        collection: Collection = load_split(data, split)
        _, candidates = candidates_of(data, split, collection)
        teacher = None if self.teacher is None else read_run(self.teacher)
        found = collection_lists(collection, candidates, self.size, teacher)
        log.info(
            "%s: %d lists; %d queries without two candidates, %d without candidates of different relevance",
            collection.name,
            len(found.lists),
            found.without_candidates,
            found.without_relevant,
        )
        lists = found.lists[:number]
        if imbalance is not None:
            chance = np.random.default_rng([self.seed, _ORDER])
            lists = tuple(item.taken(shown_order(item.ranks, imbalance, chance)) for item in lists)
        return FixedLists(collection.name, lists)

    def _sorting(self, data: DictConfig, number: int, seed: int, imbalance: float) -> ListSource:
        if self.kind == MATHSORT:
            return MathSort(number, self.size, seed, imbalance)
        words = dictionary(texts_of(load_split(data, "train")))
        return WordSort(words, number, self.size, seed, imbalance)


def trained_lists(checkpoint: Path | None, kind: str | None, size: int | None) -> tuple[str, int]:
    """Kind and size of the lists asked for, or of those that a ranker was trained on.

    Raises:
        ValueError: neither is known.
    """
    file = None if checkpoint is None else checkpoint.parent / CONFIG
    task: dict[str, Any] = {}
    if file is not None and file.is_file():
        saved = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
        task = dict(saved.get("task") or {}) if isinstance(saved, dict) else {}
    kind, size = kind or task.get("lists"), size or task.get("size")
    if kind is None or size is None:
        raise ValueError(
            "it is not known what lists the ranker was trained on: add task.lists=collection and task.size=20"
        )
    return kind, size


def data_of_lists(config: DictConfig, checkpoint: Path | None, kind: str) -> DictConfig:
    """The data asked for, or that of a trained ranker; a sorting task without words of a collection needs none."""
    if checkpoint is not None:
        return data_of(config, checkpoint)
    if chosen_data(config) is None and kind == MATHSORT:
        return OmegaConf.create({"name": kind})
    return needed_data(config)
