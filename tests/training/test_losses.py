"""The listwise softmax cross-entropy, against values worked by hand."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.training.losses import (
    LOSSES,
    RankingLoss,
    lambda_weights,
    lambdarank,
    listwise_softmax,
    pairwise_hinge,
    ranknet,
    scatter_lists,
)


def tensors(scores, labels, mask=None):
    """Where there is no mask, every document is there."""
    scores, labels = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels)
    mask = torch.ones(scores.shape) if mask is None else torch.tensor(mask)
    return scores, labels, mask.bool()


def loss_of(scores, labels, mask=None):
    loss, skipped = listwise_softmax(*tensors(scores, labels, mask))
    return loss.item(), skipped


LOG_1_2_5 = [0.0, math.log(2), math.log(5)]
"""Scores with a softmax of 1/8, 2/8, 5/8."""


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        ([[0.0, 0.0]], [[1, 0]], math.log(2)),
        ([LOG_1_2_5], [[0, 0, 1]], -math.log(5 / 8)),
        ([LOG_1_2_5], [[1, 1, 0]], -math.log(1 / 8) - math.log(2 / 8)),
        # Grades weigh the terms.
        ([LOG_1_2_5], [[0, 1, 3]], -math.log(2 / 8) - 3 * math.log(5 / 8)),
        # The mean is over lists.
        ([[0.0, 0.0], [0.0, math.log(3)]], [[1, 0], [0, 1]], (math.log(2) - math.log(3 / 4)) / 2),
        # Large losses are not cut.
        ([[0.0, 1000.0]], [[1, 0]], 1000),
    ],
)
def test_losses_worked_by_hand(scores, labels, expected):
    assert loss_of(scores, labels) == (pytest.approx(expected), 0)


def test_masked_documents_play_no_part_whatever_they_hold():
    expected = loss_of([[0.0, math.log(2)]], [[1, 0]])[0]
    for score, label in ((9.0, 0), (9.0, 5), (math.inf, 1), (math.nan, 1), (-math.inf, 0)):
        loss = loss_of([[0.0, score, math.log(2)]], [[1, label, 0]], [[True, False, True]])
        assert loss == (pytest.approx(expected), 0)


def test_lists_without_a_relevant_document_are_left_out_and_counted():
    loss = loss_of(
        [[0.0, 0.0], [5.0, 1.0], [2.0, 2.0]], [[1, 0], [0, 0], [0, 1]], [[1, 1], [1, 1], [1, 0]]
    )
    assert loss == (pytest.approx(math.log(2)), 2)


def test_further_leading_axes_are_lists_too():
    scores, labels = (
        torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)),
        torch.zeros(2, 3, 4),
    )
    labels[..., 1] = 1
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    nested, flat = (
        listwise_softmax(*(part.reshape(shape) for part in (scores, labels, mask)))[0]
        for shape in ((2, 3, 4), (6, 4))
    )
    assert nested.item() == pytest.approx(flat.item())


def test_the_gradient_is_softmax_minus_label():
    scores = torch.tensor([[0.3, -1.2, 2.0, 7.0]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    listwise_softmax(scores, torch.tensor([[0.0, 1.0, 0.0, 1.0]]), mask)[0].backward()
    shares = torch.softmax(scores[0, :3].detach(), dim=0)
    torch.testing.assert_close(
        scores.grad[0], torch.cat([shares - torch.tensor([0.0, 1.0, 0.0]), torch.zeros(1)])
    )


def test_gradients_stay_finite_for_extreme_scores():
    scores = torch.tensor(
        [[1e4, -1e4, 0.0], [3e38, -3e38, 0.0], [-1e4, 1e4, 0.0]], requires_grad=True
    )
    labels, mask = (
        torch.tensor([[0.0, 1.0, 0.0]] * 3),
        torch.tensor([[True, True, False]] * 2 + [[False] * 3]),
    )
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
    loss, skipped = listwise_softmax(
        scores, F.one_hot(target, size), torch.ones(lists, size, dtype=torch.bool)
    )
    assert skipped == 0
    assert loss.item() == pytest.approx(F.cross_entropy(scores, target).item(), rel=1e-9)


def test_scores_are_scattered_list_by_list():
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    scores = torch.arange(1.0, 7.0, requires_grad=True)
    rows = scatter_lists(scores, mask)
    assert rows.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    (rows * torch.tensor([[1.0, 2, 3], [4, 9, 9], [5, 6, 9]])).sum().backward()
    assert scores.grad.tolist() == [1, 2, 3, 4, 5, 6]


PAIRWISE = (pairwise_hinge, ranknet, lambdarank)


def lists(seed, shape=(3, 5), spread=2.0):
    """Random scores, grades 0 .. 3 and masks."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64) * spread
    labels = torch.randint(0, 4, shape, generator=generator)
    return scores, labels, torch.rand(shape, generator=generator) < 0.8


