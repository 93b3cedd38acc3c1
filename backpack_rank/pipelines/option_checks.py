"""What options must be together, tried before anything is loaded.

Each alone is checked by :mod:`.nodes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backpack_rank.constructors import Name, check_arguments, check_value, shown
from backpack_rank.evaluation.alpha_search import parse_budgets
from backpack_rank.models.interactions import check_sizes
from backpack_rank.models.utils import pick_device
from backpack_rank.parts import option_types
from backpack_rank.pipelines.nodes import check_options
from backpack_rank.pipelines.option_types import EvaluationOptions, RankingOptions

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


def check_chosen(config: Mapping[str, Any], *groups: str) -> None:
    """Raise ``ValueError`` for a group of which one file must be chosen, and none is."""
    for group in groups:
        if config.get(group) is None:
            raise ValueError(f"{group}=null: use one of list={group}")


def check_ranking(config: Mapping[str, Any]) -> None:
    """Refuse options of ``task=ranking`` that are wrong, or that do not go together.

    Raises ``ValueError`` for them.
    """
    check_options(config, RankingOptions)
    ranker = config["model"].get("ranker")
    # A saved ranker that is trained further has none. Sizes are arguments of the interaction that
    # another option names.
    if ranker is not None and "sizes" in ranker:
        check_sizes(ranker["interaction"], ranker["sizes"])
    size, relevant = config["lists"]["size"], config["lists"]["relevant"]
    if relevant is not None and relevant >= size:
        raise ValueError(
            f"lists.relevant={relevant} must be below lists.size={size}: a list needs other "
            "documents too"
        )


def check_evaluation(config: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for an option of an evaluation that is wrong."""
    check_chosen(config, "attribute", "policy", "bias")
    check_options(config, EvaluationOptions, *option_types("evaluate"))
    pick_device(config["scoring"]["device"], "scoring.device")
    budget = config["budget"]
    if budget is not None:
        parse_budgets(budget if isinstance(budget, str) else list(budget))


def check_trainer_options(options: Mapping[str, Any]) -> None:
    """Refuse options that Lightning's ``Trainer`` does not take, or that are set here.

    Raises ``ValueError``, also for an option of a wrong type.
    """
    for name, instead in SET_ELSEWHERE.items():
        if name in options:
            raise ValueError(f"trainer.{name} is not an option here: {instead}")
    # Imported here, as below: an evaluation, which checks its options too, needs nothing of
    # training.
    import lightning as L

    check_arguments(L.Trainer, options, {name: f"trainer.{name}" for name in options})
    for name, value in options.items():
        if isinstance(value, str):
            check_value(f"trainer.{name}", value, Name)


def check_trainer(options: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for options that Lightning's ``Trainer`` refuses, with its own words."""
    import lightning as L

    from backpack_rank.training.sharding import with_sharding

    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    try:
        L.Trainer(**{**with_sharding(options), **quiet, "enable_progress_bar": False})
    except Exception as error:  # a library's constructor, which raises whatever its parts raise
        given = " ".join(f"trainer.{name}={shown(value)}" for name, value in options.items())
        raise ValueError(f"Lightning's trainer refuses {given}: {error}") from error


def check_sharding(config: Mapping[str, Any]) -> None:
    """Refuse what FSDP cannot train, with a ``ValueError``.

    All processes must run the same layers at the same time.
    """
    from backpack_rank.training.sharding import SHARDED

    if config["trainer"].get("strategy") not in SHARDED:
        return
    instead = "use trainer=gpu or trainer=ddp"
    if "_target_" in (config.get("task") or ()):
        raise ValueError(
            f"task=listwise does not train with trainer=fsdp: {instead}, with adapter=lora for a "
            "large model"
        )
    steps = config["reconstruct"]["steps"]
    if steps and config["checkpoint"] is None:
        raise ValueError(
            f"reconstruct.steps={steps} does not work with trainer=fsdp: give reconstruct.steps=0, "
            f"or {instead}"
        )
    keep_swap = config["training"]["keep_swap"]
    if keep_swap is not None:
        raise ValueError(
            f"training.keep_swap={keep_swap} does not work with trainer=fsdp: {instead}"
        )
    adversary = config["training"]["adversary"]
    if adversary is not None:
        raise ValueError(
            f"training.adversary={adversary} does not work with trainer=fsdp: {instead}"
        )
