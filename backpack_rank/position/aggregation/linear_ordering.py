r"""The order of least loss as an integer programme.

For items i < j (by index) x_ij is 1 when i stands before j and 0 when j stands before i. With
margins M = W - W^T the loss of an order is

    sum_{i<j} max(M_ij, 0) - M_ij x_ij

and an x is an order when no three items form a circle: 0 <= x_ij + x_jk - x_ik <= 1 for i < j < k.
These are n (n - 1) (n - 2) / 6 rows: 1,140 for a window of 20 passages, 9,880 for 40. Components of
more items, which rankings of the same passages hardly have, are left to local search.

Cost and loss differ by the constant of
:func:`~backpack_rank.position.aggregation.aggregate.lower_bound`.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array

ROUNDS = 300
_SHUFFLED = 8  # neighbours that are shuffled to leave a local optimum
_PROGRAMME_SHARE = 0.8  # of the time; local search has the rest where the programme did not end
_ROUNDING = 1e-3  # of the solver's value of a programme, far below the distance of two losses


def loss_of(order: np.ndarray, margins: np.ndarray) -> int:
    """The weight of the majorities that an order goes against.

    >>> margins = np.array([[0, 3], [-3, 0]])  # three more rankings place 0 before 1
    >>> loss_of(np.array([0, 1]), margins), loss_of(np.array([1, 0]), margins)
    (0, 3)

    Args:
        order: indices, best first. [n]
        margins: W - W^T. int64 [n, n]
    """
    return int(np.triu(margins.T[np.ix_(order, order)], 1).clip(0).sum())


def insertion_search(margins: np.ndarray, order: np.ndarray, deadline: float) -> np.ndarray:
    """Improve an order by moving items, until no move of an item lowers the loss.

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
    """Leave local optima: insertion search from orders with neighbours shuffled.

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
    """An order of least loss, or the best order by the deadline.

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
    weights = np.abs(margins[np.triu_indices(len(margins), 1)])
    # A circle loses at least its lightest pair, and losses are multiples of this step.
    bound, step = int(weights[weights > 0].min()), int(np.gcd.reduce(weights))
    order = insertion_search(margins, np.arange(len(margins)), deadline)
    if len(margins) <= largest:
        now = time.perf_counter()
        found, value = _programme(margins, _PROGRAMME_SHARE * (deadline - now))
        if math.isfinite(value):
            bound = max(bound, step * math.ceil(value / step - _ROUNDING))
        if found is not None:
            order = min(order, found, key=lambda some: loss_of(some, margins))
    if loss_of(order, margins) > bound:
        order = iterated_search(margins, order, deadline, target=bound)
    loss = loss_of(order, margins)
    return Solution(order, loss, min(bound, loss))


def _programme(margins: np.ndarray, seconds: float) -> tuple[np.ndarray | None, float]:
    """An order of least loss, or None where the time was too short, and a bound of any loss."""
    first, second = np.triu_indices(len(margins), 1)
    upper = margins[first, second].astype(np.float64)
    number = np.zeros(margins.shape, dtype=np.int64)
    number[first, second] = np.arange(len(upper))
    i, j, k = np.array(list(itertools.combinations(range(len(margins)), 3))).T
    rows = np.arange(len(i))
    entries = np.repeat([1.0, 1.0, -1.0], len(i))  # x_ij + x_jk - x_ik
    columns = np.concatenate([number[i, j], number[j, k], number[i, k]])
    circles = csr_array(coo_array((entries, (np.tile(rows, 3), columns)), (len(i), len(upper))))
    result = milp(
        -upper,
        integrality=np.ones(len(upper)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(circles, 0, 1),
        # A relative gap would let the solver stop before the last unit of a large loss.
        options={"time_limit": max(seconds, 0.0), "mip_rel_gap": 0.0},
    )
    constant = float(np.maximum(upper, 0).sum())
    value = math.nan if result.mip_dual_bound is None else result.mip_dual_bound + constant
    if result.status != 0:
        return None, value
    before = np.zeros(margins.shape)
    before[first, second] = result.x.round()
    before += np.tril(1 - before.T, -1)
    return np.argsort(-before.sum(axis=1), kind="stable"), value
