"""Ridge regression from sums over chunks against numpy's least squares."""

import numpy as np
import pytest
import torch

from backpack_rank.models.regression import Ridge


def test_the_solution_is_that_of_least_squares_with_rows_for_the_penalty():
    """Weighted rows scaled by the root of their weight, and one more row per feature: what ridge regression means."""
    draw = np.random.default_rng(0)
    x, y, w = draw.normal(3, 2, (40, 5)), draw.normal(-1, 1, (40, 3)), draw.uniform(0.2, 3, 40)
    centred = x - w @ x / w.sum()
    penalty = 0.3 * w.sum() * np.mean(w @ centred**2 / w.sum())
    root = np.sqrt(w)[:, None]
    design = np.vstack([np.hstack([root * x, root]), np.hstack([np.sqrt(penalty) * np.eye(5), np.zeros((5, 1))])])
    expected = np.linalg.lstsq(design, np.vstack([root * y, np.zeros((5, 3))]), rcond=None)[0]
    ridge = Ridge(5, 3)
    for rows in (slice(0, 7), slice(7, 40)):
        ridge.add(*(torch.from_numpy(part[rows]) for part in (x, y, w)))
    weight, bias = ridge.solve(0.3)
    np.testing.assert_allclose(weight, expected[:5], atol=1e-10)
    np.testing.assert_allclose(bias, expected[5], atol=1e-10)
    np.testing.assert_allclose(ridge.target_covariance, np.cov(y.T, aweights=w, ddof=0), atol=1e-12)


def test_rows_without_weights_count_alike_and_features_that_never_vary_get_nothing():
    x = torch.tensor([[1.0, 4.0], [2.0, 4.0], [3.0, 4.0]])
    ridge = Ridge(2, 1)
    ridge.add(x, 2 * x[:, :1] + 1)
    weight, bias = ridge.solve(0.0)
    np.testing.assert_allclose(weight, [[2.0], [0.0]], atol=1e-9)
    np.testing.assert_allclose(bias, [1.0], atol=1e-9)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        Ridge(2, 1).solve(0.1)
