"""The Lightning module that trains a Backpack on text and measures its perplexity on held-out documents."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from backpack_rank.data.text_data import HeldOutBatch
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.training.module import Optimisation, seed_epoch
from backpack_rank.training.next_token import next_token_loss

log = logging.getLogger(__name__)
PERPLEXITY = "val/perplexity"


class NextTokenModule(L.LightningModule, ABC):
    """Trains a network on next-token prediction; a subclass says what the loss of some rows is."""

    logged = "train/loss"

    def __init__(self, model: nn.Module, optimisation: Optimisation) -> None:
        super().__init__()
        self.model = model
        self.optimisation = optimisation

    @abstractmethod
    def mean_loss(self, rows: Tensor) -> Tensor:
        """Mean loss of the n - 1 next tokens of rows of ids [B, n]."""

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        """Mean next-token loss of a batch, [B, n] token ids alone or in a list."""
        rows: Tensor = batch[0] if isinstance(batch, list) else batch
        loss = self.mean_loss(rows)
        self.log(self.logged, loss, prog_bar=True, batch_size=len(rows))
        return loss

    @property
    def total_steps(self) -> int:
        """The steps that the learning rate's schedule is laid out for: the trainer's estimate."""
        return int(self.trainer.estimated_stepping_batches)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over :attr:`total_steps`."""
        return self.optimisation.configured(self.model, self.total_steps)


class TextModule(NextTokenModule):
    """Logs ``train/loss``, and after every epoch ``val/perplexity`` and its logarithm ``val/loss``.

    Perplexity is exp of the mean loss over all tokens of the held-out documents, end tokens included, each document
    read alone from an end token on; of one that is longer than a row, every part of a row's length is read alone.
    """

    model: BackpackLMHeadModel

    def __init__(
        self, model: BackpackLMHeadModel, optimisation: Optimisation, seed: int = 0, max_steps: int | None = None
    ) -> None:
        super().__init__(model, optimisation)
        self.seed = seed
        self.max_steps = max_steps
        self._loss = self._tokens = 0.0

    @property
    def total_steps(self) -> int:
        """The trainer's estimate, at most ``max_steps``."""
        steps = super().total_steps
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def configure_callbacks(self) -> list[Callback]:
        """What stops training after ``max_steps``."""
        return [] if self.max_steps is None else [StopAfter(self.max_steps)]

    def mean_loss(self, rows: Tensor) -> Tensor:
        """Mean next-token loss of [B, n] token ids."""
        targets = rows[:, 1:].flatten()
        vectors = self.model.backpack(rows[:, :-1]).mixed.flatten(0, 1)
        return next_token_loss(vectors, self.model.lm_head.weight, targets) / len(targets)

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """See :func:`~backpack_rank.training.module.seed_epoch`."""
        seed_epoch(self, self.seed, batch_idx)

    def on_validation_epoch_start(self) -> None:
        self._loss = self._tokens = 0.0

    def validation_step(self, batch: HeldOutBatch, batch_index: int) -> None:
        """Add up the losses of a batch."""
        vectors = self.model.backpack(batch.ids[:, :-1]).mixed[batch.known]
        loss = next_token_loss(vectors, self.model.lm_head.weight, batch.ids[:, 1:][batch.known])
        self._loss += float(loss)
        self._tokens += len(vectors)

    def on_validation_epoch_end(self) -> None:
        """Perplexity over all held-out tokens, also when they are spread over processes."""
        sums = torch.tensor([self._loss, self._tokens], dtype=torch.float64, device=self.device)
        loss, tokens = self.trainer.strategy.reduce(sums, reduce_op="sum").tolist()
        perplexity = math.exp(loss / tokens) if loss / tokens < 700 else math.inf
        options: dict[str, Any] = {"rank_zero_only": False, "sync_dist": False}
        self.log("val/loss", loss / tokens, **options)
        self.log(PERPLEXITY, perplexity, prog_bar=True, **options)
        if self.trainer.is_global_zero:
            where = f"after {self.trainer.global_step} steps"
            log.info("perplexity %.3f on %d held-out tokens, %s", perplexity, tokens, where)


class StopAfter(Callback):
    """Stops after some steps and has the model measured there, also in the middle of an epoch.

    With its own ``max_steps`` the trainer would not measure there, and would count a resumed run's epochs wrongly.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_start(self, trainer: L.Trainer, *_: object) -> None:
        """A run that was interrupted behind its last step takes no more."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.steps

    def on_train_batch_end(self, trainer: L.Trainer, *_: object) -> None:
        """Stop when the steps are done."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.steps
