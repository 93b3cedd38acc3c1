"""Losses of FIRST and DebiasFirst against slow loops, and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from backpack_rank.training.listwise_loss import joint_loss, lm_loss, rank_loss


def slow(scores, ranks, mask, levels=None, inverse=None) -> float:
    """Equations 2 and 4 with Python's numbers; ranks from 1 as in the paper."""
    total = 0.0
    for row in range(len(scores)):
        for i in range(len(scores[row])):
            for j in range(len(scores[row])):
                if not (mask[row][i] and mask[row][j]):
                    continue
                first, second = int(ranks[row][i]) + 1, int(ranks[row][j]) + 1
                order = ranks if levels is None else levels
                if not order[row][i] < order[row][j]:
                    continue
                loss = math.log(1 + math.exp(float(scores[row][j]) - float(scores[row][i]))) / (first + second)
                if inverse is not None:
                    loss *= float(inverse[row][i]) * float(inverse[row][j])
                total += loss
    return total / len(scores)


@pytest.fixture
def batch():
    """Three lists of at most six passages, with ties; behind shorter ones stands nonsense."""
    rng = np.random.default_rng(0)
    sizes = (6, 4, 2)
    scores = torch.from_numpy(rng.normal(size=(3, 6))).float()
    ranks = torch.zeros((3, 6), dtype=torch.long)
    mask = torch.zeros((3, 6), dtype=torch.bool)
    for row, size in enumerate(sizes):
        ranks[row, :size] = torch.from_numpy(rng.permutation(size))
        mask[row, :size] = True
    scores[1, 4:] = float("nan")
    scores[2, 2:] = float("inf")
    inverse = torch.from_numpy(rng.uniform(0.3, 3, size=(3, 6))).float()
    inverse[2, 3] = float("inf")
    return scores, ranks, mask, ranks // 2, inverse


def test_rank_losses_equal_loops_over_all_pairs(batch) -> None:
    scores, ranks, mask, levels, inverse = batch
    for own_levels in (None, levels):
        for own_inverse in (None, inverse):
            found = rank_loss(scores, ranks, mask, own_levels, own_inverse)
            assert found.item() == pytest.approx(slow(scores, ranks, mask, own_levels, own_inverse), rel=1e-5)


def test_a_worked_list() -> None:
    scores = torch.tensor([[0.0, math.log(3.0)]])
    loss = rank_loss(scores, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool))
    assert loss.item() == pytest.approx(math.log(4) / 3)  # log(1 + 3) / (1 + 2)
    weights = torch.tensor([[2.0, 5.0]])
    weighted = rank_loss(scores, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool), None, weights)
    assert weighted.item() == pytest.approx(10 * math.log(4) / 3)


def test_ties_have_no_gradient_between_them_and_padding_has_none_at_all(batch) -> None:
    scores, ranks, mask, _, inverse = batch
    scores = scores.clone().requires_grad_()
    tied = torch.zeros_like(ranks)
    assert rank_loss(scores, ranks, mask, tied).item() == 0.0
    rank_loss(scores, ranks, mask, None, inverse).backward()
    gradient = scores.grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()
    rows = torch.arange(3)
    best = [int(ranks[row, : int(mask[row].sum())].argmin()) for row in range(3)]
    assert (gradient[rows, best] < 0).all()  # a step against the gradient raises the best passage's score


def test_gradients_are_those_of_finite_differences(batch) -> None:
    scores, ranks, mask, levels, inverse = batch
    scores, inverse = scores[:1].double().requires_grad_(), inverse[:1].double()
    rank_loss(scores, ranks[:1], mask[:1], levels[:1], inverse).backward()
    step = 1e-4
    for place in range(6):
        moved = [scores.detach().clone() for _ in range(2)]
        moved[0][0, place] += step
        moved[1][0, place] -= step
        high, low = (slow(m, ranks[:1], mask[:1], levels[:1], inverse) for m in moved)
        assert scores.grad[0, place].item() == pytest.approx((high - low) / (2 * step), abs=1e-4)


def test_language_model_loss_is_minus_the_log_probability_of_the_whole_answer() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, requires_grad=True)
    targets = torch.tensor([[4, 0, 2], [1, 0, 0]])
    known = torch.tensor([[True, True, True], [True, False, False]])
    expected = 0.0
    for row, count in enumerate((3, 1)):
        for place in range(count):
            values = [math.exp(value) for value in logits[row, place].tolist()]
            expected -= math.log(values[int(targets[row, place])] / sum(values))
    loss = lm_loss(logits, targets, known)
    assert loss.item() == pytest.approx(expected / 2, rel=1e-5)
    loss.backward()
    assert (logits.grad[1, 1:] == 0).all()
    assert (logits.grad[0] != 0).any(dim=-1).all()


def test_joint_loss() -> None:
    assert joint_loss(torch.tensor(2.0), torch.tensor(3.0), 0.1).item() == pytest.approx(3.2)
    assert joint_loss(torch.tensor(2.0), None, 0.1).item() == 2.0
