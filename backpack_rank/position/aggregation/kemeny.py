r"""Kemeny-Young: the order with the smallest sum of Kendall tau distances to the rankings, exact.

The sum is that of Tang et al., eq. 5. W[i, j] counts the rankings that place i before j; pairs that
a ranking ties or does not name both of count for neither side. In the graph with an edge i -> j
wherever W[i, j] > W[j, i], two items of different strongly connected components have no circle
through both of them: in a topological order of the components every pair of different components
stands as its majority wants, or ties. So it is exact to solve each component for itself and to
concatenate (the extended Condorcet criterion); ties between components leave the order of some
components open. A component of more than two items is solved by
:mod:`~backpack_rank.position.aggregation.linear_ordering`.
"""

from __future__ import annotations

import heapq
import math
import time
from typing import ClassVar

import numpy as np

from backpack_rank.constructors import CountOrZero, NonNegative
from backpack_rank.position.aggregation.aggregate import (
    Absent,
    Aggregate,
    Aggregator,
    check_absent,
    cost_of,
    lower_bound,
)
from backpack_rank.position.aggregation.rankings import Item, Rankings


class Kemeny(Aggregator):
    """The one ranking that disagrees least with several.

    >>> rankings = Rankings.of_orders([["a", "b", "c"], ["b", "a", "c"], ["b", "c", "a"]])
    >>> aggregate = Kemeny().aggregate(rankings)
    >>> aggregate.order, aggregate.cost, aggregate.optimal
    (('b', 'a', 'c'), 2, True)

    ``optimal`` of the result says whether it is proven that no order has a lower cost. Scores are n
    for the first item, n - 1 for the second, ... 1 for the last.

    Where several orders have the least cost: components that may stand in either order, and
    neighbours that tie, stand by mean rank
    (:class:`~backpack_rank.position.aggregation.aggregate.Borda`), then in the order of the items.
    Within a component of more than two items the search decides; it has no chance in it, so the
    same input gives the same order, unless the time limit ends it.

    Attributes:
        absent: an item that a ranking leaves out is ``ignored`` there, or ``last``: behind those
            that it names, tied.
        time_limit: seconds (wall clock) for one call; when they are over, the best order found by
            then is returned. A step of the solver may overrun it a little.
        largest: components of more items are not solved exactly but by local search. The programme
            for n items has n^2 / 2 variables and n^3 / 6 rows, 9,880 for 40.
    """

    exact: ClassVar[bool] = True

    def __init__(
        self,
        absent: Absent = "ignored",
        time_limit: NonNegative = 10.0,
        largest: CountOrZero = 40,
    ) -> None:
        """See the class.

        Raises:
            ValueError: another word for ``absent``, no time, or fewer than 0 items.
        """
        check_absent(absent)
        if not math.isfinite(time_limit) or time_limit <= 0:
            raise ValueError(
                f"time_limit={time_limit} of Kemeny must be a number of seconds above 0"
            )
        if largest < 0:
            raise ValueError(f"largest={largest} of Kemeny must be a number of items, 0 or more")
        self.absent = absent
        self.time_limit = time_limit
        self.largest = largest

    @property
    def name(self) -> str:
        return "kemeny"

    def aggregate(self, rankings: Rankings[Item]) -> Aggregate[Item]:
        """The items in an order of least cost."""
        from backpack_rank.position.aggregation.linear_ordering import solve

        deadline = time.perf_counter() + self.time_limit
        if self.absent == "last":
            rankings = rankings.absent_last()
        # Index 0 is the item that wins where all else is equal.
        reference = np.argsort(rankings.mean_ranks(), kind="stable")
        wins = rankings.precedence()[np.ix_(reference, reference)]
        margins = wins - wins.T
        parts = []
        # Of a component with a circle some majority must lose: more than lower_bound(wins) counts.
        excess = 0
        for members in components(margins):
            if len(members) < 3:  # two items in one component would have to beat each other
                parts.append(members)
                continue
            solution = solve(margins[np.ix_(members, members)], deadline, self.largest)
            parts.append(members[solution.order])
            excess += solution.bound
        order = _neighbours_in_place(np.concatenate(parts), margins)
        items = tuple(rankings.items[index] for index in reference[order].tolist())
        return Aggregate(
            order=items,
            scores=tuple(float(score) for score in range(len(items), 0, -1)),
            cost=cost_of(order, wins),
            bound=lower_bound(wins) + excess,
        )


def components(margins: np.ndarray) -> list[np.ndarray]:
    """The strongly connected components of the majority graph in topological order.

    >>> components(np.array([[0, -1, 1], [1, 0, 1], [-1, -1, 0]]))  # 1 beats 0 and 2, 0 beats 2
    [array([1]), array([0]), array([2])]

    Args:
        margins: W - W^T, int64 [n, n].

    Returns:
        Ascending indices of each component; of components that may come next, the one with the
        lowest index does.
    """
    # Imported here, like the solver, which imports scipy too: few commands aggregate.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    beats = margins > 0
    count, labels = connected_components(csr_array(beats), directed=True, connection="strong")
    # Indices grouped by label, and cut where the next label begins. Stable, so that the members of
    # a component ascend.
    by_label = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels))
    members = np.split(by_label, ends[:-1])

    # The graph of the components, without the edges within a component.
    first, second = np.nonzero(beats)
    edges = np.zeros((count, count), dtype=bool)
    edges[labels[first], labels[second]] = True
    np.fill_diagonal(edges, False)

    # Kahn's algorithm with a heap: of the components that nothing open beats, that with the lowest
    # index comes next.
    beaten_by = edges.sum(axis=0)
    ready: list[tuple[int, int]] = []
    for label in np.flatnonzero(beaten_by == 0).tolist():
        heapq.heappush(ready, (int(members[label][0]), label))
    ordered = []
    while ready:
        _, label = heapq.heappop(ready)
        ordered.append(members[label])
        beaten_by[edges[label]] -= 1
        for free in np.flatnonzero(edges[label] & (beaten_by == 0)).tolist():
            heapq.heappush(ready, (int(members[free][0]), free))
    return ordered


def _neighbours_in_place(order: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """The order after swapping neighbours that tie until the lower index stands first.

    Its cost stays the same.
    """
    order = order.copy()
    changed = True
    while changed:
        changed = False
        # Neighbours at even places, then those at odd ones: swaps of one kind share no item.
        for start in (0, 1):
            first, second = order[start:-1:2], order[start + 1 :: 2]
            swaps = (margins[first, second] == 0) & (first > second)
            if swaps.any():
                # Both are views into the order.
                first[swaps], second[swaps] = second[swaps], first[swaps]
                changed = True
    return order
