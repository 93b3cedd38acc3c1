"""Weights fitted to swapped texts: cases with a known answer, a slow solver, and the scores taken apart."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from backpack_rank.models.rankers import RankingHead
from backpack_rank.senses.attribution import path_gradient
from backpack_rank.senses.counterfactual import SwappedSenses, contributions, fit_weights

SIZE = 6


@pytest.fixture
def linear_head():
    """f(o) = sum of o: with inputs far above 0, gelu(x) is x."""
    head = RankingHead(SIZE, 0.0).double()
    with torch.no_grad():
        head.dense.weight.copy_(torch.eye(SIZE))
        head.dense.bias.fill_(50)
        head.out.weight.fill_(1)
        head.out.bias.fill_(-3)
    return head


@pytest.fixture
def curved_head():
    torch.manual_seed(3)
    head = RankingHead(SIZE, 0.5).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    return head


def senses_of(table):
    """Sense vectors [N, k, d] whose components add up to the contributions in a table [N, k]."""
    table = np.asarray(table, dtype=np.float64)
    share = np.arange(1, SIZE + 1) / sum(range(1, SIZE + 1))
    return table[:, :, None] * share


def case_of(original, swapped, groups, rows=None):
    return SwappedSenses(senses_of(original), senses_of(swapped), groups, rows)


def slow_centred(table, groups):
    """Deviations from the mean of the list, over the root of its length, by loops."""
    table = np.asarray(table, dtype=float)
    out = np.empty_like(table)
    for group in set(groups):
        members = [row for row, other in enumerate(groups) if other == group]
        for sense in range(table.shape[1]):
            mean = sum(table[row, sense] for row in members) / len(members)
            for row in members:
                out[row, sense] = (table[row, sense] - mean) / math.sqrt(len(members))
    return out


def spread(scores, groups):
    """Sum over lists of the variance of their scores."""
    return sum(np.var([s for s, g in zip(scores, groups, strict=True) if g == group]) for group in set(groups))


def random_case(seed, senses=5):
    """Contributions of texts and swapped texts, lists of several lengths; gap in some senses more than in others."""
    rng = np.random.default_rng(seed)
    groups = np.repeat([7, 2, 9, 4], [3, 8, 5, 4])
    original = rng.normal(size=(20, senses)) @ rng.normal(size=(senses, senses))
    swapped = original + rng.normal(size=(20, senses)) * rng.uniform(0, 3, size=senses) + rng.normal(size=senses)
    return original, swapped, groups


def test_a_sense_with_the_gap_and_nothing_else_goes_to_zero_and_the_others_stay(linear_head):
    rng = np.random.default_rng(0)
    original = rng.normal(size=(12, 4))
    original[:, 2] = 5.0  # the same for every document: it orders nothing
    swapped = original.copy()
    swapped[:, 2] = rng.normal(size=12)
    fit = fit_weights(case_of(original, swapped, np.repeat([0, 1, 2], 4)), linear_head, 1.0)
    np.testing.assert_allclose(fit.values, [1, 1, 0, 1], atol=1e-8)
    assert fit.gap_before > 0.5
    assert fit.gap_after == pytest.approx(0, abs=1e-8)
    assert fit.change == pytest.approx(0, abs=1e-8)
    assert fit.spread_ratio == pytest.approx(1, abs=1e-8)


def test_a_sense_with_gap_and_relevance_is_a_trade_off_worked_by_hand(linear_head):
    # Within the one list both senses vary alike and independently, u_1 = u_2 = 1/2; the gap is in sense 2 alone.
    # M_2^2 + (M_1 - 1)^2 / 2 + (M_2 - 1)^2 / 2 is least at M = (1, 1/3), of spread 1/2 + 1/18 = 5/9.
    original = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], dtype=float)
    swapped = original + np.array([0, 2.0])
    fit = fit_weights(case_of(original, swapped, np.zeros(4, int)), linear_head, 1.0)
    root = math.sqrt(5) / 3
    np.testing.assert_allclose(fit.values, [1 / root, 1 / 3 / root], atol=1e-8)
    assert fit.spread_ratio == pytest.approx(root)
    assert fit.gap_before == pytest.approx(2 / math.sqrt(2))
    assert fit.gap_after == pytest.approx(2 / 3 / root / math.sqrt(2))
    # The new scores are +-a +-b with a = 3/sqrt 5, b = 1/sqrt 5; (a + b) / 2 is their correlation with +-1 +-1.
    assert fit.correlation == pytest.approx(2 / math.sqrt(5))


def test_gaps_that_cancel_between_senses_are_kept_cancelling(linear_head):
    original = np.array([[1, 1, 1], [1, -1, 0], [-1, 1, 1], [-1, -1, -2]], dtype=float)
    swapped = original + np.array([3.0, -3.0, 1.0])
    fit = fit_weights(case_of(original, swapped, np.zeros(4, int)), linear_head, 1e-4)
    assert abs(fit.values @ [3.0, -3.0, 1.0]) < 1e-2
    assert fit.values[:2].min() > 0.5, "turning off the senses with the large gaps would cost the order of scores"


@pytest.mark.parametrize("strength", [0.02, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_those_of_a_slow_solver(linear_head, seed, strength):
    original, swapped, groups = random_case(seed)
    fit = fit_weights(case_of(original, swapped, groups), linear_head, strength)
    gap, centred, ones = original - swapped, slow_centred(original, groups), np.ones(5)

    def objective(weights):
        left = np.sum((gap @ weights) ** 2) / np.sum((gap @ ones) ** 2)
        moved = np.sum((centred @ (weights - 1)) ** 2) / np.sum((centred @ ones) ** 2)
        return left + strength * moved

    slow = minimize(objective, ones, bounds=[(0, None)] * 5, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-11})
    ratio = math.sqrt(spread(original @ slow.x, groups) / spread(original @ ones, groups))
    np.testing.assert_allclose(fit.values * fit.spread_ratio, slow.x, atol=2e-5)
    assert fit.spread_ratio == pytest.approx(ratio, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_no_weights_of_the_same_spread_are_better(linear_head, seed):
    """The statement at the head of the module: r^2 / (a + strength) is the largest there is."""
    original, swapped, groups = random_case(seed)
    fit = fit_weights(case_of(original, swapped, groups), linear_head, 0.3)
    gap, centred, ones = original - swapped, slow_centred(original, groups), np.ones(5)

    def quality(weights):
        before, after = centred @ ones, centred @ weights
        correlation = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
        gaps = (np.linalg.norm(gap @ weights) / np.linalg.norm(after)) ** 2
        share = gaps / (np.linalg.norm(gap @ ones) / np.linalg.norm(before)) ** 2
        return (correlation**2 / (share + 0.3)) if correlation > 0 else 0.0

    reached = quality(fit.values)
    assert reached >= quality(ones)
    rng = np.random.default_rng(seed)
    starts = rng.exponential(size=(2000, 5)) * (rng.random((2000, 5)) < 0.7) + 1e-9
    assert reached >= max(map(quality, starts)) - 1e-12
    near = np.clip(fit.values + rng.normal(size=(2000, 5)) * 0.01, 0, None)
    assert reached >= max(map(quality, near)) - 1e-12


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), strength=st.floats(0.001, 1000))
def test_weights_keep_the_spread_and_as_much_correlation_as_promised(seed, strength):
    _, swapped, groups = random_case(seed)
    torch.manual_seed(seed)
    head = RankingHead(SIZE, 0.0).double()
    senses = [np.random.default_rng(seed).normal(size=(20, 5, SIZE)), senses_of(swapped)]
    fit = fit_weights(SwappedSenses(*senses, groups), head, strength)
    table = contributions(senses[0], head)
    before, after = slow_centred(table, groups).sum(1), slow_centred(table, groups) @ fit.values
    assert (fit.values >= 0).all()
    assert spread(table @ fit.values, groups) == pytest.approx(spread(table.sum(1), groups))
    correlation = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
    assert fit.correlation == pytest.approx(correlation)
    assert correlation**2 >= strength / (1 + strength) - 1e-9
    assert fit.change == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before))


def test_a_weight_that_would_be_negative_is_zero(linear_head):
    zeros = 0
    for seed in range(10):
        original, swapped, groups = random_case(seed)
        zeros += (fit_weights(case_of(original, swapped, groups), linear_head, 0.02).values == 0).sum()
    assert zeros > 0


def test_a_stronger_hold_on_the_scores_changes_them_less_and_leaves_more_gap(linear_head):
    original, swapped, groups = random_case(1)
    fits = [
        fit_weights(case_of(original, swapped, groups), linear_head, strength)
        for strength in (0.01, 0.1, 1.0, 10.0, 1e9)
    ]
    changes = [fit.change for fit in fits]
    assert changes == sorted(changes, reverse=True)
    assert fits[0].gap_after < 0.7 * fits[0].gap_before
    assert fits[-1].gap_after == pytest.approx(fits[-1].gap_before)
    np.testing.assert_allclose(fits[-1].values, 1, atol=1e-4)


def test_gaps_are_means_of_absolute_differences_over_the_spread(linear_head):
    original, swapped, groups = random_case(2)
    fit = fit_weights(case_of(original, swapped, groups), linear_head, 1.0)
    deviation = math.sqrt(spread(original.sum(1), groups) / 4)
    assert fit.gap_before == pytest.approx(np.mean(np.abs(original.sum(1) - swapped.sum(1))) / deviation)
    assert fit.gap_after == pytest.approx(np.mean(np.abs((original - swapped) @ fit.values)) / deviation)


def test_texts_that_no_swap_changes_need_no_swapped_wording(linear_head):
    original, swapped, groups = random_case(3)
    rows = np.array([1, 4, 5, 11, 18])
    full = original.copy()
    full[rows] = swapped[rows]
    expected = fit_weights(case_of(original, full, groups), linear_head, 1.0)
    shuffled = rows[[3, 0, 4, 1, 2]]
    found = fit_weights(case_of(original, swapped[shuffled], groups, shuffled), linear_head, 1.0)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-10)
    assert found.gap_before == pytest.approx(expected.gap_before * 20 / 5)


def test_every_list_counts_the_same_whatever_the_names_and_the_order_of_lists(linear_head):
    original, swapped, groups = random_case(4)
    expected = fit_weights(case_of(original, swapped, groups), linear_head, 1.0).values
    order = np.random.default_rng(0).permutation(20)
    found = fit_weights(case_of(original[order], swapped[order], -groups[order]), linear_head, 1.0)
    np.testing.assert_allclose(found.values, expected, atol=1e-10)


def test_contributions_sum_to_the_score_above_that_of_the_empty_mix(curved_head):
    senses = np.random.default_rng(1).normal(size=(1100, 3, SIZE)) * 2
    mixes = torch.from_numpy(senses.sum(1))
    curved_head.eval()
    with torch.no_grad():
        expected = curved_head(mixes) - curved_head(torch.zeros(SIZE, dtype=torch.float64))
    np.testing.assert_allclose(contributions(senses, curved_head).sum(1), expected.numpy(), atol=1e-10)


def test_the_path_gradient_is_the_integral_by_quadrature(curved_head):
    mixes = torch.from_numpy(np.random.default_rng(2).normal(size=(5, SIZE)) * 2)
    curved_head.eval()
    expected = torch.zeros_like(mixes)
    steps, weights = np.polynomial.legendre.leggauss(60)
    for step, weight in zip(steps, weights, strict=True):
        point = ((step + 1) / 2 * mixes).requires_grad_()
        expected += weight / 2 * torch.autograd.grad(curved_head(point).sum(), point)[0]
    torch.testing.assert_close(path_gradient(curved_head, mixes), expected, atol=1e-9, rtol=1e-9)


def test_the_path_gradient_of_a_mix_next_to_nothing_is_the_gradient_there(curved_head):
    curved_head.eval()
    direction = torch.randn(1, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for scale in (0.0, 1e-12, 1e-7, 3e-6, 1e-5, 1e-4):
        point = (direction * scale / 2).requires_grad_()  # of a path so short, the middle stands for the mean
        expected = torch.autograd.grad(curved_head(point).sum(), point)[0]
        torch.testing.assert_close(path_gradient(curved_head, direction * scale), expected, atol=1e-7, rtol=1e-7)


def test_half_precision_sense_vectors_are_taken_as_they_are(curved_head):
    half = np.random.default_rng(1).normal(size=(9, 3, SIZE)).astype(np.float16)
    np.testing.assert_array_equal(contributions(half, curved_head), contributions(half.astype(np.float64), curved_head))


def test_what_cannot_be_fitted_is_said(linear_head):
    original, swapped, groups = random_case(0)
    a, b = senses_of(original), senses_of(swapped)
    for case, message in (
        ((a, a, groups), "none of the 20 swapped texts has a score other than its original"),
        ((a, b, np.arange(20)), "lists of two documents or more"),
        ((a[:, :3], b, groups), r"\[N, k, d\]"),
        ((a, b[:5], groups), "5 swapped texts for 20 texts: say in rows"),
        ((a, b, groups[:3]), "one per text"),
        ((a, b[:2], groups, np.array([3, 20])), "from 0 to 19"),
        ((a, b[:0], groups, np.array([], dtype=int)), "at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_weights(SwappedSenses(*case), linear_head, 1.0)
