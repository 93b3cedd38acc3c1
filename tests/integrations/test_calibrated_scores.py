"""A calibrated ranker gives probabilities at every door, of cut documents and of chunks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import backpack_rank
from backpack_rank.reranking.score_calibration import CALIBRATION, Calibration, PlattMap

QUERY = "who can rewire a house?"
TEXTS = [
    "He is an electrician; he can.",
    "She sells flowers to her father. " * 40 + "An electrician rewires houses. " * 20,
    "Houses are rewired.",
    "her " * 300 + "he sells soup to guests " * 40,
]
PAIRS = [(QUERY, text) for text in TEXTS]
SLOPE, INTERCEPT = 1.5, -0.25
READINGS = {"cut": {}, "chunks": {"long_documents": "chunks", "max_chunks_per_doc": 3}}

pytestmark = pytest.mark.packaging


@pytest.fixture(params=READINGS)
def calibrated(saved, request):
    """A calibrated reranker, its probabilities at alpha 0.5, and how documents are read."""
    folder, reranker = saved("backpack")
    maps = {1.0: PlattMap(3.0, 0.0), 0.5: PlattMap(SLOPE, INTERCEPT)}
    name = reranker.at(0.5).hook.policy.name
    Calibration(maps, name, "platt", "dev").write(folder / CALIBRATION)
    reading = READINGS[request.param]
    logits = reranker.predict(PAIRS, alpha=0.5, **reading).astype(np.float64)
    probabilities = 1 / (1 + np.exp(-(SLOPE * logits + INTERCEPT)))
    loaded = backpack_rank.load(folder, device="cpu", activation="calibrated")
    return loaded, probabilities, reading


def in_order(probabilities):
    """Documents and probabilities from best to worst."""
    order = [int(place) for place in np.argsort(-probabilities)]
    return [(place, pytest.approx(float(probabilities[place]), abs=1e-5)) for place in order]


def test_cross_encoder(calibrated) -> None:
    from backpack_rank.integrations.sentence_transformers import cross_encoder

    reranker, probabilities, reading = calibrated
    model = cross_encoder(reranker)
    scores = model.predict(PAIRS, alpha=0.5, **reading)
    assert scores == pytest.approx(probabilities, abs=1e-5)
    ranking = model.rank(QUERY, TEXTS, alpha=0.5, **reading)
    rows = [(row["corpus_id"], row["score"]) for row in ranking]
    assert rows == in_order(probabilities)


def test_pyterrier(calibrated) -> None:
    from backpack_rank.integrations.pyterrier import BackpackReranker

    reranker, probabilities, reading = calibrated
    rows = [("q", QUERY, str(n), text, 1.0, n) for n, text in enumerate(TEXTS)]
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])
    reranked = BackpackReranker(reranker, 0.5, **reading).transform(frame).sort_values("rank")
    docnos = reranked["docno"].astype(int)
    assert list(zip(docnos, reranked["score"], strict=True)) == in_order(probabilities)


def test_langchain(calibrated) -> None:
    from langchain_core.documents import Document

    from backpack_rank.integrations.langchain import BackpackCompressor

    reranker, probabilities, reading = calibrated
    given = [Document(page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS)]
    compressor = BackpackCompressor(reranker=reranker, alpha=0.5, top_n=4, **reading)
    id_and_score = []
    for document in compressor.compress_documents(given, QUERY):
        id_and_score.append((document.metadata["n"], document.metadata["relevance_score"]))
    assert id_and_score == in_order(probabilities)


def test_llama_index(calibrated) -> None:
    from llama_index.core.schema import NodeWithScore, TextNode

    from backpack_rank.integrations.llama_index import BackpackRerank

    reranker, probabilities, reading = calibrated
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(n))) for n, text in enumerate(TEXTS)]
    rerank = BackpackRerank(reranker=reranker, alpha=0.5, top_n=4, **reading)
    results = rerank.postprocess_nodes(nodes, query_str=QUERY)
    assert [(int(row.node.node_id), row.score) for row in results] == in_order(probabilities)
