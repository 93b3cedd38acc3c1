r"""The order of least loss as an integer programme, solved through few of its constraints.

For items i < j (by index) x_ij is 1 when i stands before j and 0 when j stands before i; x_ji
stands for 1 - x_ij. With margins M = W - W^T the loss of an order is

    sum_{i<j} max(M_ij, 0) - M_ij x_ij

and an x is an order when no three items form a circle: x_ij + x_jk + x_ki <= 2, that is x_ij + x_jk
- x_ik <= 1, for all i, j, k. There are n (n - 1) (n - 2) / 3 of these constraints and few matter.
So the linear relaxation is solved with those that earlier solutions violated, until none is
violated. Its value, rounded up to what a loss can be (multiples of the greatest common divisor of
M), is a lower bound. Mostly an order found by rounding and local search reaches it. Otherwise x has
fractions, and the variables are made integers, again with violated constraints added.

Why not scipy's milp with all constraints at once, since milp solves the parts here too? By
benchmarks/kemeny.py that takes 2.6 times as long on random rankings of 10 items, 4 times on 20 and
18 times on 50; on rankings of 100 items that agree a little it takes seconds in place of
hundredths. A second way for short lists would be more code, and slower.

Orders of low loss are found by moving single items: the start of the search, and what remains
beyond its limits. Cost and loss differ by the constant of
:func:`~backpack_rank.position.aggregation.aggregate.lower_bound`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

ROUNDS = 300
_BLOCK = 8  # neighbours that are shuffled to leave a local optimum
_SHARE = 0.8  # of the time is for the programme, the rest for local search where the programme did not end
_TRIANGLES = 20_000  # constraints added at a time
_VIOLATED = 1e-6
_INTEGER = 1e-6
_ROUNDING = 1e-3  # of the solver's value of a programme, far below the distance of two losses


def loss_of(order: np.ndarray, margins: np.ndarray) -> int:
    """Weight of the majorities that an order (indices [n], best first) goes against; margins [n,
    n].
    """
    return int(np.triu(margins.T[np.ix_(order, order)], 1).clip(0).sum())


def insertion_search(margins: np.ndarray, order: np.ndarray, deadline: float) -> np.ndarray:
    """The order after moving single items to their best places until no move of one item lowers the
    loss.

    Args:
        margins: int64 [n, n].
        order: indices [n] to start from.
        deadline: value of ``time.perf_counter()`` at which it stops with what it has.
    """
    order = order.copy()
    sums = np.zeros(len(order) + 1, dtype=np.int64)
    improved = True
    while improved:
        improved = False
        for item in order.tolist():
            if time.perf_counter() > deadline:
                return order
            place = int((order == item).argmax())
            # sums[p] - sums[q] is what standing in front of place q instead of p gains.
            np.cumsum(margins[item, order], out=sums[1:])
            best = int(sums.argmin())
            if sums[best] < sums[place]:
                _move(order, place, best if best < place else best - 1)
                improved = True
    return order


def iterated_search(
    margins: np.ndarray,
    order: np.ndarray,
    deadline: float,
    *,
    target: int = 0,
    rounds: int = ROUNDS,
) -> np.ndarray:
    """Insertion search again and again from shuffled neighbours of the best order; the seed is
    fixed.

    Args:
        margins: int64 [n, n].
        order: indices [n] to start from.
        deadline: as in :func:`insertion_search`.
        target: a loss that no order can be below; reaching it ends the search.
        rounds: number of shuffles.
    """
    rng = np.random.default_rng(0)
    block = min(_BLOCK, len(order))
    best = insertion_search(margins, order, deadline)
    loss = loss_of(best, margins)
    for _ in range(rounds):
        if loss <= target or time.perf_counter() > deadline:
            break
        start = int(rng.integers(len(order) - block + 1))
        moved = best.copy()
        moved[start : start + block] = rng.permutation(moved[start : start + block])
        moved = insertion_search(margins, moved, deadline)
        found = loss_of(moved, margins)
        if found <= loss:  # equal ones too: the search then drifts instead of standing still
            best, loss = moved, found
    return best


def _move(order: np.ndarray, place: int, target: int) -> None:
    item = order[place]
    if target < place:
        order[target + 1 : place + 1] = order[target:place].copy()
    else:
        order[place:target] = order[place + 1 : target + 1].copy()
    order[target] = item


@dataclass(frozen=True)
class Solution:
    """An order of the items of a component.

    Attributes:
        order: indices [n], best first.
        loss: of the order.
        bound: proven lower bound of the loss of any order; equal to ``loss`` when the order is
            optimal.
    """

    order: np.ndarray
    loss: int
    bound: int


def solve(margins: np.ndarray, deadline: float, largest: int) -> Solution:
    """An order of least loss, or the best one found before the deadline.

    Args:
        margins: int64 [n, n] of one strongly connected component of the majority graph, n >= 3. The
            search starts from the order of the indices.
        deadline: value of ``time.perf_counter()``; a step of the solver may overrun it a little.
        largest: components of more items are left to local search.
    """
    found = _Search(margins, insertion_search(margins, np.arange(len(margins)), deadline))
    if len(margins) <= largest:
        now = time.perf_counter()
        _exact(found, now + _SHARE * (deadline - now))
    if not found.done:
        found.offer(iterated_search(margins, found.order, deadline, target=found.bound))
    return Solution(found.order, found.loss, min(found.bound, found.loss))


class _Search:
    """The best order and the highest bound so far."""

    def __init__(self, margins: np.ndarray, order: np.ndarray) -> None:
        self.margins = margins
        weights = np.abs(margins[np.triu_indices(len(margins), 1)])
        self.step = int(np.gcd.reduce(weights)) or 1
        self.order, self.loss = order, loss_of(order, margins)
        # A component with a circle loses at least its lightest pair.
        self.bound = min(self.loss, int(weights[weights > 0].min(initial=self.loss)))

    @property
    def done(self) -> bool:
        return self.loss <= self.bound

    def offer(self, order: np.ndarray) -> None:
        loss = loss_of(order, self.margins)
        if loss < self.loss:
            self.order, self.loss = order, loss

    def raise_bound(self, value: float | None) -> None:
        """A proven lower bound as the solver gives it; losses are multiples of ``step``."""
        if value is not None and math.isfinite(value):
            self.bound = max(self.bound, self.step * math.ceil(value / self.step - _ROUNDING))


def _exact(found: _Search, deadline: float) -> None:
    programme = _Programme(found.margins)
    before = np.where(found.margins > 0, 1.0, np.where(found.margins < 0, 0.0, 0.5))
    integral = False
    while not found.done:
        triangles = _violated(before)
        if triangles.shape[1]:
            programme.add(triangles)
        elif integral or np.abs(before - before.round()).max() <= _INTEGER:
            return  # an order that keeps all constraints; it has been offered
        else:
            integral = True
            found.offer(iterated_search(found.margins, found.order, deadline, target=found.bound))
            if found.done:
                return
        if (left := deadline - time.perf_counter()) <= 0:
            return
        solved, bound = programme.solve(integral, left)
        found.raise_bound(bound)
        if solved is None:
            return
        before = solved
        rounded = np.argsort(-before.sum(axis=1), kind="stable")
        found.offer(insertion_search(found.margins, rounded, deadline))


class _Programme:
    """The programme with the constraints added so far."""

    def __init__(self, margins: np.ndarray) -> None:
        self.size = len(margins)
        self.pairs = np.triu_indices(self.size, 1)
        upper = margins[self.pairs]
        self.weights = -upper.astype(np.float64)
        self.constant = float(np.maximum(upper, 0).sum())
        self.matrix: csr_array | None = None
        self.limits = np.empty(0)

    def add(self, triangles: np.ndarray) -> None:
        """Forbid circles i -> j -> k -> i, columns of [3, t]; i is the smallest index of each."""
        i, j, k = triangles
        # Where j > k, x_jk is 1 - x_kj.
        sign = np.where(j < k, 1.0, -1.0)
        columns = np.concatenate(
            [
                self._column(i, j),
                self._column(np.minimum(j, k), np.maximum(j, k)),
                self._column(i, k),
            ]
        )
        values = np.concatenate([np.ones(len(i)), sign, -np.ones(len(i))])
        rows = np.tile(np.arange(len(i)), 3)
        new = csr_array(coo_array((values, (rows, columns)), shape=(len(i), len(self.weights))))
        self.matrix = new if self.matrix is None else csr_array(vstack([self.matrix, new]))
        self.limits = np.concatenate([self.limits, np.where(j < k, 1.0, 0.0)])

    def solve(self, integral: bool, seconds: float) -> tuple[np.ndarray | None, float | None]:
        """How far each item stands before each other one, float64 [n, n], and a lower bound of the
        loss.

        None in place of the first when the time was too short, None in place of the second when
        there is no bound.
        """
        assert self.matrix is not None
        result = milp(
            self.weights,
            integrality=np.ones(len(self.weights)) if integral else None,
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(self.matrix, -np.inf, self.limits),
            # A relative gap would let the solver stop before the last unit of a large loss.
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        if result.status != 0:
            bound = result.get("mip_dual_bound") if integral else None
            return None, None if bound is None else bound + self.constant
        before = np.zeros((self.size, self.size))
        before[self.pairs] = result.x.round() if integral else result.x
        before += np.tril(1 - before.T, -1)
        bound = result.mip_dual_bound if integral else result.fun
        return before, bound + self.constant

    def _column(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Place of x_ij among the variables, for first < second."""
        return first * (2 * self.size - first - 1) // 2 + second - first - 1


def _violated(before: np.ndarray) -> np.ndarray:
    """Circles i -> j -> k -> i that ``before`` [n, n] violates, int64 [3, t]; i is the smallest,
    the worst if many.
    """
    found, amounts = [], []
    for i in range(len(before) - 2):
        rest = before[i + 1 :, i + 1 :]
        sums = before[i, i + 1 :, None] + rest - before[i, None, i + 1 :]
        np.fill_diagonal(sums, 0.0)
        j, k = np.nonzero(sums > 1 + _VIOLATED)
        found.append(np.stack([np.full(len(j), i), j + i + 1, k + i + 1]))
        amounts.append(sums[j, k])
    triangles = np.concatenate(found, axis=1)
    if triangles.shape[1] > _TRIANGLES:
        triangles = triangles[:, np.argsort(-np.concatenate(amounts), kind="stable")[:_TRIANGLES]]
    return triangles
