"""Options of conf/ that no constructor takes: what each takes, and what must be together.

:mod:`backpack_rank.constructors` checks each alone.

Options of a node with a ``_target_`` are those of its constructor's signature, and are not declared
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.wording_variants import WordingVariants
from backpack_rank.constructors import (
    BELOW,
    Called,
    Count,
    CountOrZero,
    FilePath,
    LearningRate,
    Length,
    Name,
    NonNegative,
    Note,
    OneOf,
    Options,
    PathText,
    Positive,
    Range,
    Seed,
    Workers,
    check_arguments,
    check_value,
    shown,
)
from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import ROTATED
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.data.rotation import LEVELS
from backpack_rank.data.run_order import TIES
from backpack_rank.data.training_lists import AUGMENTATIONS, NEGATIVES
from backpack_rank.evaluation.alpha_search import parse_budgets
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.models.initialisation import WEIGHTS
from backpack_rank.models.interactions import check_sizes
from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.models.text_encoder import POOLINGS
from backpack_rank.models.utils import pick_device
from backpack_rank.parts import option_types
from backpack_rank.pipelines.nodes import check_options
from backpack_rank.pipelines.pair_to_explain import PairToExplain
from backpack_rank.reranking.recalibration import Recalibration
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import LARGEST_ALPHA, Policy

Alpha = Annotated[
    float,
    # No range: the hook checks it, where it joins alpha to a ranker.
    Called(
        f"a finite number >= 0 and at most {LARGEST_ALPHA} (0 removes, 1 leaves as it is, more "
        "amplifies)"
    ),
]
Alphas = Annotated[Sequence[Alpha], Length(1, 1000)]
Measures = Annotated[
    Sequence[Name], Length(1), Called("a list of measures, such as [nDCG@10,R@100]")
]
Names = Annotated[Sequence[Name], Length(1)]
Texts = Name | Names
Files = PathText | Annotated[Sequence[PathText], Length(1)]
Warmup = Annotated[float, Range(least=0, below=1)]
Rows = Annotated[
    Mapping[str, Mapping[str, Any]],
    Length(1),
    Called("a mapping of names to options, with one or more"),
]
"""Rows of a table, first stages or collections, by name."""
Labels = Annotated[
    Sequence[Name], Length(2, 2), Called("two labels, such as [relevant,not_relevant]")
]
Pooling = Annotated[str, OneOf(tuple(POOLINGS))] | Annotated[None, Note("as its folder says")]
StartWeights = Annotated[str, OneOf(WEIGHTS)]
FirstStageNode = Annotated[FirstStage, Called("one of list=first_stage")]
OfTheModel = Annotated[None, Note("for what the model says")]


class DataOptions(Options):
    """``data``, for every collection: further options are those of its splits' constructors."""

    # First the options that others interpolate: a wrong value is reported under its own name.
    root: FilePath
    folder: FilePath
    file: FilePath
    query: Name
    text: Name
    score: Name | None
    label: Name | None
    query_id: Name | None
    doc_id: Name | None
    year: Count
    train_id: Name
    dev_id: Name
    test_id: Name
    ignore_identical_ids: bool | None
    dev_fraction: Annotated[float, Range(above=0, below=1)] | None
    name: Name
    seed: Seed
    measures: Measures
    rotation: Annotated[str, OneOf(tuple(ROTATED))] | None
    rotation_level: Annotated[str, OneOf(LEVELS)] | None
    rotation_seed: Seed | None
    bias_queries: FilePath | None
    answers: FilePath | None
    requests: FilePath | None
    train: Collection | None
    dev: Collection | None
    test: Collection | None
    bias: Collection | None
    first_stage: FirstStageNode
    train_first_stage: FirstStageNode | None
    dev_first_stage: FirstStageNode | None
    test_first_stage: FirstStageNode | None
    bias_first_stage: FirstStageNode | None
    variants: WordingVariants | None


