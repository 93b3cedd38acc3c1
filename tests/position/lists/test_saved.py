"""Folders of listwise rankers."""

from __future__ import annotations

import json

import pytest
import torch
from causal_example import MODELS, WIDE, llama, prompt_file
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    T5Config,
    T5ForConditionalGeneration,
)

from backpack_rank.models.number_formats import computes_in_bf16
from backpack_rank.position.lists.causal_lm import CausalLmRanker
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import PromptTokenizer
from backpack_rank.position.lists.saved import is_listwise, load_listwise, save_listwise


@pytest.fixture
def folder(tmp_path, tokenizer):
    folder = tmp_path / "ranker"
    save_listwise(folder, llama(tokenizer), tokenizer, prompt_file("plain"), "generate", 8, 256)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_ranker_comes_back_the_same(name, tokenizer, sentences, tmp_path):
    model, prompt = MODELS[name](tokenizer), prompt_file("first", chat=False)
    save_listwise(tmp_path / "ranker", model, tokenizer, prompt, "first_token", 8)
    loaded = load_listwise(tmp_path / "ranker", device="cpu")
    assert (loaded.mode, loaded.passages) == ("first_token", 8)
    assert (loaded.pair_tokenizer.max_length, loaded.pair_tokenizer.prompt) == (512, prompt)
    shown = PassageList("doctor", sentences)
    ranker = CausalLmRanker(model, PromptTokenizer(tokenizer, prompt, 512), device="cpu")
    assert loaded.rank([shown])[0].scores == pytest.approx(ranker.rank([shown])[0].scores, abs=1e-5)
    language_model = AutoModelForCausalLM.from_pretrained(tmp_path / "ranker")
    assert language_model.config.vocab_size == len(tokenizer)


def test_settings_of_the_folder_hold_unless_others_are_given(folder):
    loaded = load_listwise(str(folder), device="cpu")
    assert (loaded.mode, loaded.name) == ("generate", "listwise LM")
    assert loaded.pair_tokenizer.max_length == 256
    prompt = prompt_file("plain", identifiers="alphabetic")
    options = {"mode": "first_token", "max_length": 128, "dtype": "bfloat16", "device": "cpu"}
    other = load_listwise(folder, prompt=prompt.as_dict(), **options)
    assert other.mode == "first_token"
    assert (other.pair_tokenizer.max_length, other.pair_tokenizer.prompt) == (128, prompt)
    assert other.model.dtype == torch.bfloat16
    fast = torch.bfloat16 if computes_in_bf16(cpu=True) else torch.float32
    assert load_listwise(folder, dtype="auto", device="cpu").model.dtype == fast


def test_any_folder_of_a_language_model_ranks_with_a_prompt(folder, sentences):
    (folder / "listwise.json").unlink()
    assert not is_listwise(folder)
    message = r"has no listwise.json, so a prompt is needed: .*prompt=rank_zephyr"
    with pytest.raises(ValueError, match=message):
        load_listwise(folder)
    ranker = load_listwise(folder, prompt=prompt_file("plain"), device="cpu")
    assert (ranker.mode, ranker.passages, ranker.name) == ("first_token", None, "ranker")
    assert ranker.pair_tokenizer.max_length == 512
    assert sorted(ranker.rank([PassageList("soup", sentences)])[0].order) == list(range(8))


def test_an_interrupted_save_leaves_the_old_folder(folder, tokenizer, monkeypatch):
    before = (folder / "listwise.json").read_text()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(tokenizer, "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        save_listwise(folder, llama(tokenizer), tokenizer, prompt_file("first"), "first_token", 4)
    assert (folder / "listwise.json").read_text() == before
    assert is_listwise(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["ranker"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "pairwise"}, "listwise ranker: mode=pairwise"),
        ({"version": 2}, r"listwise.json is of version 2, and this package reads version 1"),
        ({"format": "other"}, "does not describe a listwise ranker"),
        ({"prompt": {"name": "p"}}, "a prompt needs prefix, passage"),
        ({"max_length": 4000}, "max_length=4000 exceeds the model's 512 positions"),
    ],
)
def test_wrong_settings_are_named(settings, message, folder):
    file = folder / "listwise.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    with pytest.raises(ValueError, match=message):
        load_listwise(folder, device="cpu")


def test_a_broken_settings_file_is_named(folder):
    (folder / "listwise.json").write_text("{")
    with pytest.raises(ValueError, match=r"listwise.json is damaged, copy it again"):
        load_listwise(folder)


def test_a_folder_without_tokenizer_or_model_is_named(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing: put back what was saved"):
        load_listwise(folder)
    (folder / "checksums.json").unlink()
    message = "has no tokenizer: save the one that belongs to the model into it"
    with pytest.raises(FileNotFoundError, match=message):
        load_listwise(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        load_listwise(folder)


def test_models_that_are_no_causal_ones_are_refused(tmp_path, tokenizer):
    bert = BertModel(BertConfig(vocab_size=len(tokenizer), **WIDE))
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    config = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **sizes)
    t5 = T5ForConditionalGeneration(config)
    for model, message in (
        (bert, "bert reads in both directions"),
        (t5, "model of type 't5', which is no causal language model"),
    ):
        folder = tmp_path / model.config.model_type
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        with pytest.raises(ValueError, match=message):
            load_listwise(folder, prompt=prompt_file("plain"), device="cpu", max_length=128)


def test_an_unknown_dtype_is_named(folder):
    with pytest.raises(ValueError, match="dtype=int8: use one of float32, bfloat16, float16"):
        load_listwise(folder, dtype="int8")
