"""Training, step by step: data, tokenizer, ranker, pretraining, lists, saved ranker."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L

from backpack_rank._threads import choice
from backpack_rank.data.batching import CPU_TOKENS, GPU_TOKENS, Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.files import RANKER
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import Ranker
from backpack_rank.models.sequence_classifier import SequenceClassifierForRanking
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.run_folder import OVERRIDES, save_overrides
from backpack_rank.pipelines.settings import texts_of
from backpack_rank.pipelines.training_settings import RankingSettings, TrainingSettings
from backpack_rank.training.adapters import merged
from backpack_rank.training.checkpoints import Patience, newest_checkpoint
from backpack_rank.training.module import OptimizerConfig, RankingModule
from backpack_rank.training.pretraining import LanguageModelModule, Pretraining
from backpack_rank.training.sharding import gathered_afterwards
from backpack_rank.training.teachers import StudentData, prepare_teacher
from backpack_rank.training.trainer import TrainerSettings, fit, quiet_lightning

log = logging.getLogger(__name__)
MONITOR = "val/nDCG@10"


def train(config: Mapping[str, Any], folder: Path, changed: Sequence[str]) -> float:
    """Train as ``train.py`` does: a ranker in ``folder/ranker``, or another task.

    Args:
        config: as composed from ``conf/train.yaml``.
        folder: of the run; with ``resume`` that of the interrupted run, whose options are used
            again.
        changed: options of the command line, to refuse those that a resumed run cannot take.

    Returns:
        The best nDCG@10 on the dev split, or the number that another task returns.
    """
    quiet_libraries()
    start = None  # checkpoint to continue from; None: a new training
    if config["resume"] and (folder / OVERRIDES).is_file():
        start = newest_checkpoint(folder)
        settings = TrainingSettings.resumed(folder, changed)
        if start:
            log.info("continuing %s", folder)
        else:
            log.info("%s has no whole epoch and starts anew", folder)
    else:
        settings = TrainingSettings.of(config, changed)
        settings.save(folder)
        # Saved for a later resume=true, which is no option of the run itself.
        save_overrides(folder, [option for option in changed if not option.startswith("resume=")])
    L.seed_everything(settings.seed, workers=True, verbose=False)
    # None is task=ranking; another is, for example, task=listwise.
    task = settings.task
    if task is not None:
        return task.run(settings, folder, start)
    return train_ranker(settings, folder, start)


def train_ranker(settings: TrainingSettings, folder: Path, start: Path | None = None) -> float:
    """Train a ranker on lists of documents and save it; returns the best dev nDCG@10.

    Args:
        settings: of the run.
        folder: of the run.
        start: checkpoint of an interrupted training to continue from; None: a new training.
    """
    # These make objects of options, so that a wrong option is an error before anything is loaded.
    ranking = settings.ranking()
    teacher_source = settings.teacher
    adapter = settings.adapter
    trainer = settings.trainer

    collection, candidates, lists = training_lists(settings.dataset, ranking)
    log.info(choice())
    dev = settings.dataset.split("dev")
    _, dev_candidates = settings.dataset.candidates("dev", dev)
    dev_pairs = Pairs.from_run(dev_candidates, dev)

    ranker, pair_tokenizer = build(settings, collection)
    # Before any trainer: a trainer on several devices starts further processes, and these then find
    # the scores of the teacher already computed.
    student_data = StudentData(
        collection, candidates, lists, ranking.epochs, folder, trainer.device
    )
    # terms: losses that are added to the ranking loss. Without a teacher: None, and no term.
    teacher, terms = prepare_teacher(teacher_source, student_data)
    # beginning: first values and reconstruction of a new Backpack over a pretrained backbone, where
    # start.weights and reconstruct.steps ask for them.
    is_new = start is None and settings.checkpoint is None
    if is_new:
        ranking.beginning.apply(trainer, ranker, pair_tokenizer, collection, candidates, folder)
        ranker = pretrain(ranking.pretraining, trainer, ranker, pair_tokenizer, collection, folder)
    # The adversary reads the vectors of the head's last call. It stands first, because other terms
    # may call the head again, for other texts.
    terms = (*ranking.debiasing.adversaries(ranker), *terms)

    data = RankingData(
        lists,
        collection,
        dev_pairs,
        pair_tokenizer,
        lists_per_batch=ranking.lists_per_batch,
        workers=settings.workers,
        tokens_per_batch=CPU_TOKENS if trainer.device == "cpu" else GPU_TOKENS,
        teacher=teacher,
        augment=ranking.debiasing.augmentation(),
        leaning=ranking.debiasing.leaning(),
    )
    # In this order: freezing sees the parameters that an adapter adds, and does not thaw those that
    # the adapter keeps frozen.
    adapter.apply(ranker)
    callbacks = ranking.freezing.apply(ranker)
    module = RankingModule(
        ranker, ranking.optimisation, dev_pairs, settings.seed, terms, ranking.loss
    )
    fitted = fit(
        trainer,
        folder,
        module,
        data,
        monitor=MONITOR,
        epochs=ranking.epochs,
        gradient_clip=trainer.gradient_clip,
        callbacks=[Patience(MONITOR, ranking.patience), *callbacks],
        start=start,
    )
    if fitted.trainer.is_global_zero:
        # LoRA updates are added into the weights, so that the saved ranker loads without peft.
        with merged(module.ranker) as merged_ranker:
            save_ranker(folder / RANKER, merged_ranker, data.pair_tokenizer)
        log.info("best %s %.4f; ranker saved to %s", MONITOR, fitted.best, folder / RANKER)
    return fitted.best


def training_lists(
    dataset: Dataset, ranking: RankingSettings
) -> tuple[Collection, Run, TrainingLists]:
    """The training queries' collection, their candidates, and the lists that are made of these."""
    collection = dataset.split("train")
    # The first stage's name and its candidates; here the candidates alone are needed.
    _, candidates = dataset.candidates("train", collection)
    negatives = ranking.debiasing.negatives(collection)
    lists = TrainingLists(collection, candidates, negatives=negatives, **ranking.list_options)
    log.info(
        "%s: %d training queries, %d without a relevant document",
        collection.name,
        len(lists),
        lists.skipped,
    )
    return collection, candidates, lists


