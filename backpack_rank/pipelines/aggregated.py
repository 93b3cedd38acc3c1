"""Several runs as one further system: ``evaluate.py run=[a.trec,b.trec] aggregate=kemeny``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from backpack_rank.files import write_text
from backpack_rank.pipelines.turned import System
from backpack_rank.pipelines.workload import Workload, only
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation.runs import FusedQuery, fuse
from backpack_rank.reporting.tables import csv_text

AGGREGATION_FILE = "aggregation.csv"
_COLUMNS = ("set", "query", "runs", "documents", "cost", "bound", "optimal", "seconds")


def check_aggregate(config: DictConfig) -> None:
    """Refuse options of an aggregation that have nothing to act on.

    Raises:
        ValueError: an aggregation without runs, of one run, or at a depth that is no number of documents.
    """
    if config.get("aggregate") is None:
        return
    if config.run is None or isinstance(config.run, str) or len(config.run) < 2:
        raise ValueError(f"aggregate makes one ranking of several runs: give run=[a.trec,b.trec], got run={config.run}")
    depth = config.aggregate_depth
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
        raise ValueError(f"aggregate_depth={depth} must be a number of documents of each run, or null for all of them")


def aggregated(
    config: DictConfig, systems: Sequence[System], work: Workload, folder: Path
) -> tuple[list[System], list[str]]:
    """The systems, behind them their aggregate where one is asked for, and sentences about it.

    Writes ``aggregation.csv``, a line per query: how many runs and documents, cost, bound, whether it is optimal.

    Raises:
        ValueError: no query is in two of the runs, or a run has the label of the aggregate.
    """
    if config.get("aggregate") is None:
        return list(systems), []
    aggregator: Aggregator = instantiate(config.aggregate, _convert_="all")
    depth = config.aggregate_depth
    label = aggregator.name if depth is None else f"{aggregator.name} depth {depth}"
    if label in [system.label for system in systems]:
        raise ValueError(f"a run is called {label!r}, which is the name of the aggregate: give that file another name")
    test = fuse([system.test_run for system in systems], aggregator, depth)
    bias = fuse([system.bias_run for system in systems], aggregator, depth) if work.separate else None
    queries = {work.test.name: test.queries, **({work.bias.name: bias.queries} if bias is not None else {})}
    if not any(query.runs > 1 for of_set in queries.values() for query in of_set):
        raise ValueError(
            f"aggregate={aggregator.name}: no query is in two of the runs, so there is nothing to aggregate"
        )
    fused = System(label, None, test.run, bias.run if bias is not None else only(test.run, work.bias))
    lines = [
        (name, q.query_id, q.runs, q.documents, q.cost, q.bound, "yes" if q.optimal else "no", f"{q.seconds:.3f}")
        for name, of_set in queries.items()
        for q in of_set
    ]
    write_text(folder / AGGREGATION_FILE, csv_text(_COLUMNS, lines))
    notes = [_notes(label, of_set, len(systems), aggregator.exact) for of_set in queries.values() if of_set]
    return [*systems, fused], [note for of_set in notes for note in of_set]


def _notes(label: str, queries: Sequence[FusedQuery], runs: int, exact: bool) -> list[str]:
    sizes = [query.documents for query in queries]
    unsolved = [query for query in queries if exact and not query.optimal]
    solved = ", all solved to optimality" if exact and not unsolved else ""
    notes = [f"{label}: {len(queries)} queries of {runs} runs, {min(sizes)} to {max(sizes)} documents each{solved}"]
    if fewer := sum(query.runs < runs for query in queries):
        notes.append(f"{label}: {fewer} of {len(queries)} queries are not in every run and aggregated over fewer")
    if unsolved:
        shown = ", ".join(query.query_id for query in unsolved[:5]) + (", ..." if len(unsolved) > 5 else "")
        above = max((query.cost - query.bound) / query.bound if query.bound else math.inf for query in unsolved)
        notes.append(
            f"{label}: {len(unsolved)} of {len(queries)} queries not solved to optimality within aggregate.time_limit "
            f"and aggregate.largest ({shown}); their cost is at most {above:.1%} above the least one"
        )
    return notes
