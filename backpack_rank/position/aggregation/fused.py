"""A first stage made of several: their runs, aggregated query by query."""

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
    """Use this as a first stage made of several TREC runs.

    They are made into one query by query, by default by reciprocal rank fusion (RRF, k = 60)::

        first_stage = FusedRuns(["bm25.run", "dense.run"], depth=100)
        run = first_stage.candidates(collection)
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
            depth: documents of each run that are aggregated, and candidates that come of it, per
                query.
            name: row label in reports.
            aggregator: how they are made into one; None: reciprocal rank fusion.
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
        self.parts = [RunFile(path, depth, other_queries=other_queries) for path in paths]

    def candidates(self, collection: Collection) -> Run:
        """Read and aggregate the runs.

        Errors are those of :class:`~backpack_rank.data.first_stage.RunFile`.
        """
        runs = [part.candidates(collection) for part in self.parts]
        fused = fuse(runs, self.aggregator, self.depth).run
        # In the order of the collection's queries, those without candidates too.
        run = {query_id: fused.get(query_id, {}) for query_id in collection.queries}
        return sorted_run(run, depth=self.depth)
