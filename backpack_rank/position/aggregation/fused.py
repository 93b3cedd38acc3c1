"""A first stage that aggregates the runs of several systems, query by query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from backpack_rank.constructors import Count, FilePath, Length, Name
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import RunFile, checked_depth
from backpack_rank.data.trec import sorted_run
from backpack_rank.position.aggregation.aggregate import Aggregator, ReciprocalRankFusion
from backpack_rank.position.aggregation.runs import fuse


class FusedRuns:
    """A first stage where several systems have written TREC runs::

        first_stage = FusedRuns(["bm25.run", "dense.run"], depth=100)
        run = first_stage.candidates(collection)

    The runs are aggregated query by query, by default by reciprocal rank fusion (RRF, k = 60).
    """

    def __init__(
        self,
        paths: Annotated[Sequence[FilePath], Length(1)],
        depth: Count = 100,
        name: Name = "RRF",
        aggregator: Aggregator | None = None,
        other_queries: bool = False,
    ) -> None:
        """Candidates from several run files.

        Args:
            paths: two run files or more.
            depth: documents of each run that are aggregated, and candidates that remain, both per
                query.
            name: row label in reports.
            aggregator: the method; None: reciprocal rank fusion.
            other_queries: see :class:`~backpack_rank.data.first_stage.RunFile`.

        Raises:
            ValueError: fewer than two files, or a wrong depth.
        """
        if isinstance(paths, str | Path) or len(paths) < 2:
            raise ValueError(
                f"first_stage.paths={paths}: give two run files or more to make one of"
            )
        self.depth = checked_depth(depth)
        self.name = name
        self.aggregator = aggregator or ReciprocalRankFusion()
        self.run_files = [RunFile(path, depth, other_queries=other_queries) for path in paths]

    def candidates(self, collection: Collection) -> Run:
        """Read and aggregate the runs.

        Errors are those of :class:`~backpack_rank.data.first_stage.RunFile`.
        """
        runs = [run_file.candidates(collection) for run_file in self.run_files]
        fused = fuse(runs, self.aggregator, self.depth).run
        # A first stage names every query of the collection, in its order, also those without
        # candidates.
        candidates = {query_id: fused.get(query_id, {}) for query_id in collection.queries}
        # Each run gave ``depth`` documents, and their union may be longer.
        return sorted_run(candidates, depth=self.depth)