def build(settings: TrainingSettings, collection: Collection) -> tuple[Ranker, PairTokenizer]:
    """The ranker to train, new or from ``checkpoint``, and the tokenizer that joins its texts.

    Some models train a new tokenizer on the text of the collection.
    """
    if settings.checkpoint is not None:
        ranker, saved = load_ranker(settings.checkpoint)
        if isinstance(ranker, SequenceClassifierForRanking):
            raise ValueError(
                f"checkpoint={settings.checkpoint} was trained elsewhere; start from its weights "
                "with model=cross_encoder or model=backpack and "
                f"model.ranker.name={settings.checkpoint}"
            )
        return ranker.train(), make_pair_tokenizer(saved.tokenizer, ranker, settings.max_length)
    tokenizer = settings.tokenizer(texts_of(collection))
    ranker = settings.new_model(tokenizer)
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, settings.max_length)
    ranker.count((text for _, text in collection.documents), pair_tokenizer)
    return ranker, pair_tokenizer


def pretrain(
    pretraining: Pretraining,
    trainer: TrainerSettings,
    ranker: Ranker,
    pair_tokenizer: PairTokenizer,
    collection: Collection,
    folder: Path,
) -> Ranker:
    """Pretrain by next-token prediction on the collection's text; with 0 epochs, do nothing."""
    if pretraining.epochs == 0:
        return ranker
    sequences = pretraining.sequences(texts_of(collection), pair_tokenizer)
    optimisation = OptimizerConfig(pretraining.learning_rate, trainer.weight_decay)
    module = LanguageModelModule(ranker, optimisation)
    options: dict[str, Any] = {"max_epochs": pretraining.epochs}
    if trainer.options["strategy"] == "ddp":
        # The ranking head gets no gradient here, which plain ddp refuses.
        options["strategy"] = "ddp_find_unused_parameters_true"
    warm_up = trainer.warm_up_trainer(folder, **options)
    log.info("pretraining: %d epochs over %d tokens of text", pretraining.epochs, sequences.numel())
    with quiet_lightning(), gathered_afterwards(warm_up, module):
        warm_up.fit(module, pretraining.loader(sequences, trainer.seed))
    log.info("pretraining: next-token loss %.3f", warm_up.callback_metrics["warmup/loss"].item())
    return module.ranker
