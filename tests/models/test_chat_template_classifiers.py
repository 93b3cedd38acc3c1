"""Classifiers whose tokenizers have a chat template are read as CrossEncoder reads them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chat_classifiers import QUERY, TEMPLATES, classifier
from prompted_models import PAIRS, qwen_tokenizer
from ranker_checks import assert_the_dial_acts
from transformers import AutoModelForSequenceClassification

from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import CrossEncoder

# What transformers and sentence-transformers leave to the tokenizer: texts that begin or end with
# signs are cut into tokens with the signs of a template beside them.
WORDS = [
    ("who cures?", "he saw a nurse."),
    ("a nurse or a doctor", "bread and fish"),
    ("who cures?", "she saw a nurse.\nhe saw bread!"),
    ("Query", "a doctor saw 3 fish; and a nurse"),
]


def expected_of(folder, pairs=WORDS) -> np.ndarray:
    model = CrossEncoder(str(folder), device="cpu")
    return model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)


@pytest.mark.parametrize("kind", ["Qwen3", "Qwen2", "Llama", "Gemma", "BERT"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_scores_are_those_of_cross_encoder(tmp_path, name, kind):
    folder = classifier(kind, tmp_path / "plain", TEMPLATES[name])
    expected = expected_of(folder)
    scores = load(folder).predict(WORDS)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert np.ptp(scores) > 1e-3
    # And as sentence-transformers saves it, with its settings beside it.
    CrossEncoder(str(folder), device="cpu").save_pretrained(str(tmp_path / "saved"))
    np.testing.assert_allclose(load(tmp_path / "saved").predict(WORDS), expected, atol=1e-4)


def test_whatever_the_texts_where_special_tokens_stand_around_them(tmp_path):
    folder = classifier("Qwen3", tmp_path, TEMPLATES["query first"])
    np.testing.assert_allclose(load(folder).predict(PAIRS), expected_of(folder, PAIRS), atol=1e-4)


def test_the_prompt_of_the_folder_is_a_system_message(tmp_path):
    folder = classifier("Qwen3", tmp_path / "plain", TEMPLATES["query first"])
    model = CrossEncoder(
        str(folder), device="cpu", prompts={"judge": "Yes or no?"}, default_prompt_name="judge"
    )
    model.save_pretrained(str(tmp_path / "saved"))
    expected = expected_of(tmp_path / "saved")
    np.testing.assert_allclose(load(tmp_path / "saved").predict(WORDS), expected, atol=1e-4)
    assert np.abs(expected - expected_of(folder)).max() > 1e-3


def test_without_a_template_texts_are_joined(tmp_path):
    folder = classifier("Qwen3", tmp_path, None)
    np.testing.assert_allclose(load(folder).predict(WORDS), expected_of(folder), atol=1e-4)


def test_a_long_document_is_cut_and_the_prompt_behind_it_stays(tmp_path):
    folder = classifier("Qwen3", tmp_path, TEMPLATES["query first"])
    pairs = [("who cures?", "he saw a nurse. " * 400), ("who cures?", "bread " * 600)]
    np.testing.assert_allclose(load(folder).predict(pairs), expected_of(folder, pairs), atol=1e-4)


def test_a_long_document_leaves_a_query_behind_it_alone(tmp_path):
    reranker = load(classifier("Qwen3", tmp_path, TEMPLATES["document first"]))
    document = "he saw a nurse. " * 400
    first, second = reranker.predict([("who cures?", document), ("bread and fish", document)])
    assert abs(first - second) > 1e-3


def test_a_template_that_is_given_counts_more(tmp_path):
    folder = classifier("Qwen3", tmp_path, TEMPLATES["document first"])
    template = PromptTemplate(
        ["<|im_start|>", "user\nQuery: {query}\nDocument: {document}", "<|im_end|>"], "yes"
    )
    scores = load(folder, template=template).predict(WORDS)
    tokenizer = qwen_tokenizer()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    for (query, document), score in zip(WORDS, scores, strict=True):
        text = f"<|im_start|>user\nQuery: {query}\nDocument: {document}<|im_end|>"
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            assert score == pytest.approx(model(ids).logits.item(), abs=1e-4)
    assert load(folder, template="qwen3_reranker").predict(WORDS).shape == (4,)


def test_the_dial_acts(tmp_path):
    reranker = load(classifier("Qwen3", tmp_path, TEMPLATES["document first"]))
    assert_the_dial_acts(reranker)


@pytest.mark.parametrize(
    "chat",
    [
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
        "{% if messages[0].role != 'user' %}{{ raise_exception('roles') }}{% endif %}",
        TEMPLATES["query first"].replace(QUERY, QUERY.replace(".content", ".content | upper")),
    ],
    ids=["no pair", "other roles", "changed texts"],
)
def test_a_template_without_both_texts_is_refused_with_what_to_do(tmp_path, chat):
    folder = classifier("Qwen3", tmp_path, chat)
    with pytest.raises(ValueError, match=r"its chat template.*run=FILE"):
        load(folder)