def in_loops(loss, weight, scores, labels, mask):
    """Mean over lists with a pair of the weighted sum of ``loss(s_i - s_j)`` over pairs with y_i >
    y_j.
    """
    totals = []
    for s, y, present in zip(scores.tolist(), labels.tolist(), mask.tolist(), strict=True):
        kept = [place for place, there in enumerate(present) if there]
        pairs = [(i, j) for i in kept for j in kept if y[i] > y[j]]
        if pairs:
            weights = weight(s, y, kept, pairs)
            totals.append(sum(weights[pair] * loss(s[pair[0]] - s[pair[1]]) for pair in pairs))
    return sum(totals) / len(totals) if totals else 0.0, len(scores) - len(totals)


def all_the_same_weight(scores, labels, kept, pairs):
    return dict.fromkeys(pairs, 1 / len(pairs))


def by_ndcg(scores, labels, kept, pairs):
    """The change of nDCG when two documents swap ranks, by computing it twice."""

    def ndcg(order):
        return sum(
            (2 ** labels[place] - 1) / math.log2(rank + 2) for rank, place in enumerate(order)
        )

    order = sorted(kept, key=lambda place: -scores[place])
    best = ndcg(sorted(kept, key=lambda place: -labels[place]))
    changes = {}
    for i, j in pairs:
        swapped = [{i: j, j: i}.get(place, place) for place in order]
        changes[i, j] = abs(ndcg(swapped) - ndcg(order)) / best
    return changes


def log_loss(difference):
    return math.log1p(math.exp(-difference))


@pytest.mark.parametrize(
    ("loss", "scores", "labels", "expected"),
    [
        # Pairs (0, 1) and (0, 2): max(0, 1 - 0.5) and max(0, 1 - (-1)).
        (pairwise_hinge, [1.0, 0.5, 2.0], [1, 0, 0], (0.5 + 2) / 2),
        # With a margin of 0.25 the first pair is apart.
        (partial(pairwise_hinge, margin=0.25), [1.0, 0.5, 2.0], [1, 0, 0], 1.25 / 2),
        (ranknet, [0.0, 0.0], [1, 0], math.log(2)),
        # Every ordered pair of three grades.
        (ranknet, [1.0, 0.0, 2.0], [2, 1, 0], (log_loss(1) + log_loss(-1) + log_loss(-2)) / 3),
    ],
)
def test_losses_of_pairs_worked_by_hand(loss, scores, labels, expected):
    assert loss(*tensors([scores], [labels]))[0].item() == pytest.approx(expected)


def test_lambda_weights_by_hand():
    # Ranks 2, 3, 1; gains 1, 3, 0; the ideal order has 3 at rank 1 and 1 at rank 2.
    weights = lambda_weights(*tensors([[1.0, 0.0, 2.0]], [[1, 2, 0]]))[0]
    ideal = 3 + 1 / math.log2(3)
    assert weights[1, 0].item() == pytest.approx(2 * (1 / math.log2(3) - 1 / 2) / ideal)
    assert weights[1, 2].item() == pytest.approx(3 * (1 - 1 / 2) / ideal)
    assert weights[0, 2].item() == pytest.approx(1 * (1 - 1 / math.log2(3)) / ideal)
    torch.testing.assert_close(weights, weights.T)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 7))
def test_losses_are_those_of_loops(seed, rows, size):
    case = lists(seed, (rows, size))
    for actual, expected in (
        (
            pairwise_hinge(*case, margin=0.7),
            in_loops(lambda d: max(0.0, 0.7 - d), all_the_same_weight, *case),
        ),
        (ranknet(*case), in_loops(log_loss, all_the_same_weight, *case)),
        (lambdarank(*case), in_loops(log_loss, by_ndcg, *case)),
    ):
        assert (actual[0].item(), actual[1]) == (
            pytest.approx(expected[0], rel=1e-9, abs=1e-12),
            expected[1],
        )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("held", [9.0, math.inf, -math.inf, math.nan])
