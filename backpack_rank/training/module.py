"""The Lightning module that trains a ranker on lists and validates it on dev candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from backpack_rank.checks import above, fraction, whole_number
from backpack_rank.data.batching import Pairs
from backpack_rank.data.datamodule import ListBatch
from backpack_rank.data.packing import PackedBatch
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.models.rankers import Ranker
from backpack_rank.training.losses import AuxiliaryLoss, RankingLoss, scatter_lists

VALIDATION_MEASURES = ("nDCG@10", "MRR@10")
UNSHARDED_DIMENSIONS = "unsharded_dimensions"
"""Attribute of a parameter that is sharded over processes: its number of dimensions before that.

:mod:`backpack_rank.training.sharding` sets it.
"""


class RankingModule(L.LightningModule):
    """Trains a ranker on lists of documents, with any Lightning trainer.

    It logs ``train/loss`` after every step, and ``val/nDCG@10`` and ``val/MRR@10`` after every
    epoch::

        module = RankingModule(ranker, OptimizerConfig(learning_rate=1e-5), dev_pairs)
        lightning.Trainer(max_epochs=1).fit(module, data)

    The loss of a batch is ``weight * ranking loss + sum over terms of weight * term``.

    Attributes:
        skipped_lists: lists so far that the ranking loss could not use, such as those without a
            relevant document.
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
        """
        Args:
            ranker: trained in place.
            optimisation: learning rate and weight decay.
            dev: pairs that are scored after every epoch.
            seed: of dropout.
            terms: losses that are added to the ranking loss.
            ranking_loss: None is the softmax loss with weight 1.

        Raises:
            ValueError: the ranking loss has weight 0 and there are no terms.
        """
        super().__init__()
        self.terms = tuple(terms)
        self.ranking_loss = ranking_loss or RankingLoss()
        if self.ranking_loss.weight == 0 and not self.terms:
            raise ValueError(
                "training.loss_weight=0 without a teacher or another term leaves nothing to train "
                "on"
            )
        self.ranker = ranker
        # Terms that learn something themselves, such as an adversary.
        self.learning_terms = nn.ModuleList(term for term in terms if isinstance(term, nn.Module))
        self.optimisation = optimisation
        self.dev = dev
        self.seed = seed
        self.skipped_lists = 0
        self._validation_scores: list[tuple[np.ndarray, np.ndarray]] = []

    def on_train_batch_start(self, batch: ListBatch, batch_idx: int) -> None:
        """See :func:`seed_epoch`."""
        seed_epoch(self, self.seed, batch_idx)

    def training_step(self, batch: ListBatch, batch_index: int) -> Tensor:
        """Loss of a batch of lists. []"""
        output = self.ranker(batch.texts)
        # The ranker scores the texts of all lists in one row [B]; the loss compares the scores of a
        # list, so each list becomes a row [L, m].
        scores = scatter_lists(output.scores.float(), batch.mask)
        loss, skipped = self.ranking_loss(scores, batch.labels, batch.mask)
        loss = self.ranking_loss.weight * loss
        self.skipped_lists += skipped
        # Each process has a part of the batch, so what is logged is the mean over processes.
        log_options: dict[str, Any] = {"batch_size": len(batch.labels), "sync_dist": True}
        for term in self.terms:
            value = term.loss(self.ranker, batch, output, scores)
            self.log(f"train/{term.name}", value, **log_options)
            loss = loss + term.weight * value
        self.log("train/loss", loss, prog_bar=True, **log_options)
        return loss

    def on_validation_epoch_start(self) -> None:
        self._validation_scores = []

    def validation_step(
        self, batch: list[tuple[np.ndarray, PackedBatch]], batch_index: int
    ) -> None:
        """Score a chunk of dev pairs; measures are computed once over all of them.

        Args:
            batch: parts of the chunk: row numbers of dev pairs, and their texts.
            batch_index: of Lightning.
        """
        if isinstance(self.trainer.strategy, FSDPStrategy):
            batch = self._as_many_in_each_process(batch)
        for rows, texts in batch:
            scores = self.ranker(texts).scores.float().cpu().numpy()
            self._validation_scores.append((np.asarray(rows), scores))

    def _as_many_in_each_process(
        self, batch: list[tuple[np.ndarray, PackedBatch]]
    ) -> list[tuple[np.ndarray, PackedBatch]]:
        """The batch, its last part repeated until all processes have the same number of parts.

        FSDP gathers a layer's weights from all processes in each forward pass: a process with
        fewer passes would leave the others waiting forever.
        """
        number = torch.tensor(len(batch), device=self.device)
        most = int(self.trainer.strategy.reduce(number, reduce_op="max"))
        return batch + batch[-1:] * (most - len(batch))

    def on_validation_epoch_end(self) -> None:
        """Log nDCG@10 and MRR@10 over all dev pairs, also when they are spread over processes."""
        if self.trainer.sanity_checking:
            return
        scored = self._validation_scores
        if self.trainer.world_size > 1:
            scored_by_process: list = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(scored_by_process, scored)
            scored = []
            for scored_there in scored_by_process:
                scored += scored_there
        # A pair that no process scored stays NaN, which to_run() refuses.
        scores = np.full(len(self.dev), np.nan, dtype=np.float32)
        for rows, values in scored:
            scores[rows] = values
        run = self.dev.to_run(scores)
        results = effectiveness(run, self.dev.collection.qrels, VALIDATION_MEASURES)
        for name in VALIDATION_MEASURES:
            # Every process has all scores by now, so there is nothing left to average.
            mean = results.mean(name)
            self.log(f"val/{name}", mean, prog_bar=True, rank_zero_only=False, sync_dist=False)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over the trainer's estimated number of steps."""
        steps = int(self.trainer.estimated_stepping_batches)
        # This module has the parameters of the ranker and of the terms that learn.
        trained: nn.Module = self if len(self.learning_terms) > 0 else self.ranker
        return self.optimisation.configured(trained, steps)


