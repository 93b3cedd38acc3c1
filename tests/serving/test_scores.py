"""Scores over HTTP are those of the reranker, whatever else is in flight."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

QUERY = "doctor in the ward"


def raw(response) -> list[float]:
    """Logits in the order of the documents."""
    assert response.status_code == 200, response.text
    rows = {row["index"]: row["relevance_score"] for row in response.json()["results"]}
    return [rows[place] for place in range(len(rows))]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_raw_scores_of_a_lone_request_are_the_rerankers_bit_for_bit(server, reranker, sentences, path):
    documents = [*sentences, ""] * 12
    found = raw(server.rerank(path, query=QUERY, documents=documents, raw_scores=True))
    assert found == reranker.predict([(QUERY, document) for document in documents]).tolist()


@pytest.mark.parametrize("policy", ["lowest_senses", "uniform", "paired_tokens", "paired_tokens_senses"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_alpha_and_policy_are_those_of_python(server, reranker, sentences, policy, alpha):
    documents = list(sentences)
    found = raw(server.rerank(query=QUERY, documents=documents, alpha=alpha, policy=policy, raw_scores=True))
    turned = reranker.with_policy(policy, alpha)
    assert found == turned.predict([(QUERY, document) for document in documents]).tolist()


def test_scores_are_sigmoids_in_double_precision_in_the_order_of_the_logits(server, reranker, sentences):
    logits = reranker.predict([(QUERY, document) for document in sentences]).astype(np.float64)
    results = server.rerank(query=QUERY, documents=list(sentences)).json()["results"]
    assert [row["index"] for row in results] == np.argsort(-logits, kind="stable").tolist()
    assert [row["relevance_score"] for row in results] == [expit(logits[row["index"]]) for row in results]


@pytest.mark.parametrize("policy", [None, "uniform", "paired_tokens", "paired_tokens_senses"])
def test_curves_are_the_sweep_of_python(server, reranker, sentences, policy):
    alphas = [0.0, 0.25, 0.5, 1.0]
    body = {} if policy is None else {"policy": policy}
    found = server.rerank(query="bridge", documents=list(sentences), alphas=alphas, **body).json()["curves"]
    expected = reranker.sweep("bridge", sentences, alphas, policy)
    assert found["alphas"] == alphas
    assert pytest.approx(expected, abs=1e-5) == np.asarray(found["scores"]).T
    assert np.ptp(expected, axis=0).max() > 1e-3
