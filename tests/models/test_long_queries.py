"""A query that a classifier trained elsewhere reads in part: scores are the library's, and every
door says so.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
from folders_of_strangers import classifier
from rerank_servers import running

import backpack_rank
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.serving.kinds import served

SHORT, LONG = "the doctor saw", "he saw a nurse " * 10
DOCUMENTS = ["she saw a nurse", "bread and fish " * 3, "bread and fish " * 20]
WORDS = "1 queries are longer than half of the 24 tokens"


@pytest.fixture
def folder(tmp_path):
    return classifier(tmp_path / "folder")


def test_scores_are_the_librarys(folder):
    pairs = [(query, document) for query in (SHORT, LONG) for document in DOCUMENTS]
    found = backpack_rank.load(folder).predict(pairs)
    sentence_transformers = pytest.importorskip("sentence_transformers")
    expected = sentence_transformers.CrossEncoder(str(folder), device="cpu", max_length=24).predict(
        pairs, activation_fn=lambda logits: logits
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def by_rank(reranker, query):
    reranker.rank(query, DOCUMENTS)


def by_predict(reranker, query):
    reranker.predict([(query, document) for document in DOCUMENTS])


def by_collection(reranker, query):
    documents = MemoryStore({f"d{number}": text for number, text in enumerate(DOCUMENTS)})
    collection = Collection("tiny", documents, {"q": query}, {"q": {"d0": 1}})
    reranker.rerank({"q": {"d0": 1.0, "d1": 0.5}}, collection)


@pytest.mark.parametrize("door", [by_rank, by_predict, by_collection])
def test_python_says_once_that_a_query_is_cut(folder, caplog, door):
    reranker = backpack_rank.load(folder)
    with caplog.at_level(logging.WARNING):
        door(reranker, SHORT)
        assert WORDS not in caplog.text
        door(reranker, LONG)
        door(reranker, LONG)
    assert caplog.text.count(WORDS) == 1


def test_the_server_counts_its_documents(folder):
    with running({"bert": lambda: served("bert", backpack_rank.load(folder))}) as server:
        for query, number in ((SHORT, 1), (LONG, 3)):
            answer = server.rerank(query=query, documents=DOCUMENTS)
            assert answer.json()["truncated"] == number
            assert answer.headers["x-truncated"] == str(number)
        answer = server.rerank(query=SHORT, documents=DOCUMENTS[:2])
        assert answer.json()["truncated"] == 0
        assert "x-truncated" not in answer.headers
