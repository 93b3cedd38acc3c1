"""What every training run shares: hardware, logger, trainer, checkpoints, and its best weights."""

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
from backpack_rank.training.sharding import gathered_afterwards, with_sharding

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainerSettings:
    """What all trainings of a run share: hardware, seed and logger.

        settings = TrainerSettings({"accelerator": "cpu"}, seed=1)
        fitted = fit(settings, folder, module, data, monitor="val/nDCG@10", epochs=3, ...)

    Attributes:
        options: of :class:`lightning.Trainer`: accelerator, devices, strategy, precision ...
        seed: of all random numbers.
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
        if self.options.get("accelerator") == "cpu":
            return "cpu"
        return "auto"

    def warm_up_trainer(self, folder: Path, **options: Any) -> L.Trainer:
        """A trainer for steps before ranking training: it logs nothing and keeps no checkpoint."""
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
        trainer: that ran it.
        best: highest value of the monitored measure; nan when no epoch had a value.
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
    """Every training: it trains, measures after every epoch, and keeps the best epoch.

        fitted = fit(
            settings, folder, module, data, monitor="val/nDCG@10", epochs=3, gradient_clip=1.0
        )
        fitted.best

    The best weights are in the module of the first process afterwards.

    Args:
        settings: hardware, logger and seed.
        folder: of the run; gets ``checkpoints/`` and the logs.
        monitor: name of the logged measure whose highest value makes the best epoch.
        callbacks: beside checkpoints, learning rate and progress.
        start: checkpoint to resume from, see
            :func:`~backpack_rank.training.checkpoints.newest_checkpoint`.
    """
    best = BestEpoch(folder, monitor)
    last = LastEpoch(folder / LAST)
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
            RestoredSignals(),
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
    with quiet_lightning(), gathered_afterwards(trainer, module):
        trainer.fit(module, data, ckpt_path=start, weights_only=True)
        if epochs == 0:
            # What came before the epochs is all of the training; it is measured once.
            trainer.validate(module, data, verbose=False)
    if trainer.is_global_zero and best.best_model_path:
        checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
        module.load_state_dict(checkpoint["state_dict"])
    if isinstance(logger, WandbLogger):
        logger.experiment.finish()
    highest = float("nan")
    if best.best_model_score is not None:
        highest = float(best.best_model_score)
    elif epochs == 0:
        highest = float(trainer.callback_metrics[monitor])
    return Fitted(trainer, highest, last.metrics)


def _logger(settings: TrainerSettings, folder: Path, start: Path | None) -> Logger | None:
    """The logger of a run; the measures before the checkpoint it starts from are kept."""
    if settings.logger is None:
        return None
    # Read before the logger is made, which removes them.
    earlier = None
    if start is not None and is_first_process():
        earlier = EarlierMetrics.read(folder, steps_of(start))
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*Previous log files in this directory will be deleted.*"
        )
        logger = settings.logger(folder)
        if earlier is not None:
            earlier.restore(logger)
    return logger


class RestoredSignals(Callback):
    """A callback that puts the earlier handler of SIGTERM back when training starts.

        lightning.Trainer(callbacks=[RestoredSignals()])

    It also ends other processes with the first.

    Lightning's handler, set just before training starts, waits for the other processes, and may
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
        # Interruptions are no Exception; an error ends the other processes in Lightning's way.
        launcher = trainer.strategy.launcher
        if not isinstance(exception, Exception) and launcher is not None:
            launcher.kill(getattr(signal, "SIGKILL", signal.SIGTERM))


class ProgressLines(ProgressBar):
    """In place of Lightning's bars where a file or a pipe is written to.

        lightning.Trainer(callbacks=[ProgressLines()])

    One line for each epoch, and one every ten seconds.
    """

    def disable(self) -> None:
        """Nothing: called in every process but the first, and only the first writes."""

    def on_train_epoch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._begun = self._written = time.monotonic()
        # Kept, because with max_steps it is the number of steps left and falls from step to step.
        self._batches = self.total_train_batches

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, n: int
    ) -> None:
        """Write a line where the last one is ten seconds old."""
        now = time.monotonic()
        if now - self._written >= INTERVAL:
            self._written = now
            rate = (n + 1) / (now - self._begun)
            left = (float(self._batches) - n - 1) / rate
            progress = f"{n + 1}/{self._batches} ({rate:.1f}/s, {left:.0f} s left)"
            self._write(trainer, module, progress)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._write(trainer, module, f"{time.monotonic() - self._begun:.0f} s")

    def _write(self, trainer: L.Trainer, module: L.LightningModule, progress: str) -> None:
        if not trainer.is_global_zero:
            return
        epoch = f"epoch {trainer.current_epoch + 1}"
        # max_epochs is -1 where steps are counted.
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            epoch += f"/{trainer.max_epochs}"
        parts = [f"{epoch}: {progress}"]
        for name, value in self.get_metrics(trainer, module).items():
            if name != "v_num":
                parts.append(f"{name}={_short(value)}")
        print(", ".join(parts), flush=True)


def progress_bar() -> ProgressBar:
    """What a training shows: Lightning's bars on a terminal, otherwise lines."""
    return TQDMProgressBar(leave=True) if sys.stdout.isatty() else ProgressLines()


def _short(value: Any) -> str:
    """A value with four digits where it is a number."""
    try:
        return f"{float(str(value)):.4g}"
    except ValueError:
        return str(value)


def trainer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve ``precision=auto`` in options of Lightning's trainer.

        trainer_options({"precision": "auto"})  # {"precision": "bf16-mixed"}

    It is ``bf16-mixed`` where the hardware computes in bf16, else ``32-true``.
    """
    chosen = dict(options)
    if chosen.get("precision") == "auto":
        on_cpu = chosen.get("accelerator") == "cpu"
        chosen["precision"] = "bf16-mixed" if computes_in_bf16(on_cpu) else "32-true"
        log.info("trainer.precision=auto: %s", chosen["precision"])
    return chosen


def check_hardware(options: Mapping[str, Any]) -> None:
    """On options of a trainer before anything is loaded.

        check_hardware({"accelerator": "cpu", "precision": "32-true"})

    Raises:
        ValueError: a GPU that is not there, or weights in half precision.
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
    """Around a training to hide Lightning's advice on worker counts and the like.

        with quiet_lightning():
            trainer.fit(module, data)

    Its errors and the warnings of this package stay.
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