class OptimizerConfig:
    """Chooses learning rate and weight decay of a training.

    The optimizer is AdamW; the rate rises linearly in the warm-up and falls linearly to 0 after it.

    >>> model = nn.Linear(2, 2)
    >>> optimizer = OptimizerConfig(learning_rate=0.1).optimizer(model)
    >>> [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    [(0.1, 0.01), (0.1, 0.0)]
    """

    def __init__(
        self,
        learning_rate: float = 1e-5,
        weight_decay: float = 0.01,
        warmup_ratio: float = 0.1,
        head_learning_rate: float | None = None,
        warmup_steps: int | None = None,
    ) -> None:
        """
        Args:
            learning_rate: highest learning rate.
            weight_decay: for matrices; biases and layer norms have none.
            warmup_ratio: share of all steps in which the rate rises, in [0, 1).
            head_learning_rate: highest learning rate of everything but a pretrained backbone; None
                is ``learning_rate``.
            warmup_steps: number of steps in which the rate rises; None: as ``warmup_ratio`` says.

        Raises:
            ValueError: a value is out of its range.
        """
        above("training.learning_rate", learning_rate, 0)
        fraction("training.warmup_ratio", warmup_ratio, ends="[)")
        if warmup_steps is not None:
            whole_number("training.warmup_steps", warmup_steps, 1)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_ratio = warmup_ratio
        self.head_learning_rate = head_learning_rate
        self.warmup_steps = warmup_steps

    def configured(self, model: nn.Module, steps: int) -> OptimizerLRSchedulerConfig:
        """Optimizer and schedule over ``steps``, in the form that Lightning takes."""
        optimizer = self.optimizer(model)
        schedule = self.schedule(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def optimizer(self, model: nn.Module) -> torch.optim.AdamW:
        """AdamW over the model's trainable parameters, with weight decay for matrices alone.

        Raises:
            ValueError: trainable parameters are in half precision.
        """
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in trained):
            raise ValueError(
                "trained parameters are in half precision, in which AdamW's updates are lost "
                "where they are smaller than about 0.3% of the weight. Train them in fp32 "
                "(model.ranker.dtype=float32; trainer.precision=bf16-mixed still computes in "
                "bf16), or leave a backbone in bf16 as it is (adapter=lora or "
                "training.frozen=[backbone])"
            )
        groups = []
        for rate, parameters in self._parameters_by_rate(model):
            matrices: list[nn.Parameter] = []
            vectors: list[nn.Parameter] = []
            for parameter in parameters:
                if _is_matrix(parameter):
                    matrices.append(parameter)
                else:
                    vectors.append(parameter)
            groups += [
                {"params": matrices, "weight_decay": self.weight_decay, "lr": rate},
                {"params": vectors, "weight_decay": 0.0, "lr": rate},
            ]
        # One kernel over all parameters: on a CPU, an eighth of the time of torch's default.
        fused = all(parameter.device.type in ("cpu", "cuda") for parameter in trained)
        # The second beta is that of Vaswani et al. 2017; torch's default is 0.999.
        optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(0.9, 0.98), fused=fused)
        # Lightning clips no gradients of an optimizer that undoes loss scaling by itself, as a
        # fused one does unless this says no. Then Lightning undoes it before it clips.
        optimizer._step_supports_amp_scaling = False
        return optimizer

    def _parameters_by_rate(self, model: nn.Module) -> list[tuple[float, list[nn.Parameter]]]:
        """Trainable parameters by their highest learning rate."""
        if self.head_learning_rate is None:
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            return [(self.learning_rate, trained)]
        backbone: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            # The leading dot also catches a model whose first attribute is the backbone. Joint
            # layers start as the backbone's own.
            if any(part in f".{name}" for part in (".backbone.", ".joint.layers.")):
                backbone.append(parameter)
            else:
                others.append(parameter)
        return [(self.learning_rate, backbone), (self.head_learning_rate, others)]

    def schedule(
        self, optimizer: torch.optim.Optimizer, steps: int
    ) -> torch.optim.lr_scheduler.LambdaLR:
        """Learning rate by step: up in the warm-up, then down to 0 at the last of ``steps``."""
        warmup_steps = self.warmup_steps or max(1, round(self.warmup_ratio * steps))

        def factor(step: int) -> float:
            if step < warmup_steps:
                # Step 0 is counted as 1: a rate of 0 would waste it.
                return (step + 1) / warmup_steps
            return max(0.0, (steps - step) / max(1, steps - warmup_steps))

        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _is_matrix(parameter: nn.Parameter) -> bool:
    # FSDP flattens what it shards, so the number of dimensions was noted before.
    return getattr(parameter, UNSHARDED_DIMENSIONS, parameter.ndim) >= 2


def seed_epoch(module: L.LightningModule, seed: int, batch_index: int) -> None:
    """Before each training batch, so that a resumed run repeats the uninterrupted one.

        def on_train_batch_start(self, batch, batch_idx):
            seed_epoch(self, self.seed, batch_idx)

    At an epoch's first batch it seeds torch: dropout then depends on seed, epoch and process alone.
    Not at the epoch's start: a resumed trainer makes its data loader's iterator after that, which
    draws a number.
    """
    if batch_index == 0:
        # The hash of integers is the same in every Python process. It may be negative.
        torch.manual_seed(hash((seed, module.current_epoch, module.global_rank)) % 2**63)
