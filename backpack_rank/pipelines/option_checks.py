"""Ranges of options that no object of their own checks, tried before anything is loaded, warm caches or not.

Options that become an object (a policy, a loss, a first stage) are checked by that object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from backpack_rank.checks import above, finite, flag, fraction, whole
from backpack_rank.evaluation.alpha_search import parse_budgets
from backpack_rank.senses.policies import check_alpha

Check = Callable[[str, Any], None]
LARGEST_SEED = 2**32 - 1
"""numpy takes no larger one."""
MOST_WORKERS = 256


def _rate(option: str, value: Any, null: str | None = None) -> None:
    above(option, value, 0, null=null)
    if value is not None:
        finite(option, value)


_COUNT = partial(whole, least=1)
_WORKERS = partial(whole, least=0, most=MOST_WORKERS)
_SEED = partial(whole, least=0, most=LARGEST_SEED)

EVERY_TRAINING: Mapping[str, Check] = {"seed": _SEED, "loader.workers": _WORKERS}
"""Also of ``task=listwise``."""
RANKING: Mapping[str, Check] = {
    "max_length": _COUNT,
    "lists.size": partial(whole, least=2),
    "lists.per_epoch": partial(whole, least=1, null="for every query"),
    "lists.relevant": partial(whole, least=1, null="for half of the list"),
    "training.epochs": _COUNT,
    "training.learning_rate": _rate,
    "training.head_learning_rate": partial(_rate, null="for training.learning_rate"),
    "training.weight_decay": partial(finite, least=0),
    "training.warmup_ratio": partial(fraction, ends="[)"),
    "training.margin": _rate,
    "training.keep_swap_weight": _rate,
    "training.loss_weight": partial(finite, least=0),
    "training.lists_per_batch": _COUNT,
    "training.patience": partial(whole, least=0),
    "training.frozen_epochs": partial(whole, least=1, null="for never"),
    "pretraining.learning_rate": _rate,
    "reconstruct.learning_rate": _rate,
}
"""Of training lists and of the training itself."""
SET_ELSEWHERE = {
    "max_epochs": "give training.epochs",
    "gradient_clip_val": "give training.gradient_clip",
    "logger": "choose logger=csv, wandb or tensorboard",
    "default_root_dir": "give output",
    "callbacks": "those of a run are its own",
    "num_sanity_val_steps": "there are none",
    "use_distributed_sampler": "the data share their rows between processes themselves",
}
"""Options of Lightning's trainer that a run sets itself."""
EVALUATION: Mapping[str, Check] = {
    "aggregate_depth": partial(whole, least=1, null="for all documents"),
    "swap": flag,
    "certificate": flag,
    "recalibrate.weight": finite,
    "scoring.tokens_per_batch": partial(whole, least=1, null="to choose by device"),
    "scoring.workers": _WORKERS,
    "cache.max_gb": partial(finite, least=0),
}


def check_training(config: DictConfig) -> None:
    """Raise ``ValueError`` for an option of any training that is out of range."""
    _check(config, EVERY_TRAINING)


def check_ranking(config: DictConfig) -> None:
    """Raise ``ValueError`` for an option of ``task=ranking`` that is out of range."""
    _check(config, RANKING)
    if (clip := config.training.gradient_clip) is not None:
        finite("training.gradient_clip", clip, 0, "; null clips nothing")
    size, relevant = config.lists.size, config.lists.relevant
    if relevant is not None and relevant >= size:
        raise ValueError(f"lists.relevant={relevant} must be below lists.size={size}: a list needs other documents too")


def check_evaluation(config: DictConfig) -> None:
    """Raise ``ValueError`` for an option of an evaluation that is out of range, or measures that are none."""
    _check(config, EVALUATION)
    if config.alpha != "auto":
        check_alpha(config.alpha)
    if config.budget is not None:
        parse_budgets(config.budget if isinstance(config.budget, str) else list(config.budget))
    check_measures(config.measures)


def check_measures(measures: str | Sequence[str] | None) -> None:
    """Raise ``ValueError`` for an empty list of measures, or one with something else than names."""
    if measures is None:
        return
    names = [measures] if isinstance(measures, str) else list(measures)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(
            f"measures={names} names no measure: give some, such as measures=[nDCG@10,R@100], or leave it out for "
            "those of the data"
        )


def check_trainer(options: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for options that Lightning's ``Trainer`` does not take, with its own words."""
    for name, instead in SET_ELSEWHERE.items():
        if name in options:
            raise ValueError(f"trainer.{name} is not an option here: {instead}")
    # Imported here, as in check_sharding: an evaluation, which checks its options too, needs nothing of training.
    import lightning as L
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from backpack_rank.training.sharding import with_sharding

    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    try:
        L.Trainer(**{**with_sharding(options), **quiet, "enable_progress_bar": False})
    except (MisconfigurationException, TypeError, ValueError) as error:
        shown = " ".join(f"trainer.{name}={value}" for name, value in options.items())
        raise ValueError(f"Lightning's trainer refuses {shown}: {error}") from error


def check_sharding(config: DictConfig) -> None:
    """Raise ``ValueError`` for what FSDP cannot train: all processes must run the same layers at the same time."""
    from backpack_rank.training.sharding import SHARDED

    if config.trainer.get("strategy") not in SHARDED:
        return
    instead = "use trainer=gpu or trainer=ddp"
    if "_target_" in (config.get("task") or ()):
        raise ValueError(
            f"task=listwise does not train with trainer=fsdp: {instead}, with adapter=lora for a large model"
        )
    if config.reconstruct.steps and config.checkpoint is None:
        raise ValueError(
            f"reconstruct.steps={config.reconstruct.steps} does not work with trainer=fsdp: give reconstruct.steps=0, "
            f"or {instead}"
        )
    if config.training.keep_swap is not None:
        raise ValueError(f"training.keep_swap={config.training.keep_swap} does not work with trainer=fsdp: {instead}")


def _check(config: DictConfig, checks: Mapping[str, Check]) -> None:
    for option, check in checks.items():
        check(option, OmegaConf.select(config, option))
