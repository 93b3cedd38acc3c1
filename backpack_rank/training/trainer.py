"""What every training run shares: hardware, logger, trainer, checkpoints, and the best weights at
the end.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ProgressBar, TQDMProgressBar
from lightning.pytorch.loggers import Logger, WandbLogger

from backpack_rank.files import LAST
from backpack_rank.models.number_formats import computes_in_bf16
from backpack_rank.progress import INTERVAL, is_first_process
from backpack_rank.training.checkpoints import (
    AtomicCheckpoints,
    BestEpoch,
    EarlierMetrics,
    LastEpoch,
    steps_of,
)
from backpack_rank.training.sharding import whole_afterwards, with_sharding

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainerSettings:
    """What all trainings of a run share.

    Attributes:
        options: of :class:`lightning.Trainer`: accelerator, devices, strategy, precision ...
        seed: of everything that is drawn.
        logger: makes the logger of a run from the run's folder.
        weight_decay: of AdamW.
        gradient_clip: largest norm of a gradient, None for any.
    """

    options: Mapping[str, Any]
    seed: int = 0
    logger: Callable[[Path], Logger] | None = None
    weight_decay: float = 0.01
    gradient_clip: float | None = 1.0

    @property
    def device(self) -> str:
        """``cpu`` or ``auto``, for passes outside the trainer."""
        return "cpu" if self.options.get("accelerator") == "cpu" else "auto"

    def warm_up_trainer(self, folder: Path, **options: Any) -> L.Trainer:
        """A trainer for what comes before the ranking: it logs nothing and keeps no checkpoint."""
        return L.Trainer(
            **with_sharding({**self.options, **options}),
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            callbacks=[progress_bar()],
            default_root_dir=folder,
        )


@dataclass(frozen=True)
class Fitted:
    """A training that has ended, with the best weights in its module.

    Attributes:
        trainer: that did it.
        best: highest value of the monitored measure; nan when no epoch had one.
        metrics: logged in the last epoch.
    """

    trainer: L.Trainer
    best: float
    metrics: Mapping[str, float]


def fit(
    settings: TrainerSettings,
    folder: Path,
    module: L.LightningModule,
    data: L.LightningDataModule,
    *,
    monitor: str,
    epochs: int,
    gradient_clip: float | None,
    callbacks: Sequence[Callback] = (),
    start: Path | None = None,
) -> Fitted:
    """Train, measure after every epoch, and leave the best weights in the module of the first
    process.

    Args:
        settings: hardware, logger and seed.
        folder: of the run; gets ``checkpoints/`` and the logs.
        monitor: name of the logged measure that tells the best epoch, by its highest value.
        callbacks: beside checkpoints, learning rate and progress.
        start: checkpoint to go on from, see
            :func:`~backpack_rank.training.checkpoints.newest_checkpoint`.
    """
    best, last = BestEpoch(folder, monitor), LastEpoch(folder / LAST)
    logger = _logger(settings, folder, start)
    trainer = L.Trainer(
        **with_sharding(settings.options),
        max_epochs=epochs,
        gradient_clip_val=gradient_clip,
        logger=logger or False,
        callbacks=[
            *callbacks,
            LearningRateMonitor("step"),
            progress_bar(),
            OwnSignals(),
            best,
            last,
        ],
        plugins=[AtomicCheckpoints()],
        default_root_dir=folder,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # the data modules share their rows between processes
        log_every_n_steps=10,
        enable_model_summary=False,
    )
    with quiet_lightning(), whole_afterwards(trainer, module):
        trainer.fit(module, data, ckpt_path=start, weights_only=True)
    if trainer.is_global_zero and best.best_model_path:
        state = torch.load(best.best_model_path, map_location="cpu", weights_only=True)[
            "state_dict"
        ]
        module.load_state_dict(state)
    if isinstance(logger, WandbLogger):
        logger.experiment.finish()
    return Fitted(
        trainer,
        float("nan" if best.best_model_score is None else best.best_model_score),
        last.metrics,
    )


def _logger(settings: TrainerSettings, folder: Path, start: Path | None) -> Logger | None:
    """The logger of a run; the measures before the checkpoint it starts from are kept."""
    if settings.logger is None:
        return None
    earlier = (
        EarlierMetrics.read(folder, steps_of(start))
        if start is not None and is_first_process()
        else None
    )
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*Previous log files in this directory will be deleted.*"
        )
        logger = settings.logger(folder)
        if earlier is not None:
            earlier.restore(logger)
    return logger


class OwnSignals(Callback):
    """Leaves SIGTERM to whoever had it before, and ends all processes of a training with the first.

    Lightning's own handler, set just before training starts, waits for the other processes, and may
    wait forever. Only the first process has anything to keep.
    """

    def __init__(self) -> None:
        self._before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        launcher = trainer.strategy.launcher
        if not isinstance(exception, Exception) and launcher is not None:
            launcher.kill(getattr(signal, "SIGKILL", signal.SIGTERM))


class ProgressLines(ProgressBar):
    """Lines in place of Lightning's bars, for a file or a pipe: one for each epoch, and one every
    ten seconds.
    """

    def disable(self) -> None:
        """Called in every process but the first, which writes alone in any case."""

    def on_train_epoch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._begun = self._written = time.monotonic()
        self._batches = (
            self.total_train_batches
        )  # with max_steps it is what is left, which falls from step to step

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, n: int
    ) -> None:
        """A line, where the last one is long enough ago."""
        now = time.monotonic()
        if now - self._written >= INTERVAL:
            self._written = now
            rate = (n + 1) / (now - self._begun)
            left = (float(self._batches) - n - 1) / rate
            self._write(
                trainer, module, f"{n + 1}/{self._batches} ({rate:.1f}/s, {left:.0f} s left)"
            )

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._write(trainer, module, f"{time.monotonic() - self._begun:.0f} s")

    def _write(self, trainer: L.Trainer, module: L.LightningModule, what: str) -> None:
        if trainer.is_global_zero:
            metrics = self.get_metrics(trainer, module)
            shown = [f"{name}={value}" for name, value in metrics.items() if name != "v_num"]
            of = f"/{trainer.max_epochs}" if (trainer.max_epochs or 0) > 0 else ""
            print(
                ", ".join([f"epoch {trainer.current_epoch + 1}{of}: {what}", *map(_short, shown)]),
                flush=True,
            )


def progress_bar() -> ProgressBar:
    """Lightning's bars on a terminal, otherwise lines."""
    return TQDMProgressBar(leave=True) if sys.stdout.isatty() else ProgressLines()


