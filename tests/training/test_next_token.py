"""The loss in parts is the loss."""

import pytest
import torch
import torch.nn.functional as F

from backpack_rank.training.next_token import next_token_loss


def example(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(23, 6, generator=generator, dtype=dtype)
    table = torch.randn(40, 6, generator=generator, dtype=dtype)
    targets = torch.randint(0, 40, (23,), generator=generator)
    return vectors.requires_grad_(), table.requires_grad_(), targets


@pytest.mark.parametrize("logits", [None, 1, 200, 23 * 40])
def test_loss_and_gradients_are_those_of_cross_entropy(logits):
    vectors, table, targets = example()
    expected = F.cross_entropy(vectors @ table.T, targets)
    wanted = torch.autograd.grad(expected, (vectors, table))
    loss = next_token_loss(vectors, table, targets, logits) / 23
    found = torch.autograd.grad(loss, (vectors, table))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for own, other in zip(found, wanted, strict=True):
        assert torch.allclose(own.double(), other, atol=1e-6)
    with torch.no_grad():
        assert (next_token_loss(vectors, table, targets, logits) / 23).item() == pytest.approx(
            expected.item(), rel=1e-6
        )


def test_half_precision_is_near_and_accumulates_in_float32():
    vectors, table, targets = example(torch.float32)
    wanted = torch.autograd.grad(F.cross_entropy(vectors @ table.T, targets, reduction="sum"), (vectors, table))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = next_token_loss(vectors, table, targets, 200)
    assert loss.dtype == torch.float32
    for own, other in zip(torch.autograd.grad(loss, (vectors, table)), wanted, strict=True):
        assert own.dtype == torch.float32
        assert torch.allclose(own, other, atol=0.05)


def test_logits_are_never_held_all_at_once():
    vectors, table, targets = example(torch.float32)
    rows = []
    real = torch.Tensor.log_softmax

    def watched(self, *args, **options):
        rows.append(len(self))
        return real(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "log_softmax", watched)
        next_token_loss(vectors, table, targets, 5 * 40)
    assert rows == [5, 5, 5, 5, 3]
