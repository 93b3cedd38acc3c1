"""``evaluate.py run=[a.trec,b.trec] aggregate=kemeny``: runs made into one, and measures of all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection, Run
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.results import Report
from backpack_rank.files import write_text
from backpack_rank.pipelines.evaluate_runs import MeasureRuns
from backpack_rank.pipelines.evaluation_files import Ranked, write_results
from backpack_rank.pipelines.metrics import rank_all
from backpack_rank.pipelines.nodes import build
from backpack_rank.pipelines.saved_options import SavedOptions
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation.runs import FusedQuery, fuse
from backpack_rank.reporting.writers import csv_text
from backpack_rank.reranking.rerankers import Reranker

AGGREGATION_FILE = "aggregation.csv"


class AggregatedEvaluation(MeasureRuns):
    """Use it to measure finished runs, and the one run that an aggregator makes of them."""

    chosen_by: ClassVar[str] = "aggregate=..."

    def __init__(
        self,
        *,
        saved: SavedOptions,
        aggregate: Mapping[str, Any],
        aggregate_depth: int | None = None,
        run: Sequence[str] | None = None,
        data: Mapping[str, Any] | None = None,
        first_stage: Mapping[str, Any] | None = None,
        attribute: Attribute,
        bias: FairnessMeasures,
        ties: str = "trec_eval",
        measures: str | Sequence[str] | None = None,
    ) -> None:
        """Every argument is an option of ``conf/evaluate.yaml``, which describes it.

        Raises:
            ValueError: fewer than two runs.
        """
        if run is None or len(run) < 2:
            given = None if run is None else list(run)
            raise ValueError(
                "aggregate makes one ranking of several runs: give run=[a.trec,b.trec], got "
                f"run={given}"
            )
        super().__init__(
            saved=saved,
            run=run,
            data=data,
            first_stage=first_stage,
            attribute=attribute,
            bias=bias,
            ties=ties,
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
        fused = AggregatedRuns([run.with_ties() for run in runs], self.aggregator, self.depth)
        if fused.name in [run.name for run in runs]:
            raise ValueError(
                f"a run is called {fused.name!r}, which is the name of the aggregate: "
                "give that file another name"
            )
        systems = [rank_all(reranker, data) for reranker in [*runs, fused]]
        notes = write_aggregation(folder, fused)
        ranked = Ranked(data, metrics, systems, notes, finished_runs=True)
        return write_results(self.saved, folder, ranked, quiet)


class AggregatedRuns(Reranker):
    """Several rankings of each query made into one (Tang et al.).

    By Kemeny, Borda or reciprocal rank fusion.

    Attributes:
        queries: how the aggregation of each query went, by name of the collection.
    """

    def __init__(
        self, rerankers: Sequence[Reranker], aggregator: Aggregator, depth: int | None = None
    ) -> None:
        """``depth``: documents of each ranking that are aggregated; None for all."""
        self.rerankers, self.aggregator, self.depth = tuple(rerankers), aggregator, depth
        self.name = aggregator.name if depth is None else f"{aggregator.name} depth {depth}"
        self.queries: dict[str, tuple[FusedQuery, ...]] = {}

    def rerank(self, run: Run, collection: Collection) -> Run:
        fused = fuse(
            [one.rerank(run, collection) for one in self.rerankers], self.aggregator, self.depth
        )
        self.queries[collection.name] = fused.queries
        return fused.run


def write_aggregation(folder: Path, fused: AggregatedRuns) -> list[str]:
    """Write ``aggregation.csv``, a line per query; returns the notes of the report.

    A line has the number of runs and documents, the cost and its bound, and whether it is optimal.

    Raises:
        ValueError: no query is in two of the runs.
    """
    if not any(query.runs > 1 for of_set in fused.queries.values() for query in of_set):
        raise ValueError(
            f"aggregate={fused.aggregator.name}: no query is in two of the runs, so there is "
            "nothing to aggregate"
        )
    lines = [
        (
            name,
            q.query_id,
            q.runs,
            q.documents,
            q.cost,
            q.bound,
            "yes" if q.optimal else "no",
            f"{q.seconds:.3f}",
        )
        for name, of_set in fused.queries.items()
        for q in of_set
    ]
    columns = ("set", "query", "runs", "documents", "cost", "bound", "optimal", "seconds")
    write_text(folder / AGGREGATION_FILE, csv_text(columns, lines))
    notes = [_aggregation_notes(fused, of_set) for of_set in fused.queries.values() if of_set]
    return [note for of_set in notes for note in of_set]


def _aggregation_notes(fused: AggregatedRuns, queries: Sequence[FusedQuery]) -> list[str]:
    label, runs, exact = fused.name, len(fused.rerankers), fused.aggregator.exact
    sizes = [query.documents for query in queries]
    unsolved = [query for query in queries if exact and not query.optimal]
    solved = ", all solved to optimality" if exact and not unsolved else ""
    notes = [
        f"{label}: {len(queries)} queries of {runs} runs, {min(sizes)} to {max(sizes)} documents "
        f"each{solved}"
    ]
    if fewer := sum(query.runs < runs for query in queries):
        notes.append(
            f"{label}: {fewer} of {len(queries)} queries are not in every run and aggregated over "
            "fewer"
        )
    if unsolved:
        shown = ", ".join(query.query_id for query in unsolved[:5]) + (
            ", ..." if len(unsolved) > 5 else ""
        )
        above = max(
            (query.cost - query.bound) / query.bound if query.bound else math.inf
            for query in unsolved
        )
        notes.append(
            f"{label}: {len(unsolved)} of {len(queries)} queries not solved to optimality within "
            f"aggregate.time_limit and aggregate.largest ({shown}); their cost is at most "
            f"{above:.1%} above the least one"
        )
    return notes
