"""Long documents in chunks and score thresholds over HTTP: the scores are those of Python."""

from __future__ import annotations

import numpy as np
import pytest
from rerank_answers import QUERY, in_python, raw
from rerank_servers import running

from backpack_rank.serving.kinds import served

TEXTS = [
    "a doctor and a nurse",
    "bread and fish " * 20 + "she is a doctor in the ward " * 9,
    "soup",
    "he saw bread " * 60,
]
CHUNKS = {"max_chunks_per_doc": 4, "chunk_overlap": 5}


@pytest.mark.parametrize(
    "fields",
    [
        {"long_documents": "chunks", **CHUNKS},
        {"long_document_strategy": "chunk", **CHUNKS},
        CHUNKS,
    ],
    ids=["here", "Elasticsearch", "Cohere"],
)
@pytest.mark.parametrize("policy", [None, "lowest_senses", "paired_tokens", "renditions"])
def test_chunks_of_a_lone_request_are_those_of_python(server, reranker, fields, policy):
    dial = {} if policy is None else {"alpha": 0.3, "policy": policy}
    body = {"query": QUERY, "documents": TEXTS, "raw_scores": True}
    scores = raw(server.rerank(**body, **fields, **dial))
    expected = in_python(reranker, TEXTS, long_documents="chunks", **CHUNKS, **dial)
    assert scores == pytest.approx(expected, abs=1e-5)
    cut_scores = raw(server.rerank(**body, **dial))
    assert [scores[0], scores[2]] == [cut_scores[0], cut_scores[2]], "bit for bit"
    assert np.abs(np.subtract(scores, cut_scores)).max() > 1e-3


def test_curves_choose_the_best_chunk_at_each_alpha(server, reranker):
    alphas = [0.0, 0.5, 1.0]
    for policy in ("lowest_senses", "paired_tokens"):
        curves = server.rerank(
            query=QUERY, documents=TEXTS, alphas=alphas, policy=policy, long_documents="chunks"
        ).json()
        for column, alpha in enumerate(alphas):
            expected = in_python(
                reranker, TEXTS, long_documents="chunks", alpha=alpha, policy=policy
            )
            scores = [row[column] for row in curves["curves"]["scores"]]
            assert scores == pytest.approx(expected, abs=1e-5)


def test_tokens_grow_with_chunks_and_documents_read_in_part_are_counted(server):
    tokens, truncated = [], []
    for most in (1, 2, 3):
        in_part = server.rerank(query=QUERY, documents=["bread " * 5000], max_chunks_per_doc=most)
        tokens.append(in_part.json()["usage"]["total_tokens"])
        truncated.append(in_part.json()["truncated"])
    assert tokens == [48, 2 * 48, 3 * 48]
    assert truncated == [1, 1, 1]
    in_chunks = server.rerank(query=QUERY, documents=TEXTS, long_documents="chunks").json()
    assert in_chunks["truncated"] == 0


def test_a_served_reranker_may_read_chunks_unless_a_request_says_otherwise(pointwise):
    reranker = pointwise()
    thorough = reranker.reading("chunks", **CHUNKS)
    body = {"query": QUERY, "documents": TEXTS, "raw_scores": True}
    with running({"thorough": lambda: served("thorough", thorough)}) as server:
        assert raw(server.rerank(**body)) == pytest.approx(in_python(thorough, TEXTS), abs=1e-5)
        cut_scores = raw(server.rerank(**body, long_documents="cut"))
        assert cut_scores == pytest.approx(in_python(reranker, TEXTS), abs=1e-5)


def test_results_below_a_threshold_are_left_out_and_counted(server):
    body = {"query": QUERY, "documents": TEXTS, "return_documents": False}
    for shown in ({}, {"raw_scores": True}):
        rows = server.rerank(**body, **shown).json()["results"]
        middle = (rows[1]["relevance_score"] + rows[2]["relevance_score"]) / 2
        answer = server.rerank(**body, **shown, score_threshold=middle).json()
        assert answer["results"] == rows[:2]
        assert answer["below_threshold"] == 2
        best = server.rerank(**body, **shown, score_threshold=middle, top_n=1).json()
        assert (best["results"], best["below_threshold"]) == (rows[:1], 2)
    assert "below_threshold" not in server.rerank(**body).json()
    as_list = server.rerank(query=QUERY, texts=TEXTS, raw_scores=True, score_threshold=middle)
    assert [row["score"] for row in as_list.json()] == [row["relevance_score"] for row in rows[:2]]


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"long_documents": "all"}, 422, "long_documents: "),
        ({"long_document_strategy": "cut"}, 422, "long_document_strategy: "),
        ({"max_chunks_per_doc": 0}, 422, "max_chunks_per_doc: "),
        ({"chunk_overlap": -1}, 422, "chunk_overlap: "),
        ({"chunk_overlap": 30}, 400, "chunk_overlap=30 must be at most 24"),
        (
            {"long_documents": "cut", "max_chunks_per_doc": 2},
            400,
            "max_chunks_per_doc=2 needs long_documents=chunks",
        ),
        (
            {"long_documents": "cut", "long_document_strategy": "truncate"},
            400,
            "give one of them",
        ),
        ({"score_threshold": "high"}, 422, "score_threshold: "),
    ],
    ids=str,
)
def test_wrong_values_are_named(server, fields, status, message):
    response = server.rerank(query=QUERY, documents=TEXTS, **fields)
    assert response.status_code == status
    assert message in response.json()["message"]
