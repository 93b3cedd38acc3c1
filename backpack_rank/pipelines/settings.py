"""From the composed configuration to typed objects, once; what is called with them does not see the configuration."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.checks import located
from backpack_rank.constructors import check_value, made
from backpack_rank.data.collection import Collection, MissingSplitError
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.data.rotation import Rotation
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.measure_names import split_measures
from backpack_rank.files import RANKER, cache_dir, write_text
from backpack_rank.models.factory import find_ranker, load_ranker, split_attribute
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.pipelines.nodes import build, check_options
from backpack_rank.pipelines.option_checks import check_evaluation
from backpack_rank.pipelines.option_types import EvaluationOptions
from backpack_rank.pipelines.pair_to_explain import PairToExplain
from backpack_rank.pipelines.run_folder import CONFIG, run_config
from backpack_rank.reranking.load import is_address, local_folder
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.remote import RemoteScorer
from backpack_rank.reranking.scorer import Scorer, ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import Policy

AUTO = "auto"
SPLITS = ("train", "dev", "test", "bias")
ROTATION = ("rotation", "rotation_level", "rotation_seed")
"""Options of every data: which splits have their passages rotated, and how."""


@dataclass(frozen=True)
class Recalibration:
    """``recalibrate``: a run that is moved by what alpha changes, and how far."""

    run: str
    weight: float


@dataclass(frozen=True)
class EvaluationSettings:
    """What ``evaluate.py`` is asked for; every option is described in ``conf/evaluate.yaml``.

    Attributes:
        attribute: whose words the measures, the policy and swaps look at.
        policy: what alpha acts by.
        alpha: position of the dial, or ``auto``.
        budget: what ``alpha=auto`` has to keep within.
        checkpoint, output: where the ranker is.
        runs: TREC runs to measure in place of a ranker.
        ties: order of their equal scores.
        recalibration: another system's run to move.
        explain: query and document whose score is explained, or None.
        variants: documents in a wording for each group.
        swap: also score the bias set's candidates in swapped wording.
        certificate: also say for which candidates the policy promises one score, and measure it.
        certificate_pairs: files of sentences in two wordings for it.
        scoring: how scores are computed.
        cache: of sense vectors.
    """

    attribute: Attribute
    policy: Policy
    alpha: float | str
    budget: str | Sequence[str] | None
    checkpoint: str | None
    output: str
    runs: tuple[str, ...] | None
    ties: str
    recalibration: Recalibration | None
    explain: PairToExplain | None
    variants: Dataset | None
    swap: bool
    certificate: bool
    certificate_pairs: tuple[str, ...]
    scoring: ScoringSettings
    cache: SenseCache
    config: DictConfig
    """What all of it was made of; to be saved beside the results."""

    @classmethod
    def of(cls, config: DictConfig) -> EvaluationSettings:
        """From a composed configuration. Raises ``ValueError`` for an option that is wrong in itself."""
        check_evaluation(config)
        folder = Path(config.cache.folder).expanduser() if config.cache.folder else cache_dir() / "senses"
        pairs = config.certificate_pairs or []
        runs = config.run if config.run is None or not isinstance(config.run, str) else [config.run]
        recalibrate = config.recalibrate
        return cls(
            attribute=made(Attribute, plain(config.attribute), "attribute"),
            policy=build(config.policy, "policy"),
            alpha=config.alpha,
            budget=config.budget if config.budget is None or isinstance(config.budget, str) else list(config.budget),
            checkpoint=config.checkpoint,
            output=str(config.output),
            runs=None if runs is None else tuple(str(run) for run in runs),
            ties=str(config.ties),
            recalibration=None if recalibrate.run is None else Recalibration(str(recalibrate.run), recalibrate.weight),
            explain=PairToExplain.of(config.explain),
            variants=None if config.get("variants") is None else dataset_of(config.variants),
            swap=config.swap,
            certificate=config.certificate,
            certificate_pairs=(pairs,) if isinstance(pairs, str) else tuple(map(str, pairs)),
            scoring=build(config.scoring, "scoring"),
            cache=SenseCache(folder, config.cache.max_gb),
            config=config,
        )

    def with_options(self, options: Mapping[str, Any]) -> EvaluationSettings:
        """The settings with some options changed, as an experiment's rows name them."""
        opened = self.config.copy()
        OmegaConf.set_struct(opened, False)
        merged = OmegaConf.merge(opened, OmegaConf.create(dict(options)))
        assert isinstance(merged, DictConfig)
        return EvaluationSettings.of(merged)

    @cached_property
    def chosen_dataset(self) -> Dataset | None:
        """The data asked for by ``data=``; None where there is nothing but options for the data of a checkpoint."""
        data = self.config.get("data")
        return None if data is None or "name" not in data else dataset_of(data, self._first_stage)

    def needed_dataset(self) -> Dataset:
        """The data asked for. Raises ``ValueError`` without one."""
        if self.chosen_dataset is None:
            raise ValueError("this needs the collection to rank: add data=..., one of conf/data")
        return self.chosen_dataset

    def dataset(self, checkpoint: Path | str) -> Dataset:
        """The data asked for, or the data that a saved ranker was trained on, rotated and retrieved as asked for.

        Raises:
            ValueError: neither is known.
        """
        if self.chosen_dataset is not None:
            return self.chosen_dataset
        return dataset_of(*self._data_of(checkpoint))

    @property
    def rotation(self) -> Rotation:
        """``data.rotation_level`` and ``data.rotation_seed``, whatever ``data.rotation`` says."""
        return rotation_of(self.config.get("data") or {})

    def metrics(self, dataset: Dataset | None) -> MetricSuite:
        """Measures from ``measures`` (or those of the data) and ``bias``; fairness strings in ``measures`` join it.

        Raises:
            ValueError: a measure that does not exist; lists those that do.
        """
        given = self.config.measures if self.config.measures is not None else dataset.measures if dataset else ()
        names = [given] if isinstance(given, str) else [str(name) for name in given]
        with located("data.measures" if self.config.measures is None else "measures"):
            ranking, fairness = split_measures(names) if names else ([], [])
        bias = plain(self.config.bias)
        measures: FairnessMeasures = build({**bias, "extra": [*bias["extra"], *fairness]}, "bias")
        return MetricSuite(tuple(ranking), measures, self.attribute.sign)

    def find_ranker(self) -> Path | str:
        """Folder of the ranker, downloaded where it is on the hub, or the address of its server.

        Raises:
            FileNotFoundError: there is none.
        """
        if self.checkpoint is None:
            return find_ranker(None, self.output)
        return self.checkpoint if is_address(self.checkpoint) else local_folder(self.checkpoint, "checkpoint")

    def reranker(self, checkpoint: Path | str) -> PointwiseReranker:
        """A saved ranker at alpha = 1; :meth:`PointwiseReranker.with_policy` turns it.

        Args:
            checkpoint: folder of the ranker, or the address of its server.
        """
        if isinstance(checkpoint, str):
            return PointwiseReranker(RemoteScorer(checkpoint), attribute=self.attribute)
        ranker, pair_tokenizer = load_ranker(checkpoint)
        if self.config.get("split_attribute", True):
            split_attribute(ranker, pair_tokenizer, self.attribute)
        scorer = Scorer(ranker, pair_tokenizer, self.scoring)
        return PointwiseReranker(scorer, attribute=self.attribute, cache=self.cache)

    def save(self, folder: str | Path, checkpoint: Path | str | None = None) -> None:
        """Write ``config.yaml``, every value resolved, with the data of a checkpoint where it was taken from there."""
        write_text(Path(folder) / CONFIG, self.saved_text(checkpoint))

    def saved_text(self, checkpoint: Path | str | None = None) -> str:
        """What :meth:`save` writes."""
        options = OmegaConf.to_container(self.config)
        assert isinstance(options, dict)
        if self.chosen_dataset is None and checkpoint is not None:
            names = ("data", "first_stage")
            nodes = zip(names, self._data_of(checkpoint), strict=True)
            options |= {name: node and OmegaConf.to_container(node, resolve=True) for name, node in nodes}
        return OmegaConf.to_yaml(OmegaConf.create(options), resolve=True)

    @property
    def text(self) -> str:
        """The configuration as it is saved."""
        return OmegaConf.to_yaml(self.config, resolve=True)

    @property
    def _first_stage(self) -> DictConfig | None:
        return self.config.get("first_stage")

    def _data_of(self, checkpoint: Path | str) -> tuple[DictConfig, DictConfig | None]:
        """Data and first stage that a saved ranker was trained with, as far as no others are asked for."""
        hint = "add data=..., one of conf/data"
        if isinstance(checkpoint, str) or checkpoint.name != RANKER:
            raise ValueError(f"{checkpoint} does not say what it was trained on: {hint}")
        try:
            trained = run_config(checkpoint.parent, only=("data", "first_stage"))
        except ValueError as error:
            raise ValueError(f"{checkpoint} does not say what it was trained on ({error}): {hint}") from error
        asked = self.config.get("data") or {}
        rotation = {option: asked[option] for option in ROTATION if asked.get(option) is not None}
        merged = OmegaConf.merge(trained.data, rotation)
        assert isinstance(merged, DictConfig)
        return merged, self._first_stage or trained.get("first_stage")


