"""Options and values that are wrong for them, and how one of them is tried without a process."""

from __future__ import annotations

from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from in_process import configured
from omegaconf import DictConfig, OmegaConf

from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.training_settings import TrainingSettings

NO_COUNT = ("0", "-1", "1.5", "nan", "inf", "abc", "true", "[1]")
NO_RATE = ("-1", "nan", "inf", "abc", "true", "[1]")
EVALUATION = {
    "alpha": ("nan", "inf", "true", "high", "[0.5]", "null"),
    "swap": ("no", "0", "null", "[true]"),
    "aggregate_depth": NO_COUNT,
    "run_memory": (*NO_RATE, "null"),
    "recalibrate.weight": ("nan", "inf", "abc", "true", "null"),
    "scoring.tokens_per_batch": NO_COUNT,
    "scoring.workers": ("-1", "1.5", "abc", "true", "100000", "null"),
    "scoring.dtype": ("int4", "true", "null"),
    "scoring.long_documents": ("all", "true", "null"),
    "scoring.max_chunks_per_doc": (*NO_COUNT, "3"),  # 3 needs chunks
    "scoring.chunk_overlap": ("-1", "1.5", "nan", "abc", "true", "null", "3"),
    "cache.max_gb": (*NO_RATE, "null"),
    "measures": ("[]", "[null]", "''", "[3]"),
    "budget": ("nDCG@10 loss<=1", "nDCG@10 loss<=-1%", "nDCG@10"),
    "policy.seed": ("-1", "1.5", "nan", "abc", "true", "null"),
    "policy.count": (*NO_COUNT, "null"),
}
TRAINING = {
    "seed": ("-1", "1.5", "nan", "abc", "true", "4294967296", "null"),
    "max_length": (*NO_COUNT, "null"),
    "loader.workers": ("-1", "1.5", "abc", "true", "100000", "null"),
    "lists.size": (*NO_COUNT, "1", "null"),
    "lists.per_epoch": NO_COUNT,
    "lists.relevant": (*NO_COUNT, "10"),
    "training.epochs": ("-1", "1.5", "abc", "true", "null"),
    "training.learning_rate": ("0", *NO_RATE, "null"),
    "training.head_learning_rate": ("0", *NO_RATE),
    "training.weight_decay": (*NO_RATE, "null"),
    "training.warmup_ratio": ("1", *NO_RATE, "null"),
    "training.margin": ("0", *NO_RATE, "null"),
    "training.loss": ("hinge", "null", "3"),
    "training.loss_weight": (*NO_RATE, "null"),
    "training.lists_per_batch": (*NO_COUNT, "null"),
    "training.gradient_clip": NO_RATE,
    "training.patience": ("-1", "1.5", "abc", "true", "null"),
    "training.frozen_epochs": NO_COUNT,
    "pretraining.epochs": ("-1", "1.5", "abc", "true", "null"),
    "pretraining.batch_size": (*NO_COUNT, "null"),
    "pretraining.learning_rate": ("0", *NO_RATE, "null"),
    "reconstruct.steps": ("-1", "1.5", "abc", "true", "null"),
    "reconstruct.learning_rate": ("0", *NO_RATE, "null"),
    "trainer.devices": ("abc", "-3", "0"),
    "trainer.precision": ("8-bit", "12"),
    "trainer.max_epochs": ("3",),
    "trainer.limit_train_batchs": ("3",),
}


@cache
def defaults(script: str) -> DictConfig:
    """Of evaluations, with a policy that has options."""
    return configured(script, *(["policy=random_senses"] if script == "evaluate" else []))


def with_option(script: str, option: str, value: str) -> DictConfig:
    """The defaults of a script with one option as Hydra reads it from the command line."""
    config = defaults(script).copy()
    OmegaConf.set_struct(config, False)
    quotes = "'" if " " in value or "<" in value else ""
    given = OverridesParser.create().parse_override(f"{option}={quotes}{value}{quotes}")
    OmegaConf.update(config, option, given.value())
    if option == "budget":
        config.alpha = "auto"
    return config


def read(script: str, config: DictConfig) -> None:
    if script == "evaluate":
        EvaluationSettings.of(config)
    else:
        TrainingSettings.of(config).ranking()
