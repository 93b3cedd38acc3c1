"""The Lightning module that trains a ranker on lists and validates it on the dev split's
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from backpack_rank.checks import above, fraction
from backpack_rank.data.batching import Pairs
from backpack_rank.data.datamodule import ListBatch
from backpack_rank.data.packing import PackedBatch
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.models.rankers import Ranker
from backpack_rank.training.losses import AuxiliaryLoss, RankingLoss, scatter_lists

VALIDATION_MEASURES = ("nDCG@10", "MRR@10")
WHOLE_DIMENSIONS = "whole_dimensions"
"""Attribute of a parameter that is shared out among processes: its dimensions before that."""


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay to 0.

    Attributes:
        learning_rate: highest learning rate.
        weight_decay: for matrices; biases and layer norms have none.
        warmup_ratio: share of all steps in which the rate rises.
        head_learning_rate: highest learning rate of everything but a pretrained backbone; None is
            ``learning_rate``.
    """

    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    warmup_ratio: float = 0.1
    head_learning_rate: float | None = None

    def __post_init__(self) -> None:
        above("training.learning_rate", self.learning_rate, 0)
        fraction("training.warmup_ratio", self.warmup_ratio, ends="[)")

    def optimizer(self, model: nn.Module) -> torch.optim.AdamW:
        """AdamW over the model's trainable parameters, decay for matrices alone.

        Raises:
            ValueError: trainable parameters are in half precision.
        """
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in trained):
            raise ValueError(
                "trained parameters are in half precision, in which AdamW's updates are lost where "
                "they are smaller "
                "than about 0.3% of the weight. Train them in fp32 (model.ranker.dtype=float32; "
                "trainer.precision=bf16-mixed still computes in bf16), or leave a backbone in bf16 "
                "as it is "
                "(adapter=lora or training.frozen=[backbone])"
            )
        groups = []
        for rate, parameters in self._rates(model):
            matrices = [parameter for parameter in parameters if _is_matrix(parameter)]
            others = [parameter for parameter in parameters if not _is_matrix(parameter)]
            groups += [
                {"params": matrices, "weight_decay": self.weight_decay, "lr": rate},
                {"params": others, "weight_decay": 0.0, "lr": rate},
            ]
        # One kernel over all parameters: on a CPU, an eighth of the time of torch's default.
        fused = all(parameter.device.type in ("cpu", "cuda") for parameter in trained)
        optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(0.9, 0.98), fused=fused)
        # Lightning clips no gradients of an optimiser that could undo loss scaling by itself; this
        # one need not.
        optimizer._step_supports_amp_scaling = False
        return optimizer

    def _rates(self, model: nn.Module) -> list[tuple[float, list[nn.Parameter]]]:
        """Trainable parameters by learning rate."""
        named = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        ]
        if self.head_learning_rate is None:
            return [(self.learning_rate, [parameter for _, parameter in named])]
        old = [parameter for name, parameter in named if ".backbone." in f".{name}"]
        new = [parameter for name, parameter in named if ".backbone." not in f".{name}"]
        return [(self.learning_rate, old), (self.head_learning_rate, new)]

    def configured(self, model: nn.Module, steps: int) -> OptimizerLRSchedulerConfig:
        """Optimizer and schedule over ``steps`` as Lightning wants them."""
        optimizer = self.optimizer(model)
        schedule = self.schedule(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def schedule(
        self, optimizer: torch.optim.Optimizer, steps: int
    ) -> torch.optim.lr_scheduler.LambdaLR:
        """Learning rate by step: up over ``warmup_ratio`` of ``steps``, then down to 0."""
        rising = max(1, round(self.warmup_ratio * steps))

        def factor(step: int) -> float:
            if step < rising:
                return (step + 1) / rising
            return max(0.0, (steps - step) / max(1, steps - rising))

        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _is_matrix(parameter: nn.Parameter) -> bool:
    return getattr(parameter, WHOLE_DIMENSIONS, parameter.ndim) >= 2


def seed_epoch(module: L.LightningModule, seed: int, batch_index: int) -> None:
    """Seed torch at an epoch's first batch, so that dropout depends on seed, epoch and process
    alone.

    A resumed run then repeats the uninterrupted one. Not at the epoch's start: a resumed trainer
    makes its data loader's iterator after that, which draws a number.
    """
    if batch_index == 0:
        torch.manual_seed(hash((seed, module.current_epoch, module.global_rank)) % 2**63)


class RankingModule(L.LightningModule):
    """Trains with a ranking loss and further terms; logs ``train/loss``, ``val/nDCG@10`` and
    ``val/MRR@10``.
    """

    def __init__(
        self,
        ranker: Ranker,
        optimisation: OptimizerConfig,
        dev: Pairs,
        seed: int = 0,
        terms: Sequence[AuxiliaryLoss] = (),
        ranking_loss: RankingLoss | None = None,
    ) -> None:
        super().__init__()
        self.terms = tuple(terms)
        self.ranking_loss = ranking_loss or RankingLoss()
        if self.ranking_loss.weight == 0 and not self.terms:
            raise ValueError(
                "training.loss_weight=0 without a teacher or another term leaves nothing to train "
                "on"
            )
        self.ranker = ranker
        self.optimisation = optimisation
        self.dev = dev
        self.seed = seed
        self.skipped_lists = 0
        self._validated: list[tuple[np.ndarray, np.ndarray]] = []

    def on_train_batch_start(self, batch: ListBatch, batch_idx: int) -> None:
        """See :func:`seed_epoch`."""
        seed_epoch(self, self.seed, batch_idx)

    def training_step(self, batch: ListBatch, batch_index: int) -> Tensor:
        """Loss of a batch of lists."""
        output = self.ranker(
            batch.texts, return_senses=any(term.needs_senses for term in self.terms)
        )
        scores = scatter_lists(output.scores.float(), batch.mask)
        loss, skipped = self.ranking_loss(scores, batch.labels, batch.mask)
        loss = self.ranking_loss.weight * loss
        self.skipped_lists += skipped
        # Of several processes the mean: each has a part of the batch.
        logged: dict[str, Any] = {"batch_size": len(batch.labels), "sync_dist": True}
        for term in self.terms:
            value = term.loss(self.ranker, batch, output, scores)
            self.log(f"train/{term.name}", value, **logged)
            loss = loss + term.weight * value
        self.log("train/loss", loss, prog_bar=True, **logged)
        return loss

    def on_validation_epoch_start(self) -> None:
        self._validated = []

    def validation_step(
        self, batch: list[tuple[np.ndarray, PackedBatch]], batch_index: int
    ) -> None:
        """Score a chunk of dev pairs; measures are computed once over all of them."""
        for rows, texts in self._as_many_in_each_process(batch):
            self._validated.append(
                (np.asarray(rows), self.ranker(texts).scores.float().cpu().numpy())
            )

    def _as_many_in_each_process(
        self, batch: list[tuple[np.ndarray, PackedBatch]]
    ) -> list[tuple[np.ndarray, PackedBatch]]:
        """The batch, of FSDP with its last part again until all processes have as many: they gather
        layers together.
        """
        if not isinstance(self.trainer.strategy, FSDPStrategy):
            return batch
        most = self.trainer.strategy.reduce(
            torch.tensor(len(batch), device=self.device), reduce_op="max"
        )
        return batch + batch[-1:] * (int(most) - len(batch))

    def on_validation_epoch_end(self) -> None:
        """nDCG@10 and MRR@10 over the whole dev split, also when its rows are spread over
        processes.
        """
        if self.trainer.sanity_checking:
            return
        parts = self._validated
        if self.trainer.world_size > 1:
            gathered: list = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(gathered, parts)
            parts = [part for rank in gathered for part in rank]
        scores = np.full(len(self.dev), np.nan, dtype=np.float32)
        for rows, values in parts:
            scores[rows] = values
        results = effectiveness(
            self.dev.to_run(scores), self.dev.collection.qrels, VALIDATION_MEASURES
        )
        for name in VALIDATION_MEASURES:
            self.log(
                f"val/{name}",
                results.mean(name),
                prog_bar=True,
                rank_zero_only=False,
                sync_dist=False,
            )

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over the trainer's estimated number of steps."""
        return self.optimisation.configured(
            self.ranker, int(self.trainer.estimated_stepping_batches)
        )
