"""``train.py task=listwise``: a listwise ranker from lists, a tokenizer and a language model."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.constructors import (
    Count,
    LearningRate,
    Name,
    NonNegative,
    OneOf,
    PathText,
    Range,
    Share,
)
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.files import LAST, RANKER, atomic_path, write_text
from backpack_rank.models.rankers import Ranker
from backpack_rank.pipelines.nodes import build
from backpack_rank.pipelines.settings import check_positive_ints, reject_overrides
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.position.lists.augmentation import Augmentation, augmentation_of
from backpack_rank.position.lists.causal_lm import position_limit
from backpack_rank.position.lists.passages import ListSource, ListwiseExample
from backpack_rank.position.lists.prompt import Prompt, PromptTokenizer
from backpack_rank.position.lists.propensity import load_propensities
from backpack_rank.position.lists.saved import MAX_LENGTH, save_listwise
from backpack_rank.position.lists.sources import COLLECTION, KINDS, ListwiseDataConfig
from backpack_rank.position.lists.training import NDCG, TAU, ListwiseModule, ListwiseObjective
from backpack_rank.position.lists.training_data import (
    ListwiseData,
    ListwiseDataset,
    single_identifiers,
)
from backpack_rank.training.adapters import Adapter, NoAdapter, merged
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.trainer import fit

log = logging.getLogger(__name__)
OPTIONS = (
    "task",
    "data",
    "model",
    "adapter",
    "trainer",
    "logger",
    "loader",
    "seed",
    "output",
    "resume",
    "hydra",
)
SUMMARY = "training.json"
FORMAT = "backpack_rank listwise training 1"
_SCALED_ON = 2_000
"""Training lists that inverse propensities are scaled on, at most."""


@dataclass(frozen=True)
class ListwiseTraining:
    """Trains a causal language model as a listwise ranker.

    It is the task of ``conf/task/listwise.yaml``::

        python train.py task=listwise model=listwise_tiny task.lists=mathsort

    Attributes:
        lists: see ``kind`` of :class:`~backpack_rank.position.lists.sources.ListwiseDataConfig`,
            which says likewise what ``size``, ``number``, ``held_out``, ``imbalance`` and
            ``teacher`` are.
        weight: lambda; see :class:`~backpack_rank.position.lists.training.ListwiseObjective`,
            likewise ``language_model`` and ``noise``.
        propensities: file that ``evaluate.py experiment=propensities`` wrote: L_rank-IPS in place
            of L_rank.
        augmentation: ``none``, ``shuffle`` or ``rotate``: in how many orders, ``copies``, a list is
            shown per epoch.
        epochs: passes over the lists, likewise ``batch_size``, ``learning_rate``, ``warmup_ratio``,
            ``weight_decay`` and ``gradient_clip``.
        gradient_checkpointing: compute activations twice and keep few of them.
        max_length: tokens of a prompt with its answer; None is what the model reads, at most 4096.
    """

    lists: Annotated[str, OneOf(KINDS)]
    size: Annotated[int, Range(least=2, most=20)]
    epochs: Count
    batch_size: Count
    learning_rate: LearningRate
    number: Count | None = None
    held_out: Count = 200
    imbalance: Share | None = None
    teacher: PathText | None = None
    weight: NonNegative = 0.1
    language_model: bool = True
    propensities: PathText | None = None
    augmentation: Name = "none"
    copies: Count = 1
    noise: NonNegative = 0.0
    gradient_checkpointing: bool = False
    max_length: Count | None = None
    warmup_ratio: Annotated[float, Range(least=0, below=1)] = 0.05
    weight_decay: NonNegative = 0.01
    gradient_clip: NonNegative | None = 1.0

    def __post_init__(self) -> None:
        check_positive_ints(self, ("epochs", "batch_size", "max_length"), null=("max_length",))
        if not self.learning_rate > 0 or not 0 <= self.warmup_ratio < 1:
            raise ValueError(
                f"task.learning_rate={self.learning_rate} must be > 0 and "
                f"task.warmup_ratio={self.warmup_ratio} in [0, 1)"
            )
        augmentation_of(self.augmentation, self.copies)
        ListwiseObjective(self.weight, self.language_model, self.noise)

    def run(self, settings: TrainingSettings, folder: Path, start: Path | None = None) -> float:
        """Train a listwise ranker and save it to ``folder/ranker``.

        Args:
            settings: of the run.
            folder: of the run.
            start: checkpoint to go on from.

        Returns:
            The best Kendall's tau of a sorting task, or the best nDCG@10 of a collection, on
            held-out lists.
        """
        prompt = _checked_prompt(settings)
        lists = ListwiseDataConfig(
            kind=self.lists,
            size=self.size,
            number=self.number,
            held_out=self.held_out,
            imbalance=self.imbalance,
            teacher=self.teacher,
            seed=settings.seed,
        )
        source = lists.source(settings.dataset)
        held_out = lists.held_out_lists(settings.dataset)
        tokenizer = _tokenizer(settings, folder, lists, source, prompt)
        model = cast(PreTrainedModel, settings.new_model(tokenizer))
        pair_tokenizer = self._prompt_tokenizer(tokenizer, prompt, model)
        augmentation = augmentation_of(self.augmentation, self.copies)
        data = ListwiseData(
            source,
            held_out,
            pair_tokenizer,
            augmentation,
            batch_size=self.batch_size,
            seed=settings.seed,
            workers=settings.workers,
        )
        objective = self._objective(source, augmentation, data.train)
        self._prepare(settings.adapter, model)
        log.info("%s: %d lists in %d order(s) each", source.name, len(source), augmentation.copies)
        optimisation = OptimizerConfig(self.learning_rate, self.weight_decay, self.warmup_ratio)
        module = ListwiseModule(
            model, pair_tokenizer, optimisation, objective, held_out, settings.seed
        )
        fitted = fit(
            settings.trainer,
            folder,
            module,
            data,
            monitor=NDCG if self.lists == COLLECTION else TAU,
            epochs=self.epochs,
            gradient_clip=self.gradient_clip,
            start=start,
        )
        if fitted.trainer.is_global_zero:
            measured = {name: fitted.metrics[name] for name in (TAU, NDCG)}
            steps = fitted.trainer.global_step
            self._save(
                folder, model, pair_tokenizer, source, held_out, fitted.best, measured, steps
            )
        return fitted.best

    def _prompt_tokenizer(
        self, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, model: PreTrainedModel
    ) -> PromptTokenizer:
        limit = position_limit(model)
        max_length = self.max_length or min(limit or MAX_LENGTH, MAX_LENGTH)
        if limit is not None and max_length > limit:
            raise ValueError(
                f"task.max_length={max_length} exceeds the model's {limit} positions; shorten it"
            )
        pair_tokenizer = PromptTokenizer(tokenizer, prompt, max_length)
        # Identifiers of several tokens are refused now, and not at the first batch.
        single_identifiers(pair_tokenizer, self.size)
        return pair_tokenizer

    def _objective(
        self, source: ListSource, augmentation: Augmentation, shown: ListwiseDataset
    ) -> ListwiseObjective:
        """The objective of training.

        Inverse propensities are scaled on the lists of the first epoch, in their shown orders.
        """
        shortest = min(map(len, source.lists(0)))
        if self.augmentation == "rotate" and shortest < augmentation.copies:
            raise ValueError(
                f"{source.name} has a list of {shortest} passages, which cannot be cut into "
                f"task.copies={augmentation.copies} groups: lower it"
            )
        inverse = None
        if self.propensities is not None:
            propensities = load_propensities(self.propensities)
            propensities.check_size(self.size)
            ranks = []
            levels = []
            for number in range(min(len(shown), _SCALED_ON)):
                example = shown.shown(0, number)
                ranks.append(example.ranks)
                levels.append(example.relevance_levels)
            inverse = propensities.inverse(propensities.scale_for(ranks, levels))
            log.info(
                "inverse propensities from %.3f to %.3f; %d of %d cells below the floor of %g of "
                "the even share",
                inverse.min(),
                inverse.max(),
                propensities.floored,
                propensities.size**2,
                propensities.floor,
            )
        return ListwiseObjective(self.weight, self.language_model, self.noise, inverse)

    def _prepare(self, adapter: Adapter, model: PreTrainedModel) -> None:
        """Adapters and checkpointing of activations, in place."""
        adapter.apply(cast(Ranker, model))
        if not isinstance(adapter, NoAdapter):
            # Rankers of pairs have a new head, which is trained in full beside an adapter. The head
            # of a language model is pretrained.
            model.get_output_embeddings().requires_grad_(False)
        if self.gradient_checkpointing:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )

    def _save(
        self,
        folder: Path,
        model: PreTrainedModel,
        pair_tokenizer: PromptTokenizer,
        source: ListSource,
        held_out: Sequence[ListwiseExample],
        best: float,
        measured: dict[str, float],
        steps: int,
    ) -> None:
        if self.gradient_checkpointing:
            model.gradient_checkpointing_disable()
        summary: dict[str, Any] = {
            "format": FORMAT,
            "best": best,
            "after_last_epoch": measured,
            "lists": source.name,
            "lists_per_epoch": len(source),
            "orders_of_each_list": self.copies,
            "held_out_lists": len(held_out),
            "steps": steps,
            "parameters": model.num_parameters(),
            "vocabulary": len(pair_tokenizer.tokenizer),
        }
        write_text(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")
        # The ranker is saved last: a run with a ranker counts as complete.
        with merged(cast(Ranker, model)) as merged_model:
            save_listwise(
                folder / RANKER,
                merged_model,
                pair_tokenizer.tokenizer,
                pair_tokenizer.prompt,
                "first_token",
                self.size,
                pair_tokenizer.max_length,
            )
        log.info("best on held-out lists %.4f; ranker saved to %s", best, folder / RANKER)
        # What only an interrupted run needs: resume=true takes a run with a last checkpoint for
        # interrupted.
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)
        (folder / LAST).unlink(missing_ok=True)


def _tokenizer(
    settings: TrainingSettings,
    folder: Path,
    lists: ListwiseDataConfig,
    source: ListSource,
    prompt: Prompt,
) -> PreTrainedTokenizerBase:
    """The tokenizer, kept in the run's folder for a resumed run, until the run is complete."""
    kept = folder / "tokenizer"
    if kept.is_dir():
        return load_tokenizer(kept)
    tokenizer = settings.tokenizer(lists.texts(settings.dataset, source, prompt))
    with atomic_path(kept) as temporary:
        tokenizer.save_pretrained(temporary)
    return tokenizer


def _checked_prompt(settings: TrainingSettings) -> Prompt:
    """The model's prompt; refuses options of ranking, and models of other rankers."""
    reject_overrides(
        settings.changed,
        (*OPTIONS, "prompt"),
        "options of ranking, which task=listwise does not read; its own are task.epochs, "
        "task.learning_rate and the others of conf/task/listwise.yaml",
    )
    node = settings.prompt
    if node is None:
        raise ValueError(
            f"task=listwise trains a causal language model, and model={settings.model_name} is "
            "none: use model=listwise_tiny, or model=listwise_lm model.ranker.name=NAME for any "
            "of Hugging Face"
        )
    return build(node, "model.prompt")
