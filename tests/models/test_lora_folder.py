"""LoRA adapters: scores are those of peft's own merged model; what cannot be read says why."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from foreign_rankers import bert, xlm_roberta
from foreign_rankers import saved as save
from prompted_models import PAIRS, qwen3_card, save_model
from ranker_checks import assert_the_dial_acts, padded_logits
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
)

from backpack_rank.files import resource_folder
from backpack_rank.models.finding import ranker_folder
from backpack_rank.reranking.load import load

peft = pytest.importorskip("peft")

DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20]
PAIRS_OF_WORDS = [("the doctor saw", document) for document in DOCUMENTS]


@torch.no_grad()
def draw_adapter(model):
    """Large random weights in place of those of a new adapter."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            parameter.copy_(torch.randn_like(parameter) * 0.3)


def adapt(model, folder, **options):
    """Save an adapter of a model, with large random weights, as peft does."""
    config = peft.LoraConfig(r=4, lora_alpha=6, **options)
    adapted = peft.get_peft_model(model, config)
    draw_adapter(adapted)
    adapted.save_pretrained(folder)
    return folder


def merged_by_peft(folder, model):
    """The base model with the adapter of a folder merged by peft itself."""
    return peft.PeftModel.from_pretrained(model, folder).merge_and_unload().eval()


def logits_of(model, tokenizer) -> np.ndarray:
    return padded_logits(model, tokenizer, PAIRS_OF_WORDS)[:, 0]


def scores_of(folder):
    return load(folder).predict(PAIRS_OF_WORDS)


def bert_body(folder):
    """A BERT without a head, and its tokenizer."""
    model, tokenizer = bert()
    torch.manual_seed(0)
    BertModel(model.config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture
def adapter_of_a_body(tmp_path):
    """An adapter with a head of one label, for a BERT without a head; and its tokenizer."""
    tokenizer = bert_body(tmp_path / "base")
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=1)
    return adapt(base, tmp_path / "adapter", task_type="SEQ_CLS"), tokenizer


def test_an_adapter_with_a_head_is_merged_into_a_body(adapter_of_a_body, tmp_path):
    folder, tokenizer = adapter_of_a_body
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=1)
    expected = logits_of(merged_by_peft(folder, base), tokenizer)
    scores = scores_of(folder)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.ptp(scores) > 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"task_type": "SEQ_CLS"},
        {"task_type": "SEQ_CLS", "use_rslora": True},
        {"task_type": "SEQ_CLS", "use_dora": True, "target_modules": "all-linear"},
        {"target_modules": ["query", "dense"], "rank_pattern": {"query": 2}},
    ],
    ids=["task", "rslora", "dora", "no task"],
)
@pytest.mark.parametrize("make", [bert, xlm_roberta])
def test_an_adapter_is_merged_into_a_classifier(tmp_path, make, options):
    model, tokenizer = save(make, tmp_path / "base")
    without = logits_of(model, tokenizer)
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    folder = adapt(base, tmp_path / "adapter", **options)
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    expected = logits_of(merged_by_peft(folder, base), tokenizer)
    assert np.abs(expected - without).max() > 0.01
    np.testing.assert_allclose(scores_of(folder), expected, atol=1e-5)


