"""``evaluate.py run=[a.trec,b.trec] aggregate=kemeny``: aggregated runs, and measures of all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.stored_run import MEMORY_LIMIT
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.results import Report
from backpack_rank.files import write_text
from backpack_rank.pipelines.evaluate_runs import MeasureRuns
from backpack_rank.pipelines.evaluation_files import Ranked, write_results
from backpack_rank.pipelines.metrics import rank_all
from backpack_rank.pipelines.nodes import build, several
from backpack_rank.pipelines.tasks import SavedOptions
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation.runs import FusedQuery, fuse
from backpack_rank.reporting.writers import csv_text
from backpack_rank.reranking.rerankers import Reranker

AGGREGATION_FILE = "aggregation.csv"


class AggregatedEvaluation(MeasureRuns):
    """Measures finished runs beside their aggregate.

    On the command line::

        python evaluate.py run=[a.trec,b.trec] aggregate=kemeny aggregate_depth=100
    """

    chosen_by: ClassVar[str] = "aggregate=..."

    def __init__(
        self,
        *,
        saved: SavedOptions,
        aggregate: Mapping[str, Any],
        aggregate_depth: int | None = None,
        run: str | Sequence[str] | None = None,
        data: Mapping[str, Any] | None = None,
        first_stage: Mapping[str, Any] | None = None,
        attribute: Attribute,
        bias: FairnessMeasures,
        ties: str = "trec_eval",
        run_memory: float = MEMORY_LIMIT / 2**20,
        measures: str | Sequence[str] | None = None,
    ) -> None:
        """Every argument is an option of ``conf/evaluate.yaml``, which describes it.

        Raises:
            ValueError: fewer than two runs.
        """
        if len(several(run)) < 2:
            given = None if run is None else list(several(run))
            raise ValueError(
                "aggregate makes one ranking of several runs: give run=[a.trec,b.trec], got "
                f"run={given}"
            )
        super().__init__(
            saved=saved,
            run=several(run),
            data=data,
            first_stage=first_stage,
            attribute=attribute,
            bias=bias,
            ties=ties,
            run_memory=run_memory,
            measures=measures,
        )
        self.aggregator: Aggregator = build(aggregate, "aggregate")
        self.depth = aggregate_depth

    def run(self, folder: Path, quiet: bool = False) -> Report:
        """Read the runs, aggregate, measure, and write everything to the folder.

        Raises:
            ValueError: no query is in two of the runs.
        """
        data, metrics, runs = self.read()
        # Equal scores of a file are ties to an aggregator, whatever order measures give them.
        fused = AggregatedRuns([run.with_ties() for run in runs], self.aggregator, self.depth)
        for run in runs:
            if run.name == fused.name:
                raise ValueError(
                    f"a run is called {fused.name!r}, which is the name of the aggregate: "
                    "give that file another name"
                )
        systems = [rank_all(reranker, data) for reranker in (*runs, fused)]
        notes = write_aggregation(folder, fused)
        ranked = Ranked(data, metrics, systems, notes, finished_runs=True)
        return write_results(self.saved, folder, ranked, quiet)


class AggregatedRuns(Reranker):
    """A reranker that aggregates the rankings of several rerankers (Tang et al.)::

        fused = AggregatedRuns([bm25, cross_encoder], Kemeny(), depth=100)
        run = fused.rerank(first_stage_run, collection)

    Attributes:
        queries: how the aggregation of each query went, by name of the collection.
    """

    def __init__(
        self, rerankers: Sequence[Reranker], aggregator: Aggregator, depth: int | None = None
    ) -> None:
        """``depth``: documents of each ranking that are aggregated; None for all."""
        self.rerankers = tuple(rerankers)
        self.aggregator = aggregator
        self.depth = depth
        self.name = aggregator.name if depth is None else f"{aggregator.name} depth {depth}"
        self.queries: dict[str, tuple[FusedQuery, ...]] = {}

    def rerank(self, run: Run, collection: Collection) -> Run:
        runs = [reranker.rerank(run, collection) for reranker in self.rerankers]
        fused = fuse(runs, self.aggregator, self.depth)
        self.queries[collection.name] = fused.queries
        return fused.run


def write_aggregation(folder: Path, fused: AggregatedRuns) -> list[str]:
    """What is said of each query after the runs were aggregated::

        notes = write_aggregation(folder, fused)  # aggregation.csv, and sentences for the report

    A line of ``aggregation.csv`` is a query: its number of runs and documents, the cost of the
    aggregate and its lower bound, and whether it is optimal.

    Raises:
        ValueError: no query is in two of the runs.
    """
    lines = []
    most_runs = 0
    for collection, queries in fused.queries.items():
        for query in queries:
            most_runs = max(most_runs, query.runs)
            optimal = "yes" if query.optimal else "no"
            seconds = f"{query.seconds:.3f}"
            size = (query.runs, query.documents)
            lines.append(
                (collection, query.query_id, *size, query.cost, query.bound, optimal, seconds)
            )
    if most_runs < 2:
        raise ValueError(
            f"aggregate={fused.aggregator.name}: no query is in two of the runs, so there is "
            "nothing to aggregate"
        )
    columns = ("set", "query", "runs", "documents", "cost", "bound", "optimal", "seconds")
    write_text(folder / AGGREGATION_FILE, csv_text(columns, lines))
    notes = []
    for queries in fused.queries.values():
        if queries:
            notes += _notes_of_collection(fused, queries)
    return notes


def _notes_of_collection(fused: AggregatedRuns, queries: Sequence[FusedQuery]) -> list[str]:
    """Sentences about the queries of one collection: sizes, missing runs, unproven optima."""
    num_runs = len(fused.rerankers)
    sizes = []
    in_fewer_runs = []
    unproven = []
    for query in queries:
        sizes.append(query.documents)
        if query.runs < num_runs:
            in_fewer_runs.append(query)
        # Borda and RRF look for no order of least cost, so theirs need not be the optimum.
        if fused.aggregator.exact and not query.optimal:
            unproven.append(query)

    summary = (
        f"{fused.name}: {len(queries)} queries of {num_runs} runs, {min(sizes)} to {max(sizes)} "
        "documents each"
    )
    if fused.aggregator.exact and not unproven:
        summary += ", all solved to optimality"
    notes = [summary]
    if in_fewer_runs:
        notes.append(
            f"{fused.name}: {len(in_fewer_runs)} of {len(queries)} queries are not in every run "
            "and aggregated over fewer"
        )
    if unproven:
        shown = ", ".join(query.query_id for query in unproven[:5])
        if len(unproven) > 5:
            shown += ", ..."
        gap = max(_gap(query) for query in unproven)
        notes.append(
            f"{fused.name}: {len(unproven)} of {len(queries)} queries not solved to optimality "
            f"within aggregate.time_limit and aggregate.largest ({shown}); their cost is at most "
            f"{gap:.1%} above the least one"
        )
    return notes


def _gap(query: FusedQuery) -> float:
    """How far the cost may lie above the least one, as a share of the lower bound."""
    if query.bound == 0:
        return math.inf
    return (query.cost - query.bound) / query.bound
