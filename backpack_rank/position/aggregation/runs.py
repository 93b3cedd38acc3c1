"""Runs of several systems made into one, query by query."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from backpack_rank.data.collection import Run
from backpack_rank.data.trec import sorted_run
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation.rankings import Rankings
from backpack_rank.progress import Progress


@dataclass(frozen=True)
class FusedQuery:
    """How the aggregation of one query went.

    Attributes:
        query_id: the query.
        runs: number of runs that have it.
        documents: number of documents in their lists together.
        cost: sum of Kendall tau distances of the result to the lists.
        bound: proven lower bound of the cost of any order.
        seconds: time it took, wall clock.
    """

    query_id: str
    runs: int
    documents: int
    cost: int
    bound: int
    seconds: float

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no order has a lower cost."""
        return self.cost <= self.bound


@dataclass(frozen=True)
class FusedRun:
    """One run made of several, and how it came about.

    Attributes:
        run: scores as the method gives them, queries in the order in which the runs name them.
        queries: one for each query of the run.
    """

    run: Run
    queries: tuple[FusedQuery, ...]


def fuse(runs: Sequence[Run], aggregator: Aggregator, depth: int | None = None) -> FusedRun:
    """Make one run of several: the lists of each query are aggregated.

    >>> from backpack_rank.position.aggregation.aggregate import ReciprocalRankFusion
    >>> runs = [{"q1": {"d1": 2.0, "d2": 1.0}}, {"q1": {"d2": 0.9, "d3": 0.1}}]
    >>> list(fuse(runs, ReciprocalRankFusion()).run["q1"])
    ['d2', 'd1', 'd3']

    Equal scores of a run are a tie; ties that the method leaves open go to the lower document id,
    so the order in which the runs are given changes nothing. A query that only some runs have is
    aggregated over those.

    Args:
        runs: the runs, at least one.
        aggregator: the method.
        depth: documents of each list, the best ones; None for all. Those behind it are as if the
            run did not have them.

    Raises:
        ValueError: no run, or a depth below 1.
    """
    if not runs:
        raise ValueError("there is no run to aggregate")
    cut = [sorted_run(run, depth=depth) for run in runs]
    query_ids = dict.fromkeys(chain.from_iterable(cut))
    fused: Run = {}
    queries = []
    for query_id in Progress(query_ids, desc=aggregator.name, unit="query"):
        lists = [run[query_id] for run in cut if run.get(query_id)]
        if not lists:
            continue
        start = time.perf_counter()
        # Sorted: an aggregator gives ties that it leaves open to the earlier item.
        doc_ids = sorted(set().union(*lists))
        aggregate = aggregator.aggregate(Rankings.of_scores(lists, doc_ids))
        seconds = time.perf_counter() - start
        fused[query_id] = dict(zip(aggregate.order, aggregate.scores, strict=True))
        queries.append(
            FusedQuery(
                query_id=query_id,
                runs=len(lists),
                documents=len(aggregate.order),
                cost=aggregate.cost,
                bound=aggregate.bound,
                seconds=seconds,
            )
        )
    return FusedRun(fused, tuple(queries))
