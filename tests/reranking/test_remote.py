"""A ranker behind an HTTP endpoint: the forms of answer, mistakes, and what can be done without its
weights.
"""

from __future__ import annotations

import pytest
import requests
from foreign_rankers import score, served
from hosted_rerankers import SERVERS, hosted

from backpack_rank.reranking.load import load
from backpack_rank.reranking.remote import RemoteScorer

QUERY, DOCUMENTS = "bread", ["bread", "bread and fish", "he bakes bread", "she bakes bread"]


@pytest.mark.parametrize("form", ["jina", "tei"])
def test_scores_are_those_of_the_server(form, tiny_collection):
    pairs = [(query, text) for query in (QUERY, "fish he") for text in DOCUMENTS * 30]
    with served(form, busy=1) as (url, requests):
        reranker = load(url)
        assert reranker.predict(pairs).tolist() == pytest.approx([score(*pair) for pair in pairs])
        assert [row["corpus_id"] for row in reranker.rank(QUERY, DOCUMENTS)] == [0, 1, 2, 3]
        run = {"q3": {"d6": 1.0, "d0": 0.5}}
        texts = dict(tiny_collection.documents)
        expected = {doc_id: score("soup for guests", texts[doc_id]) for doc_id in ("d6", "d0")}
        assert reranker.rerank(run, tiny_collection)["q3"] == pytest.approx(expected)
    assert all(body["raw_scores"] for body in requests)
    assert max(
        len(body.get("documents" if form == "jina" else "texts", ())) for body in requests
    ) == (100 if form == "jina" else 32)


def test_weights_are_out_of_reach_and_said_to_be(monkeypatch):
    with served("jina") as (url, _):
        reranker = load(f"{url}/v1/rerank")
        assert (reranker.alpha, reranker.policies, reranker.sensitivity) == (
            None,
            ("renditions",),
            None,
        )
        for policy, why in (
            ("paired_tokens", "out of reach"),
            ("lowest_senses", "has no sense vectors"),
        ):
            with pytest.raises(ValueError, match=f"{url}/v1/rerank.*{why}"):
                reranker.rank(QUERY, DOCUMENTS, alpha=0, policy=policy)
        with pytest.raises(ValueError, match="is behind a server"):
            reranker.explain(QUERY, DOCUMENTS[0], by="senses")
        with pytest.raises(ValueError, match="cuts its texts itself"):
            reranker.predict([(QUERY, "bread")], long_documents="chunks")


@pytest.mark.slow
def test_a_server_that_refuses_or_is_not_there_is_named(monkeypatch):
    with served("jina", key="secret") as (url, _):
        with pytest.raises(
            ValueError, match=r"answers 401 \(a key goes into BACKPACK_RANK_API_KEY\)"
        ):
            load(url).rank(QUERY, DOCUMENTS)
        monkeypatch.setenv("BACKPACK_RANK_API_KEY", "secret")
        assert len(load(url).rank(QUERY, DOCUMENTS)) == 4
    with pytest.raises(ConnectionError, match="does not answer"):
        load(url).rank(QUERY, DOCUMENTS)
    with served("neither") as (url, _), pytest.raises(ValueError, match="answers 422"):
        load(url).predict([(QUERY, "bread")] * 40 + [(QUERY, text) for text in DOCUMENTS])
    with served("short") as (url, _), pytest.raises(ValueError, match="gives no score for 1 of 4"):
        load(url).rank(QUERY, DOCUMENTS)


@pytest.mark.parametrize("name", SERVERS)
def test_hosted_rerankers_read_the_requests_that_they_publish(name):
    model = None if name == "tei" else "rerank-v3.5"
    pairs = [(query, text) for query in (QUERY, "fish he") for text in DOCUMENTS * 12]
    with hosted(name, score, model, key="secret") as (url, answered):
        with pytest.raises(ValueError, match=r"answers 401 \(a key goes into BACKPACK"):
            load(url, model=model).predict(pairs)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("BACKPACK_RANK_API_KEY", "secret")
            reranker = load(url, model=model)
            found = reranker.predict(pairs).tolist()
            assert found == pytest.approx([score(*pair) for pair in pairs])
            reranker.rank(QUERY, DOCUMENTS, alpha=0, policy="renditions")
            if name in ("cohere", "jina", "voyage"):
                with pytest.raises(ValueError, match="model=NAME says which of its rankers"):
                    load(url).rank(QUERY, DOCUMENTS)
    assert {body.get("model") for body in answered} == {model}


def test_keys_go_to_their_own_hosts_alone(monkeypatch):
    for variable in ("CO_API_KEY", "JINA_API_KEY", "VOYAGE_API_KEY"):
        monkeypatch.setenv(variable, variable)
    sent = {}
    for url in (
        "https://api.cohere.com/v2",
        "https://api.jina.ai/v1",
        "https://api.voyageai.com/v1",
        "https://api.cohere.com.example.org/v2",
        "http://127.0.0.1:1",
    ):
        scorer = RemoteScorer(url, "m")
        request = requests.Request("POST", scorer.endpoint, auth=scorer.session.auth)
        sent[url] = scorer.session.prepare_request(request).headers.get("Authorization")
    assert list(sent.values()) == [
        "Bearer CO_API_KEY",
        "Bearer JINA_API_KEY",
        "Bearer VOYAGE_API_KEY",
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://host:1/v1/rerank/", "http://host:1/v1/rerank"),
        ("http://host:1/v2/", "http://host:1/v2/rerank"),
        ("http://host:1", "http://host:1/rerank"),
    ],
)
def test_the_endpoint_of_an_address_is_rerank_below_it_unless_it_is_one(url, endpoint):
    assert RemoteScorer(url).endpoint == endpoint


class Answers(requests.adapters.BaseAdapter):
    """A host that gives every request the same answer."""

    def __init__(self, status, text):
        super().__init__()
        self.status, self.text = status, text

    def send(self, request, **options):
        answer = requests.Response()
        answer.status_code, answer._content, answer.request = (
            self.status,
            self.text.encode(),
            request,
        )
        return answer

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize(
    ("status", "text", "sentence"),
    [
        (
            403,
            "no",
            "answers 403 (a key goes into CO_API_KEY or COHERE_API_KEY or BACKPACK_RANK_API_KEY): no",
        ),
        (404, "no such page", "answers 404: no such page"),
        (
            404,
            "Model?",
            "answers 404 (model=NAME says which of its rankers is asked): Model?",
        ),
    ],
)
def test_a_refusal_says_what_can_be_done(status, text, sentence):
    scorer = RemoteScorer("https://api.cohere.com/v2")
    scorer.session.mount("https://", Answers(status, text))
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  the whole sentence is compared
        scorer.score_texts([(QUERY, "bread")])
    assert str(refusal.value) == f"https://api.cohere.com/v2/rerank {sentence}"


def test_a_model_of_a_server_is_no_option_of_a_folder(tmp_path):
    with pytest.raises(ValueError, match=r"model=rerank-v3\.5 says which ranker of a server"):
        load(tmp_path, model="rerank-v3.5")
