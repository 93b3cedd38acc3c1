"""Small encoders as libraries give them: their configurations and tokenizers of a few words."""

from __future__ import annotations

from foreign_rankers import WORDS, tokenizer_of
from transformers import (
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    XLMRobertaConfig,
)

BERT_TOKENS = {
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}
ROBERTA_TOKENS = {
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "bos_token": "<s>",
    "sep_token": "</s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
SIZES = {
    "vocab_size": len(WORDS) + 4,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.4,
    "pad_token_id": 0,
}
# Positions begin behind that of padding.
BEHIND_PADDING = {**SIZES, "max_position_embeddings": 26}


def bert() -> BertConfig:
    return BertConfig(max_position_embeddings=32, **SIZES)


def modern_bert() -> ModernBertConfig:
    return ModernBertConfig(
        max_position_embeddings=64,
        local_attention=8,
        global_attn_every_n_layers=2,
        cls_token_id=1,
        sep_token_id=2,
        **{**SIZES, "num_hidden_layers": 3},
    )


def xlm_roberta() -> XLMRobertaConfig:
    return XLMRobertaConfig(type_vocab_size=1, **BEHIND_PADDING)


def mpnet() -> MPNetConfig:
    return MPNetConfig(**BEHIND_PADDING)


def distilbert() -> DistilBertConfig:
    return DistilBertConfig(
        vocab_size=SIZES["vocab_size"],
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=24,
        max_position_embeddings=32,
        initializer_range=0.4,
    )


def qwen3() -> Qwen3Config:
    return Qwen3Config(
        num_key_value_heads=1, head_dim=8, max_position_embeddings=64, eos_token_id=2, **SIZES
    )


def bert_tokenizer(**more: str) -> PreTrainedTokenizerFast:
    """Pairs have token types.

    Args:
        more: names of tokens beside those of BERT.
    """
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    template = "[CLS] $A [SEP]|[CLS] $A [SEP] $B:1 [SEP]:1"
    return tokenizer_of({**BERT_TOKENS, **more}, template, *inputs)


def bert_tokenizer_without_types(**more: str) -> PreTrainedTokenizerFast:
    template = "[CLS] $A [SEP]|[CLS] $A [SEP] $B [SEP]"
    return tokenizer_of({**BERT_TOKENS, **more}, template, "input_ids", "attention_mask")


def roberta_tokenizer(single: str = "<s> $A </s>") -> PreTrainedTokenizerFast:
    template = f"{single}|{single} </s> $B </s>"
    return tokenizer_of(ROBERTA_TOKENS, template, "input_ids", "attention_mask")
