"""A dataset: the splits of a collection, their first stages, and what belongs to them.

    dataset = Dataset.of(load_beir("nfcorpus", "test"), first_stage=Bm25(depth=100))
    test = dataset.split("test")
    name, candidates = dataset.candidates("test")

Each part is loaded when it is first asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from backpack_rank.checks import one_of
from backpack_rank.data.collection import (
    Collection,
    MissingSplitError,
    Run,
    note_on_own,
    without_own,
)
from backpack_rank.data.first_stage import Bm25, FirstStage, GivenCandidates
from backpack_rank.data.rotation import Rotation, original_collection, rotated_collection

log = logging.getLogger(__name__)
MEASURES = ("MRR@10", "nDCG@5", "nDCG@10", "R@100")
"""Measures of a dataset that names none."""
ROTATED = {
    "none": (),
    "train": ("train", "dev"),
    "test": ("test", "bias"),
    "both": ("train", "dev", "test", "bias"),
}
"""Splits whose passages are rotated, by the option's value."""


@dataclass(frozen=True)
class Dataset:
    """Splits by name, usually ``train``, ``dev`` and ``test``, with their first stages.

    The head of this module shows how it is made. ``bias`` is among the splits where the bias set is
    a separate collection.

    Attributes:
        name: shown in reports.
        splits: what loads each split; called at most once.
        first_stages: what makes the first stage of a split, ``""`` that of all others; called at
            most once.
        measures: of effectiveness, in ir_measures' notation.
        rotation: how passages are rotated where they are.
        rotated: which splits: a key of :data:`ROTATED`.
        bias_queries: a file or a published set of neutral queries
            (:mod:`backpack_rank.attributes.neutral_queries`); None takes the queries without a word
            of the lexicon.
        answers: where the answers of the test split are; see
            :func:`backpack_rank.data.answers.load_answers`.
        titles: whether texts of the test split begin with the titles of their documents (BEIR
            folders).
        requests: file of rank_llm that the test split was read from; results are written in the
            same form.
        variants: loads the :class:`~backpack_rank.attributes.wording_variants.WordingVariants` of
            the test split.

    Raises:
        ValueError: ``rotated`` is unknown.
    """

    name: str
    splits: Mapping[str, Callable[[], Collection]]
    first_stages: Mapping[str, Callable[[], FirstStage]] = field(default_factory=dict)
    measures: tuple[str, ...] = MEASURES
    rotation: Rotation = field(default_factory=Rotation)
    rotated: str = "none"
    bias_queries: str | None = None
    answers: str | None = None
    titles: bool = True
    requests: str | None = None
    variants: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        one_of("data.rotation", self.rotated, ROTATED)
        # A run asks for a split in several places, and loading one may take minutes.
        splits = {name: cache(load) for name, load in self.splits.items()}
        first_stages = {name: cache(load) for name, load in self.first_stages.items()}
        object.__setattr__(self, "splits", splits)
        object.__setattr__(self, "first_stages", first_stages)

    @classmethod
    def of(
        cls,
        test: Collection,
        first_stage: FirstStage | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Dataset:
        """A single collection: it becomes the test split.

        Args:
            test: the collection.
            first_stage: None takes the collection's own candidates where it has some, else as many
                of BM25 as the collection says.
            name: of the dataset; the collection's when None.
            options: further attributes of :class:`Dataset`.
        """
        if first_stage is None:
            given = test.candidates is not None
            first_stage = GivenCandidates() if given else Bm25(depth=test.depth)
        stage = first_stage
        return cls(name or test.name, {"test": lambda: test}, {"": lambda: stage}, **options)

    def has(self, split: str) -> bool:
        """Whether the dataset has that split; loads it, to see whether its files are there."""
        if split not in self.splits:
            return False
        try:
            self.splits[split]()
        except MissingSplitError:
            return False
        return True

    def split(self, name: str) -> Collection:
        """One split, with its passages rotated where they are to be.

        Raises:
            ValueError: the dataset has no split of that name.
        """
        if name not in self.splits:
            raise ValueError(
                f"data={self.name} has no {name} split (it has "
                f"{', '.join(self.splits) or 'none'}); set data.{name} in conf/data or on the "
                "command line"
            )
        collection = self.splits[name]()
        if self.is_rotated(name):
            return rotated_collection(collection, self.rotation)
        return collection

    def is_rotated(self, split: str) -> bool:
        """Whether the passages of that split are rotated."""
        return split in ROTATED[self.rotated]

    def with_rotation(self, rotated: str) -> Dataset:
        """The same dataset with other splits rotated; what was loaded is not loaded again."""
        return replace(self, rotated=rotated)

    def first_stage(self, split: str) -> FirstStage:
        """The first stage of a split.

        Raises:
            ValueError: neither the split nor the dataset has one.
        """
        make = self.first_stages.get(split) or self.first_stages.get("")
        if make is None:
            raise ValueError(
                f"data={self.name} has no first stage for its {split} split; set data.first_stage"
            )
        return make()

    def candidates(self, split: str, collection: Collection | None = None) -> tuple[str, Run]:
        """Name of the first stage of a split, and its candidates.

        A first stage reads the original passages of a rotated split, too. So rotated and original
        passages are re-ranked from the same lists, and one index serves both. BM25 does not look at
        the order of words and would find the same in rotated passages.

        Of a collection whose queries are documents, a query's own document is left out.

        Args:
            split: decides which first stage it is.
            collection: the part of the split to search for, such as its neutral queries; None for
                all of it.
        """
        stage = self.first_stage(split)
        searched = original_collection(collection or self.split(split))
        return stage.name, _of_others(stage.candidates(searched), searched)

    def candidates_at(
        self, split: str, collection: Collection, alphas: Sequence[float]
    ) -> dict[float, tuple[str, Run]]:
        """As :meth:`candidates`, at several positions of the dial of the first stage.

        Raises:
            ValueError: it has no dial.
        """
        stage: Any = self.first_stage(split)
        if not hasattr(stage, "candidates_at"):
            raise ValueError(
                f"alpha={list(alphas)}: the first stage {stage.name} has no dial; that of "
                "first_stage=dense has one"
            )
        searched = original_collection(collection)
        found = {}
        runs = stage.candidates_at(searched, alphas)
        for alpha, run in zip(alphas, runs, strict=True):
            found[alpha] = f"{stage.name} alpha={alpha:g}", _of_others(run, searched)
        return found


def _of_others(run: Run, collection: Collection) -> Run:
    """A run without each query's own document, where queries are documents."""
    found = without_own(run, collection)
    note = note_on_own(found, collection)
    if note is not None:
        log.warning("%s", note)
    return found
