"""Ridge regression over more rows than fit into memory: normal equations in float64, an intercept without a penalty."""

from __future__ import annotations

import torch
from torch import Tensor


class Ridge:
    """Least squares of targets [d] on features [f], from sums over chunks of weighted rows.

    Minimises sum_i w_i |x_i W + b - y_i|^2 + p |W|^2, where p is ``penalty`` times the sum of the weights times the
    mean variance of a feature, so that it means the same at every scale.
    """

    def __init__(self, features: int, targets: int, device: torch.device | str = "cpu") -> None:
        self.features = features
        self._weight = torch.zeros((), dtype=torch.float64, device=device)
        self._x = self._weight.new_zeros(features)
        self._y = self._weight.new_zeros(targets)
        self._xx = self._weight.new_zeros((features, features))
        self._xy = self._weight.new_zeros((features, targets))
        self._yy = self._weight.new_zeros((targets, targets))

    def add(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Rows of features [N, f] and targets [N, d], each with a weight [N] (1 without)."""
        x, y = x.double(), y.double()
        w = torch.ones_like(x[:, :1]) if weights is None else weights.double()[:, None]
        self._weight += w.sum()
        self._x += (w * x).sum(dim=0)
        self._y += (w * y).sum(dim=0)
        self._xx.addmm_((w * x).T, x)
        self._xy.addmm_((w * x).T, y)
        self._yy.addmm_((w * y).T, y)

    def solve(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Weights W [f, d] and intercept b [d]. Raises ``ValueError`` where no row had a weight."""
        if not self._weight > 0:
            raise ValueError("a regression needs at least one row with a weight above 0")
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        gram = self._xx - self._weight * torch.outer(mean_x, mean_x)
        moment = self._xy - self._weight * torch.outer(mean_x, mean_y)
        # At least a little above 0, for features of which none varies.
        gram.diagonal().add_((penalty * gram.diagonal().mean()).clamp(min=1e-12))
        solution = torch.cholesky_solve(moment, torch.linalg.cholesky(gram))
        return solution, mean_y - mean_x @ solution

    @property
    def target_covariance(self) -> Tensor:
        """Covariance of the targets. [d, d]"""
        mean = self._y / self._weight
        return self._yy / self._weight - torch.outer(mean, mean)
