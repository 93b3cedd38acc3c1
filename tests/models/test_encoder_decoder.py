"""Encoder-decoders that answer true or false: logits are those of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from library_encoders import roberta_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from backpack_rank.reranking.load import load

WORDS = "Query: Document: Relevant: true false the doctor saw a nurse he she bread and fish"
QUERY = "the doctor saw"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "bread", "fish and bread " * 12 + "fish"]


def tokenizer(*without):
    """As T5's, with words as pieces: a blank before a word is a sign of it."""
    words = [f"▁{word}" for word in WORDS.split() if word not in without]
    vocabulary = {piece: n for n, piece in enumerate(["<pad>", "</s>", "<unk>", "▁", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace("  ", " ")
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **specials)


def save_t5(model_class, folder, **options):
    torch.manual_seed(0)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    config = T5Config(vocab_size=len(tokenizer()), **shape, **options)
    model_class(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    save_t5(T5ForConditionalGeneration, folder, initializer_factor=3.0, decoder_start_token_id=0)
    return folder


def expected_scores(folder, documents):
    model = T5ForConditionalGeneration.from_pretrained(folder).eval()
    scores = []
    for document in documents:
        text = f"Query: {QUERY} Document: {document} Relevant:</s>"
        inputs = tokenizer()(text, return_tensors="pt", add_special_tokens=False)
        start = torch.zeros((1, 1), dtype=torch.long)
        with torch.no_grad():
            logits = model(**inputs, decoder_input_ids=start).logits[0, 0]
        true, false = tokenizer().convert_tokens_to_ids(["▁true", "▁false"])
        scores.append(float(logits[true] - logits[false]))
    return scores


def test_scores_are_differences_of_the_two_answers(folder):
    scores = load(folder).predict([(QUERY, document) for document in DOCUMENTS])
    expected = expected_scores(folder, DOCUMENTS)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    again = load(folder, template="monot5").predict([(QUERY, DOCUMENTS[0])])
    np.testing.assert_allclose(again, scores[:1], rtol=1e-5)


def test_the_dial_is_the_mean_over_renditions(folder):
    reranker = load(folder)
    assert reranker.policies == ("paired_tokens", "renditions")
    scores = reranker.predict([(QUERY, document) for document in DOCUMENTS], alpha=0.0)
    neutral = np.mean(expected_scores(folder, DOCUMENTS[:2]))
    np.testing.assert_allclose(scores[:2], neutral, rtol=1e-4)
    assert scores[0] == scores[1]


def test_a_model_without_the_answers_is_refused(folder, tmp_path):
    T5ForConditionalGeneration.from_pretrained(folder).save_pretrained(tmp_path)
    tokenizer("true").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration is not a ranker, it writes"):
        load(tmp_path)


def bart(folder):
    """A classifier whose encoder and decoder look up the same words, times a number."""
    made = roberta_tokenizer()
    made.save_pretrained(folder)
    config = BartConfig(
        vocab_size=len(made),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=64,
        num_labels=1,
        init_std=0.4,
        scale_embedding=True,
        pad_token_id=made.pad_token_id,
        bos_token_id=made.bos_token_id,
        eos_token_id=made.eos_token_id,
        decoder_start_token_id=made.eos_token_id,
    )
    torch.manual_seed(0)
    BartForSequenceClassification(config).save_pretrained(folder)


@pytest.mark.parametrize("kind", ["monoT5", "T5 encoder", "BART"])
def test_paired_tokens_move_what_the_network_reads(kind, folder, tmp_path):
    """Encoder and decoder look words up by modules of their own."""
    pooling = None
    if kind == "T5 encoder":
        save_t5(T5EncoderModel, tmp_path)
        pooling = "mean"
    if kind == "BART":
        bart(tmp_path)
    reranker = load(folder if kind == "monoT5" else tmp_path, pooling=pooling)
    scores = reranker.sweep(QUERY, DOCUMENTS[:3], alphas=[1, 0], policy="paired_tokens")
    assert scores[0, 0] != pytest.approx(scores[0, 1], rel=1e-4)
    assert scores[1, 0] == pytest.approx(scores[1, 1], rel=1e-6)
    assert scores[0, 2] == scores[1, 2]
