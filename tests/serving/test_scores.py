"""Scores over HTTP are those of the reranker, whatever else is in flight."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from causal_example import WIDE
from rerank_answers import QUERY, in_python, raw
from rerank_servers import running
from scipy.special import expit
from transformers import BertConfig, BertModel

from backpack_rank.data.vocabulary import WordVocabulary
from backpack_rank.models.factory import cross_encoder, dual_encoder
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.word_ranker import interaction_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.policy_names import POLICIES
from backpack_rank.senses.views import View
from backpack_rank.serving.kinds import served


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_raw_scores_of_a_lone_request_are_the_rerankers_bit_for_bit(
    server, reranker, sentences, path
):
    documents = [*sentences, ""] * 12
    # What others asked before leaves no trace.
    server.rerank(query="another query", documents=list(sentences[:2]))
    scores = raw(server.rerank(path, query=QUERY, documents=documents, raw_scores=True))
    assert scores == in_python(reranker, documents)


@pytest.mark.parametrize("policy", ["lowest_senses", "uniform", "paired_tokens"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_alpha_and_policy_are_those_of_python(server, reranker, sentences, policy, alpha):
    body = {"query": QUERY, "documents": list(sentences), "alpha": alpha, "policy": policy}
    scores = raw(server.rerank(**body, raw_scores=True))
    assert scores == in_python(reranker.with_policy(policy, alpha), sentences)


def test_scores_are_sigmoids_in_double_precision_in_the_order_of_the_logits(
    server, reranker, sentences
):
    logits = reranker.predict([(QUERY, document) for document in sentences]).astype(np.float64)
    results = server.rerank(query=QUERY, documents=list(sentences)).json()["results"]
    assert [row["index"] for row in results] == np.argsort(-logits, kind="stable").tolist()
    for row in results:
        assert row["relevance_score"] == expit(logits[row["index"]])


@pytest.mark.parametrize("policy", [None, "uniform", "paired_tokens"])
def test_curves_are_the_sweep_of_python(server, reranker, sentences, policy):
    alphas = [0.0, 0.25, 0.5, 1.0]
    body = {"query": "bridge", "documents": list(sentences), "alphas": alphas}
    body |= {} if policy is None else {"policy": policy}
    curves = server.rerank(**body).json()["curves"]
    expected = reranker.sweep("bridge", sentences, alphas, policy)
    assert curves["alphas"] == alphas
    assert pytest.approx(expected, abs=1e-5) == np.asarray(curves["scores"]).T
    assert np.ptp(expected, axis=0).max() > 1e-3


def tokens_of(response) -> int:
    """Tokens that were read for an answer."""
    return response.json()["usage"]["total_tokens"]


def test_a_text_without_a_word_that_moves_is_read_once_for_all_alphas(server):
    documents = ["a bridge over a river", "soup and bread", "he saw his mother"]
    request = {"query": "bridge", "documents": documents, "policy": "paired_tokens"}
    tokens_at_one_alpha = tokens_of(server.rerank(**request, alpha=0.0))
    moving = tokens_of(server.rerank(**{**request, "documents": documents[2:]}, alpha=0.0))
    answer = server.rerank(**request, alphas=[0.0, 0.2, 0.4, 0.6, 0.8])
    curves = answer.json()
    # alpha = 1, and five passes over one text.
    assert tokens_of(answer) == tokens_at_one_alpha + 5 * moving
    assert [len(set(scores)) for scores in curves["curves"]["scores"]] == [1, 1, 5]


def test_policies_on_senses_give_all_alphas_in_one_pass(server, sentences):
    body = {"query": "bridge", "documents": list(sentences)}
    many = server.rerank(**body, alphas=[n / 100 for n in range(101)]).json()
    assert many["usage"] == server.rerank(**body).json()["usage"]


class Rewriting(Policy):
    """alpha times the pair's score and 1 - alpha times that of the text without "he" and "she"."""

    name = "rewriting"

    def views(self, context, alpha):
        return View(coefficient=alpha), View(rewrite=without, coefficient=1 - alpha)


def without(query, document):
    return query, " ".join(word for word in document.split() if word not in ("he", "she"))


def test_a_policy_that_rewrites_texts_adds_up_its_views(tiny, reranker, sentences, monkeypatch):
    monkeypatch.setitem(POLICIES, "rewriting", lambda attribute: Rewriting())
    body = {"query": QUERY, "documents": list(sentences), "policy": "rewriting"}
    with running(tiny) as server:
        scores = raw(server.rerank(**body, alpha=0.3, raw_scores=True))
        curves = server.rerank(**body, alphas=[0.0, 0.5]).json()["curves"]["scores"]
    expected = in_python(reranker.with_policy(Rewriting(), 0.3), sentences)
    assert scores == pytest.approx(expected, abs=1e-5)
    swept = reranker.sweep(QUERY, sentences, [0.0, 0.5], Rewriting())
    assert pytest.approx(swept, abs=1e-5) == np.asarray(curves).T


