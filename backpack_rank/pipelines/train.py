"""Training, step by step: data, tokenizer, ranker, pretraining, lists, saved ranker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig

from backpack_rank.data.batching import CPU_TOKENS, GPU_TOKENS, Pairs
from backpack_rank.data.collection import Collection
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.vocabulary import WordPairTokenizer
from backpack_rank.files import RANKER
from backpack_rank.models.factory import load_ranker, make_pair_tokenizer, save_ranker
from backpack_rank.models.rankers import Ranker
from backpack_rank.models.sequence_classifier import SequenceClassifierForRanking
from backpack_rank.models.word_ranker import InteractionForRanking
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.run_folder import OVERRIDES, save_overrides
from backpack_rank.pipelines.settings import texts_of
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.training.adapters import merged
from backpack_rank.training.checkpoints import Patience, newest_checkpoint
from backpack_rank.training.kept_swap import kept_swap, swaps_of
from backpack_rank.training.module import OptimizerConfig, RankingModule
from backpack_rank.training.pretraining import LanguageModelModule
from backpack_rank.training.sharding import whole_afterwards
from backpack_rank.training.teachers import StudentData, prepare_teacher
from backpack_rank.training.trainer import fit, quiet_lightning

log = logging.getLogger(__name__)
MONITOR = "val/nDCG@10"


def train(config: DictConfig, folder: Path, changed: Sequence[str]) -> float:
    """Train a ranker and save it to ``folder/ranker``, or do what another ``task`` says.

    Args:
        config: as composed from ``conf/train.yaml``.
        folder: of the run; with ``resume`` that of the interrupted one, whose configuration is used again.
        changed: options of the command line, to refuse those that a resumed run cannot take.

    Returns:
        The best nDCG@10 on the dev split; of another task what it gives.
    """
    quiet_libraries()
    start = None
    if config.resume and (folder / OVERRIDES).is_file():
        start = newest_checkpoint(folder)
        settings = TrainingSettings.resumed(folder, changed)
        log.info("continuing %s", folder) if start else log.info("%s has no whole epoch and starts anew", folder)
    else:
        settings = TrainingSettings.of(config, changed)
        settings.save(folder)
        save_overrides(folder, [option for option in changed if not option.startswith("resume=")])
    L.seed_everything(settings.seed, workers=True, verbose=False)
    if (task := settings.task) is not None:
        return task.run(settings, folder, start)
    return train_ranker(settings, folder, start)


def train_ranker(settings: TrainingSettings, folder: Path, start: Path | None = None) -> float:
    """Train a ranker on lists of documents and save it; gives the best nDCG@10 on the dev split.

    Args:
        settings: of the run.
        folder: of the run.
        start: checkpoint to go on from.
    """
    # Every wrong option is an error before anything is loaded.
    settings.check_ranking()
    source, beginning = settings.teacher, settings.beginning
    ranking_loss, adapter, freezing, trainer = settings.loss, settings.adapter, settings.freezing, settings.trainer
    dataset = settings.dataset
    collection = dataset.split("train")
    _, candidates = dataset.candidates("train", collection)
    lists = settings.lists(collection, candidates)
    log.info("%s: %d training queries, %d without a relevant document", collection.name, len(lists), lists.skipped)
    dev = dataset.split("dev")
    dev_pairs = Pairs.from_run(dataset.candidates("dev", dev)[1], dev)

    ranker, pair_tokenizer = build(settings, collection)
    material = StudentData(collection, candidates, lists, settings.epochs, folder, trainer.device)
    # Before any trainer: further processes start with the first one and then find the teacher's scores.
    teacher, terms = prepare_teacher(source, material)
    if start is None and settings.checkpoint is None:
        beginning.apply(trainer, ranker, pair_tokenizer, collection, candidates, folder)
        ranker = pretrain(settings, ranker, pair_tokenizer, collection, folder)
    swap = None
    if settings.keep_swap is not None:
        folder_of_reference, weight = settings.keep_swap
        terms = (*terms, kept_swap(folder_of_reference, ranker, pair_tokenizer, weight))
        swap = swaps_of(ranker)
    data = RankingData(
        lists,
        collection,
        dev_pairs,
        pair_tokenizer,
        lists_per_batch=settings.lists_per_batch,
        workers=settings.workers,
        tokens_per_batch=CPU_TOKENS if trainer.device == "cpu" else GPU_TOKENS,
        teacher=teacher,
        swap=swap,
    )
    adapter.apply(ranker)
    callbacks = freezing.apply(ranker)
    module = RankingModule(ranker, settings.optimisation, dev_pairs, settings.seed, terms, ranking_loss)
    return _fit(settings, folder, module, data, callbacks, start)


def build(settings: TrainingSettings, collection: Collection) -> tuple[Ranker, PairTokenizer]:
    """Tokenizer (trained on the collection's text where the model asks for it) and ranker, or the saved ones."""
    if settings.checkpoint is not None:
        ranker, saved = load_ranker(settings.checkpoint)
        if isinstance(ranker, SequenceClassifierForRanking):
            raise ValueError(
                f"checkpoint={settings.checkpoint} was trained elsewhere; start from its weights with "
                f"model=cross_encoder or model=backpack and model.ranker.name={settings.checkpoint}"
            )
        return ranker.train(), make_pair_tokenizer(saved.tokenizer, ranker, settings.max_length)
    tokenizer = settings.tokenizer(texts_of(collection))
    ranker = settings.new_model(tokenizer)
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, settings.max_length)
    if isinstance(ranker, InteractionForRanking) and isinstance(pair_tokenizer, WordPairTokenizer):
        ranker.count((text for _, text in collection.documents), pair_tokenizer)
    return ranker, pair_tokenizer


