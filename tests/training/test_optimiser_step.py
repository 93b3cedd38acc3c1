"""AdamW in one kernel: the same numbers as torch's default, in every precision that training
offers.
"""

import lightning as L
import pytest
import torch
from small_training import quiet_trainer

from backpack_rank.data.packing import PackedBatch
from backpack_rank.training.module import OptimizerConfig


def batch():
    return PackedBatch.from_sequences([[3, 4, 5], [6, 7]])


def test_one_kernel_gives_the_numbers_of_torchs_default(make_backpack):
    results = []
    for fused in (True, False):
        ranker = make_backpack()
        optimizer = OptimizerConfig(1e-2, weight_decay=0.1, head_learning_rate=2e-2).optimizer(
            ranker
        )
        assert all(group["fused"] for group in optimizer.param_groups)
        if not fused:
            groups = [
                {key: group[key] for key in ("params", "lr", "weight_decay")}
                for group in optimizer.param_groups
            ]
            optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=False)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            for parameter in ranker.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step()
        results.append(ranker.state_dict())
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=1e-5, atol=1e-6)


class Fitting(L.LightningModule):
    """Steps on one batch."""

    def __init__(self, ranker):
        super().__init__()
        self.ranker = ranker

    def training_step(self, _, index):
        return self.ranker(batch()).scores.float().square().sum()

    def configure_optimizers(self):
        return OptimizerConfig(1e-2).optimizer(self.ranker)


def fitted(ranker, folder, precision):
    """The trainer after two steps with clipped gradients."""
    trainer = quiet_trainer(folder, precision=precision, gradient_clip_val=1.0, max_steps=2)
    trainer.fit(Fitting(ranker), torch.utils.data.DataLoader([0, 1]))
    return trainer


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*lr_scheduler.*")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_are_clipped_in_mixed_precision_too(make_backpack, tmp_path, precision):
    """Lightning refuses that for fused optimisers that say they unscale gradients themselves."""
    before, ranker = make_backpack(), make_backpack()
    fitted(ranker, tmp_path, precision)
    assert all(
        not torch.equal(a, b) for a, b in zip(before.parameters(), ranker.parameters(), strict=True)
    )


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_half_precision_alone_is_refused(make_backpack, tmp_path):
    with pytest.raises(ValueError, match="trained parameters are in half precision"):
        fitted(make_backpack(), tmp_path, "bf16-true")
    with pytest.raises(ValueError, match=r"adapter=lora or training.frozen=\[backbone\]"):
        OptimizerConfig().optimizer(make_backpack(dtype=torch.float16))


def test_why_half_precision_is_refused():
    """At a usual learning rate, AdamW in bf16 leaves most weights of a usual size where they were."""
    torch.manual_seed(0)
    start = 0.05 * torch.randn(1000)
    moved = []
    for dtype in (torch.float32, torch.bfloat16):
        weights = torch.nn.Parameter(start.to(dtype))
        before = weights.detach().clone()
        optimizer = torch.optim.AdamW([weights], lr=1e-5, weight_decay=0.0)
        for _ in range(20):
            weights.grad = torch.ones_like(weights)
            optimizer.step()
        moved.append(float((weights != before).float().mean()))
    assert moved[0] == 1.0
    assert moved[1] < 0.2
