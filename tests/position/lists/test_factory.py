"""Causal language models to train as listwise rankers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from backpack_rank.position.lists.factory import new_causal_lm, pretrained_causal_lm


def test_a_new_model_has_the_tokenizer_s_vocabulary_and_tied_embeddings(tokenizer) -> None:
    model = new_causal_lm(tokenizer, layers=2, hidden_size=32, heads=2, positions=64)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 32)
    assert (len(model.model.layers), model.config.max_position_embeddings) == (2, 64)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.training
    with pytest.raises(
        ValueError, match=r"model\.ranker\.hidden_size=36 must be a multiple of 2 x heads=4"
    ):
        new_causal_lm(tokenizer, hidden_size=36, heads=4)


def test_a_pretrained_model_keeps_its_weights_in_the_format_asked_for(
    tokenizer, tmp_path: Path
) -> None:
    pretrained = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, n_positions=64)
    )
    pretrained.half().save_pretrained(tmp_path)
    for dtype in ("float32", "bfloat16"):
        model = pretrained_causal_lm(tokenizer, name=str(tmp_path), dtype=dtype)
        assert model.training
        assert str(model.dtype) == f"torch.{dtype}"
        assert torch.allclose(
            model.transformer.wte.weight.float(),
            pretrained.transformer.wte.weight.float(),
            atol=1e-2,
        )
    with pytest.raises(ValueError, match="dtype=float16"):
        pretrained_causal_lm(tokenizer, name=str(tmp_path), dtype="float16")


def test_a_tokenizer_of_another_model_is_refused(tokenizer, tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=2)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match=r"embeddings for 50: .*model\.tokenizer\.name"):
        pretrained_causal_lm(tokenizer, name=str(tmp_path))
