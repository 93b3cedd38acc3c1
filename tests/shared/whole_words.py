"""Small pretrained models as the hub would give them, and a vocabulary of whole words."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

WORDS = ["<pad>", "<unk>", "<s>", "</s>", *(f"w{number}" for number in range(26))]
DOCUMENTS = ["w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12", "w7", "", "w3 w3 w9 w1"]
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
GROUPED = {**SHAPE, "num_key_value_heads": 2, "bos_token_id": 2, "eos_token_id": 3}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
COMMON = {
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}


def word_tokenizer(template: str = "", **special: str) -> PreTrainedTokenizerFast:
    """A tokenizer that knows the words.

    Args:
        template: what a text becomes, such as ``<s> $A``.
        special: names of tokens, in place of those of :data:`SPECIAL` and the end of a text.
    """
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        backend.post_processor = TemplateProcessing(
            single=template, special_tokens=[("<s>", 2), ("</s>", 3)]
        )
    special = special or {**SPECIAL, "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def save_backbone(folder: Path, tokenizer: PreTrainedTokenizerFast, kind: str, **options) -> Path:
    """A model of that kind with random weights, beside its tokenizer, which may be any."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), **{**COMMON, **options})
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
