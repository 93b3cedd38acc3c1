"""Training, step by step: data, tokenizer, ranker, warm-up, lists, saved ranker."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import lightning as L
from hydra.utils import instantiate
from lightning.pytorch.callbacks import Callback, EarlyStopping, TQDMProgressBar
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.lists import TrainingLists
from backpack_rank.data.pairs import CPU_TOKENS, GPU_TOKENS, Pairs
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.data.vocabulary import WordPairEncoder
from backpack_rank.models.build import Ranker, pair_encoder, save_ranker
from backpack_rank.models.interaction import InteractionForRanking
from backpack_rank.pipelines.beginning import Beginning
from backpack_rank.pipelines.common import CONFIG, RANKER, candidates_of, load_split, quiet_libraries, save_config
from backpack_rank.pipelines.fine_tuning import continued, saved_ranker
from backpack_rank.pipelines.fitting import check_hardware, fit, less_advice, trainer_options
from backpack_rank.pipelines.specialise import specialisation_of, specialised
from backpack_rank.pipelines.teacher import TrainingMaterial, taught, teacher_source
from backpack_rank.senses.specialised import Specialised
from backpack_rank.training.adapter import Adapter, merged
from backpack_rank.training.freezing import Freezing
from backpack_rank.training.module import Optimisation, RankingModule
from backpack_rank.training.ranking_loss import RankingLoss
from backpack_rank.training.specialisation import NoSpecialisation, Specialisation
from backpack_rank.training.warmup import LanguageModelModule, Warmup

log = logging.getLogger(__name__)
MONITOR = "val/nDCG@10"


def train(config: DictConfig, folder: Path, changed: list[str]) -> float:
    """Train a ranker and save it to ``folder/ranker``, or do what another ``task`` says.

    Args:
        config: as composed from ``conf/train.yaml``.
        folder: of the run; with ``resume`` that of the interrupted one, whose configuration is used again.
        changed: options of the command line, to refuse those that a resumed run cannot take.

    Returns:
        The best nDCG@10 on the dev split; of another task what it gives.
    """
    quiet_libraries()
    resumed = bool(config.resume)
    config = _resumed_config(folder, changed) if resumed else continued(config, changed)
    check_hardware(config.trainer)
    L.seed_everything(config.seed, workers=True, verbose=False)
    if not resumed:
        save_config(folder, config)
    if config.get("task") is not None and "_target_" in config.task:  # anything but ranking
        return instantiate(config.task, _convert_="all").run(config, folder, changed, resumed)
    if config.model.get("counting") is not None:  # nothing to train
        return instantiate(config.model.counting).run(config, folder, changed, resumed)

    source, ranking_loss = teacher_source(config), _ranking_loss(config)
    specialisation = specialisation_of(config)
    adapter: Adapter = instantiate(config.adapter, _convert_="all")
    freezing = Freezing(config.training.frozen or (), config.training.frozen_epochs)
    beginning = Beginning.of(config)
    collection = load_split(config.data, "train")
    _, candidates = candidates_of(config.data, "train", collection)
    lists = TrainingLists(
        collection,
        candidates,
        size=config.lists.size,
        max_relevant=config.lists.relevant,
        per_epoch=config.lists.per_epoch,
        seed=config.seed,
    )
    log.info("%s: %d training queries, %d without a relevant document", collection.name, len(lists), lists.skipped)
    dev = load_split(config.data, "dev")
    dev_pairs = Pairs.from_run(candidates_of(config.data, "dev", dev)[1], dev)

    ranker, encoder = build(config, collection)
    device = "cpu" if config.trainer.accelerator == "cpu" else "auto"
    material = TrainingMaterial(collection, candidates, lists, config.training.epochs, folder, device)
    # Before any trainer: further processes start with the first one and then find the teacher's scores.
    teacher, terms = taught(source, material)
    if not resumed and config.get("checkpoint") is None:
        beginning.apply(config, ranker, encoder, collection, candidates, folder)
        warm_up(config, ranker, encoder, collection, folder)
    terms += specialised(specialisation, config, folder, ranker, encoder, ranking_loss, terms)
    data = RankingData(
        lists,
        collection,
        dev_pairs,
        encoder,
        lists_per_batch=config.training.lists_per_batch,
        workers=config.loader.workers,
        tokens_per_batch=CPU_TOKENS if config.trainer.accelerator == "cpu" else GPU_TOKENS,
        teacher=teacher,
        swap=specialisation.swap,
    )
    adapter.apply(ranker)
    callbacks = freezing.apply(ranker)
    module = RankingModule(ranker, _optimisation(config), dev_pairs, config.seed, terms, ranking_loss)
    return _fit(config, folder, module, data, callbacks, resumed, specialisation)


def build(config: DictConfig, collection: Collection) -> tuple[Ranker, PairEncoder]:
    """Tokenizer (trained on the collection's text where the model asks for it) and ranker, or the saved ones."""
    if config.get("checkpoint") is not None:
        return saved_ranker(config)
    tokenizer = instantiate(config.model.tokenizer).build(texts_of(collection))
    ranker = instantiate(config.model.ranker, tokenizer=tokenizer, _convert_="all")
    encoder = pair_encoder(tokenizer, ranker, config.max_length)
    if isinstance(ranker, InteractionForRanking) and isinstance(encoder, WordPairEncoder):
        ranker.count((text for _, text in collection.documents), encoder)
    return ranker, encoder


def texts_of(collection: Collection) -> Iterator[str]:
    """Every query and every document of a collection."""
    return itertools.chain(collection.queries.values(), (text for _, text in collection.documents))


def warm_up(
    config: DictConfig,
    ranker: Ranker,
    encoder: PairEncoder,
    collection: Collection,
    folder: Path,
) -> None:
    """Language-model warm-up, when the configuration has epochs for it."""
    warmup: Warmup = instantiate(config.warmup)
    if warmup.epochs == 0:
        return
    sequences = warmup.sequences(texts_of(collection), encoder)
    module = LanguageModelModule(ranker, Optimisation(warmup.learning_rate, config.training.weight_decay))
    options = trainer_options(config)
    if options["strategy"] == "ddp":
        options["strategy"] = "ddp_find_unused_parameters_true"  # the ranking head takes no part
    trainer = L.Trainer(
        **options,
        max_epochs=warmup.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[TQDMProgressBar(leave=True)],
        default_root_dir=folder,
    )
    log.info("warm-up: %d epochs over %d tokens of text", warmup.epochs, sequences.numel())
    with less_advice():
        trainer.fit(module, warmup.loader(sequences, config.seed))
    log.info("warm-up: next-token loss %.3f", trainer.callback_metrics["warmup/loss"].item())


def _fit(
    config: DictConfig,
    folder: Path,
    module: RankingModule,
    data: RankingData,
    callbacks: list[Callback],
    resumed: bool,
    specialisation: Specialisation | NoSpecialisation,
) -> float:
    # By effectiveness alone an early epoch may be best, before senses are set apart: then the last epoch counts.
    last = Specialised.of(module.ranker) is not None
    stopping = [] if last else [EarlyStopping(MONITOR, mode="max", patience=config.training.patience)]
    trainer, best = fit(
        config,
        folder,
        module,
        data,
        monitor="epoch" if last else MONITOR,
        mode="max",
        epochs=config.training.epochs,
        gradient_clip=config.training.gradient_clip,
        callbacks=[*stopping, *callbacks],
        resumed=resumed,
    )
    best = float(trainer.callback_metrics[MONITOR]) if last else best
    specialisation.settle(module.ranker, data.encoder)
    if trainer.is_global_zero:
        with merged(module.ranker) as ranker:
            save_ranker(folder / RANKER, ranker, data.encoder)
        log.info("%s %s %.4f; ranker saved to %s", "last" if last else "best", MONITOR, best, folder / RANKER)
    return best


def _optimisation(config: DictConfig) -> Optimisation:
    training = config.training
    return Optimisation(training.learning_rate, training.weight_decay, training.warmup_share, training.new_rate)


def _ranking_loss(config: DictConfig) -> RankingLoss:
    training = config.training
    return RankingLoss(training.loss, training.margin, training.loss_weight)


def _resumed_config(folder: Path, changed: list[str]) -> DictConfig:
    """The configuration that the interrupted run started with; only where it runs may change."""
    refused = [option for option in changed if not option.lstrip("+").startswith(("resume=", "output="))]
    if refused:
        raise ValueError(
            f"resume continues {folder} with the options it was started with; leave out {', '.join(refused)}"
        )
    saved = OmegaConf.load(folder / CONFIG)
    assert isinstance(saved, DictConfig)
    log.info("continuing %s", folder)
    return saved