def test_renditions_are_scored_as_in_python_and_alpha_0_takes_no_further_pass(server, reranker):
    documents = ["a bridge over a river", "He saw his mother"]
    documents += ["She saw her father", "She saw his mother"]
    body = {"query": QUERY, "documents": documents, "policy": "renditions"}
    alphas = [0.0, 0.5, 1.0]
    answers = [server.rerank(**body, alpha=alpha, raw_scores=True) for alpha in alphas]
    scores = np.array([raw(answer) for answer in answers])
    assert scores == pytest.approx(reranker.sweep(QUERY, documents, alphas, "renditions"), abs=1e-5)
    assert abs(scores[0, 1] - scores[0, 2]) < 1e-6 < 1e-3 < abs(scores[2, 1] - scores[2, 2])
    assert abs(scores[0, 1] - scores[0, 3]) > 1e-6, "who is who is kept"
    single = {**body, "documents": documents[1:2]}
    passes = [tokens_of(server.rerank(**single, alpha=alpha)) for alpha in (1.0, 0.0, 0.5)]
    assert passes == [passes[0], 2 * passes[0] - 1, passes[1]], "the text is one of its renditions"


@pytest.mark.parametrize("policy", [None, "lowest_senses", "paired_tokens", "renditions"])
def test_equal_texts_and_equal_renditions_have_one_score_and_keep_their_order(
    server, reranker, policy
):
    forms = ["He saw his wife", "She saw her husband", "a bridge over a river"]
    documents = []
    for tail in ("", "in the ward", "of the old hospital by the river"):
        documents += [f"{text} {tail}" for text in forms]
    documents = [*documents, *reversed(documents)] * 2
    alphas = [0.0, 0.4, 1.0]
    dial = {} if policy is None else {"policy": policy, "alpha": 0}
    response = server.rerank(query=QUERY, documents=documents, alphas=alphas, **dial)
    curves = response.json()["curves"]["scores"]
    swept = reranker.sweep(QUERY, documents, alphas, policy).T.tolist()
    predicted = in_python(reranker, documents, alpha=0, policy=policy)
    for text in documents:
        places = [place for place, other in enumerate(documents) if other == text]
        assert len({tuple(curves[place]) for place in places}) == 1
        assert len({tuple(swept[place]) for place in places}) == 1
        assert len({predicted[place] for place in places}) == 1
    if policy == "renditions":
        for scores in ([row[0] for row in curves], [row[0] for row in swept], predicted):
            assert scores[0] == scores[1]
    results = response.json()["results"]
    places = [(-row["relevance_score"], row["index"]) for row in results]
    assert places == sorted(places)


def test_two_wordings_of_a_text_that_is_cut_have_one_score_at_alpha_0(server, reranker):
    tail = "soup in the ward with her sister " * 20_000
    swapped_tail = tail.replace("her sister", "his brother")
    documents = ["He saw his wife " + tail, "She saw her husband " + swapped_tail, "x"]
    dial = {"alpha": 0, "policy": "renditions"}
    body = {"query": QUERY, "documents": documents, "return_documents": False, **dial}
    answer = server.rerank(**body, raw_scores=True)
    scores = raw(answer)
    assert answer.json()["truncated"] == 2
    assert scores[0] == scores[1] != scores[2]
    first, second, _ = in_python(reranker, documents, **dial)
    assert first == second == pytest.approx(scores[0], abs=1e-5)


@pytest.fixture(scope="module")
def rerankers_by_kind(make_gpt2, tokenizer, pair_tokenizer, sentences, tmp_path_factory):
    """A reranker of every kind without senses."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bert")
    pieces = copy.deepcopy(tokenizer)
    pieces.add_special_tokens({"cls_token": "[CLS]"})
    config = BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **WIDE)
    BertModel(config).save_pretrained(folder)
    pieces.save_pretrained(folder)
    words = WordVocabulary(min_count=1, buckets=20).build(sentences)
    sizes = {"embedding_size": 12, "max_query_length": 6}
    knrm = interaction_ranker(words, interaction="knrm", **sizes).eval()
    scorers = {
        "gpt2": Scorer(make_gpt2(), pair_tokenizer),
        "knrm": Scorer(knrm, make_pair_tokenizer(words, knrm, 60)),
    }
    for name, build in (("cross", cross_encoder), ("dual", dual_encoder)):
        ranker = build(pieces, name=str(folder)).eval()
        scorers[name] = Scorer(ranker, make_pair_tokenizer(pieces, ranker, 48))
    return {name: PointwiseReranker(scorer) for name, scorer in scorers.items()}


@pytest.mark.slow
def test_every_kind_of_pointwise_ranker_is_served(rerankers_by_kind, sentences):
    loaders = {
        name: partial(served, name, reranker) for name, reranker in rerankers_by_kind.items()
    }
    body = {"query": QUERY, "documents": list(sentences), "raw_scores": True}
    one = {"query": QUERY, "documents": ["a"], "alpha": 0.5}
    with running(loaders) as server:
        for name, reranker in rerankers_by_kind.items():
            scores = raw(server.rerank(model=name, **body))
            assert scores == pytest.approx(in_python(reranker, sentences), abs=1e-5), name
            assert len(set(scores)) > 3
            assert server.rerank(model=name, **one).status_code == 200, "renditions"
            refused = server.rerank(model=name, **one, policy="lowest_senses")
            assert refused.status_code == 400
        moved = server.rerank(model="gpt2", **body, alpha=0, policy="paired_tokens")
    gpt2 = rerankers_by_kind["gpt2"].with_policy("paired_tokens", 0.0)
    assert raw(moved) == pytest.approx(in_python(gpt2, sentences), abs=1e-5)
