"""Clients of other servers talk to this one: the packages of Cohere and rerankers, the bodies of
Jina, vLLM and TEI.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from rerank_answers import QUERY, raw
from rerank_servers import gated, wait_for
from scipy.special import expit


@pytest.fixture(scope="module")
def expected_ranking(reranker, sentences):
    """Places of the documents from best to worst, and their scores in [0, 1]."""
    rows = reranker.with_policy("paired_tokens", 0.0).rank(QUERY, list(sentences))
    return [row["corpus_id"] for row in rows], [float(expit(float(row["score"]))) for row in rows]


@pytest.fixture
def dial_fields():
    """Fields that turn the dial."""
    return {"alpha": 0.0, "policy": "paired_tokens"}


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_the_body_of_jina_and_vllm(server, sentences, expected_ranking, dial_fields, path):
    documents = [sentences[0], *({"text": text} for text in sentences[1:])]
    body = {"model": "tiny", "query": QUERY, "documents": documents, "top_n": 3}
    body |= {"user": "me", "priority": 0}
    answer = requests.post(server.url + path, json={**body, **dial_fields}).json()
    assert answer["model"] == "tiny"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 8
    order, best = expected_ranking[0][:3], expected_ranking[1][:3]
    rows = answer["results"]
    assert [row["index"] for row in rows] == order
    assert [row["relevance_score"] for row in rows] == pytest.approx(best, abs=1e-6)
    assert [row["document"]["text"] for row in rows] == [sentences[place] for place in order]
    without = requests.post(server.url + path, json={**body, "return_documents": False}).json()
    assert "document" not in without["results"][0]
    every = requests.post(server.url + path, json={**body, "top_n": 0}).json()
    assert len(every["results"]) == 8, "vLLM's word for all"


def test_the_body_of_tei_gets_the_scores_of_python(
    server, reranker, sentences, expected_ranking, dial_fields
):
    body = {"query": QUERY, "texts": list(sentences), "truncate": True, **dial_fields}
    answer = requests.post(server.url + "/rerank", json=body).json()
    assert [row["index"] for row in answer] == expected_ranking[0]
    assert [row["score"] for row in answer] == pytest.approx(expected_ranking[1], abs=1e-6)
    assert "text" not in answer[0]
    body |= {"raw_scores": True, "return_text": True}
    rows = requests.post(server.url + "/rerank", json=body).json()
    assert [row["text"] for row in rows] == [sentences[place] for place in expected_ranking[0]]
    assert [expit(row["score"]) for row in rows] == pytest.approx(expected_ranking[1], abs=1e-6)


def test_documents_are_cut_on_request_and_the_answer_says_how_many(server, reranker):
    documents = ["doctor " * 100, "a doctor and a nurse and a bridge", "nurse"]
    body = {"query": QUERY, "documents": documents}
    assert server.rerank(**body).json()["truncated"] == 1
    cut = server.rerank(**body, max_tokens_per_doc=2, raw_scores=True)
    assert cut.json()["truncated"] >= 2
    tokenizer = reranker.scorer.pair_tokenizer
    (ids,) = tokenizer.encode(documents[:1])
    short = tokenizer.tokenizer.decode(ids[:2])
    assert raw(cut)[0] == pytest.approx(float(reranker.predict([(QUERY, short)])[0]), abs=1e-5)


@pytest.mark.packaging
@pytest.mark.parametrize("version", [1, 2])
def test_coheres_client(server, sentences, expected_ranking, dial_fields, version):
    import cohere

    client = (cohere.Client if version == 1 else cohere.ClientV2)(api_key="x", base_url=server.url)
    body = {"model": "tiny", "query": QUERY, "documents": list(sentences), "top_n": 4}
    dial = {"additional_body_parameters": dial_fields}
    rows = client.rerank(**body, request_options=dial).results
    assert [row.index for row in rows] == expected_ranking[0][:4]
    scores = [row.relevance_score for row in rows]
    assert scores == pytest.approx(expected_ranking[1][:4], abs=1e-6)
    with pytest.raises(cohere.NotFoundError) as refused:
        client.rerank(model="rerank-v3.5", query=QUERY, documents=["a"])
    assert "use one of tiny" in str(refused.value.body)
    with pytest.raises(cohere.BadRequestError):
        client.rerank(model="tiny", query="", documents=["a"])


@pytest.mark.packaging
def test_haystacks_ranker(server, sentences, expected_ranking, dial_fields, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    vllm = pytest.importorskip("haystack_integrations.components.rankers.vllm")
    from haystack import Document

    ranker = vllm.VLLMRanker(
        model="tiny", api_base_url=f"{server.url}/v1", extra_parameters=dial_fields, top_k=4
    )
    documents = [Document(content=text) for text in sentences]
    ranked = ranker.run(query=QUERY, documents=documents)["documents"]
    expected = [sentences[place] for place in expected_ranking[0][:4]]
    assert [document.content for document in ranked] == expected
    scores = [document.score for document in ranked]
    assert scores == pytest.approx(expected_ranking[1][:4], abs=1e-6)


@pytest.mark.packaging
def test_coheres_client_understands_a_full_queue(pointwise, sentences):
    import cohere

    with gated(pointwise(), max_requests=1, timeout=5) as (server, gate):
        gate.open.clear()
        client = cohere.ClientV2(api_key="x", base_url=server.url)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(server.rerank, query=QUERY, documents=["a"])
            wait_for(lambda: gate.entered)
            body = {"model": "tiny", "query": QUERY, "documents": ["a"]}
            with pytest.raises(cohere.TooManyRequestsError):
                client.rerank(**body, request_options={"max_retries": 0})
            gate.open.set()
            assert first.result().status_code == 200


@pytest.mark.packaging
@pytest.mark.parametrize("kind", ["jina", "cohere", "text-embeddings-inference"])
def test_the_rerankers_library(server, reranker, sentences, kind):
    from rerankers import Reranker

    path = "/rerank" if kind == "text-embeddings-inference" else "/v1/rerank"
    client = Reranker("tiny", model_type=kind, api_key="x", url=server.url + path, verbose=0)
    results = client.rank(QUERY, docs=list(sentences)).results
    rows = reranker.rank(QUERY, list(sentences))
    places = [result.document.doc_id for result in results]
    assert places == [row["corpus_id"] for row in rows]
    expected = [expit(row["score"]) for row in rows]
    assert [result.score for result in results] == pytest.approx(expected, abs=1e-6)