def test_a_head_may_have_another_number_of_labels_than_that_of_the_base_model(tmp_path):
    model, tokenizer = bert()
    model.config.num_labels = 3
    type(model)(model.config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")

    def base():
        return AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "base", num_labels=1, ignore_mismatched_sizes=True
        )

    folder = adapt(base(), tmp_path / "adapter", task_type="SEQ_CLS")
    expected = logits_of(merged_by_peft(folder, base()), tokenizer)
    np.testing.assert_allclose(scores_of(folder), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("template_in", ["adapter", "base", "call"])
def test_an_adapter_is_merged_into_a_language_model(tmp_path, template_in):
    save_model("Qwen3", tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    folder = adapt(base, tmp_path / "adapter", task_type="CAUSAL_LM", target_modules="all-linear")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    merged = merged_by_peft(folder, base)
    merged.save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(tmp_path / "base").save_pretrained(tmp_path / "merged")
    template = "qwen3_reranker"
    if template_in != "call":
        file = resource_folder("conf") / "template" / "qwen3_reranker.yaml"
        shutil.copy(file, tmp_path / template_in / "reranker_template.yaml")
        template = None
    scores = load(folder, template=template).predict(PAIRS)
    np.testing.assert_allclose(scores, qwen3_card(tmp_path / "merged", PAIRS), atol=1e-5)
    assert np.abs(scores - qwen3_card(tmp_path / "base", PAIRS)).max() > 0.01


def test_the_tokenizer_beside_the_adapter_is_read(adapter_of_a_body, tmp_path):
    folder, tokenizer = adapter_of_a_body
    expected = scores_of(folder)
    shutil.rmtree(tmp_path / "adapter" / "tokenizer", ignore_errors=True)
    tokenizer.save_pretrained(folder)
    (tmp_path / "base" / "tokenizer.json").unlink()
    (tmp_path / "base" / "tokenizer_config.json").unlink()
    assert scores_of(folder).tolist() == expected.tolist()


def test_the_base_model_may_be_named_from_the_adapters_folder(adapter_of_a_body):
    folder, _ = adapter_of_a_body
    expected = scores_of(folder)
    change(folder, base_model_name_or_path="../base")
    assert scores_of(folder).tolist() == expected.tolist()


def test_the_dial_acts(adapter_of_a_body):
    folder, _ = adapter_of_a_body
    assert ranker_folder(folder, "checkpoint") == folder
    assert_the_dial_acts(load(folder))


def change(folder, **settings):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


CHANGES = {
    "no base": ({"base_model_name_or_path": None}, "names no base model"),
    "missing folder": (
        {"base_model_name_or_path": "/nowhere/base"},
        r"base model /nowhere/base is not on this machine",
    ),
    "another task": ({"task_type": "TOKEN_CLS"}, "an adapter of a BertModel is no ranker"),
    "another rank": ({"r": 5}, "its adapter does not fit the base model"),
    "a huge rank": ({"r": 10**9}, r"r=1000000000 must be a whole number from 1 to 16384"),
    "code": ({"megatron_config": {"a": 1}}, "megatron_config is not read here"),
    "a newer option": ({"use_magic": True}, r"does not know use_magic=True.*take a newer peft"),
    "other layers": ({"target_modules": ["key"]}, "does not fit|lacks weights|no place for"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_cannot_be_read_is_refused(adapter_of_a_body, name):
    folder, _ = adapter_of_a_body
    settings, message = CHANGES[name]
    change(folder, **settings)
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_an_adapter_without_weights_is_refused(adapter_of_a_body):
    folder, _ = adapter_of_a_body
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors is missing"):
        load(folder)


def test_an_adapter_without_a_head_needs_a_classifier(tmp_path):
    bert_body(tmp_path / "base")
    base = BertModel.from_pretrained(tmp_path / "base")
    folder = adapt(base, tmp_path / "adapter", task_type="FEATURE_EXTRACTION")
    with pytest.raises(ValueError, match=r"an adapter of a BertModel is no ranker"):
        load(folder)
    change(folder, task_type="SEQ_CLS")
    with pytest.raises(ValueError, match=r"labels|lacks weights"):
        load(folder)


def test_peft_is_asked_for_where_it_is_missing(adapter_of_a_body, monkeypatch):
    folder, _ = adapter_of_a_body
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"reading it needs peft: pip install '\.\[lora\]'"):
        load(folder)


def test_a_cross_encoder_of_sentence_transformers_with_an_adapter(tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import CrossEncoder

    save(bert, tmp_path / "base")
    model = CrossEncoder(str(tmp_path / "base"), device="cpu")
    model.add_adapter(peft.LoraConfig(r=4, task_type="SEQ_CLS", target_modules=["query", "value"]))
    draw_adapter(model)
    expected = model.predict(PAIRS_OF_WORDS, activation_fn=torch.nn.Identity())
    model.save_pretrained(str(tmp_path / "adapter"))
    np.testing.assert_allclose(scores_of(tmp_path / "adapter"), expected, atol=1e-5)
