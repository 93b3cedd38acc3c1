"""A ranker's network as a language model, and the folder it is saved in."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BertConfig

from backpack_rank.models.build import pretrained_backpack
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.language_model import language_model_of, load_language_model, save_language_model
from backpack_rank.models.ranker import BackpackForRanking


@torch.no_grad()
def test_a_language_model_has_the_rankers_network(make_backpack):
    ranker = make_backpack()
    model = language_model_of(ranker)
    assert model.training
    ids = torch.tensor([[5, 9, 300, 9, 7]])
    assert torch.allclose(model.eval()(ids).logits, ranker.lm_logits(ids), atol=1e-5)
    assert model.lm_head.weight is model.backpack.get_input_embeddings().weight


def test_gpt2_is_no_backpack(make_gpt2):
    with pytest.raises(ValueError, match="GPT2ForRanking is none: use model=backpack_tiny"):
        language_model_of(make_gpt2())


def test_an_encoder_is_no_language_model():
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BackpackConfig(backbone_config=BertConfig(vocab_size=40, **shape), num_senses=4)
    with pytest.raises(ValueError, match="'bert' reads in both directions, so it is no language model"):
        language_model_of(BackpackForRanking(config))


@torch.no_grad()
def test_its_folder_is_loaded_by_transformers_and_starts_a_ranker(make_backpack, tokenizer, tmp_path):
    model = language_model_of(make_backpack()).eval()
    save_language_model(tmp_path / "lm", model, tokenizer, {"perplexity": 12.5})
    assert json.loads((tmp_path / "lm" / "training.json").read_text()) == {"perplexity": 12.5}
    ids = torch.tensor([[5, 9, 300, 9, 7]])
    expected = model(ids).logits
    own, own_tokenizer = load_language_model(tmp_path / "lm")
    for loaded in (own, AutoModelForCausalLM.from_pretrained(tmp_path / "lm")):
        assert torch.equal(loaded(ids).logits, expected)
    text = " the doctor said"
    assert own_tokenizer(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert AutoTokenizer.from_pretrained(tmp_path / "lm")(text)["input_ids"] == tokenizer(text)["input_ids"]
    ranker = pretrained_backpack(own_tokenizer, name=str(tmp_path / "lm")).eval()
    assert torch.equal(ranker.backpack.senses(ids), model.backpack.senses(ids))
