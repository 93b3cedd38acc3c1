"""Language models behind LogitScore: scores are those of sentence-transformers, which saved them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from prompted_models import PAIRS, save_model
from ranker_checks import assert_the_dial_acts
from transformers import AutoTokenizer

from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore

FIRST = 'map(attribute="content") | first'
CHAT = (
    "{%- for message in messages if message.role == 'system' -%}"
    "<|im_start|>system\n{{ message.content }}<|im_end|>\n{% endfor -%}"
    "<|im_start|>user\n"
    f'<Query>: {{{{ messages | selectattr("role", "eq", "query") | {FIRST} }}}}\n'
    f'<Document>: {{{{ messages | selectattr("role", "eq", "document") | {FIRST} }}}}<|im_end|>\n'
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
SHAPES = {
    "two texts joined": ("Qwen3", None, {}),
    "chat template": ("Qwen3", CHAT, {}),
    "chat template of Gemma": ("Gemma", CHAT, {}),
    "one logit": ("Qwen2", CHAT, {"one_logit": True}),
    "a prompt before every query": ("Qwen3", CHAT, {"prompt": "Judge the document."}),
    "no activation": ("Qwen3", CHAT, {"activation_fn": torch.nn.Identity()}),
    "tanh, capped logits": ("Gemma2", CHAT, {"activation_fn": torch.nn.Tanh()}),
    "cut texts": ("Qwen3", CHAT, {"max_seq_length": 60}),
    "cut texts, joined": ("Qwen3", None, {"max_seq_length": 20}),
}


def save_shape(folder, kind, chat, one_logit=False, prompt=None, max_seq_length=None, **options):
    """A model of that shape, saved by sentence-transformers."""
    base = save_model(kind, folder / "base")
    if chat is not None:
        tokenizer = AutoTokenizer.from_pretrained(base)
        tokenizer.chat_template = chat
        tokenizer.save_pretrained(base)
    transformer = Transformer(
        str(base), transformer_task="text-generation", max_seq_length=max_seq_length
    )
    yes, no = transformer.tokenizer.convert_tokens_to_ids(["yes", "no"])
    if prompt is not None:
        options |= {"prompts": {"judge": prompt}, "default_prompt_name": "judge"}
    modules = [transformer, LogitScore(yes, None if one_logit else no)]
    model = CrossEncoder(modules=modules, device="cpu", **options)
    model.save_pretrained(str(folder / "ranker"))
    return folder / "ranker"


@pytest.mark.parametrize("name", SHAPES)
def test_scores_are_those_of_predict(tmp_path, name):
    kind, chat, options = SHAPES[name]
    folder = save_shape(tmp_path, kind, chat, **options)
    expected = CrossEncoder(str(folder), device="cpu").predict(PAIRS, show_progress_bar=False)
    scores = load(folder).predict(PAIRS)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.ptp(scores) > 0.01


def test_the_dial_acts(tmp_path):
    assert_the_dial_acts(load(save_shape(tmp_path, "Qwen3", CHAT)))


def test_a_template_that_is_given_counts_more(tmp_path):
    folder = save_shape(tmp_path, "Qwen3", None)
    given = load(folder, template="qwen3_reranker").predict(PAIRS)
    assert np.abs(given - load(folder).predict(PAIRS)).max() > 0.01


def changed(file, **settings):
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def other_template(folder, text):
    (folder / "chat_template.jinja").write_text(text)


MISTAKES = {
    "no answer": (
        lambda folder: (folder / "1_LogitScore" / "config.json").write_text("{}"),
        "has no true_token_id",
    ),
    "no such token": (
        lambda folder: changed(folder / "1_LogitScore" / "config.json", true_token_id=10**6),
        "no token of number true_token_id=1000000",
    ),
    "another task": (
        lambda folder: changed(
            folder / "sentence_bert_config.json", transformer_task="feature-extraction"
        ),
        "with transformer_task=text-generation.*rank with sentence-transformers itself",
    ),
    "no place for the document": (
        lambda folder: other_template(folder, CHAT.replace('"document"', '"other"')),
        "its chat template gives no prompt with one place for the query and one for the document",
    ),
    "texts in capitals": (
        lambda folder: other_template(folder, CHAT.replace("| first", "| first | upper")),
        "its chat template",
    ),
    "an unknown prompt": (
        lambda folder: changed(
            folder / "config_sentence_transformers.json", default_prompt_name="judge"
        ),
        "default_prompt_name=judge is none of its prompts",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_read_is_refused(tmp_path, name):
    mistake, message = MISTAKES[name]
    folder = save_shape(tmp_path, "Qwen3", CHAT)
    mistake(folder)
    with pytest.raises(ValueError, match=message):
        load(folder)