class EvaluationOptions(Options):
    """``conf/evaluate.yaml``, as far as tasks share it or it is a node.

    An option of one task alone needs no line here: the field of the task declares its type, which
    is checked where the task is made (:func:`~backpack_rank.pipelines.nodes.made_options`).
    """

    data: DataOptions | None
    first_stage: FirstStageNode | None
    attribute: Annotated[Attribute, BELOW]
    policy: Annotated[Policy, Called("one of list=policy")]
    bias: Annotated[FairnessMeasures, Called("one of list=bias")]
    variants: DataOptions | None
    alpha: Alpha | Literal["auto"]
    budget: Texts | None
    checkpoint: FilePath | None
    split_attribute: bool
    template: Annotated[PromptTemplate, Called("one of list=template")] | None
    labels: Labels | None
    server_model: Name | None
    pooling: Pooling
    run: Files | None
    system: Texts | Annotated[None, Note("for each run as a system of its own")]
    ties: Annotated[str, OneOf(TIES)]
    run_memory: Annotated[float, Range(least=0, most=1_000_000)]
    output: FilePath
    resume: bool | FilePath
    verbose: bool
    objective: Texts | None
    measures: Name | Measures | Annotated[None, Note("for those of the data")]
    swap: bool
    contrast: bool | FilePath
    recalibrate: Annotated[Recalibration, BELOW]
    explain: Annotated[PairToExplain, BELOW]
    scoring: ScoringSettings
    cache: Annotated[SenseCache, BELOW]
    task: Any


class ListOptions(Options):
    """``lists`` of a training."""

    size: Annotated[int, Range(least=2, most=100_000)]
    per_epoch: Count | Annotated[None, Note("for every query")]
    relevant: Count | Annotated[None, Note("for half of the list")]
    negatives: Annotated[str, OneOf(NEGATIVES)]
    biased_share: Annotated[float, Range(above=0, most=1)]


class RecommendedOptions(Options):
    """``model.recommended``: what options of a training are where none are given."""

    passages: Annotated[int, Range(least=2, most=20)]
    max_length: Count | None
    epochs: CountOrZero
    learning_rate: LearningRate
    head_learning_rate: LearningRate | None
    lists_per_batch: Count
    pretraining_epochs: CountOrZero
    reconstruct_steps: CountOrZero
    start_weights: StartWeights
    language_model: bool


class ModelOptions(Options):
    """``model``: its tokenizer and its ranker are nodes."""

    name: Name | None
    recommended: RecommendedOptions


class LoopOptions(Options):
    """``training``."""

    loss: Name
    margin: Positive
    loss_weight: NonNegative
    attribute: Name
    augment: Annotated[str, OneOf(AUGMENTATIONS)] | None
    adversary: Positive | None
    epochs: CountOrZero
    learning_rate: LearningRate
    head_learning_rate: LearningRate | Annotated[None, Note("for training.learning_rate")]
    weight_decay: NonNegative
    frozen: Sequence[Name] | None
    frozen_epochs: Count | Annotated[None, Note("for never")]
    warmup_ratio: Warmup
    warmup_steps: Count | Annotated[None, Note("for training.warmup_ratio")]
    lists_per_batch: Count
    gradient_clip: NonNegative | Annotated[None, Note("to clip nothing")]
    patience: CountOrZero


class StartOptions(Options):
    """``start``."""

    weights: StartWeights


class LoaderOptions(Options):
    """``loader``."""

    workers: Workers


class AnyTrainingOptions(Options):
    """``conf/train.yaml``, as far as it is about ``task=listwise`` too."""

    data: DataOptions
    first_stage: FirstStageNode | None
    model: ModelOptions
    seed: Seed
    output: FilePath
    checkpoint: FilePath | None
    resume: bool | FilePath
    loader: LoaderOptions
    trainer: Mapping[str, Any]


class RankingOptions(Options):
    """Options of ``conf/train.yaml`` that a ``task=listwise`` does not have."""

    max_length: Count
    lists: ListOptions
    training: LoopOptions
    start: StartOptions


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
    adversary = config["training"]["adversary"]
    if adversary is not None:
        raise ValueError(
            f"training.adversary={adversary} does not work with trainer=fsdp: {instead}"
        )
