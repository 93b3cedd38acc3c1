"""Exact search for dot products, against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.reranking import dense_search as search
from backpack_rank.reranking.dense_search import top_k

CPU = torch.device("cpu")


def slow(queries, vectors, ranks, k):
    """Every score, sorted by score and then by rank."""
    documents, scores = [], []
    for query in queries.tolist():
        rows = [
            (-sum(q * float(v) for q, v in zip(query, row, strict=True)), int(ranks[n]))
            for n, row in vectors
        ]
        best = sorted(rows)[:k]
        documents.append([rank for _, rank in best])
        scores.append([-score for score, _ in best])
    return documents, scores


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_small_whole_numbers_give_exactly_the_sorted_documents(data):
    """Few different values, so that most scores tie; products of small whole numbers have no
    rounding.
    """
    documents, queries, k = data.draw(
        st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(1, 12))
    )
    values = st.integers(-1, 1)
    vectors = np.array(
        data.draw(st.lists(st.tuples(values, values), min_size=documents, max_size=documents))
    )
    wanted = np.array(
        data.draw(st.lists(st.tuples(values, values), min_size=queries, max_size=queries))
    )
    ranks = np.array(data.draw(st.permutations(range(documents))))
    block = data.draw(st.integers(1, 45))
    nearest, scores = top_k(
        torch.tensor(wanted).float(), vectors.astype(np.float16), ranks, k, CPU, block
    )
    expected, values = slow(wanted, list(enumerate(vectors)), ranks, k)
    assert nearest.tolist() == expected
    assert scores.tolist() == values


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_real_numbers_are_sorted_as_in_fp64(block, monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 4)
    random = np.random.default_rng(0)
    vectors = random.normal(size=(500, 24)).astype(np.float16)
    queries = random.normal(size=(11, 24)).astype(np.float32)
    ranks = random.permutation(500)
    documents, scores = top_k(torch.from_numpy(queries), vectors, ranks, 20, CPU, block)
    every = queries.astype(np.float64) @ vectors.astype(np.float64).T
    order = np.argsort(-every, axis=1)[:, :20]
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(documents, ranks[order])
    np.testing.assert_allclose(scores, np.take_along_axis(every, order, 1), rtol=1e-5)


@pytest.mark.parametrize("documents", [3, 63, 130, 1003])
@pytest.mark.parametrize("queries", [1, 3, 70])
def test_equal_documents_tie_wherever_they_stand(documents, queries):
    """A matrix product may treat its last columns in another way."""
    random = np.random.default_rng(documents)
    vectors = np.repeat(random.normal(size=(1, 384)).astype(np.float16), documents, axis=0)
    wanted = torch.from_numpy(random.normal(size=(queries, 384)).astype(np.float32))
    nearest, scores = top_k(wanted, vectors, np.arange(documents)[::-1].copy(), 10, CPU)
    assert (nearest == np.arange(min(10, documents))).all()
    assert (scores == scores[:, :1]).all()


def test_scores_of_any_sign_and_size_keep_their_order_and_value():
    values = np.array([-6e4, -1.5, -6e-8, -0.0, 0.0, 6e-8, 2.0, 6e4], dtype=np.float16)[:, None]
    documents, scores = top_k(torch.ones(1, 1), values, np.arange(8), 8, CPU)
    assert documents[0].tolist() == [
        7,
        6,
        5,
        3,
        4,
        2,
        1,
        0,
    ]  # -0.0 and 0.0 are equal: the first comes first
    assert scores[0].tolist() == values[[7, 6, 5, 3, 4, 2, 1, 0], 0].astype(np.float32).tolist()


def test_without_queries_nothing_is_found():
    documents, scores = top_k(torch.empty(0, 4), np.ones((3, 4), np.float16), np.arange(3), 2, CPU)
    assert documents.shape == scores.shape == (0, 2)