def _short(metric: str) -> str:
    name, _, value = metric.partition("=")
    try:
        return f"{name}={float(value):.4g}"
    except ValueError:
        return metric


def trainer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Lightning's trainer, with ``precision=auto`` as what the hardware is fast in.

    That is ``bf16-mixed`` where it computes in bf16, else ``32-true``.
    """
    chosen = dict(options)
    if chosen.get("precision") == "auto":
        chosen["precision"] = (
            "bf16-mixed" if computes_in_bf16(chosen.get("accelerator") == "cpu") else "32-true"
        )
        log.info("trainer.precision=auto: %s", chosen["precision"])
    return chosen


def check_hardware(options: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` when the trainer wants a GPU that is not there, or trains in half
    precision alone.
    """
    if options["accelerator"] == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "trainer.accelerator=gpu, but torch sees no GPU. Use trainer=cpu, or install a CUDA "
            "build of torch (`python -c 'import torch; print(torch.version.cuda)'` tells which "
            "build is installed)"
        )
    if str(options["precision"]) in ("bf16-true", "16-true"):
        raise ValueError(
            f"trainer.precision={options['precision']} keeps every weight in half precision, "
            "where small updates are lost. Use bf16-mixed; for a large backbone that stays in "
            "bf16 itself, model.ranker.dtype=bfloat16 with adapter=lora"
        )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Without Lightning's advice on worker counts and the like; its errors and our own warnings
    stay.
    """
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",
            ".*exists and is not empty.*",
            ".*not a valid optimizer.*",
            ".*LeafSpec.*",
        ):
            warnings.filterwarnings("ignore", message=message)
        yield
