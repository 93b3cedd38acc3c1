"""One ranking of several runs, as a reranker."""

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.position.aggregation.aggregate import Borda
from backpack_rank.position.aggregation.evaluate import AggregatedRuns
from backpack_rank.reranking.rerankers import FirstStageOrder, SavedRun

COLLECTION = Collection("c", MemoryStore({name: name for name in "abc"}), {"q": "query"}, {})
FIRST = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
OTHER = {"q": {"b": 9.0, "a": 8.0, "c": 7.0}}


def test_runs_are_aggregated_query_by_query():
    reranker = AggregatedRuns(
        [FirstStageOrder("first"), SavedRun("x", OTHER), SavedRun("y", OTHER)], Borda(), depth=2
    )
    aggregated = reranker.rerank(FIRST, COLLECTION)
    assert list(aggregated["q"])[:2] == ["b", "a"]
    assert reranker.name.endswith("depth 2")
    assert [query.query_id for query in reranker.queries["c"]] == ["q"]
