"""What ``train.py`` is asked for: objects made of its options, each checked by its constructor."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger
from transformers import PreTrainedTokenizerBase

from backpack_rank.data.dataset import Dataset
from backpack_rank.files import RANKER, write_text
from backpack_rank.models.finding import find_ranker
from backpack_rank.parts import option_types
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.nodes import build, check_options, plain_options, with_nodes, yaml_of
from backpack_rank.pipelines.option_types import (
    AnyTrainingOptions,
    check_chosen,
    check_ranking,
    check_sharding,
    check_trainer,
    check_trainer_options,
)
from backpack_rank.pipelines.run_folder import (
    CONFIG,
    comparable,
    plain_values,
    run_config,
    saved_overrides,
)
from backpack_rank.training.adapters import Adapter
from backpack_rank.training.debiasing import Debiasing
from backpack_rank.training.freezing import FrozenParts
from backpack_rank.training.losses import RankingLoss
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.pretraining import Pretraining
from backpack_rank.training.teachers import NoTeacher, TeacherSource
from backpack_rank.training.trainer import TrainerSettings, check_hardware, trainer_options
from backpack_rank.training.warm_start import WarmStart

log = logging.getLogger(__name__)
_OF_NEW_RANKERS = ("model.", "start.", "reconstruct.", "pretraining.")


def check_training(config: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for an option of a training that is wrong in itself."""
    check_chosen(config, "data", "model", "adapter", "teacher", "trainer", "logger")
    check_options(config, AnyTrainingOptions, *option_types("train"))
    if "_target_" not in (config.get("task") or ()):
        check_ranking(config)


class TrainingSettings:
    """What any training needs: data, tokenizer, model, trainer.

    conf/train.yaml describes every option.

    Attributes:
        options: all of them, as plain values.
        changed: options of the command line, to refuse those that would be ignored.
    """

    def __init__(self, options: Mapping[str, Any], changed: Sequence[str] = ()) -> None:
        self.options = plain_options(options)
        self.changed = changed

    @classmethod
    def of(cls, config: Mapping[str, Any], changed: Sequence[str] = ()) -> TrainingSettings:
        """The settings of a new run.

        With ``checkpoint`` the model is that of the saved ranker, whose defaults then count.

        Raises:
            FileNotFoundError: there is no ranker in the folder of ``checkpoint``.
            ValueError: an option that is about new rankers only, or hardware that is not there.
        """
        check_training(config)
        settings = cls(_continued(config, changed), changed)
        check_trainer_options(settings.trainer.options)
        check_hardware(settings.trainer.options)
        check_trainer(settings.trainer.options)
        check_sharding(settings.options)
        return settings

    @classmethod
    def resumed(cls, folder: Path, changed: Sequence[str]) -> TrainingSettings:
        """Of an interrupted run; only where it runs may change.

        Args:
            folder: of the run.
            changed: options of the command line; those that the run was started with may stand
                there again.

        Raises:
            ValueError: any other option is given, or the folder does not say how the run was
                started.
        """
        config, begun_with = run_config(folder), saved_overrides(folder)
        refused = [option for option in comparable(changed) if option not in begun_with]
        if refused:
            raise ValueError(
                f"resume continues {folder} with the options it was started with; leave out "
                f"{', '.join(refused)}"
            )
        return cls.of(config)

    def save(self, folder: Path) -> None:
        """Write ``config.yaml``, every value resolved."""
        write_text(folder / CONFIG, yaml_of(self.options))

    def ranking(self) -> RankingSettings:
        """The settings of ``task=ranking``.

        Raises ``ValueError`` for a wrong one, before anything is loaded.
        """
        return RankingSettings.of(self.options)

    @property
    def task(self) -> Any:
        """Another task than ranking (``task=listwise``); None for ranking."""
        task = self.options.get("task")
        return build(task, "task") if task is not None and "_target_" in task else None

    @cached_property
    def dataset(self) -> Dataset:
        """The data to train on."""
        return dataset_of(self.options["data"], self.options.get("first_stage"))

    @cached_property
    def trainer(self) -> TrainerSettings:
        """Hardware, seed and logger."""
        training = self.options["training"]
        return TrainerSettings(
            options=trainer_options(self.options["trainer"]),
            seed=self.seed,
            logger=self._logger,
            weight_decay=training["weight_decay"],
            gradient_clip=training["gradient_clip"],
        )

    @property
    def seed(self) -> int:
        """Of everything that is drawn."""
        return int(self.options["seed"])

    @property
    def workers(self) -> int:
        """Processes that read training data."""
        return int(self.options["loader"]["workers"])

    @property
    def max_length(self) -> int:
        """Tokens of query and document."""
        return self.options["max_length"]

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the saved ranker that is trained further."""
        given = self.options.get("checkpoint")
        return None if given is None else Path(given)

    @cached_property
    def adapter(self) -> Adapter:
        """Trained in place of the backbone's own weights."""
        return build(self.options["adapter"], "adapter")

    @cached_property
    def teacher(self) -> TeacherSource | NoTeacher:
        """Whose scores the ranker is drawn to."""
        return build(self.options["teacher"], "teacher")

    @property
    def model_name(self) -> str:
        """The choice of ``model=``."""
        return str(self.options["model"]["name"])

    @property
    def prompt(self) -> Mapping[str, Any] | None:
        """Node of the prompt that a listwise ranker is trained with; None for other models."""
        return self.options["model"].get("prompt")

    def tokenizer(self, texts: Iterable[str]) -> PreTrainedTokenizerBase:
        """The model's tokenizer, trained on the texts where the model asks for it."""
        return build(self.options["model"]["tokenizer"], "model.tokenizer").build(texts)

    def new_model(self, tokenizer: PreTrainedTokenizerBase) -> Any:
        """A new ranker, or a language model for ``task=listwise``."""
        return build(self.options["model"]["ranker"], "model.ranker", tokenizer=tokenizer)

    def _logger(self, folder: Path) -> Logger:
        logger: Logger = build(self.options["logger"], "logger", save_dir=str(folder))
        shown: dict[str, Any] = {"seed": self.seed, "model": self.model_name}
        logger.log_hyperparams(self.options if isinstance(logger, WandbLogger) else shown)
        return logger


