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
_SHUFFLED = 8  # neighbours that are shuffled to leave a local optimum
_PROGRAMME_SHARE = 0.8  # of the time; local search has the rest where the programme did not end
_MOST_TRIANGLES = 20_000  # constraints added at a time
_VIOLATED = 1e-6
_INTEGER = 1e-6
_ROUNDING = 1e-3  # of the solver's value of a programme, far below the distance of two losses


def loss_of(order: np.ndarray, margins: np.ndarray) -> int:
    """Use this for the weight of the majorities that an order goes against.

    >>> margins = np.array([[0, 3], [-3, 0]])  # three more rankings place 0 before 1
    >>> loss_of(np.array([0, 1]), margins), loss_of(np.array([1, 0]), margins)
    (0, 3)

    Args:
        order: indices, best first. [n]
        margins: W - W^T. int64 [n, n]
    """
    return int(np.triu(margins.T[np.ix_(order, order)], 1).clip(0).sum())


def insertion_search(margins: np.ndarray, order: np.ndarray, deadline: float) -> np.ndarray:
    """Use this to improve an order by moving items, until no move of an item lowers the loss.

    >>> margins = np.array([[0, 3, 1], [-3, 0, 1], [-1, -1, 0]])
    >>> insertion_search(margins, np.array([2, 1, 0]), deadline=math.inf).tolist()
    [0, 1, 2]

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
    """Use this to leave local optima: insertion search from orders with neighbours shuffled.

    The seed is fixed, so that the same margins give the same order.

    Args:
        margins: int64 [n, n].
        order: indices [n] to start from.
        deadline: as in :func:`insertion_search`.
        target: a loss that no order can be below; reaching it ends the search.
        rounds: number of shuffles.
    """
    rng = np.random.default_rng(0)
    block = min(_SHUFFLED, len(order))
    best = insertion_search(margins, order, deadline)
    loss = loss_of(best, margins)
    for _ in range(rounds):
        if loss <= target or time.perf_counter() > deadline:
            break
        start = int(rng.integers(len(order) - block + 1))
        moved = best.copy()
        moved[start : start + block] = rng.permutation(moved[start : start + block])
        moved = insertion_search(margins, moved, deadline)
        new_loss = loss_of(moved, margins)
        # Equal ones too: the search then drifts instead of standing still.
        if new_loss <= loss:
            best, loss = moved, new_loss
    return best


def _move(order: np.ndarray, place: int, target: int) -> None:
    """Move the item at a place to another one; those between move up or down by one place."""
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
    """Use this for an order of least loss, or the best order by the deadline.

    >>> circle = np.array([[0, 1, -3], [-1, 0, 2], [3, -2, 0]])  # 0 > 1 > 2 > 0, by 1, 2 and 3
    >>> solution = solve(circle, deadline=math.inf, largest=300)
    >>> solution.order.tolist(), solution.loss, solution.bound
    ([1, 2, 0], 1, 1)

    Args:
        margins: int64 [n, n] of one strongly connected component of the majority graph, n >= 3. The
            search starts from the order of the indices.
        deadline: value of ``time.perf_counter()``; a step of the solver may overrun it a little.
        largest: components of more items are left to local search.
    """
    start = insertion_search(margins, np.arange(len(margins)), deadline)
    best = _BestOrder(margins, start)
    if len(margins) <= largest:
        now = time.perf_counter()
        _solve_programme(best, now + _PROGRAMME_SHARE * (deadline - now))
    if not best.proven:
        best.offer(iterated_search(margins, best.order, deadline, target=best.bound))
    return Solution(best.order, best.loss, min(best.bound, best.loss))


class _BestOrder:
    """The best order and the highest lower bound of the loss so far."""

    def __init__(self, margins: np.ndarray, order: np.ndarray) -> None:
        self.margins = margins
        weights = np.abs(margins[np.triu_indices(len(margins), 1)])
        # Losses are sums of weights, so they differ by multiples of this.
        self.step = int(np.gcd.reduce(weights)) or 1
        self.order = order
        self.loss = loss_of(order, margins)
        # A component with a circle loses at least its lightest pair.
        self.bound = min(self.loss, int(weights[weights > 0].min(initial=self.loss)))

    @property
    def proven(self) -> bool:
        """Whether no order has a lower loss."""
        return self.loss <= self.bound

    def offer(self, order: np.ndarray) -> None:
        """Keep the order if it is better than the one so far."""
        loss = loss_of(order, self.margins)
        if loss < self.loss:
            self.order, self.loss = order, loss

    def raise_bound(self, value: float | None) -> None:
        """Take a lower bound that the solver has proven, rounded up to what a loss can be."""
        if value is not None and math.isfinite(value):
            self.bound = max(self.bound, self.step * math.ceil(value / self.step - _ROUNDING))


def _solve_programme(best: _BestOrder, deadline: float) -> None:
    """Look for an order of least loss by the integer programme, and offer all that come up."""
    programme = _Programme(best.margins)
    # The solution without any constraint: every pair as its majority wants.
    before = np.where(best.margins > 0, 1.0, np.where(best.margins < 0, 0.0, 0.5))
    integral = False
    while not best.proven:
        triangles = _violated(before)
        if triangles.shape[1]:
            programme.add(triangles)
        elif integral or np.abs(before - before.round()).max() <= _INTEGER:
            return  # an order that keeps all constraints; it has been offered
        else:
            # Integers are dear, so local search may reach the bound of the relaxation first.
            integral = True
            best.offer(iterated_search(best.margins, best.order, deadline, target=best.bound))
            if best.proven:
                return
        seconds = deadline - time.perf_counter()
        if seconds <= 0:
            return
        solved, bound = programme.solve(integral, seconds)
        best.raise_bound(bound)
        if solved is None:
            return
        before = solved
        # Rounding: the more an item stands before others, the earlier it comes.
        rounded = np.argsort(-before.sum(axis=1), kind="stable")
        best.offer(insertion_search(best.margins, rounded, deadline))


class _Programme:
    """The programme with the constraints added so far."""

    def __init__(self, margins: np.ndarray) -> None:
        self.size = len(margins)
        self.pairs = np.triu_indices(self.size, 1)
        upper = margins[self.pairs]
        # The loss is the constant plus the sum of weights times x; see the head of the module.
        self.weights = -upper.astype(np.float64)
        self.constant = float(np.maximum(upper, 0).sum())
        self.matrix: csr_array | None = None
        self.limits = np.empty(0)

    def add(self, triangles: np.ndarray) -> None:
        """Forbid circles i -> j -> k -> i, columns of [3, t]; i is the smallest index of each."""
        # x_ij + x_jk - x_ik <= 1. Where j > k, x_jk is 1 - x_kj: its sign turns, and the 1 leaves
        # the right side.
        i, j, k = triangles
        count = len(i)
        ones = np.ones(count)
        values = np.concatenate([ones, np.where(j < k, 1.0, -1.0), -ones])
        x_ij = self._column(i, j)
        x_jk = self._column(np.minimum(j, k), np.maximum(j, k))
        x_ik = self._column(i, k)
        columns = np.concatenate([x_ij, x_jk, x_ik])
        rows = np.tile(np.arange(count), 3)
        new = csr_array(coo_array((values, (rows, columns)), shape=(count, len(self.weights))))
        self.matrix = new if self.matrix is None else csr_array(vstack([self.matrix, new]))
        self.limits = np.concatenate([self.limits, np.where(j < k, 1.0, 0.0)])

    def solve(self, integral: bool, seconds: float) -> tuple[np.ndarray | None, float | None]:
        """Solve the programme with the constraints added so far.

        Returns:
            How far each item stands before each other one, float64 [n, n], or None when the time
            was too short; and a lower bound of the loss, or None when there is none.
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
            # An unfinished relaxation proves nothing; branch and bound has a bound all along.
            bound = result.get("mip_dual_bound") if integral else None
            return None, None if bound is None else bound + self.constant
        before = np.zeros((self.size, self.size))
        before[self.pairs] = result.x.round() if integral else result.x
        before += np.tril(1 - before.T, -1)
        bound = result.mip_dual_bound if integral else result.fun
        return before, bound + self.constant

    def _column(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Place of x_ij among the variables, for first < second: rows of a triangle end to end."""
        return first * (2 * self.size - first - 1) // 2 + second - first - 1


def _violated(before: np.ndarray) -> np.ndarray:
    """Circles i -> j -> k -> i that ``before`` [n, n] violates, the worst if many. int64 [3, t]

    Each stands there once, from its smallest index i on.
    """
    circles = []
    amounts = []
    # One index at a time: [n, n, n] would be large.
    for i in range(len(before) - 2):
        rest = before[i + 1 :, i + 1 :]
        sums = before[i, i + 1 :, None] + rest - before[i, None, i + 1 :]
        np.fill_diagonal(sums, 0.0)  # j = k is no circle
        j, k = np.nonzero(sums > 1 + _VIOLATED)
        circles.append(np.stack([np.full(len(j), i), j + i + 1, k + i + 1]))
        amounts.append(sums[j, k])
    triangles = np.concatenate(circles, axis=1)
    if triangles.shape[1] > _MOST_TRIANGLES:
        worst = np.argsort(-np.concatenate(amounts), kind="stable")[:_MOST_TRIANGLES]
        triangles = triangles[:, worst]
    return triangles
