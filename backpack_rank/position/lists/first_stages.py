"""What a listwise ranker makes of candidates of several first stages.

It is the study of DebiasFirst, Table 2, and of Tang et al., Table 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.data.collection import Collection, Run
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation.runs import fuse
from backpack_rank.position.lists.base import ListwiseRanker, Ranking
from backpack_rank.position.lists.list_runs import effectiveness_of, lists_of, run_of


@dataclass(frozen=True)
class FirstStage:
    """Measures of a first stage before and after a listwise ranker.

    Attributes:
        name: of the first stage.
        queries: that were ranked: judged ones with a relevant document that the first stage has
            candidates for.
        before: measures of the first stage's ranking.
        after: measures of the listwise ranker's ranking.
        run: the listwise ranker's ranking.
    """

    name: str
    queries: int
    before: PerQuery
    after: PerQuery
    run: Run


def first_stage_study(
    ranker: ListwiseRanker,
    collection: Collection,
    runs: Mapping[str, Run],
    *,
    depth: int = 100,
    fusions: Sequence[Aggregator] = (),
    measures: Sequence[str] = ("nDCG@10",),
) -> list[FirstStage]:
    """Rank the candidates of several first stages, and of their fusions::

        runs = {"BM25": bm25_run, "dense": dense_run}
        stages = first_stage_study(ranker, collection, runs, fusions=[ReciprocalRankFusion()])

    Args:
        ranker: takes lists of ``depth`` passages; put
            :class:`~backpack_rank.position.lists.windows.SlidingWindows` around one of shorter
            lists.
        collection: queries, texts and judgements.
        runs: by name of the first stage.
        depth: candidates of each query at most, also of a fusion, which is made of as many of each
            run.
        fusions: methods by which all runs are aggregated into a further first stage.
        measures: of effectiveness.

    Raises:
        ValueError: no run, a depth below 1, or a run without any judged query.
        KeyError: documents that the collection does not have.
    """
    if not runs or depth < 1:
        raise ValueError(
            f"there must be a first stage (got {len(runs)}) and a depth of 1 or more (got {depth})"
        )
    stages = dict(runs)
    for method in fusions:
        name = f"{method.name} of {', '.join(runs)}"
        stages[name] = fuse(list(runs.values()), method, depth).run
    results = []
    for name, run in stages.items():
        lists = lists_of(run, collection, depth, judged=True)
        unchanged = [Ranking(np.arange(len(passages))) for passages in lists]
        rankings = ranker.rank(lists)
        results.append(
            FirstStage(
                name=name,
                queries=len(lists),
                before=effectiveness_of(lists, unchanged, collection.qrels, measures),
                after=effectiveness_of(lists, rankings, collection.qrels, measures),
                run=run_of(lists, rankings),
            )
        )
    return results
