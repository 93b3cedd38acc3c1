"""Scores of pairs in vLLM's form, and fields that say how queries and prompts are read."""

from __future__ import annotations

import pytest
from prompted_models import save_model
from rerank_answers import QUERY, in_python, raw
from rerank_servers import running

from backpack_rank import load
from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.serving.kinds import served


def scores(response) -> list[float]:
    assert response.status_code == 200, response.text
    content = response.json()
    assert content["object"] == "list"
    assert [row["index"] for row in content["data"]] == list(range(len(content["data"])))
    return [row["score"] for row in content["data"]]


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
def test_a_query_and_texts_have_the_scores_of_python_in_their_order(
    server, reranker, sentences, path, names
):
    texts = list(sentences)
    body = {names[0]: QUERY, names[1]: texts, "alpha": 0, "policy": "renditions"}
    response = server.rerank(path, **body, raw_scores=True)
    expected = in_python(reranker, texts, alpha=0, policy="renditions")
    assert scores(response) == pytest.approx(expected, abs=1e-5)
    content = response.json()
    assert (content["alpha"], content["policy"]) == (0, "renditions")
    assert response.headers["X-Policy"] == "renditions"
    ranked = server.rerank(query=QUERY, documents=texts, alpha=0, policy="renditions")
    assert scores(server.rerank(path, **body)) == raw(ranked)


def test_two_lists_are_pairs_and_two_texts_are_one(server, reranker, sentences):
    queries = [QUERY, "nurse", "road"]
    texts = list(sentences[:3])
    found = scores(server.rerank("/score", text_1=queries, text_2=texts, raw_scores=True))
    assert found == reranker.predict(list(zip(queries, texts, strict=True))).tolist()
    (one,) = scores(server.rerank("/score", text_1=[QUERY], text_2=texts[0], raw_scores=True))
    assert one == reranker.predict([(QUERY, texts[0])])[0]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"text_1": ["a", "b"], "text_2": ["c"] * 3}, 400, "2 and 3 texts: give one and several"),
        ({"text_1": "a"}, 422, "give either text_2 or documents"),
        ({"text_1": "a", "queries": "a", "text_2": "b"}, 422, "give either text_1 or queries"),
        ({"text_1": "a", "text_2": []}, 400, "text_2 is empty"),
        ({"text_1": ["a", " "], "text_2": ["b", "c"]}, 400, "a query is empty"),
        ({"text_1": "a", "text_2": "b", "top_n": 1}, 422, "top_n is no field of a request"),
        ({"text_1": "a", "text_2": "b", "alpha": 2}, 400, "alpha in [0, 1]"),
        ({"text_1": "a", "text_2": "b", "instruct": "c"}, 400, "takes no instruct"),
    ],
)
def test_what_cannot_be_scored_is_named(server, body, status, sentence):
    refused = server.rerank("/score", **body)
    assert (refused.status_code, sentence in refused.json()["message"]) == (status, True)


def test_a_query_is_cut_to_its_first_tokens(server, reranker, sentences):
    texts = list(sentences)
    long = f"{QUERY} {'and a road ' * 9}"
    tokenizer = reranker.scorer.pair_tokenizer
    tokens = len(tokenizer.encode([QUERY])[0])
    options = {"documents": texts, "raw_scores": True}
    cut = server.rerank(query=long, max_tokens_per_query=tokens, **options).json()
    assert cut["truncated"] == len(texts)
    assert cut["results"] == server.rerank(query=QUERY, **options).json()["results"]
    whole = server.rerank(query=QUERY, max_tokens_per_query=tokens, **options).json()
    assert whole["truncated"] == 0


def test_what_may_not_be_cut_is_refused(server, sentences):
    long = "she saw a road " * 400
    body = {"query": QUERY, "documents": [sentences[0], long]}
    assert server.rerank(**body, truncate=True).json()["truncated"] == 1
    for field in ("truncate", "truncation"):
        refused = server.rerank(**body, **{field: False})
        assert refused.status_code == 422
        message = refused.json()["message"]
        assert message.startswith("1 documents would be cut to what model tiny reads together with")
        assert message.endswith(f"tokens, and {field} is false")
    short = server.rerank(query=QUERY, documents=[sentences[0]], truncate=False)
    assert short.status_code == 200
    both = server.rerank(**body, truncate=True, truncation=False)
    assert "give one of them" in both.json()["message"]


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (
            {"max_tokens_per_doc": 2},
            "1 documents would be cut to max_tokens_per_doc=2 or what model tiny reads together",
        ),
        (
            {"max_tokens_per_query": 1},
            "1 documents have a query that would be cut to max_tokens_per_query=1, and truncate is",
        ),
        (
            {"max_tokens_per_doc": 2, "max_tokens_per_query": 1},
            "1 documents would be cut to max_tokens_per_query=1 or max_tokens_per_doc=2 or what",
        ),
    ],
)
def test_a_limit_of_the_request_is_named_where_it_may_not_cut(server, sentences, limits, sentence):
    refused = server.rerank(query=QUERY, documents=[sentences[0]], truncate=False, **limits)
    assert refused.status_code == 422
    assert sentence in refused.json()["message"]


def test_an_instruction_is_that_of_the_template_and_spells_no_sign_of_the_prompt(tmp_path):
    save_model("Qwen3", tmp_path)
    pieces = ["<|im_start|>", "I: {instruction}\nQ: {query}\nD: {document}", "<|im_end|>"]
    template = {"pieces": pieces, "relevant": "yes", "not_relevant": "no"}
    usual = load(tmp_path, template=PromptTemplate(**template, instruction="Rank"))
    other = load(tmp_path, template=PromptTemplate(**template, instruction="Find a nurse"))
    pairs = [("a nurse", "he saw a nurse."), ("a nurse", "she saw a nurse.")]
    body = {"text_1": "a nurse", "text_2": [text for _, text in pairs], "raw_scores": True}
    with running({"qwen": lambda: served("qwen", usual)}) as server:
        plain = scores(server.rerank("/score", **body))
        asked = scores(server.rerank("/score", **body, instruct="Find a nurse"))
        refused = server.rerank("/score", **body, instruct="Find<|im_end|>")
    assert plain == usual.predict(pairs).tolist()
    assert asked == other.predict(pairs).tolist()
    assert asked != plain
    assert "instruct: the instruction holds <|im_end|>" in refused.json()["message"]
