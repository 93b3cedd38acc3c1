"""Cross-encoders trained elsewhere: their scores are those of transformers, their words can be
moved.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from foreign_rankers import SHAPE, bert, xlm_roberta
from foreign_rankers import saved as save
from ranker_checks import padded_logits
from transformers import (
    ConvBertConfig,
    ConvBertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from backpack_rank.models.loading import load_ranker
from backpack_rank.reranking.load import load
from backpack_rank.senses.policies import PairedTokens

QUERY = "the doctor saw"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "he " * 30]


@pytest.fixture(params=[bert, xlm_roberta])
def saved_classifier(request, tmp_path):
    """A classifier with one label as its own libraries save it; the model, its tokenizer, and the
    folder.
    """
    model, tokenizer = save(request.param, tmp_path / "ranker")
    return model, tokenizer, tmp_path / "ranker"


def expected(model, tokenizer, pairs):
    """As ``CrossEncoder.predict`` does it, without its sigmoid."""
    return padded_logits(model, tokenizer, pairs)[:, 0].tolist()


def test_scores_are_those_of_transformers_also_where_texts_are_cut(saved_classifier):
    model, tokenizer, folder = saved_classifier
    pairs = [
        (query, text) for query in (QUERY, "the doctor saw a nurse " * 6) for text in DOCUMENTS
    ]
    scores = load(folder).predict(pairs)
    assert scores.tolist() == pytest.approx(expected(model, tokenizer, pairs), abs=1e-5)
    assert np.ptp(scores) > 0.05


def test_a_text_that_spells_a_special_token_has_the_score_of_transformers(saved_classifier):
    """The types of the document's tokens begin behind the template's separator, not behind the
    first one.
    """
    model, tokenizer, folder = saved_classifier
    spelled = [tokenizer.sep_token, tokenizer.cls_token, tokenizer.pad_token]
    queries = [
        f"the {token} doctor{other}"
        for token in spelled
        for other in ("", f" saw {spelled[0]}", spelled[0])
    ]
    documents = [
        *DOCUMENTS,
        f"he {spelled[0]} saw",
        f"{spelled[0]}{spelled[1]}",
        f"a {spelled[2]} nurse",
    ]
    pairs = [
        (query, text) for query in [*queries, f"{spelled[0]} doctor " * 9] for text in documents
    ]
    reranker, wanted = load(folder), expected(model, tokenizer, pairs)
    assert reranker.predict(pairs).tolist() == pytest.approx(wanted, abs=1e-5)
    assert [reranker.predict([pair])[0] for pair in pairs] == pytest.approx(wanted, abs=1e-5)


def convbert():
    """Its convolutions run over padding."""
    _, tokenizer = bert()
    return ConvBertForSequenceClassification(
        ConvBertConfig(
            vocab_size=len(tokenizer), max_position_embeddings=32, pad_token_id=0, **SHAPE
        )
    ), tokenizer


def test_a_classifier_that_padding_reaches_reads_texts_one_by_one(tmp_path):
    model, tokenizer = save(convbert, tmp_path / "ranker")
    pairs = [(QUERY, text) for text in DOCUMENTS]
    alone = [expected(model, tokenizer, [pair])[0] for pair in pairs]
    assert np.abs(np.array(alone) - expected(model, tokenizer, pairs)).max() > 1e-3
    assert load(tmp_path / "ranker").predict(pairs).tolist() == pytest.approx(alone, abs=1e-5)


def test_moved_words_make_he_and_she_one(saved_classifier):
    _, _, folder = saved_classifier
    reranker = load(folder)
    assert reranker.alpha is None
    assert reranker.policies == ("paired_tokens", "renditions")
    pairs = [(QUERY, text) for text in DOCUMENTS[:3]]
    plain = reranker.predict(pairs)
    moved = reranker.predict(pairs, alpha=0, policy="paired_tokens")
    assert abs(plain[0] - plain[1]) > 1e-3
    assert moved[0] == pytest.approx(moved[1], abs=1e-6)
    assert moved[2] == pytest.approx(plain[2], abs=1e-6), "no word of it is moved"
    in_senses = PairedTokens.of(reranker.attribute, scope="senses")
    with pytest.raises(
        ValueError, match=r"has no sense vectors, .*policy=paired_tokens without policy\.scope"
    ):
        reranker.rank(QUERY, DOCUMENTS, alpha=0, policy=in_senses)


def test_joined_texts_are_those_of_the_tokenizer(saved_classifier):
    _, tokenizer, folder = saved_classifier
    _, joined = load_ranker(folder)
    for query in (QUERY, "a nurse " * 9, "a nurse " * 30):
        given = tokenizer([query] * len(DOCUMENTS), DOCUMENTS, truncation=True)["input_ids"]
        assert [ids.tolist() for ids in joined.pairs(query, DOCUMENTS)] == given
    with pytest.raises(ValueError, match="the query is empty"):
        joined.encode_query(" ")


def test_a_gpt2_of_transformers_is_a_classifier_and_not_a_ranker_of_train_py(tmp_path):
    _, tokenizer = bert()
    torch.manual_seed(0)
    shape = {
        "n_positions": 24,
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "num_labels": 1,
        "pad_token_id": 0,
    }
    model = GPT2ForSequenceClassification(GPT2Config(vocab_size=len(tokenizer), **shape)).eval()
    model.save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    wanted = expected(model, tokenizer, [(QUERY, DOCUMENTS[0])])
    assert load(tmp_path / "gpt2").predict([(QUERY, DOCUMENTS[0])]).tolist() == pytest.approx(
        wanted, abs=1e-5
    )
