"""FSDP as Lightning sets it up: what is shared out, how gradients are clipped, and whole networks
afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import lightning as L
import pytest
import torch
from in_process import configured
from lightning.pytorch.strategies import FSDPStrategy
from small_training import quiet_trainer, state_of
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import DataLoader

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import Ranker
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.training.module import OptimizerConfig
from backpack_rank.training.sharding import ShardedStrategy, gathered_afterwards, with_sharding

ON_CPU = [
    "trainer=fsdp",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
]


class Scores(L.LightningModule):
    """Trains a ranker to give everything a score of 1, with gradients of a norm of .5 at most."""

    def __init__(self, ranker: Ranker) -> None:
        super().__init__()
        self.ranker = ranker
        self.norms: list[float] = []
        self.units: list[type[nn.Module]] = []
        self.decayed: list[int] = []

    def training_step(self, batch: PackedBatch, index: int) -> Tensor:
        root = self.trainer.strategy.model
        self.units = [
            module.module.__class__
            for module in root.modules()
            if isinstance(module, FullyShardedDataParallel)
        ]
        return 1000 * (self.ranker(batch).scores - 1).square().mean()

    def on_before_zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [
            parameter.grad for parameter in self.parameters() if parameter.grad is not None
        ]
        if gradients:
            self.norms.append(
                float(torch.stack([gradient.norm() for gradient in gradients]).norm())
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = OptimizerConfig().optimizer(self)
        self.decayed = [sum(map(torch.numel, group["params"])) for group in optimizer.param_groups]
        return optimizer


@pytest.fixture
def one_process() -> Iterator[None]:
    before = dict(os.environ)
    yield
    torch.distributed.destroy_process_group()
    # Lightning says here that this is a process among others; a test behind would wait for them.
    os.environ.clear()
    os.environ.update(before)


def trained(ranker: Ranker, folder: Path) -> Scores:
    options = dict(configured("train", *ON_CPU).trainer)
    sharded = with_sharding(options)
    trainer = quiet_trainer(folder, **sharded, max_epochs=1, gradient_clip_val=0.5)
    assert isinstance(trainer.strategy, FSDPStrategy)
    module = Scores(ranker)
    batches = DataLoader([PackedBatch.from_sequences([[5, 6, 7], [8, 9]])] * 2, batch_size=None)
    with gathered_afterwards(trainer, module):
        trainer.fit(module, batches)
    return module


@pytest.mark.usefixtures("one_process")
def test_each_layer_of_the_backbone_is_a_unit_and_the_ranker_is_complete_afterwards(
    make_backpack, tmp_path: Path
) -> None:
    ranker = make_backpack(layers=3)
    layer = type(ranker.backpack.backbone.h[0])
    before = state_of(ranker)
    matrices = sum(value.numel() for value in ranker.parameters() if value.ndim >= 2)
    module = trained(ranker, tmp_path)
    assert module.units == [Scores, layer, layer, layer]
    assert module.decayed[0] == matrices
    after = module.ranker.state_dict()
    assert list(after) == list(before)
    assert all(after[name].shape == value.shape for name, value in before.items())
    assert not torch.equal(after["head.out.weight"], before["head.out.weight"])
    backpack = module.ranker.backpack
    assert backpack.word_embeddings.weight is backpack.backbone.wte.weight  # tied as before


@pytest.mark.usefixtures("one_process")
def test_gradients_are_clipped_by_their_norm(make_backpack, tmp_path: Path) -> None:
    assert trained(make_backpack(layers=2), tmp_path).norms == pytest.approx([0.5], abs=1e-4)


@pytest.mark.usefixtures("one_process")
def test_weights_of_two_number_formats_are_refused(make_backpack, tmp_path: Path) -> None:
    ranker = make_backpack(layers=2)
    ranker.backpack.backbone.to(torch.bfloat16)
    with pytest.raises(
        ValueError, match=r"these are in bfloat16 and float32: leave out model\.ranker\.dtype"
    ):
        trained(ranker, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["task=listwise", "model=listwise_tiny"],
            "task=listwise does not train with trainer=fsdp",
        ),
        (
            ["reconstruct.steps=5"],
            "reconstruct.steps=5 does not work with trainer=fsdp: give reconstruct.steps=0",
        ),
        (["trainer.precision=64-true"], "64-true"),
    ],
)
def test_what_fsdp_cannot_train_is_refused_at_once(options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings.of(configured("train", *ON_CPU, *options))


def test_layers_may_wait_in_the_memory_of_the_cpu() -> None:
    options = with_sharding({"strategy": "fsdp_cpu_offload", "precision": "32-true"})
    assert isinstance(options["strategy"], ShardedStrategy)
    assert options["strategy"].cpu_offload.offload_params
