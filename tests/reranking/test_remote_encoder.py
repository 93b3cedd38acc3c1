"""Encoders behind an HTTP endpoint: what is sent, what is made of the vectors, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from vector_servers import served, vector

from backpack_rank.reranking.load import load

QUERY = "bread of nurses"
DOCUMENTS = ["she bakes bread", "he bakes bread", "fish", ""]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@pytest.mark.parametrize(
    ("kind", "prompts", "most"),
    [
        ("embeddings", False, 2048),
        ("embeddings", False, 32),
        ("embed", False, 32),
        ("embed", True, 32),
    ],
)
def test_scores_are_cosines_of_the_servers_vectors(kind, prompts, most):
    before = {"query": "query: " if prompts else "", "document": "document: " if prompts else ""}
    documents = [*DOCUMENTS[:3], *(f"fish {number}" for number in range(150))]
    with served(kind, prompts, most) as (url, answered):
        reranker = load(url, model=None if kind == "embed" else "m")
        scores = reranker.predict([(QUERY, text) for text in documents])
        sent = sum(len(body.get("inputs") or body["input"]) for body in answered)
        # A second query reads no document again.
        reranker.predict([("fish", text) for text in documents])
        again = sum(len(body.get("inputs") or body["input"]) for body in answered)
        assert (sent, again) == (1 + len(documents), 2 + len(documents))
        assert reranker.predict([(QUERY, "")]).shape == (1,)
    query = np.array(vector(before["query"] + QUERY))
    expected = [cosine(query, np.array(vector(before["document"] + text))) for text in documents]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert scores[0] != scores[2]


def test_the_dial_is_the_unit_vector_of_the_mean():
    with served("embeddings") as (url, _):
        reranker = load(url, model="m")
        assert reranker.policies == ("renditions",)
        scores = reranker.sweep("bread", DOCUMENTS[:3], alphas=[1, 0])
        asked = reranker.sweep("bread for women", DOCUMENTS[:2], alphas=[1, 0])
    query = np.array(vector("bread"))
    units = []
    for text in DOCUMENTS[:2]:
        of_text = np.array(vector(text))
        units.append(of_text / np.linalg.norm(of_text))
    expected = [*(cosine(query, unit) for unit in units), cosine(query, np.array(vector("fish")))]
    np.testing.assert_allclose(scores[0], expected, rtol=1e-5)
    neutral = cosine(query, np.mean(units, axis=0))
    np.testing.assert_allclose(scores[1], [neutral, neutral, expected[2]], rtol=1e-5)
    assert scores[1, 0] == scores[1, 1]
    assert asked[0].tolist() == asked[1].tolist()


def test_refusals_are_told():
    with served("embeddings") as (url, _):
        with pytest.raises(ValueError, match="model=NAME says which of its rankers is asked"):
            load(url).rank(QUERY, DOCUMENTS)
        with pytest.raises(ValueError, match="is behind a server"):
            load(url, model="m").explain(QUERY, DOCUMENTS[0], by="senses")
        wrong = url.replace("/v1/embeddings", "/embed")
        with pytest.raises(ValueError, match="/embed answers 400"):
            load(wrong).rank(QUERY, DOCUMENTS)
