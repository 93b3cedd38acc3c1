"""From the composed configuration of ``train.py`` to typed objects; what is called with them does not see it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedTokenizerBase

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.files import RANKER, write_text
from backpack_rank.models.factory import find_ranker
from backpack_rank.parts import option_types
from backpack_rank.pipelines.nodes import build, check_options
from backpack_rank.pipelines.option_checks import (
    check_chosen,
    check_ranking,
    check_sharding,
    check_trainer,
    check_trainer_options,
)
from backpack_rank.pipelines.option_types import AnyTrainingOptions
from backpack_rank.pipelines.run_folder import CONFIG, comparable, plain_values, run_config, saved_overrides
from backpack_rank.pipelines.settings import dataset_of, plain
from backpack_rank.training.adapters import Adapter
from backpack_rank.training.freezing import FrozenParts
from backpack_rank.training.losses import RankingLoss
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.pretraining import Pretraining
from backpack_rank.training.reconstruction import Reconstruction
from backpack_rank.training.teachers import NoTeacher, TeacherSource
from backpack_rank.training.trainer import TrainerSettings, check_hardware, trainer_options
from backpack_rank.training.warm_start import WarmStart

log = logging.getLogger(__name__)
_OF_NEW_RANKERS = ("model.", "start.", "reconstruct.", "pretraining.")


@dataclass(frozen=True)
class TrainingSettings:
    """What ``train.py`` is asked for; every option is described in ``conf/train.yaml``.

    Attributes:
        config: as composed; each part of it is checked where it is asked for.
        changed: options of the command line, to refuse those that would be ignored.
    """

    config: DictConfig
    changed: Sequence[str] = ()

    @classmethod
    def of(cls, config: DictConfig, changed: Sequence[str] = ()) -> TrainingSettings:
        """Of a new run; with ``checkpoint`` the model is that of the saved ranker, whose defaults then count.

        Raises:
            FileNotFoundError: there is no ranker in the folder of ``checkpoint``.
            ValueError: an option that is about new rankers only, or hardware that is not there.
        """
        check_chosen(config, "data", "model", "adapter", "teacher", "trainer", "logger")
        check_options(config, AnyTrainingOptions, *option_types("train"))
        settings = cls(_continued(config, changed), changed)
        check_trainer_options(settings.trainer.options)
        check_hardware(settings.trainer.options)
        check_trainer(settings.trainer.options)
        check_sharding(settings.config)
        return settings

    def check_ranking(self) -> None:
        """Raise ``ValueError`` for a wrong option of ``task=ranking``, before anything is loaded."""
        check_ranking(self.config)
        # Each is made of options here, and its constructor refuses what is wrong with them.
        _ = self.loss, self.optimisation, self.pretraining, self.beginning, self.keep_swap

    @classmethod
    def resumed(cls, folder: Path, changed: Sequence[str]) -> TrainingSettings:
        """Of an interrupted run; only where it runs may change.

        Args:
            folder: of the run.
            changed: options of the command line; those that the run was started with may stand there again.

        Raises:
            ValueError: any other option is given, or the folder does not say how the run was started.
        """
        config, begun_with = run_config(folder), saved_overrides(folder)
        refused = [option for option in comparable(changed) if option not in begun_with]
        if refused:
            raise ValueError(
                f"resume continues {folder} with the options it was started with; leave out {', '.join(refused)}"
            )
        return cls.of(config)

    def save(self, folder: Path) -> None:
        """Write ``config.yaml``, every value resolved."""
        write_text(folder / CONFIG, OmegaConf.to_yaml(self.config, resolve=True))

    @property
    def task(self) -> Any:
        """Another task than ranking (``task=listwise``); None for ranking."""
        task = self.config.get("task")
        return build(task, "task") if task is not None and "_target_" in task else None

    @cached_property
    def dataset(self) -> Dataset:
        """The data to train on."""
        return dataset_of(self.config.data, self.config.get("first_stage"))

    @cached_property
    def trainer(self) -> TrainerSettings:
        """Hardware, seed and logger."""
        training = self.config.training
        options = trainer_options(plain(self.config.trainer))
        return TrainerSettings(options, self.seed, self._logger, training.weight_decay, training.gradient_clip)

    @property
    def seed(self) -> int:
        """Of everything that is drawn."""
        return int(self.config.seed)

    @property
    def workers(self) -> int:
        """Processes that read training data."""
        return int(self.config.loader.workers)

    @property
    def max_length(self) -> int:
        """Tokens of query and document."""
        return self.config.max_length

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the saved ranker that is trained further."""
        return None if self.config.get("checkpoint") is None else Path(self.config.checkpoint)

    @property
    def epochs(self) -> int:
        """Passes over the training queries."""
        return int(self.config.training.epochs)

    @property
    def patience(self) -> int:
        """Epochs without a better ranking before training stops."""
        return int(self.config.training.patience)

    @property
    def lists_per_batch(self) -> int:
        """Training lists of a step."""
        return int(self.config.training.lists_per_batch)

    @cached_property
    def optimisation(self) -> OptimizerConfig:
        """Learning rates."""
        given = self.config.training
        return OptimizerConfig(given.learning_rate, given.weight_decay, given.warmup_ratio, given.head_learning_rate)

    @cached_property
    def loss(self) -> RankingLoss:
        """Of the lists."""
        return RankingLoss(self.config.training.loss, self.config.training.margin, self.config.training.loss_weight)

    @cached_property
    def freezing(self) -> FrozenParts:
        """Parts of the model that stay as they are."""
        return FrozenParts(self.config.training.frozen or (), self.config.training.frozen_epochs)

    @cached_property
    def adapter(self) -> Adapter:
        """Trained in place of the backbone's own weights."""
        return build(self.config.adapter, "adapter")

    @cached_property
    def teacher(self) -> TeacherSource | NoTeacher:
        """Whose scores the ranker is drawn to."""
        return build(self.config.teacher, "teacher")

    @cached_property
    def keep_swap(self) -> tuple[str, float] | None:
        """Folder of the ranker whose changes under swaps are kept, and the weight of the term; None: none are.

        Raises:
            FileNotFoundError: there is no ranker in the folder.
        """
        given = self.config.training
        if given.keep_swap is None:
            return None
        try:
            return str(find_ranker(given.keep_swap, "")), float(given.keep_swap_weight)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"training.keep_swap: {error}") from error

    @cached_property
    def beginning(self) -> WarmStart:
        """First values of a new Backpack over a pretrained backbone."""
        reconstruction: Reconstruction = build(self.config.reconstruct, "reconstruct")
        return WarmStart(self.config.start.weights, reconstruction)

    @cached_property
    def pretraining(self) -> Pretraining:
        """Next-token prediction on the collection's text."""
        return build(self.config.pretraining, "pretraining")

    @property
    def model_name(self) -> str:
        """The choice of ``model=``."""
        return str(self.config.model.name)

    def tokenizer(self, texts: Iterable[str]) -> PreTrainedTokenizerBase:
        """The model's tokenizer, trained on the texts where the model asks for it."""
        return build(self.config.model.tokenizer, "model.tokenizer").build(texts)

    def new_model(self, tokenizer: PreTrainedTokenizerBase) -> Any:
        """A new ranker, or a language model for ``task=listwise``."""
        make: Callable[..., Any] = build(self.config.model.ranker, "model.ranker", tokenizer=tokenizer)
        return make

    def lists(self, collection: Collection, candidates: Run) -> TrainingLists:
        """The training lists of a collection."""
        given = self.config.lists
        return TrainingLists(
            collection,
            candidates,
            size=given.size,
            max_relevant=given.relevant,
            per_epoch=given.per_epoch,
            seed=self.seed,
        )

    def _logger(self, folder: Path) -> Logger:
        logger: Logger = build(self.config.logger, "logger", save_dir=str(folder))
        all_of_them = isinstance(logger, WandbLogger)
        logger.log_hyperparams(plain(self.config) if all_of_them else {"seed": self.seed, "model": self.model_name})
        return logger


