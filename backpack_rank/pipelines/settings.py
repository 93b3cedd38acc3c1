"""What experiments are given: the data, rankers and measures that options ask for.

The options are those of an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.rotation import Rotation
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.chosen_ranker import RankerOptions
from backpack_rank.pipelines.metrics import MetricSuite, metrics_of
from backpack_rank.pipelines.nodes import made_options
from backpack_rank.pipelines.tasks import SavedOptions
from backpack_rank.reranking.pointwise import PointwiseReranker


@dataclass(kw_only=True, eq=False)
class EvaluationSettings(RankerOptions):
    """In an experiment, to get the ranker, the data and the measures that options ask for.

    Every field is an option of ``conf/evaluate.yaml``, which describes it.
    """

    bias: FairnessMeasures
    variants: Mapping[str, Any] | None = None
    budget: str | Sequence[str] | None = None
    ties: str = "trec_eval"
    measures: str | Sequence[str] | None = None
    swap: bool = True
    contrast: bool | str = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> EvaluationSettings:
        """From composed options. Raises ``ValueError`` for an option that is wrong in itself."""
        return cls.of_options(SavedOptions.of(config))

    @classmethod
    def of_options(cls, saved: SavedOptions) -> EvaluationSettings:
        """From options that were looked at."""
        return cls(saved=saved, **made_options(saved.values, cls))

    @property
    def wordings(self) -> Dataset | None:
        """The data of ``variants=...``."""
        return None if self.variants is None else dataset_of(self.variants)

    @property
    def chosen_dataset(self) -> Dataset | None:
        """See :attr:`ChosenData.dataset`."""
        return self.chosen_data.dataset

    def needed_dataset(self) -> Dataset:
        """See :meth:`ChosenData.needed`."""
        return self.chosen_data.needed()

    def dataset(self, checkpoint: Path | str) -> Dataset:
        """See :meth:`ChosenData.of`."""
        return self.chosen_data.of(checkpoint)

    @property
    def rotation(self) -> Rotation:
        """See :attr:`ChosenData.rotation`."""
        return self.chosen_data.rotation

    def metrics(self, dataset: Dataset | None) -> MetricSuite:
        """See :func:`~backpack_rank.pipelines.metrics.metrics_of`."""
        return metrics_of(self.measures, self.bias, self.attribute, dataset)

    def reranker(self, checkpoint: Path | str) -> PointwiseReranker:
        """See :meth:`ChosenRanker.load_ranker`."""
        return self.load_ranker(checkpoint)

    def save(self, folder: str | Path, checkpoint: Path | str | None = None) -> None:
        """See :meth:`SavedOptions.write`."""
        self.saved.write(folder, checkpoint)

    @property
    def text(self) -> str:
        """All options as YAML."""
        return self.saved.text


def reject_overrides(changed: Sequence[str], known: Container[str], why: str) -> None:
    """Refuse options of the command line that would be ignored.

    Args:
        changed: options as they were given, such as ``training.epochs=3``.
        known: first parts of the names of options that count.
        why: what the others are, and what to do.

    Raises:
        ValueError: with the options that would be ignored, and ``why``.
    """
    # "+data.test.depth=3" and "prompt@model.prompt=plain" are of data and of prompt.
    names = {option: re.split(r"[=.@]", option.lstrip("+~"), maxsplit=1)[0] for option in changed}
    if ignored := [option for option, name in names.items() if name not in known]:
        raise ValueError(f"{', '.join(ignored)}: {why}")


def check_positive_ints(
    task: object, names: Sequence[str], least: int = 1, null: Container[str] = ()
) -> None:
    """Refuse settings of a task that are not whole numbers.

    Args:
        task: with the settings as attributes.
        names: of the settings.
        least: smallest number allowed.
        null: those of ``names`` that may also be None.

    Raises:
        ValueError: with the option's name, its value and what is allowed.
    """
    for name in names:
        value = getattr(task, name)
        if value is None and name in null:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            or_null = ", or null" if name in null else ""
            raise ValueError(
                f"task.{name}={value} must be a whole number of at least {least}{or_null}"
            )


def slugify(name: str) -> str:
    """A name as part of a file's name, without what Hydra would read in run=FILE."""
    return re.sub(r"[\s/=,():]+", "-", name).strip("-")


def texts_of(collection: Collection) -> Any:
    """Every query and every document of a collection."""
    yield from collection.queries.values()
    yield from (text for _, text in collection.documents)
