"""Which collection is ranked: that of ``data=...``, or that which a ranker was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from omegaconf import OmegaConf

from backpack_rank.constructors import check_value
from backpack_rank.data.collection import MissingSplitError
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.public.names import named_data_folder
from backpack_rank.data.rotation import Rotation
from backpack_rank.files import RANKER, read_yaml, resource_folder
from backpack_rank.pipelines.nodes import build, check_options, merged, plain_options, yaml_of
from backpack_rank.pipelines.option_types import EvaluationOptions
from backpack_rank.pipelines.run_folder import run_config

SPLITS = ("train", "dev", "test", "bias")
ROTATION = ("rotation", "rotation_level", "rotation_seed")
"""Options of every data: which splits have their passages rotated, and how."""
_HINT = "add data=..., one of conf/data"


class ChosenData:
    """Finds the collection that an evaluation ranks.

    Nothing is loaded before a split is asked for.

    >>> ChosenData({"rotation_seed": 3}).rotation.seed
    3

    Args:
        data: ``data`` of the options. Without a ``name`` it only changes the data of a saved
            ranker.
        first_stage: candidates of all splits, in place of those of the data.
    """

    def __init__(
        self, data: Mapping[str, Any] | None, first_stage: Mapping[str, Any] | None = None
    ) -> None:
        self._data = data or {}
        self._first_stage = first_stage

    @cached_property
    def dataset(self) -> Dataset | None:
        """The data of ``data=...``; None where the options only change those of a ranker."""
        return dataset_of(self._data, self._first_stage) if "name" in self._data else None

    def needed(self) -> Dataset:
        """The data of ``data=...``. Raises ``ValueError`` without them."""
        if self.dataset is None:
            raise ValueError(f"this needs the collection to rank: {_HINT}")
        return self.dataset

    def of(self, checkpoint: Path | str) -> Dataset:
        """The data of ``data=...``, or those of a saved ranker, changed as the options say.

        Those of a saved ranker are the data that it was trained on.

        Raises:
            ValueError: neither is known.
        """
        return self.dataset or dataset_of(*self.nodes_of(checkpoint))

    @property
    def rotation(self) -> Rotation:
        """``data.rotation_level`` and ``data.rotation_seed``, whatever ``data.rotation`` says."""
        return rotation_of(self._data)

    def nodes_of(self, checkpoint: Path | str) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
        """Data and first stage of a saved ranker, as far as the options name no others.

        They are those that it was trained with.
        """
        if isinstance(checkpoint, str) or checkpoint.name != RANKER:
            raise ValueError(f"{checkpoint} does not say what it was trained on: {_HINT}")
        try:
            trained = run_config(checkpoint.parent, only=("data", "first_stage"))
        except ValueError as error:
            message = f"{checkpoint} does not say what it was trained on ({error}): {_HINT}"
            raise ValueError(message) from error
        changes = {}
        for option in ROTATION:
            if self._data.get(option) is not None:
                changes[option] = self._data[option]
        first_stage = self._first_stage
        if first_stage is None and trained.get("first_stage") is not None:
            first_stage = plain_options(trained["first_stage"])
        return {**plain_options(trained["data"]), **changes}, first_stage


def dataset_of(node: Mapping[str, Any], first_stage: Mapping[str, Any] | None = None) -> Dataset:
    """A file of ``conf/data/`` as a dataset; nothing is loaded yet.

    Args:
        node: of the options.
        first_stage: of all splits, in place of the dataset's own.

    Raises:
        ValueError: a wrong option of the rotation.
    """
    data = plain_options(node)

    def loader(name: str) -> Callable[[], Any]:
        def load() -> Any:
            try:
                return build(data[name], f"data.{name}")
            except InstantiationException as error:
                if isinstance(error.__cause__, MissingSplitError):
                    raise error.__cause__ from None
                raise

        return load

    splits: dict[str, Callable[[], Any]] = {}
    stages: dict[str, Callable[[], Any]] = {}
    for split in SPLITS:
        if data.get(split) is not None:
            splits[split] = loader(split)
        if data.get(f"{split}_first_stage") is not None:
            stages[split] = loader(f"{split}_first_stage")
    # Under "" stands the first stage of the splits without one.
    if data.get("first_stage") is not None:
        stages[""] = loader("first_stage")
    if first_stage is not None:
        stages = {"": lambda: build(first_stage, "first_stage")}
    return Dataset(
        name=str(data["name"]),
        splits=splits,
        first_stages=stages,
        measures=tuple(str(name) for name in data.get("measures") or ()),
        rotation=rotation_of(data),
        rotated=data.get("rotation") or "none",
        bias_queries=data.get("bias_queries"),
        answers=data.get("answers"),
        titles=bool((data.get("test") or {}).get("title", True)),
        requests=data.get("requests"),
        variants=None if data.get("variants") is None else loader("variants"),
    )


def named_dataset(name: str) -> Dataset:
    """The collection of ``data=NAME``, with all that the command line knows of it.

    >>> named_dataset("synthetic").measures
    ('MRR@10', 'nDCG@5', 'nDCG@10', 'R@100')

    Raises:
        ValueError: there is none of that name, or one that needs options.
    """
    folder = resource_folder("conf") / "data"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise ValueError(
            f"there is no data {name!r}: use one of {known}, or a collection of "
            "backpack_rank.data.sources"
        )
    values = read_yaml(path)
    missing = list(_without_value(values))
    if missing:
        raise ValueError(
            f"data {name!r} needs {', '.join(missing)}: load the collection, such as by "
            "load_beir(folder, 'test') of backpack_rank.data.sources.beir"
        )
    with named_data_folder():
        return dataset_of(plain_options(OmegaConf.create(values)))


def _without_value(options: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _without_value(value, f"{above}{name}.")
        elif value == "???":
            yield f"{above}{name}"


def dataset_with(node: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[str, Dataset]:
    """A node of ``conf/data`` with some of it changed, such as its candidates.

    With it comes a text that is equal for equal ones.

    Args:
        node: of ``conf/data``.
        changes: merged into it; ``{folder}`` is the folder of its test split.

    Raises:
        ValueError: an option of the data is wrong.
    """
    check_value("data", changes, Mapping[str, Any])
    test = node.get("test")
    folder = str(test.get("folder", "")) if isinstance(test, Mapping) else ""
    changed = merged(node, _in_folder(dict(changes), folder))
    check_options({"data": changed}, EvaluationOptions)
    return yaml_of(changed), dataset_of(changed)


def rotation_of(data: Mapping[Any, Any]) -> Rotation:
    """``rotation_level`` and ``rotation_seed`` of a node of ``conf/data``."""
    level, seed = data.get("rotation_level"), data.get("rotation_seed")
    return Rotation("word" if level is None else level, 0 if seed is None else seed)


def _in_folder(value: Any, folder: str) -> Any:
    """The value with ``{folder}`` filled into all its texts."""
    if isinstance(value, Mapping):
        return {name: _in_folder(entry, folder) for name, entry in value.items()}
    if isinstance(value, list):
        return [_in_folder(entry, folder) for entry in value]
    return value.replace("{folder}", folder) if isinstance(value, str) else value
