"""What a resumed run keeps: the last epoch, the best one, the counter of early stopping, the
measures.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from read_back import csv_rows

from backpack_rank.files import LAST
from backpack_rank.training.checkpoints import Patience, newest_checkpoint, steps_of
from backpack_rank.training.trainer import Fitted, TrainerSettings, fit

EPOCHS = [0.1, 0.5, 0.4, 0.3, 0.6, 0.2]
"""What the dev split says after each epoch."""


class Scripted(L.LightningModule):
    """Counts its steps in one weight, and has a measure for each epoch."""

    def __init__(self, values: Sequence[float]) -> None:
        super().__init__()
        self.values = values
        self.steps = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        self.log("train/loss", self.steps.detach())
        return -self.steps

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.log("val/measure", self.values[self.current_epoch])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


class Rows(L.LightningDataModule):
    """Four rows to train on, one to validate."""

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(torch.zeros(4, 1))

    def val_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(torch.zeros(1, 1))


class StopAfter(Callback):
    """Ends a process as a signal does, at the start of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            raise KeyError("stopped")


def trained(
    folder: Path, *callbacks: Callback, resumed: bool = False, epochs: int = 6
) -> tuple[Fitted, float]:
    """The training that has ended, and how many steps its best weights had."""
    settings = TrainerSettings(
        {"accelerator": "cpu", "devices": 1},
        logger=lambda folder: CSVLogger(str(folder), name="", version="logs"),
    )
    module = Scripted(EPOCHS)
    fitted = fit(
        settings,
        folder,
        module,
        Rows(),
        monitor="val/measure",
        epochs=epochs,
        gradient_clip=None,
        callbacks=callbacks,
        start=newest_checkpoint(folder) if resumed else None,
    )
    return fitted, module.steps.item()


def stopped(folder: Path, epoch: int, *callbacks: Callback) -> Path:
    with pytest.raises(KeyError, match="stopped"):
        trained(folder, StopAfter(epoch), *callbacks)
    return folder


def measures(folder: Path) -> list[tuple[int, float]]:
    rows = csv_rows(folder / "logs" / "metrics.csv")
    return [(int(row["step"]), float(row["val/measure"])) for row in rows if row["val/measure"]]


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "checkpoints"))


def test_the_last_checkpoint_is_of_the_last_epoch_and_the_best_one_beside_it(
    tmp_path: Path,
) -> None:
    stopped(tmp_path, 4)
    assert names(tmp_path) == ["last.ckpt", "step=8-0.5000.ckpt"]
    assert steps_of(tmp_path / LAST) == 16
    assert newest_checkpoint(tmp_path) == tmp_path / LAST


@pytest.mark.parametrize("epoch", [1, 2, 4, 5])
def test_a_resumed_run_ends_as_an_uninterrupted_one_with_all_its_measures(
    tmp_path: Path, epoch: int
) -> None:
    uninterrupted, steps = trained(tmp_path / "whole")
    resumed, again = trained(stopped(tmp_path / "cut", epoch), resumed=True)
    assert (resumed.best, again) == (uninterrupted.best, steps) == (pytest.approx(0.6), 20)
    logged = ("train/loss", "val/measure")  # the learning rate is logged every ten steps
    assert [resumed.metrics[name] for name in logged] == [
        uninterrupted.metrics[name] for name in logged
    ]
    assert (
        names(tmp_path / "cut") == names(tmp_path / "whole") == ["last.ckpt", "step=20-0.6000.ckpt"]
    )
    expected = [(4 * number + 3, pytest.approx(value)) for number, value in enumerate(EPOCHS)]
    assert measures(tmp_path / "whole") == expected
    assert measures(tmp_path / "cut") == expected


def test_early_stopping_counts_on(tmp_path: Path) -> None:
    """0.5 is followed by 0.4 and 0.3: a patience of 2 ends there, and the 0.6 afterwards is never
    seen.
    """
    _, steps = trained(tmp_path / "whole", Patience("val/measure", 2))
    assert (steps, len(measures(tmp_path / "whole"))) == (8, 4)
    folder = stopped(tmp_path / "cut", 3, Patience("val/measure", 2))
    _, again = trained(folder, Patience("val/measure", 2), resumed=True)
    assert (again, len(measures(folder))) == (8, 4)


@pytest.mark.parametrize("patience", [2, None])
def test_a_run_stopped_after_its_last_epoch_trains_no_further_one(
    tmp_path: Path, patience: int | None
) -> None:
    callbacks = [] if patience is None else [Patience("val/measure", patience)]
    first, steps = trained(tmp_path, *callbacks)
    before = (tmp_path / LAST).read_bytes()
    callbacks = [] if patience is None else [Patience("val/measure", patience)]
    again, same = trained(tmp_path, *callbacks, resumed=True)
    assert (again.best, again.metrics, same) == (first.best, first.metrics, steps)
    assert (tmp_path / LAST).read_bytes() == before


def test_a_moved_run_keeps_its_best_epoch(tmp_path: Path) -> None:
    stopped(tmp_path / "here", 4)
    shutil.move(tmp_path / "here", tmp_path / "there")
    fitted, steps = trained(tmp_path / "there", Patience("val/measure", 1), resumed=True, epochs=4)
    assert (fitted.best, steps) == (pytest.approx(0.5), 8)
    assert not (tmp_path / "here").exists()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)


def changed(path: Path) -> None:
    """One bit of the weight; the archive is as it was."""
    data = bytearray(path.read_bytes())
    place = data.index(bytes(torch.tensor(16.0).numpy().tobytes()))
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [cut, zeroed, changed, lambda path: path.write_bytes(b"")])
def test_a_damaged_last_checkpoint_gives_way_to_the_newest_whole_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm
) -> None:
    stopped(tmp_path, 4)
    harm(tmp_path / LAST)
    fitted, steps = trained(tmp_path, resumed=True)
    assert (fitted.best, steps) == (pytest.approx(0.6), 20)
    assert caplog.text.count("last.ckpt is damaged") == 1
    assert [step for step, _ in measures(tmp_path)] == [3, 7, 11, 15, 19, 23]
    assert names(tmp_path) == ["last.ckpt", "step=20-0.6000.ckpt"]


def test_after_a_damaged_best_epoch_the_best_from_then_on_counts(tmp_path: Path) -> None:
    stopped(tmp_path, 2)
    cut(tmp_path / "checkpoints" / "step=8-0.5000.ckpt")
    fitted, steps = trained(tmp_path, resumed=True, epochs=4)
    assert (fitted.best, steps) == (pytest.approx(0.4), 12)


def test_nothing_whole_is_a_run_from_the_start(tmp_path: Path) -> None:
    stopped(tmp_path, 1)
    for path in (tmp_path / "checkpoints").iterdir():
        cut(path)
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None
    fitted, steps = trained(tmp_path, resumed=True)
    assert (fitted.best, steps) == (pytest.approx(0.6), 20)


def test_without_epochs_what_came_before_is_measured(tmp_path: Path) -> None:
    fitted, steps = trained(tmp_path, epochs=0)
    assert fitted.best == pytest.approx(0.1)
    assert steps == 0
