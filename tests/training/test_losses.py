"""The listwise softmax cross-entropy, against values worked by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.training.losses import listwise_softmax, scatter_lists


def loss_of(scores, labels, mask=None):
    scores, labels = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels)
    mask = torch.ones(scores.shape, dtype=torch.bool) if mask is None else torch.tensor(mask, dtype=torch.bool)
    loss, skipped = listwise_softmax(scores, labels, mask)
    return loss.item(), skipped


def test_two_equal_scores_give_log_two():
    assert loss_of([[0.0, 0.0]], [[1, 0]]) == (pytest.approx(math.log(2)), 0)


def test_a_list_worked_by_hand():
    # softmax(ln 1, ln 2, ln 5) = 1/8, 2/8, 5/8
    scores = [[0.0, math.log(2), math.log(5)]]
    assert loss_of(scores, [[0, 0, 1]])[0] == pytest.approx(-math.log(5 / 8))
    assert loss_of(scores, [[1, 1, 0]])[0] == pytest.approx(-math.log(1 / 8) - math.log(2 / 8))


def test_grades_weigh_the_terms():
    scores = [[0.0, math.log(2), math.log(5)]]
    assert loss_of(scores, [[0, 1, 3]])[0] == pytest.approx(-math.log(2 / 8) - 3 * math.log(5 / 8))


def test_the_mean_is_over_lists():
    assert loss_of([[0.0, 0.0], [0.0, math.log(3)]], [[1, 0], [0, 1]])[0] == pytest.approx(
        (math.log(2) - math.log(3 / 4)) / 2
    )


def test_masked_documents_play_no_part_whatever_they_hold():
    expected = loss_of([[0.0, math.log(2)]], [[1, 0]])[0]
    for score, label in ((9.0, 0), (9.0, 5), (math.inf, 1), (math.nan, 1), (-math.inf, 0)):
        found = loss_of([[0.0, score, math.log(2)]], [[1, label, 0]], [[True, False, True]])
        assert found == (pytest.approx(expected), 0)


def test_lists_without_a_relevant_document_are_left_out_and_counted():
    found = loss_of([[0.0, 0.0], [5.0, 1.0], [2.0, 2.0]], [[1, 0], [0, 0], [0, 1]], [[1, 1], [1, 1], [1, 0]])
    assert found == (pytest.approx(math.log(2)), 2)


@pytest.mark.parametrize("mask", [[[False, False]], [[True, True]]])
def test_no_usable_list_gives_zero_loss_and_zero_gradient(mask):
    scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
    loss, skipped = listwise_softmax(scores, torch.zeros(1, 2), torch.tensor(mask))
    loss.backward()
    assert (loss.item(), skipped) == (0.0, 1)
    assert scores.grad.tolist() == [[0.0, 0.0]]


def test_further_leading_axes_are_lists_too():
    scores, labels = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 3, 4)
    labels[..., 1] = 1
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    nested, flat = (
        listwise_softmax(*(part.reshape(shape) for part in (scores, labels, mask)))[0] for shape in ((2, 3, 4), (6, 4))
    )
    assert nested.item() == pytest.approx(flat.item())


def test_the_gradient_is_softmax_minus_label():
    scores = torch.tensor([[0.3, -1.2, 2.0, 7.0]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    listwise_softmax(scores, torch.tensor([[0.0, 1.0, 0.0, 1.0]]), mask)[0].backward()
    shares = torch.softmax(scores[0, :3].detach(), dim=0)
    torch.testing.assert_close(scores.grad[0], torch.cat([shares - torch.tensor([0.0, 1.0, 0.0]), torch.zeros(1)]))


def test_gradients_stay_finite_for_extreme_scores():
    scores = torch.tensor([[1e4, -1e4, 0.0], [3e38, -3e38, 0.0], [-1e4, 1e4, 0.0]], requires_grad=True)
    labels, mask = torch.tensor([[0.0, 1.0, 0.0]] * 3), torch.tensor([[True, True, False]] * 2 + [[False] * 3])
    loss, _ = listwise_softmax(scores[::2], labels[::2], mask[::2])
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(2, 6), st.integers(0, 10_000), st.floats(0.1, 20))
def test_one_relevant_document_each_is_torchs_cross_entropy(lists, size, seed, spread):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator, dtype=torch.float64) * spread
    target = torch.randint(size, (lists,), generator=generator)
    loss, skipped = listwise_softmax(scores, F.one_hot(target, size), torch.ones(lists, size, dtype=torch.bool))
    assert skipped == 0
    assert loss.item() == pytest.approx(F.cross_entropy(scores, target).item(), rel=1e-9)


def test_scores_are_scattered_list_by_list():
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    scores = torch.arange(1.0, 7.0, requires_grad=True)
    rows = scatter_lists(scores, mask)
    assert rows.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    (rows * torch.tensor([[1.0, 2, 3], [4, 9, 9], [5, 6, 9]])).sum().backward()
    assert scores.grad.tolist() == [1, 2, 3, 4, 5, 6]


def test_large_losses_are_not_cut():
    assert loss_of([[0.0, 1000.0]], [[1, 0]])[0] == pytest.approx(1000)
