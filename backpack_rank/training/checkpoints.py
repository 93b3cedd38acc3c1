"""Checkpoints of a training run: those of the best epoch and of the last one.

A checkpoint is complete or absent. A resumed run ends with the weights of an uninterrupted one, so
everything that a decision depends on is in the checkpoint: the best epoch so far, the counter of
early stopping, the measures of the last epoch.
"""

from __future__ import annotations

import csv
import logging
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, ModelCheckpoint
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from lightning.pytorch.loggers import CSVLogger, Logger
from lightning.pytorch.plugins.io import TorchCheckpointIO

from backpack_rank.files import LAST, atomic_path, write_text

log = logging.getLogger(__name__)


class AtomicCheckpoints(TorchCheckpointIO):
    """A plugin of the trainer, so that checkpoints are written within their folder.

        lightning.Trainer(plugins=[AtomicCheckpoints()])

    Lightning's plugin writes to the system's temporary folder and copies the file from there.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint; the file is complete or absent."""
        with atomic_path(path) as temporary:
            torch.save(checkpoint, temporary)


class BestEpoch(ModelCheckpoint):
    """A callback that keeps the checkpoint of the best epoch.

        lightning.Trainer(callbacks=[BestEpoch(folder, "val/nDCG@10")])

    A moved or copied run finds it in its new folder.
    """

    def __init__(self, folder: Path, monitor: str) -> None:
        """``monitor``: name of the logged measure whose highest value is the best."""
        super().__init__(
            dirpath=folder / Path(LAST).parent,
            filename=f"step={{step}}-{{{monitor}:.4f}}",
            auto_insert_metric_name=False,
            monitor=monitor,
            mode="max",
            # An epoch that is repeated takes the place of what it left before.
            enable_version_counter=False,
        )

    @property
    def state_key(self) -> str:
        """That of Lightning's callback, under which checkpoints of all versions keep this state."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume with the best epoch so far.

        Where its file is damaged or missing, the best of the later epochs counts.
        """
        assert self.dirpath is not None

        # The state has the paths of the folder in which it was written, which may have moved.
        def in_this_folder(path: str) -> str:
            return str(Path(str(self.dirpath), Path(path).name)) if path else ""

        best = Path(in_this_folder(state_dict["best_model_path"]))
        damage = _damage(best)
        if damage is not None:
            log.warning(
                "the best epoch's %s %s: the best of the epochs from now on counts", best, damage
            )
            return
        state = {**state_dict, "dirpath": self.dirpath}
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = in_this_folder(state_dict[name])
        state["best_k_models"] = {}
        for path, score in state_dict["best_k_models"].items():
            state["best_k_models"][in_this_folder(path)] = score
        super().load_state_dict(state)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Remove checkpoints of earlier best epochs, which an interruption may have left behind."""
        if trainer.is_global_zero and self.best_model_path:
            for path in Path(self.best_model_path).parent.glob("step=*.ckpt"):
                if path != Path(self.best_model_path):
                    path.unlink(missing_ok=True)


class LastEpoch(Checkpoint):
    """A callback that keeps the state after the last epoch, with its measures.

        lightning.Trainer(callbacks=[best, LastEpoch(folder / "checkpoints" / "last.ckpt")])

    It comes after :class:`BestEpoch` among the callbacks, whose state it holds.

    Attributes:
        metrics: logged in the last epoch, also of a run that had nothing left to do when it was
            resumed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics: dict[str, float] = {}

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        trainer.save_checkpoint(self.path, weights_only=False)

    def state_dict(self) -> dict[str, Any]:
        return {"metrics": self.metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.metrics = state_dict["metrics"]


class Patience(EarlyStopping):
    """Early stopping: a run that had stopped trains no further epoch when resumed.

    lightning.Trainer(callbacks=[Patience("val/nDCG@10", patience=3)])
    """

    def __init__(self, monitor: str, patience: int) -> None:
        """``patience``: epochs without a higher value of the monitored measure."""
        super().__init__(monitor, mode="max", patience=patience)

    @property
    def state_key(self) -> str:
        """That of Lightning's callback, as for :class:`BestEpoch`."""
        return super().state_key.replace(type(self).__qualname__, EarlyStopping.__qualname__, 1)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        had_stopped = self.stopping_reason != EarlyStoppingReason.NOT_STOPPED
        trainer.should_stop = trainer.should_stop or had_stopped


def newest_checkpoint(folder: Path) -> Path | None:
    """Resume a run: its undamaged checkpoint with the most steps, None without any.

    Damaged ones are named in the log.

    Raises:
        ValueError: a checkpoint holds more than weights and numbers.
    """
    undamaged: list[tuple[int, bool, Path]] = []
    for path in sorted((folder / LAST).parent.glob("*.ckpt")):
        damage = _damage(path)
        if damage is not None:
            log.warning("%s %s, so it is not used", path, damage)
            continue
        # Of the last epoch and the best one at the same step, the last one was written later.
        undamaged.append((steps_of(path), path == folder / LAST, path))
    if not undamaged:
        return None
    _, _, newest = max(undamaged)
    return newest


def steps_of(path: Path) -> int:
    """How far a checkpoint is: the optimiser's steps before it.

        steps_of(folder / "checkpoints" / "last.ckpt")

    Raises:
        ValueError: it holds more than weights and numbers.
    """
    try:
        # Mapped: the weights in the file are not read.
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return int(checkpoint["global_step"])
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than weights and numbers, so it is not read"
        ) from error


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, by torch's checksums in the file; None: nothing."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except FileNotFoundError:
        return "is missing"
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        return "is damaged or cut off"
    return None if damaged is None else f"is damaged ({damaged})"


class EarlierMetrics:
    """Keeps the rows of ``metrics.csv`` before a checkpoint when a run is resumed.

        earlier = EarlierMetrics.read(folder, steps_of(checkpoint))
        logger = CSVLogger(folder / "logs")
        earlier.restore(logger)

    Lightning's logger removes the file when it is made.

    Attributes:
        rows: by file; a row has its values by the names of the header.
    """

    def __init__(self, rows: Mapping[Path, list[dict[str, str]]]) -> None:
        self.rows = rows

    @classmethod
    def read(cls, folder: Path, steps: int) -> EarlierMetrics:
        """Rows of the first ``steps`` steps, without a row that an interruption cut off."""
        rows_by_file: dict[Path, list[dict[str, str]]] = {}
        for path in folder.glob("logs/**/metrics.csv"):
            rows: list[dict[str, str]] = []
            with open(path, newline="", encoding="utf-8") as handle:
                for row in csv.DictReader(handle):
                    # A row that was cut off has values, or names, that are None.
                    if None in row or None in row.values():
                        continue
                    if row.get("step", "").isdecimal() and int(row["step"]) < steps:
                        rows.append(row)
            rows_by_file[path] = rows
        return cls(rows_by_file)

    def restore(self, logger: Logger) -> None:
        """Put the rows before those that a new logger will write."""
        if not isinstance(logger, CSVLogger):
            return
        path = Path(logger.experiment.metrics_file_path)
        rows: list[dict[str, str]] = []
        for earlier_path, earlier_rows in self.rows.items():
            if os.path.abspath(earlier_path) == str(path):
                rows = earlier_rows
                break
        if not rows:
            return
        names = list(rows[0])
        lines = [",".join(names)]
        for row in rows:
            lines.append(",".join(row[name] for name in names))
        # The csv module, with which the logger goes on, ends lines in this way.
        write_text(path, "\r\n".join(lines) + "\r\n")
        logger.experiment.metrics_keys = names
