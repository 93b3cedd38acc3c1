"""Long documents in chunks and score thresholds: every door gives the scores of Python."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

QUERY = "who can rewire a house?"
TEXTS = [
    "He is an electrician; he can.",
    "She sells flowers to her father. " * 40 + "An electrician rewires houses. " * 20,
    "Houses are rewired.",
    "her " * 300 + "he sells soup to guests " * 40,
]
CHUNKS = {"long_documents": "chunks", "max_chunks_per_doc": 3, "chunk_overlap": 4}

pytestmark = pytest.mark.packaging


@pytest.fixture
def ranked(saved):
    """A folder, its reranker, the scores of the texts in chunks, and a threshold between them."""
    folder, reranker = saved("backpack")
    pairs = [(QUERY, text) for text in TEXTS]
    scores = reranker.predict(pairs, alpha=0.5, **CHUNKS)
    assert np.abs(scores - reranker.predict(pairs, alpha=0.5)).max() > 1e-3
    threshold = float(np.sort(scores)[1:3].mean())
    return folder, reranker, scores, threshold


def kept(scores, threshold):
    """Documents and scores from best to worst, down to the threshold."""
    order = [int(place) for place in np.argsort(-scores) if scores[place] >= threshold]
    return [(place, pytest.approx(float(scores[place]), abs=1e-5)) for place in order]


def test_python_counts_what_is_left_out(ranked, caplog) -> None:
    caplog.set_level(logging.INFO)
    _, reranker, scores, threshold = ranked
    ranking = reranker.rank(QUERY, TEXTS, score_threshold=threshold, alpha=0.5, **CHUNKS)
    rows = [(row["corpus_id"], row["score"]) for row in ranking]
    assert rows == kept(scores, threshold)
    assert (len(ranking), ranking.below_threshold) == (2, 2)
    assert "2 of 4 documents are left out: their scores are below score_threshold" in caplog.text
    best = reranker.rank(QUERY, TEXTS, top_k=1, score_threshold=threshold, alpha=0.5, **CHUNKS)
    assert list(best) == list(ranking[:1])
    assert best.below_threshold == 2, "top_k leaves out others"
    exact = reranker.rank(QUERY, TEXTS, score_threshold=float(scores.max()), alpha=0.5, **CHUNKS)
    assert len(exact) == 1, "a score that is the threshold stays"


def test_a_threshold_is_compared_with_the_scores_that_are_given(ranked) -> None:
    _, reranker, _, _ = ranked
    rows = reranker.rank(QUERY, TEXTS, activation="sigmoid")
    middle = (rows[1]["score"] + rows[2]["score"]) / 2
    assert reranker.rank(QUERY, TEXTS, activation="sigmoid", score_threshold=middle) == rows[:2]


def test_the_cross_encoder_reads_chunks_and_leaves_out_what_is_below_a_threshold(ranked) -> None:
    from sentence_transformers import CrossEncoder

    from backpack_rank.integrations.sentence_transformers import cross_encoder

    folder, reranker, scores, threshold = ranked
    model = cross_encoder(reranker)
    pairs = [(QUERY, text) for text in TEXTS]
    assert model.predict(pairs, alpha=0.5, **CHUNKS) == pytest.approx(scores, abs=1e-5)
    ranking = model.rank(QUERY, TEXTS, score_threshold=threshold, alpha=0.5, **CHUNKS)
    assert [(row["corpus_id"], row["score"]) for row in ranking] == kept(scores, threshold)
    assert ranking.below_threshold == 2
    assert (
        model.rank(QUERY, TEXTS, top_k=2)
        == cross_encoder(reranker.reading()).rank(QUERY, TEXTS)[:2]
    )
    thorough = cross_encoder(reranker.at(0.5).reading(**CHUNKS))
    assert thorough.predict(pairs) == pytest.approx(scores, abs=1e-5)
    tokens_alone = CrossEncoder(str(folder), device="cpu")
    with pytest.raises(ValueError, match=r"long_documents: .* reads texts that are cut already"):
        tokens_alone.predict(pairs, long_documents="chunks")


def test_pyterrier_reads_chunks_and_leaves_out_what_is_below_a_threshold(ranked, caplog) -> None:
    from backpack_rank.integrations.pyterrier import BackpackReranker

    caplog.set_level(logging.INFO)
    _, reranker, scores, threshold = ranked
    rows = [("q", QUERY, str(n), text, 1.0, n) for n, text in enumerate(TEXTS)]
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])
    stage = BackpackReranker(reranker, 0.5, score_threshold=threshold, **CHUNKS)
    reranked = stage.transform(frame).sort_values("rank")
    docnos = reranked["docno"].astype(int)
    assert list(zip(docnos, reranked["score"], strict=True)) == kept(scores, threshold)
    assert "2 of 4 documents are left out" in caplog.text


def test_rerankers_reads_chunks_and_leaves_out_what_is_below_a_threshold(ranked, caplog) -> None:
    from rerankers import Reranker

    import backpack_rank.integrations.rerankers  # noqa: F401

    caplog.set_level(logging.INFO)
    folder, _, scores, threshold = ranked
    options = {"alpha": 0.5, "score_threshold": threshold, "device": "cpu", "verbose": 0}
    ranker = Reranker(str(folder), model_type="BackpackRanker", **options, **CHUNKS)
    results = ranker.rank(QUERY, TEXTS).results
    id_and_score = [(int(result.doc_id), result.score) for result in results]
    assert id_and_score == kept(scores, threshold)
    assert "2 of 4 documents are left out" in caplog.text


def test_langchain_reads_chunks_and_leaves_out_what_is_below_a_threshold(ranked, caplog) -> None:
    from langchain_core.documents import Document

    from backpack_rank.integrations.langchain import BackpackCompressor

    caplog.set_level(logging.INFO)
    _, reranker, scores, threshold = ranked
    given = [Document(page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS)]
    compressor = BackpackCompressor(
        reranker=reranker, alpha=0.5, top_n=3, score_threshold=threshold, **CHUNKS
    )
    id_and_score = []
    for document in compressor.compress_documents(given, QUERY):
        id_and_score.append((document.metadata["n"], document.metadata["relevance_score"]))
    assert id_and_score == kept(scores, threshold)
    assert "2 of 4 documents are left out" in caplog.text


def test_llama_index_reads_chunks_and_leaves_out_what_is_below_a_threshold(ranked, caplog) -> None:
    from llama_index.core.schema import NodeWithScore, TextNode

    from backpack_rank.integrations.llama_index import BackpackRerank

    caplog.set_level(logging.INFO)
    _, reranker, scores, threshold = ranked
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(n))) for n, text in enumerate(TEXTS)]
    rerank = BackpackRerank(reranker=reranker, alpha=0.5, score_threshold=threshold, **CHUNKS)
    results = rerank.postprocess_nodes(nodes, query_str=QUERY)
    assert [(int(row.node.node_id), row.score) for row in results] == kept(scores, threshold)
    assert "2 of 4 documents are left out" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_chunks_per_doc": 3}, "max_chunks_per_doc=3 needs long_documents=chunks"),
        ({"long_documents": "all"}, "long_documents='all': use one of cut, chunks"),
        ({"score_threshold": float("nan")}, "score_threshold=nan must be a finite number"),
    ],
    ids=str,
)
def test_wrong_values_are_named_when_a_stage_is_made(ranked, options, message) -> None:
    from backpack_rank.integrations.langchain import BackpackCompressor
    from backpack_rank.integrations.llama_index import BackpackRerank
    from backpack_rank.integrations.pyterrier import BackpackReranker
    from backpack_rank.integrations.rerankers import BackpackRanker
    from backpack_rank.integrations.sentence_transformers import cross_encoder

    _, reranker, _, _ = ranked
    for make in (BackpackCompressor, BackpackRerank):
        with pytest.raises(ValueError, match=message):
            make(reranker=reranker, **options)
    for make in (BackpackReranker, BackpackRanker):
        with pytest.raises(ValueError, match=message):
            make(reranker, **options)
    for rank in (reranker.rank, cross_encoder(reranker).rank):
        with pytest.raises(ValueError, match=message):
            rank(QUERY, TEXTS, **options)
