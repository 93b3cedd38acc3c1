"""Checkpoints of a training run: whole or absent, the best epoch and the last one, and what a
resumed run needs.

A resumed run ends with the weights of an uninterrupted one, so everything that a decision depends
on is in the checkpoint: the best epoch so far, the counter of early stopping, the measures of the
last epoch.
"""

from __future__ import annotations

import csv
import logging
import os
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
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
    """Writes checkpoints in their own folder; Lightning's own plugin copies them from the system's
    temporary folder.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint, whole or not at all."""
        with atomic_path(path) as temporary:
            torch.save(checkpoint, temporary)


class BestEpoch(ModelCheckpoint):
    """Keeps the checkpoint of the best epoch; a moved or copied run finds it in its new folder."""

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
        """That of Lightning's own callback, under which runs of version 0.1 have kept their best
        epoch.
        """
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the best epoch so far; where its file is damaged or missing, with the best one
        from now on.
        """
        assert self.dirpath is not None

        def here(path: str) -> str:
            return str(Path(str(self.dirpath), Path(path).name)) if path else ""

        best = Path(here(state_dict["best_model_path"]))
        if (why := _damage(best)) is not None:
            log.warning(
                "the best epoch's %s %s: the best of the epochs from now on counts", best, why
            )
            return
        moved = {
            name: here(state_dict[name])
            for name in ("best_model_path", "kth_best_model_path", "last_model_path")
        }
        models = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict(
            {**state_dict, **moved, "best_k_models": models, "dirpath": self.dirpath}
        )

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Remove best epochs that a kill kept from being removed."""
        if trainer.is_global_zero and self.best_model_path:
            for path in Path(self.best_model_path).parent.glob("step=*.ckpt"):
                if path != Path(self.best_model_path):
                    path.unlink(missing_ok=True)


class LastEpoch(Checkpoint):
    """Keeps the state after the last epoch, with its measures. It comes after :class:`BestEpoch`,
    whose state it holds.

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
    """Early stopping that a resumed run remembers: one that had stopped does not train a further
    epoch.
    """

    def __init__(self, monitor: str, patience: int) -> None:
        """``patience``: epochs without a higher value of the monitored measure."""
        super().__init__(monitor, mode="max", patience=patience)

    @property
    def state_key(self) -> str:
        """That of Lightning's own callback, as for :class:`BestEpoch`."""
        return super().state_key.replace(type(self).__qualname__, EarlyStopping.__qualname__, 1)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.should_stop = (
            trainer.should_stop or self.stopping_reason != EarlyStoppingReason.NOT_STOPPED
        )


def newest_checkpoint(folder: Path) -> Path | None:
    """The whole checkpoint of a run with the most steps; damaged ones are named in the log. None:
    there is none.

    Raises:
        ValueError: a checkpoint holds more than weights and numbers.
    """
    found: list[tuple[int, bool, Path]] = []
    for path in sorted((folder / LAST).parent.glob("*.ckpt")):
        if (why := _damage(path)) is not None:
            log.warning("%s %s, so it is not used", path, why)
            continue
        # Of the last epoch and the best one at the same step, the last one was written later.
        found.append((steps_of(path), path == folder / LAST, path))
    return max(found)[-1] if found else None


def steps_of(path: Path) -> int:
    """Optimiser steps before a checkpoint.

    Raises:
        ValueError: it holds more than weights and numbers.
    """
    try:
        return int(
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)["global_step"]
        )
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than weights and numbers, so it is not read"
        ) from error


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, by the checksums that torch writes into it."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except FileNotFoundError:
        return "is missing"
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        return "is damaged or cut off"
    return None if bad is None else f"is damaged ({bad})"


@dataclass(frozen=True)
class EarlierMetrics:
    """The rows of ``metrics.csv`` before a checkpoint, which Lightning's logger removes when it is
    made.

    Attributes:
        rows: by file, each with the header's names.
    """

    rows: Mapping[Path, list[dict[str, str]]]

    @classmethod
    def read(cls, folder: Path, steps: int) -> EarlierMetrics:
        """Rows of the first ``steps`` steps; a row that a kill cut off is left out."""
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
        if rows := next(
            (rows for known, rows in self.rows.items() if os.path.abspath(known) == str(path)), []
        ):
            names = list(rows[0])
            lines = [",".join(names), *(",".join(row[name] for name in names) for row in rows)]
            write_text(path, "\r\n".join(lines) + "\r\n")
            logger.experiment.metrics_keys = names
