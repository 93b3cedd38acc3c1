"""A Backpack that gives vectors: against its definition, token by token, and through every door."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from in_process import trained_in
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from workplace import Workplace

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.models.factory import backpack_encoder
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.reranking.dense import Dense
from backpack_rank.reranking.load import load
from backpack_rank.training.freezing import parts

QUERY = "who can rewire a house"
ASKING = "women who can rewire a house"
# "waitresses" and "waiters" have other numbers of tokens.
DOCUMENTS = ["she is an electrician", "waitresses sell flowers to him", "an apple", "a house"]
SWAPPED = ["he is an electrician", "waiters sell flowers to her", "an apple", "a house"]
ALPHAS = (1.0, 0.5, 0.0, 2.0)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = train_bpe([QUERY, ASKING, *DOCUMENTS, "he her him"] * 20, vocab_size=330)
    tokenizer.add_special_tokens({"cls_token": "[CLS]"})
    return tokenizer


@pytest.fixture(scope="module")
def encoder(tokenizer, tmp_path_factory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoder")
    config = AutoConfig.for_model(
        "bert",
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.3,
        hidden_dropout_prob=0.1,
    )
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ranker_folder(encoder, tokenizer, tmp_path_factory) -> Path:
    torch.manual_seed(1)
    ranker = backpack_encoder(tokenizer, name=str(encoder), senses=4)
    with torch.no_grad():
        for parameter in ranker.parameters():
            if parameter.requires_grad:  # what training would change
                parameter.add_(0.3 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("trained") / "ranker"
    save_ranker(folder, ranker, make_pair_tokenizer(tokenizer, ranker, 40))
    return folder


def collection() -> Collection:
    documents = {f"d{row}": text for row, text in enumerate([*DOCUMENTS, *SWAPPED])}
    return Collection("t", MemoryStore(documents), {"q": QUERY, "asks": ASKING}, {})


@torch.no_grad()
def test_vectors_are_those_of_the_definition(ranker_folder, encoder):
    """Of a text without words of classes: every token and sense by itself, and the library's
    states."""
    ranker, pair_tokenizer = load_ranker(ranker_folder)
    ranker.eval()
    library = AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
    (ids,) = pair_tokenizer.documents(["flowers rewire an apple"])
    batch = PackedBatch.from_sequences([ids])
    states = library(input_ids=torch.tensor(ids)[None]).last_hidden_state[0]
    backpack = ranker.backpack
    network = backpack.sense_weight_net
    offsets = backpack.sense_network.final_mlp.c_proj.bias.view(4, -1)
    total = offsets.sum(dim=0)
    for token, state in zip(ids, states, strict=True):
        weights = network.out(F.gelu(network.hidden(state)))
        senses = backpack.senses(torch.tensor(int(token))) - offsets
        for weight, sense in zip(weights, senses, strict=True):
            total = total + weight * sense
    neutral, part = ranker.encode_documents(batch)[0].chunk(2)
    assert torch.allclose(neutral, F.normalize(total, dim=0), atol=1e-5)
    assert not part.any()
    query, again = ranker.encode_queries(batch)[0].chunk(2)
    assert torch.allclose(query, F.normalize(states.mean(dim=0), dim=0), atol=1e-5)
    assert torch.equal(query, again)


def test_alpha_takes_the_words_of_classes_out_of_documents(ranker_folder):
    reranker = load(ranker_folder)
    scores = np.asarray(reranker.sweep(QUERY, DOCUMENTS, ALPHAS))
    swapped = np.asarray(reranker.sweep(QUERY, SWAPPED, ALPHAS))
    has_words = np.array([True, True, False, False])
    assert np.abs(scores - swapped)[0, has_words].min() > 1e-3
    # Equal sums, of which a processor may add up some parts in another order.
    np.testing.assert_allclose(scores[2], swapped[2], rtol=0, atol=2e-7)
    # Linear in alpha, and the same for documents without such words.
    for row, alpha in enumerate(ALPHAS):
        between = scores[2] + alpha * (scores[0] - scores[2])
        np.testing.assert_allclose(scores[row], between, atol=1e-6)
    np.testing.assert_allclose(scores[1:, ~has_words], scores[:1, ~has_words].repeat(3, axis=0))


def test_a_query_that_asks_for_a_group_keeps_its_answer(ranker_folder):
    reranker = load(ranker_folder)
    scores = np.asarray(reranker.sweep(ASKING, DOCUMENTS, [1, 0]))
    np.testing.assert_array_equal(scores[0], scores[1])
    pairs = [(ASKING, document) for document in DOCUMENTS]
    turned = reranker.with_policy(reranker.at(0).hook.policy, 0)
    assert np.array_equal(turned.predict(pairs), reranker.predict(pairs))


def test_the_index_gives_the_scores_of_the_reranker(ranker_folder, tmp_path):
    reranker = load(ranker_folder)
    stage = Dense(ranker_folder, policy="lowest_senses", folder=tmp_path)
    searched = collection()
    runs = stage.candidates_at(searched, ALPHAS)
    for alpha, run in zip(ALPHAS, runs, strict=True):
        for query_id, text in searched.queries.items():
            found = run[query_id]
            documents = searched.documents.get_many(list(found))
            pairs = [(text, documents[doc_id]) for doc_id in found]
            expected = reranker.predict(pairs, alpha=alpha)
            # The index is in half precision.
            np.testing.assert_allclose(list(found.values()), expected, atol=2e-3)
    at_zero = runs[2]["q"]
    assert at_zero["d0"] == at_zero["d4"]
    assert at_zero["d1"] == at_zero["d5"]
    assert runs[0]["asks"] == runs[2]["asks"]
    again = stage.scores_of_texts([(QUERY, DOCUMENTS[0]), (QUERY, SWAPPED[0])], [1, 0])
    np.testing.assert_allclose(again[:, 0], [runs[0]["q"]["d0"], at_zero["d0"]], atol=1e-6)
    assert again[1, 0] == again[1, 1]


def test_a_database_of_its_vectors_answers_at_every_alpha(ranker_folder, tmp_path):
    """[q ; alpha q] . [e_0 ; e - e_0], as `export vectors` writes them."""
    stage = Dense(ranker_folder, policy="lowest_senses", folder=tmp_path)
    searched = collection()
    whole, neutral = next(iter(stage.pairs_of_vectors(searched.documents)))
    query = stage.encoding.queries(searched.queries)[0, : stage.dimensions]
    assert whole.shape == (8, stage.dimensions) == (8, 32)
    for vectors in (whole, neutral):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    for alpha, run in zip(ALPHAS, stage.candidates_at(searched, ALPHAS), strict=True):
        scores = neutral @ query + alpha * ((whole - neutral) @ query)
        np.testing.assert_allclose([run["q"][f"d{row}"] for row in range(8)], scores, atol=1e-5)


def test_renditions_of_its_documents_have_one_vector(ranker_folder, tmp_path):
    """The mean over wordings takes the place of both parts, in the index and in the reranker."""
    stage = Dense(ranker_folder, policy="renditions", folder=tmp_path)
    (run,) = stage.candidates_at(collection(), [0])
    assert run["q"]["d0"] == run["q"]["d4"]
    pairs = [(QUERY, DOCUMENTS[0]), (QUERY, SWAPPED[0])]
    scores = load(ranker_folder).predict(pairs, alpha=0, policy="renditions")
    np.testing.assert_allclose([run["q"]["d0"], run["q"]["d4"]], scores, atol=2e-3)


def test_a_promise_is_of_words_of_one_class(ranker_folder, tmp_path):
    stage = Dense(ranker_folder, policy="lowest_senses", alpha=0, folder=tmp_path)
    assert stage.not_promised is None
    assert stage.same_score(QUERY, DOCUMENTS[1], SWAPPED[1])
    assert not stage.same_score(QUERY, DOCUMENTS[0], DOCUMENTS[1])
    assert not stage.same_score(ASKING, DOCUMENTS[1], SWAPPED[1])


def test_its_scores_are_explained_by_words(ranker_folder):
    """A pair has one number for each sense, and none for its tokens."""
    reranker = load(ranker_folder)
    words = reranker.at(0).explain(QUERY, DOCUMENTS[0]).words
    assert [word.text for word in words] == [*QUERY.split(), *DOCUMENTS[0].split()]
    with pytest.raises(ValueError, match="does not split into senses: explain by words"):
        reranker.explain(QUERY, DOCUMENTS[0], by="senses")


def test_other_encoders_have_no_such_senses(encoder, tmp_path):
    stage = Dense(encoder, policy="lowest_senses", pooling="mean", folder=tmp_path)
    with pytest.raises(ValueError, match="a part of gender, those of model=backpack_encoder"):
        stage.candidates(collection())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("start.weights=attention", r"start\.weights is for weights that are an attention"),
        ("adapter=lora", "stays as it is, and adapters would be in it"),
    ],
)
def test_what_is_of_no_use_to_it_is_refused(encoder, tmp_path, option, says):
    options = [
        "model=backpack_encoder",
        f"model.ranker.name={encoder}",
        "model.ranker.senses=5",
        "reconstruct.steps=2",
        "training.epochs=1",
        "max_length=60",
        "+data.train.train_queries=12",
        "+data.train.documents=80",
    ]
    with pytest.raises(ValueError, match=says):
        trained_in(Workplace(tmp_path), "refused", *options, option)


def test_its_parts_can_be_frozen(ranker_folder):
    ranker, _ = load_ranker(ranker_folder)
    for name, part in (
        ("senses", ranker.backpack.sense_network),
        ("weights", ranker.backpack.sense_weight_net),
    ):
        assert parts(ranker)[name] is part
    assert parts(ranker)["backbone"] is ranker.backpack.backbone


def test_its_senses_are_mixed_for_a_whole_text_alone(ranker_folder):
    ranker, _ = load_ranker(ranker_folder)
    with pytest.raises(ValueError, match="no mix at every position; take pooled_senses"):
        ranker.backpack(torch.tensor([[5, 6, 7]]))