def dataset_of(node: Mapping[str, Any] | DictConfig, first_stage: DictConfig | None = None) -> Dataset:
    """A file of ``conf/data/`` as a dataset; nothing is loaded yet.

    Args:
        node: of the configuration.
        first_stage: of all splits, in place of the dataset's own.

    Raises:
        ValueError: a wrong option of the rotation.
    """
    data = node if isinstance(node, DictConfig) else OmegaConf.create(dict(node))

    def loader(name: str) -> Any:
        def load() -> Any:
            try:
                return build(data[name], f"data.{name}")
            except InstantiationException as error:
                if isinstance(error.__cause__, MissingSplitError):
                    raise error.__cause__ from None
                raise

        return load

    stages: dict[str, Any] = {"": lambda: _made(first_stage)} if first_stage is not None else {}
    if first_stage is None:
        named = {split: f"{split}_first_stage" for split in SPLITS} | {"": "first_stage"}
        stages = {split: loader(option) for split, option in named.items() if data.get(option) is not None}
    return Dataset(
        name=str(data.name),
        splits={split: loader(split) for split in SPLITS if data.get(split) is not None},
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


def dataset_with(node: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[str, Dataset]:
    """A node of ``conf/data`` with some of it changed, such as its candidates; a text that tells equal ones, and it.

    Args:
        node: of ``conf/data``.
        changes: merged into it; ``{folder}`` is the folder of its test split.

    Raises:
        ValueError: an option of the data is wrong.
    """
    check_value("data", changes, Mapping[str, Any])
    test = node.get("test")
    filled = _in_folder(dict(changes), str(test.get("folder", "")) if isinstance(test, Mapping) else "")
    merged = OmegaConf.merge(OmegaConf.create(dict(node)), OmegaConf.create(filled))
    assert isinstance(merged, DictConfig)
    check_options(OmegaConf.create({"data": merged}), EvaluationOptions)
    return OmegaConf.to_yaml(merged), dataset_of(merged)


def rotation_of(data: Mapping[Any, Any]) -> Rotation:
    """``rotation_level`` and ``rotation_seed`` of a node of ``conf/data``."""
    level, seed = (data.get(option) for option in ROTATION[1:])
    return Rotation("word" if level is None else level, 0 if seed is None else seed)


def plain(node: DictConfig) -> dict[str, Any]:
    """A node of the configuration as a dictionary, every value resolved."""
    options = OmegaConf.to_container(node, resolve=True)
    assert isinstance(options, dict)
    return {str(name): value for name, value in options.items()}


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


def check_positive_ints(task: object, names: Sequence[str], least: int = 1, null: Container[str] = ()) -> None:
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
            raise ValueError(f"task.{name}={value} must be a whole number of at least {least}{or_null}")


def slugify(name: str) -> str:
    """A name as part of a file's name, without what Hydra would read in run=FILE."""
    return re.sub(r"[\s/=,():]+", "-", name).strip("-")


def _in_folder(value: Any, folder: str) -> Any:
    """The value with ``{folder}`` filled into all its texts."""
    if isinstance(value, Mapping):
        return {name: _in_folder(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [_in_folder(one, folder) for one in value]
    return value.replace("{folder}", folder) if isinstance(value, str) else value


def _made(node: DictConfig) -> FirstStage:
    return build(node, "first_stage")


def texts_of(collection: Collection) -> Any:
    """Every query and every document of a collection."""
    yield from collection.queries.values()
    yield from (text for _, text in collection.documents)