class RankingSettings:
    """Trains a ranker on lists of documents: objects of the options of ``task=ranking``.

    Attributes:
        loss: of the lists.
        optimisation: learning rates.
        epochs: passes over the training queries.
        patience: epochs without a better ranking before training stops.
        lists_per_batch: training lists of a step.
        list_options: arguments of :class:`~backpack_rank.data.training_lists.TrainingLists`.
        freezing: parts of the model that stay as they are.
        debiasing: what the training does against bias in its data.
        beginning: first values of a new Backpack over a pretrained backbone.
        pretraining: next-token prediction on the collection's text.
    """

    def __init__(
        self,
        *,
        loss: RankingLoss,
        optimisation: OptimizerConfig,
        epochs: int,
        patience: int,
        lists_per_batch: int,
        list_options: Mapping[str, Any],
        freezing: FrozenParts,
        debiasing: Debiasing,
        beginning: WarmStart,
        pretraining: Pretraining,
    ) -> None:
        self.loss = loss
        self.optimisation = optimisation
        self.epochs = epochs
        self.patience = patience
        self.lists_per_batch = lists_per_batch
        self.list_options = list_options
        self.freezing = freezing
        self.debiasing = debiasing
        self.beginning = beginning
        self.pretraining = pretraining

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RankingSettings:
        """Of all options of ``train.py``.

        Raises:
            ValueError: a wrong option.
        """
        check_ranking(options)
        training = options["training"]
        lists = options["lists"]
        return cls(
            loss=RankingLoss(training["loss"], training["margin"], training["loss_weight"]),
            optimisation=OptimizerConfig(
                learning_rate=training["learning_rate"],
                weight_decay=training["weight_decay"],
                warmup_ratio=training["warmup_ratio"],
                head_learning_rate=training["head_learning_rate"],
                warmup_steps=training["warmup_steps"],
            ),
            pretraining=build(options["pretraining"], "pretraining"),
            beginning=WarmStart(
                options["start"]["weights"], build(options["reconstruct"], "reconstruct")
            ),
            debiasing=Debiasing(
                training["attribute"],
                augment=training["augment"],
                adversary=training["adversary"],
                negatives=lists["negatives"],
                biased_share=lists["biased_share"],
            ),
            freezing=FrozenParts(training["frozen"] or (), training["frozen_epochs"]),
            epochs=int(training["epochs"]),
            patience=int(training["patience"]),
            lists_per_batch=int(training["lists_per_batch"]),
            list_options={
                "size": lists["size"],
                "max_relevant": lists["relevant"],
                "per_epoch": lists["per_epoch"],
                "seed": int(options["seed"]),
            },
        )


def _continued(config: Mapping[str, Any], changed: Sequence[str]) -> Mapping[str, Any]:
    """The options with the model of ``checkpoint``; without one they stay the same."""
    if config.get("checkpoint") is None:
        return config
    folder = find_ranker(config["checkpoint"], config["output"])
    # Of the run beside the ranker only names and numbers are taken; the ranker itself is read from
    # its folder.
    model = (plain_values(folder.parent).get("model") or {}) if folder.name == RANKER else {}
    recommended = model.get("recommended")
    refused = _OF_NEW_RANKERS + (("model=",) if recommended is not None else ())
    ignored = [option for option in changed if option.lstrip("+~").startswith(refused)]
    if ignored:
        raise ValueError(
            f"checkpoint={config['checkpoint']} goes on from a saved ranker, and "
            f"{', '.join(ignored)} is about new ones: leave it out"
        )
    changes: dict[str, Any] = {"checkpoint": str(folder)}  # a later run may lie in the same folder
    if recommended is not None:
        changes["model"] = {"name": model.get("name"), "recommended": _renamed(recommended)}
    return with_nodes(config, changes)


def _renamed(recommended: dict[str, Any]) -> dict[str, Any]:
    """A model's recommendations, which older runs have under other names."""
    names = {"warmup_epochs": "pretraining_epochs", "new_rate": "head_learning_rate"}
    return {names.get(name, name): value for name, value in recommended.items()}
