"""The demo page and what it asks for, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import httpx
import pytest
from beir_folders import write_beir
from rerank_answers import QUERY
from rerank_servers import running

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import count_groups
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.demo import COARSE, FINE, examples_of_run, page, synthetic_examples
from backpack_rank.serving.kinds import served


def asked(server, path, **body):
    return server.client.post(f"/demo/{path}", json={"query": QUERY, **body})


def test_the_page_runs_its_own_script_alone_and_asks_for_nothing_from_elsewhere(server):
    answer = server.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    text = answer.text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r'(?:src|href)="([^"#]*)"', text) == ["data:,", "docs"]


def test_no_text_is_ever_read_as_html():
    readers = r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
    assert not re.findall(readers, page())


@pytest.mark.slow
def test_examples_are_of_the_synthetic_test_split_and_mixed():
    examples = synthetic_examples()
    # On which male words lead at alpha 1 in the list of the ranker of make run: README's picture.
    assert examples[0].query == "crop grower known for breeding poultry"
    assert len({example.query for example in examples}) == 8
    lexicon = Attribute.named("gender").lexicon()
    for example in examples:
        assert len(example.documents) == 20
        female, male = (count_groups(example.documents, lexicon) > 0).sum(axis=0)
        assert min(female, male) >= 5


def test_examples_can_be_the_queries_of_a_run(tiny, tmp_path):
    queries = {"q1": "a nurse", "q2": "a bridge", "q3": "left out"}
    write_beir(tmp_path, queries, {"d1": "one\nline"}, {"q1": {"d1": 1}, "q2": {"d2": 1}})
    with open(tmp_path / "corpus.jsonl", "a") as corpus:
        corpus.write('{"_id": "d2", "title": "T", "text": "two"}\n')
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 d2 1 2.0 x\nq1 Q0 d1 2 1.0 x\nq2 Q0 d1 1 1.0 x\n")
    examples = examples_of_run(run, tmp_path)
    assert [(example.query, example.documents) for example in examples] == [
        ("a nurse", ("T two", "one line")),
        ("a bridge", ("one line",)),
    ]
    with running(tiny, examples=examples) as server:
        shown = server.client.get("/demo/examples").json()["examples"]
    assert [(each["query"], tuple(each["documents"])) for each in shown] == [
        (example.query, example.documents) for example in examples
    ]
    run.write_text("q9 Q0 d2 1 2.0 x\n")
    with pytest.raises(ValueError, match="q9"):
        examples_of_run(run, tmp_path)


def test_policies_come_with_a_grid_as_fine_as_their_passes_allow(server):
    (model,) = server.client.get("/demo/examples").json()["models"]
    points = {policy["name"]: policy["points"] for policy in model["policies"]}
    assert (model["id"], model["explains"]) == ("tiny", True)
    assert (points["lowest_senses"], points["uniform"], points["soft"]) == (FINE, FINE, FINE)
    assert (points["paired_tokens"], points["renditions"]) == (COARSE, FINE)
    for policy in model["policies"]:
        assert policy["about"].endswith(".")
        assert len(policy["about"]) > 20


def test_words_are_counted_and_marked_as_the_measures_count_them(server, sentences):
    documents = [*sentences, "<b>HE</b> & her-self", ""]
    answer = asked(server, "words", documents=documents).json()
    assert answer["attribute"] == "gender"
    assert (answer["groups"], answer["sign"]) == (["female", "male"], ["male", "female"])
    assert answer["counts"][0] == [0, 2]
    assert answer["counts"][8] == [1, 1]
    for pieces, document in zip(answer["pieces"], documents, strict=True):
        assert "".join(text for text, _ in pieces) == document
    for counts, pieces in zip(answer["counts"], answer["pieces"], strict=True):
        assert [sum(group == name for _, group in pieces) for name in ("female", "male")] == counts


@pytest.mark.parametrize(
    ("policy", "alpha"), [(None, 1.0), ("lowest_senses", 0.3), ("paired_tokens", 0.0)]
)
def test_a_score_is_explained_by_the_thread_of_the_model(
    server, reranker, sentences, policy, alpha
):
    dial = {} if policy is None else {"policy": policy, "alpha": alpha}
    explanation = asked(server, "explain", documents=[sentences[0]], **dial).json()
    controlled = reranker if policy is None else reranker.with_policy(policy, alpha)
    expected = controlled.explain(QUERY, sentences[0])
    for word, by_python in zip(explanation["words"], expected.words, strict=True):
        assert (word["text"], word["group"]) == (by_python.text, by_python.group)
        assert word["contribution"] == pytest.approx(by_python.contribution, abs=1e-9)
    assert explanation["score"] == pytest.approx(expected.score, abs=1e-9)
    assert explanation["title"] == expected.title
    assert (explanation["score_before"] is None) == (policy is None)
    total = sum(word["contribution"] for word in explanation["words"])
    assert explanation["empty_score"] + total == pytest.approx(explanation["score"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_a_score_without_senses_is_explained_by_words_left_out(
    make_gpt2, pair_tokenizer, sentences, alpha
):
    """The numbers of the page are those of Python, through the queue of the model."""
    reranker = PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))
    asked_for = reranker if alpha == 1 else reranker.at(alpha)
    expected = asked_for.explain(QUERY, sentences[0])
    with running({"gpt2": lambda: served("gpt2", reranker)}) as gpt2:
        (model,) = gpt2.client.get("/demo/examples").json()["models"]
        assert model["explains"]
        answer = asked(gpt2, "explain", documents=[sentences[0]], alpha=alpha)
        assert answer.status_code == 200, answer.text
        explanation = answer.json()
    assert explanation["empty_score"] is None
    assert explanation["title"] == expected.title
    assert [word["text"] for word in explanation["words"]] == [word.text for word in expected.words]
    for name in ("contribution", "change"):
        wanted = [getattr(word, name) for word in expected.words]
        got = [word[name] for word in explanation["words"]]
        if alpha == 1 and name == "change":
            assert got == wanted == [None] * len(got)
        else:
            assert got == pytest.approx(wanted, abs=1e-5)
    contribution = expected.renditions.contribution
    assert explanation["renditions"]["contribution"] == pytest.approx(contribution, abs=1e-5)
    assert abs(contribution) > 1e-4
    assert (explanation["score_before"] is None) == (alpha == 1)


def test_a_policy_of_several_texts_is_explained_by_words_too(server, reranker, sentences):
    dial = {"alpha": 0.5, "policy": "renditions"}
    explanation = asked(server, "explain", documents=[sentences[0]], **dial).json()
    expected = reranker.at(**dial).explain(QUERY, sentences[0])
    assert expected.by_words
    contributions = [word["contribution"] for word in explanation["words"]]
    wanted = [word.contribution for word in expected.words]
    assert contributions == pytest.approx(wanted, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["backpack", "gpt2"])
@pytest.mark.parametrize("asked_for", ["by the server", "by the request"])
def test_the_score_of_the_best_chunk_is_explained(
    pointwise, make_gpt2, pair_tokenizer, kind, asked_for
):
    """Served in chunks, or asked for: the explained score is that of the ranking, of any ranker."""
    plain = pointwise() if kind == "backpack" else None
    plain = plain or PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))
    thorough = plain.reading("chunks")
    long_text = "bread and fish " * 20 + "she is a doctor in the ward " * 4
    fields = {} if asked_for == "by the server" else {"long_documents": "chunks"}
    ranker = thorough if asked_for == "by the server" else plain
    expected = thorough.predict([(QUERY, long_text)])[0]
    assert abs(expected - plain.predict([(QUERY, long_text)])[0]) > 1e-3
    with running({"tiny": lambda: served("tiny", ranker)}) as server:
        answer = asked(server, "explain", documents=[long_text], **fields)
        assert answer.status_code == 200, answer.text
        explanation = answer.json()
        short = asked(server, "explain", documents=["a doctor"], **fields).json()
    assert explanation["score"] == pytest.approx(expected, abs=1e-5)
    assert explanation["score"] == pytest.approx(thorough.explain(QUERY, long_text).score, abs=1e-5)
    assert explanation["cut"] == 0
    words = " ".join(word["text"] for word in explanation["words"])
    assert words == f"{QUERY} {long_text}".strip()
    # What fits into one chunk is explained by senses where there are any.
    assert (short["empty_score"] is not None) == (kind == "backpack")


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("words", {"documents": []}, 400, "documents is empty"),
        (
            "words",
            {"documents": ["a"], "model": "other"},
            404,
            "'other' is not served; use one of tiny",
        ),
        ("words", {"documents": ["\ud800"]}, 422, "surrogate"),
        ("explain", {"documents": ["a", "b"]}, 400, "send one document"),
        ("explain", {"documents": ["a" * 100_001]}, 413, "at most 100,000 characters"),
        ("explain", {"documents": ["a"], "alpha": 2.0}, 400, "this server takes alpha in"),
        (
            "explain",
            {"documents": ["a"], "alpha": 0.5, "policy": "paired_tokens_weights"},
            400,
            "policy=paired_tokens_weights: use one of lowest_senses, uniform",
        ),
        (
            "explain",
            {"documents": ["a"], "policy": "sideways"},
            400,
            "policy=sideways: use one of lowest_senses",
        ),
        (
            "explain",
            {"documents": ["a"], "long_documents": "chunks", "chunk_overlap": 40},
            400,
            "chunk_overlap=40 must be at most 24",
        ),
        ("explain", {"documents": ["a"], "query": "long " * 60}, 400, "query"),
    ],
)
def test_what_cannot_be_done_is_said(server, path, body, status, message):
    content, headers = json.dumps({"query": QUERY, **body}), {"Content-Type": "application/json"}
    answer = server.client.post(f"/demo/{path}", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["message"]


def test_forms_of_other_pages_are_refused(server):
    plain = {"Content-Type": "text/plain"}
    answer = server.client.post("/demo/words", content=b"query=a", headers=plain)
    assert answer.status_code == 415
    assert server.client.get("/", headers={"Host": "evil.example"}).status_code == 400


def test_with_a_key_the_page_comes_and_nothing_else(tiny):
    with running(tiny, api_key="secret") as locked:
        assert locked.client.get("/").status_code == 200
        for path in ("examples", "words", "explain"):
            method = "GET" if path == "examples" else "POST"
            assert locked.client.request(method, f"/demo/{path}").status_code == 401
        allowed = httpx.Headers({"Authorization": "Bearer secret"})
        assert locked.client.get("/demo/examples", headers=allowed).status_code == 200
