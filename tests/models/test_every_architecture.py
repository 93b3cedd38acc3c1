"""Every text model that transformers lists: made into a ranker, saved and loaded again, or refused
by one sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from whole_words import GROUPED, WORDS, word_tokenizer

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.factory import cross_encoder
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer

LISTED = sorted({**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **MODEL_FOR_MASKED_LM_MAPPING_NAMES})
QUICK = {"bert", "gpt2", "llama"}
"""An encoder and two decoders, which are tried with every change."""
SMALL = {
    **GROUPED,
    "vocab_size": len(WORDS),
    "head_dim": 8,
    "max_position_embeddings": 40,
    "rotary_dim": 4,
    "prompt_types": 3,
    "prompt_length": 1,
    "mamba_d_ssm": 64,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_chunk_size": 8,
    "pad_token_id": 0,
}
LARGEST = 5_000_000
"""Parameters of a network that is still small."""


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer()


def small_configuration(name: str) -> PreTrainedConfig:
    """Skips the test where the options of :data:`SMALL` make no small network of that kind."""
    try:
        usual = AutoConfig.for_model(name)
        if usual.is_encoder_decoder or usual.get_text_config() is not usual:
            pytest.skip("no text model by itself")
        # Falcon has a head size that nobody may set.
        fixed = isinstance(getattr(type(usual), "head_dim", None), property)
        options = {option: value for option, value in SMALL.items() if hasattr(usual, option)}
        if fixed:
            del options["head_dim"]
        config = AutoConfig.for_model(name, **options)
        with torch.device("meta"):
            size = sum(
                parameter.numel() for parameter in AutoModel.from_config(config).parameters()
            )
    except Exception as error:  # whatever a configuration of the library does not like
        pytest.skip(f"these options do not fit: {error}")
    if size > LARGEST:
        pytest.skip(f"{size} parameters")
    return config


@torch.no_grad()
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LISTED],
)
def test_a_ranker_of_every_listed_kind_is_made_and_loaded_or_refused(
    name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    config = small_configuration(name)
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    try:
        ranker = cross_encoder(tokenizer, name=str(tmp_path / "model")).eval()
    except ValueError as refusal:
        message = str(refusal)
    else:
        message = ""
    if message:
        assert f"a backbone of type '{name}' " in message
        assert "AttributeError" not in message, "an attribute that we took for granted"
        return
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 24)
    batch = PackedBatch.from_sequences(pair_tokenizer.pairs("w2 w3", ["w1 w4", "w5 w5 w6 w7"]))
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    loaded, _ = load_ranker(tmp_path / "ranker")
    torch.testing.assert_close(
        loaded.eval()(batch).scores, ranker(batch).scores, atol=1e-5, rtol=1e-5
    )
