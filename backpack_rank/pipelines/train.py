"""Training, step by step: data, tokenizer, ranker, warm-up, lists, saved ranker."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning as L
import torch
from hydra.utils import instantiate
from lightning.pytorch.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf, open_dict

from backpack_rank.data.collection import Collection
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.lists import TrainingLists
from backpack_rank.data.pairs import CPU_TOKENS, GPU_TOKENS, Pairs
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import Ranker, pair_encoder, save_ranker
from backpack_rank.pipelines.common import CONFIG, LAST, RANKER, candidates_of, load_split, quiet_libraries, save_config
from backpack_rank.training.module import Optimisation, RankingModule
from backpack_rank.training.warmup import LanguageModelModule, Warmup

log = logging.getLogger(__name__)
MONITOR = "val/nDCG@10"


def train(config: DictConfig, folder: Path, changed: list[str]) -> float:
    """Train a ranker and save it to ``folder/ranker``.

    Args:
        config: as composed from ``conf/train.yaml``.
        folder: of the run; with ``resume`` that of the interrupted one, whose configuration is used again.
        changed: options of the command line, to refuse those that a resumed run cannot take.

    Returns:
        The best nDCG@10 on the dev split.
    """
    quiet_libraries()
    resumed = bool(config.resume)
    config = _resumed_config(folder, changed) if resumed else config
    check_hardware(config.trainer)
    L.seed_everything(config.seed, workers=True, verbose=False)
    if not resumed:
        save_config(folder, config)

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
    if not resumed:
        warm_up(config, ranker, encoder, collection, folder)
    data = RankingData(
        lists,
        collection,
        dev_pairs,
        encoder,
        lists_per_batch=config.training.lists_per_batch,
        workers=config.loader.workers,
        tokens_per_batch=CPU_TOKENS if config.trainer.accelerator == "cpu" else GPU_TOKENS,
    )
    return _fit(config, folder, RankingModule(ranker, _optimisation(config), dev_pairs, config.seed), data, resumed)


def build(config: DictConfig, collection: Collection) -> tuple[Ranker, PairEncoder]:
    """Tokenizer (trained on the collection's text where the model asks for it) and ranker."""
    tokenizer = instantiate(config.model.tokenizer).build(texts_of(collection))
    ranker = instantiate(config.model.ranker, tokenizer=tokenizer, _convert_="all")
    return ranker, pair_encoder(tokenizer, ranker, config.max_length)


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
    options = _trainer_options(config)
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
    with _less_advice():
        trainer.fit(module, warmup.loader(sequences, config.seed))
    log.info("warm-up: next-token loss %.3f", trainer.callback_metrics["warmup/loss"].item())


def check_hardware(trainer: DictConfig) -> None:
    """Raise ``ValueError`` when the trainer wants a GPU that is not there."""
    if trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "trainer.accelerator=gpu, but torch sees no GPU. Use trainer=cpu, or install a CUDA build of torch "
            "(`python -c 'import torch; print(torch.version.cuda)'` tells which build is installed)"
        )


def _fit(config: DictConfig, folder: Path, module: RankingModule, data: RankingData, resumed: bool) -> float:
    checkpoint = ModelCheckpoint(
        dirpath=folder / "checkpoints",
        filename="step={step}-{val/nDCG@10:.4f}",
        auto_insert_metric_name=False,
        monitor=MONITOR,
        mode="max",
        save_last=True,
    )
    callbacks: list[Callback] = [
        checkpoint,
        EarlyStopping(MONITOR, mode="max", patience=config.training.patience),
        LearningRateMonitor("step"),
        TQDMProgressBar(leave=True),
    ]
    logger = _logger(config, folder)
    trainer = L.Trainer(
        **_trainer_options(config),
        max_epochs=config.training.epochs,
        gradient_clip_val=config.training.gradient_clip,
        logger=logger,
        callbacks=callbacks,
        default_root_dir=folder,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # the data module shares lists and dev pairs between processes
        log_every_n_steps=10,
        enable_model_summary=False,
    )
    with _less_advice():
        trainer.fit(module, data, ckpt_path=folder / LAST if resumed else None, weights_only=False if resumed else None)
    best = checkpoint.best_model_path
    if trainer.is_global_zero:
        state = torch.load(best, map_location="cpu", weights_only=False)["state_dict"]
        module.load_state_dict(state)
        save_ranker(folder / RANKER, module.ranker, data.encoder)
        log.info("best %s %.4f; ranker saved to %s", MONITOR, checkpoint.best_model_score, folder / RANKER)
    if isinstance(logger, WandbLogger):
        logger.experiment.finish()
    return float(checkpoint.best_model_score or 0.0)


def _trainer_options(config: DictConfig) -> dict:
    return OmegaConf.to_container(config.trainer, resolve=True)  # type: ignore[return-value]


def _optimisation(config: DictConfig) -> Optimisation:
    training = config.training
    return Optimisation(training.learning_rate, training.weight_decay, training.warmup_share, training.new_rate)


def _logger(config: DictConfig, folder: Path) -> Logger:
    with open_dict(config):
        config.logger.save_dir = str(folder)
    logger = instantiate(config.logger, _convert_="all")
    plain = OmegaConf.to_container(config, resolve=True)
    logger.log_hyperparams(
        plain if isinstance(logger, WandbLogger) else {"seed": config.seed, "model": config.model.name}
    )
    return logger


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


@contextmanager
def _less_advice() -> Iterator[None]:
    """Without Lightning's advice on worker counts and the like; its errors and our own warnings stay."""
    with warnings.catch_warnings():
        for message in (".*does not have many workers.*", ".*not a valid optimizer.*", ".*LeafSpec.*"):
            warnings.filterwarnings("ignore", message=message)
        yield