def test_masked_documents_play_no_part_in_loss_or_gradient(name, held):
    loss = RankingLoss(name)
    plain = torch.tensor([[0.3, -1.0, 0.8]], requires_grad=True)
    loss(plain, torch.tensor([[1, 0, 2]]), torch.ones(1, 3, dtype=torch.bool))[0].backward()
    padded = torch.tensor([[0.3, held, -1.0, 0.8]], requires_grad=True)
    mask = torch.tensor([[True, False, True, True]])
    loss(padded, torch.tensor([[1, 3, 0, 2]]), mask)[0].backward()
    torch.testing.assert_close(padded.grad[mask], plain.grad[0])
    assert padded.grad[~mask].tolist() == [0.0]


@pytest.mark.parametrize("loss", PAIRWISE)
def test_lists_without_a_pair_are_left_out_and_counted(loss):
    case = tensors(
        [[0.0, 0.2], [5.0, 1.0], [2.0, 3.0]], [[1, 0], [1, 1], [1, 0]], [[1, 1], [1, 1], [1, 0]]
    )
    alone = tensors([[0.0, 0.2]], [[1, 0]])
    assert (loss(*case)[0].item(), loss(*case)[1]) == (pytest.approx(loss(*alone)[0].item()), 2)


@pytest.mark.parametrize("loss", [listwise_softmax, *PAIRWISE])
@pytest.mark.parametrize("mask", [[[False, False]], [[True, True]]])
def test_no_usable_list_at_all_gives_zero_loss_and_zero_gradient(loss, mask):
    scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
    value, skipped = loss(scores, torch.zeros(1, 2), torch.tensor(mask))
    value.backward()
    assert (value.item(), skipped) == (0.0, 1)
    assert scores.grad.tolist() == [[0.0, 0.0]]


def test_gradients_by_hand():
    scores = torch.tensor([[0.0, 0.5]], dtype=torch.float64, requires_grad=True)
    labels, mask = torch.tensor([[1, 0]]), torch.ones(1, 2, dtype=torch.bool)
    pull = 1 / (1 + math.exp(-0.5))  # sigmoid(s_j - s_i)
    weight = 1 - 1 / math.log2(3)
    for loss, expected in ((pairwise_hinge, 1.0), (ranknet, pull), (lambdarank, weight * pull)):
        (gradient,) = torch.autograd.grad(loss(scores, labels, mask)[0], scores)
        assert gradient.tolist() == [pytest.approx([-expected, expected])]


@pytest.mark.parametrize("loss", [pairwise_hinge, ranknet])
def test_gradients_are_those_of_differences(loss):
    scores, labels, mask = lists(4)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, mask)[0], scores.requires_grad_())


@pytest.mark.parametrize("loss", PAIRWISE)
def test_extreme_scores_have_finite_gradients(loss):
    scores = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = loss(scores, torch.tensor([[0, 1, 0]]), torch.ones(1, 3, dtype=torch.bool))[0]
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(scores.grad).all()


def apart(scores, labels):
    """Whether every relevant document is above every other of its list."""
    lowest = scores.masked_fill(labels == 0, math.inf).amin(-1)
    return bool((lowest > scores.masked_fill(labels == 1, -math.inf).amax(-1)).all())


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_brings_relevant_documents_up(name):
    scores, labels, _ = lists(7, (4, 6))
    labels, mask = labels.clamp(max=1), torch.ones_like(labels, dtype=torch.bool)
    assert not apart(scores, labels)
    scores.requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.2)
    for _ in range(60):
        optimizer.zero_grad()
        RankingLoss(name)(scores, labels, mask)[0].backward()
        optimizer.step()
    assert apart(scores.detach(), labels)


def test_the_choice_has_the_margin_and_refuses_what_it_does_not_know():
    case = lists(2)
    assert (
        RankingLoss("pairwise_hinge", margin=3.0)(*case)[0] == pairwise_hinge(*case, margin=3.0)[0]
    )
    assert RankingLoss("ranknet")(*case)[0] == ranknet(*case)[0]
    assert RankingLoss("lambdarank")(*case)[0] == lambdarank(*case)[0]
    with pytest.raises(
        ValueError, match=r"training\.loss=hinge: use one of listwise_softmax, pairwise_hinge, ran"
    ):
        RankingLoss("hinge")
    for options, message in (
        ({"margin": 0.0}, r"training\.margin=0\.0 must be a number above 0"),
        ({"weight": -1.0}, r"training\.loss_weight=-1\.0 must be a number of at least 0"),
        ({"margin": math.nan}, r"training\.margin=nan must be a number above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            RankingLoss(**options)
