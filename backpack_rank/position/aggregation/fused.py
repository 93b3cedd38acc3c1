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
    """Candidates from several TREC runs, by default by reciprocal rank fusion (RRF, k = 60)."""

    def __init__(
        self,
        paths: Annotated[Sequence[FilePath], Length(1)],
        depth: Count = 100,
        name: Name = "RRF",
        aggregator: Aggregator | None = None,
        other_queries: bool = False,
    ) -> None:
        """
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
        """Read and aggregate the runs; errors as of
        :class:`~backpack_rank.data.first_stage.RunFile`.
        """
        fused = fuse(
            [part.candidates(collection) for part in self.parts], self.aggregator, self.depth
        ).run
        return sorted_run(
            {query: fused.get(query, {}) for query in collection.queries}, depth=self.depth
        )
