"""rerankers, LangChain and LlamaIndex give the order and the scores of the ranker, at the alpha
that is asked for.
"""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.packaging

QUERY = "who can rewire a house?"
TEXTS = [
    "He is an electrician; he can.",
    "She sells flowers to her father.",
    "Houses are rewired.",
    "",
]
OPTIONS = {"alpha": 0.0, "policy": "paired_tokens"}


@pytest.fixture
def ranked(saved):
    """A folder, its ranker and the expected rows; alpha changes them."""
    folder, reranker = saved("backpack")
    rows = reranker.rank(QUERY, TEXTS, **OPTIONS)
    assert [row["score"] for row in rows] != [row["score"] for row in reranker.rank(QUERY, TEXTS)]
    return folder, reranker, rows


def test_rerankers_makes_it_by_its_name(ranked) -> None:
    rerankers = pytest.importorskip("rerankers")
    import backpack_rank.integrations.rerankers  # noqa: F401

    folder, reranker, rows = ranked
    ranker = rerankers.Reranker(str(folder), model_type="BackpackRanker", device="cpu", **OPTIONS)
    ranking = ranker.rank(QUERY, TEXTS, doc_ids=["a", "b", "c", "d"])
    assert [(result.doc_id, result.score) for result in ranking.results] == [
        ("abcd"[r["corpus_id"]], r["score"]) for r in rows
    ]
    assert [result.rank for result in ranking.results] == [1, 2, 3, 4]
    assert ranking.top_k(1)[0].text == TEXTS[rows[0]["corpus_id"]]
    assert ranker.score(QUERY, TEXTS[0]) == pytest.approx(
        float(reranker.predict([(QUERY, TEXTS[0])], **OPTIONS)[0])
    )
    assert ranker.rank(QUERY, []).results == []
    assert asyncio.run(ranker.rank_async(QUERY, TEXTS)).results[0].score == rows[0]["score"]


def test_langchain_keeps_the_best_documents_and_leaves_those_given_alone(ranked) -> None:
    documents = pytest.importorskip("langchain_core.documents")
    from backpack_rank.integrations.langchain import BackpackCompressor

    _, reranker, rows = ranked
    given = [
        documents.Document(page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS)
    ]
    compressor = BackpackCompressor(reranker=reranker, top_n=2, **OPTIONS)
    for kept in (
        compressor.compress_documents(given, QUERY),
        asyncio.run(compressor.acompress_documents(given, QUERY)),
    ):
        assert [
            (document.metadata["n"], document.metadata["relevance_score"]) for document in kept
        ] == [(row["corpus_id"], row["score"]) for row in rows[:2]]
    assert all(document.metadata == {"n": n} for n, document in enumerate(given))
    assert compressor.compress_documents([], QUERY) == []


def test_llama_index_keeps_the_best_nodes(ranked) -> None:
    schema = pytest.importorskip("llama_index.core.schema")
    from backpack_rank.integrations.llama_index import BackpackRerank

    _, reranker, rows = ranked
    nodes = [
        schema.NodeWithScore(node=schema.TextNode(text=text, id_=str(n)), score=0.5)
        for n, text in enumerate(TEXTS)
    ]
    processor = BackpackRerank(reranker=reranker, top_n=3, **OPTIONS)
    kept = processor.postprocess_nodes(nodes, query_str=QUERY)
    assert [(int(scored.node.node_id), scored.score) for scored in kept] == [
        (r["corpus_id"], r["score"]) for r in rows[:3]
    ]
    assert {node.score for node in nodes} == {0.5}
    with pytest.raises(ValueError, match="query_str"):
        processor.postprocess_nodes(nodes)