def pretrain(
    settings: TrainingSettings,
    ranker: Ranker,
    pair_tokenizer: PairTokenizer,
    collection: Collection,
    folder: Path,
) -> Ranker:
    """Next-token prediction on the collection's text, when the configuration has epochs for it; gives the ranker."""
    pretraining = settings.pretraining
    if pretraining.epochs == 0:
        return ranker
    sequences = pretraining.sequences(texts_of(collection), pair_tokenizer)
    module = LanguageModelModule(ranker, OptimizerConfig(pretraining.learning_rate, settings.trainer.weight_decay))
    options: dict[str, Any] = {"max_epochs": pretraining.epochs}
    if settings.trainer.options["strategy"] == "ddp":
        options["strategy"] = "ddp_find_unused_parameters_true"  # the ranking head takes no part
    trainer = settings.trainer.warm_up_trainer(folder, **options)
    log.info("pretraining: %d epochs over %d tokens of text", pretraining.epochs, sequences.numel())
    with quiet_lightning(), whole_afterwards(trainer, module):
        trainer.fit(module, pretraining.loader(sequences, settings.seed))
    log.info("pretraining: next-token loss %.3f", trainer.callback_metrics["warmup/loss"].item())
    return module.ranker


def _fit(
    settings: TrainingSettings,
    folder: Path,
    module: RankingModule,
    data: RankingData,
    callbacks: list[Callback],
    start: Path | None,
) -> float:
    fitted = fit(
        settings.trainer,
        folder,
        module,
        data,
        monitor=MONITOR,
        epochs=settings.epochs,
        gradient_clip=settings.trainer.gradient_clip,
        callbacks=[Patience(MONITOR, settings.patience), *callbacks],
        start=start,
    )
    if fitted.trainer.is_global_zero:
        with merged(module.ranker) as ranker:
            save_ranker(folder / RANKER, ranker, data.pair_tokenizer)
        log.info("best %s %.4f; ranker saved to %s", MONITOR, fitted.best, folder / RANKER)
    return fitted.best