def _continued(config: DictConfig, changed: Sequence[str]) -> DictConfig:
    """The configuration with the model of ``checkpoint``; without one as it is."""
    if config.get("checkpoint") is None:
        return config
    folder = find_ranker(config.checkpoint, config.output)
    # Of the run beside the ranker only names and numbers are taken; the ranker itself is read from its folder.
    model = (plain_values(folder.parent).get("model") or {}) if folder.name == RANKER else {}
    recommended = model.get("recommended")
    refused = _OF_NEW_RANKERS + (("model=",) if recommended is not None else ())
    ignored = [option for option in changed if option.lstrip("+~").startswith(refused)]
    if ignored:
        raise ValueError(
            f"checkpoint={config.checkpoint} goes on from a saved ranker, and {', '.join(ignored)} is about new ones: "
            "leave it out"
        )
    options = OmegaConf.to_container(config)
    assert isinstance(options, dict)
    options["checkpoint"] = str(folder)  # a later run may lie in the same folder
    if recommended is not None:
        options["model"] = {"name": model.get("name"), "recommended": _renamed(recommended)}
    return OmegaConf.create(options)


def _renamed(recommended: dict[str, Any]) -> dict[str, Any]:
    """A model's recommendations, which older runs have under other names."""
    names = {"warmup_epochs": "pretraining_epochs", "new_rate": "head_learning_rate"}
    return {names.get(name, name): value for name, value in recommended.items()}
