"""What every training run shares: hardware, logger, trainer, checkpoints, and the best weights at the end."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lightning as L
import torch
from hydra.utils import instantiate
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf, open_dict

from backpack_rank.pipelines.common import LAST


def fit(
    config: DictConfig,
    folder: Path,
    module: L.LightningModule,
    data: L.LightningDataModule,
    *,
    monitor: str,
    mode: str,
    epochs: int,
    gradient_clip: float | None,
    callbacks: Sequence[Callback] = (),
    resumed: bool = False,
) -> tuple[L.Trainer, float]:
    """Train, measure after every epoch, and leave the best weights in the module of the first process.

    Args:
        config: with ``trainer``, ``logger``, ``seed`` and ``model``.
        folder: of the run; gets ``checkpoints/`` and the logs.
        monitor: name of the logged measure that tells the best epoch.
        mode: ``min`` or ``max``.
        callbacks: beside checkpoints, learning rate and progress.
        resumed: continue from the last checkpoint of the folder.

    Returns:
        The trainer, and the best value of the monitored measure.
    """
    checkpoint = ModelCheckpoint(
        dirpath=folder / "checkpoints",
        filename=f"step={{step}}-{{{monitor}:.4f}}",
        auto_insert_metric_name=False,
        monitor=monitor,
        mode=mode,
        save_last=True,
    )
    logger = run_logger(config, folder)
    trainer = L.Trainer(
        **trainer_options(config),
        max_epochs=epochs,
        gradient_clip_val=gradient_clip,
        logger=logger,
        callbacks=[checkpoint, *callbacks, LearningRateMonitor("step"), TQDMProgressBar(leave=True)],
        default_root_dir=folder,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # the data modules share their rows between processes
        log_every_n_steps=10,
        enable_model_summary=False,
    )
    with less_advice():
        trainer.fit(module, data, ckpt_path=folder / LAST if resumed else None, weights_only=False if resumed else None)
    if trainer.is_global_zero:
        state = torch.load(checkpoint.best_model_path, map_location="cpu", weights_only=False)["state_dict"]
        module.load_state_dict(state)
    if isinstance(logger, WandbLogger):
        logger.experiment.finish()
    return trainer, float(checkpoint.best_model_score or 0.0)


def check_hardware(trainer: DictConfig) -> None:
    """Raise ``ValueError`` when the trainer wants a GPU that is not there, or trains in half precision alone."""
    if trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "trainer.accelerator=gpu, but torch sees no GPU. Use trainer=cpu, or install a CUDA build of torch "
            "(`python -c 'import torch; print(torch.version.cuda)'` tells which build is installed)"
        )
    if str(trainer.precision) in ("bf16-true", "16-true"):
        raise ValueError(
            f"trainer.precision={trainer.precision} keeps every weight in half precision, where small updates are "
            "lost. Use bf16-mixed; for a large backbone that stays in bf16 itself, model.ranker.dtype=bfloat16 with "
            "adapter=lora"
        )


def trainer_options(config: DictConfig) -> dict:
    """The options of Lightning's trainer that the group ``trainer`` sets."""
    return OmegaConf.to_container(config.trainer, resolve=True)  # type: ignore[return-value]


def run_logger(config: DictConfig, folder: Path) -> Logger:
    """The logger of the group ``logger``, with the run's configuration in it."""
    with open_dict(config):
        config.logger.save_dir = str(folder)
    logger = instantiate(config.logger, _convert_="all")
    plain = OmegaConf.to_container(config, resolve=True)
    logger.log_hyperparams(
        plain if isinstance(logger, WandbLogger) else {"seed": config.seed, "model": config.model.name}
    )
    return logger


@contextmanager
def less_advice() -> Iterator[None]:
    """Without Lightning's advice on worker counts and the like; its errors and our own warnings stay."""
    with warnings.catch_warnings():
        for message in (".*does not have many workers.*", ".*not a valid optimizer.*", ".*LeafSpec.*"):
            warnings.filterwarnings("ignore", message=message)
        yield
