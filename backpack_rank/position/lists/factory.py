"""Making causal language models to train as listwise rankers.

They are new ones of a given size, and any pretrained one.
"""

from __future__ import annotations

from typing import Annotated, Any

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from backpack_rank.constructors import Layers, Name, OneOf, PathText, Positions, Spread, Width
from backpack_rank.data.pretrained import from_pretrained
from backpack_rank.models.utils import DTYPES, backbone_dtype

_MASKED = "ForMaskedLM"


def new_causal_lm(
    tokenizer: PreTrainedTokenizerBase,
    *,
    layers: Layers = 3,
    hidden_size: Width = 64,
    heads: Layers = 4,
    positions: Positions = 2048,
    initializer_range: Spread = 0.06,
) -> LlamaForCausalLM:
    """Train a small listwise ranker from random weights, a model of Llama's kind.

    It has the tokenizer's vocabulary and is in training mode. Positions are rotary and the output
    embeddings are the input embeddings. The inner layers are three times as wide.

    Raises:
        ValueError: ``heads`` does not divide ``hidden_size`` into parts of even size.
    """
    if heads < 1 or hidden_size % (2 * heads):
        raise ValueError(
            f"model.ranker.hidden_size={hidden_size} must be a multiple of 2 x heads={heads}"
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=positions,
        initializer_range=initializer_range,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config).train()


def pretrained_causal_lm(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: PathText,
    dtype: Annotated[str, OneOf(DTYPES)] = "float32",
    attention: Name | None = None,
) -> PreTrainedModel:
    """Train any causal language model as a listwise ranker.

    It is in training mode. An encoder such as BERT reads from left to right from here on.

    Args:
        name: hub id or folder.
        dtype: number format of the weights, ``float32`` or ``bfloat16``; the latter with
            ``adapter=lora`` only.
        attention: implementation of attention; None takes the default of transformers.

    Raises:
        ValueError: it is no language model, or the tokenizer has more tokens than it.
    """
    config = from_pretrained(AutoConfig, name)
    if any(str(name).endswith(_MASKED) for name in config.architectures or ()):
        config.is_decoder = True
    options: dict[str, Any] = {} if attention is None else {"attn_implementation": attention}
    model: PreTrainedModel = from_pretrained(
        AutoModelForCausalLM, name, config=config, dtype=backbone_dtype(dtype), **options
    )
    size = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    if len(tokenizer) > size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, but {name} has embeddings for {size}: "
            "give the tokenizer that belongs to these weights (model.tokenizer.name)"
        )
    return model.train()
