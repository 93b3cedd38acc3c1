"""Encoder-decoders that answer true or false: logits are those of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from backpack_rank.reranking.load import load

WORDS = [
    "Query:",
    "Document:",
    "Relevant:",
    "true",
    "false",
    "the",
    "doctor",
    "saw",
    "a",
    "nurse",
    "he",
    "she",
    "bread",
    "and",
    "fish",
]
QUERY = "the doctor saw"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "bread", "fish and bread " * 12 + "fish"]


def tokenizer(*without):
    """As T5's, with words as pieces: a blank before a word is a sign of it."""
    words = [f"▁{word}" for word in WORDS if word not in without]
    vocabulary = {piece: n for n, piece in enumerate(["<pad>", "</s>", "<unk>", "▁", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace("  ", " ")
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **specials)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("t5")
    config = T5Config(
        vocab_size=len(tokenizer()),
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        initializer_factor=3.0,
        decoder_start_token_id=0,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
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
