r"""Orders of low loss found by moving single items: the start of the exact search, and what remains beyond its limits.

margins[i, j] = W[i, j] - W[j, i], and the loss of an order is the sum of margins[j, i] over all pairs that it places
i before j against their majority. Cost and loss differ by the constant of
:func:`~backpack_rank.aggregation.aggregate.lower_bound`.
"""

from __future__ import annotations

import time

import numpy as np

ROUNDS = 300
_BLOCK = 8  # neighbours that are shuffled to leave a local optimum


def loss_of(order: np.ndarray, margins: np.ndarray) -> int:
    """Weight of the majorities that an order (indices [n], best first) goes against; margins [n, n]."""
    return int(np.triu(margins.T[np.ix_(order, order)], 1).clip(0).sum())


def insertion_search(margins: np.ndarray, order: np.ndarray, deadline: float) -> np.ndarray:
    """The order after moving single items to their best places until no move of one item lowers the loss.

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
    margins: np.ndarray, order: np.ndarray, deadline: float, *, target: int = 0, rounds: int = ROUNDS
) -> np.ndarray:
    """Insertion search again and again from shuffled neighbours of the best order; the seed is fixed.

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
