"""Cross-encoders in modules: their scores are those of sentence-transformers, which saved them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from foreign_rankers import WORDS, tokenizer_of
from transformers import (
    AutoModel,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    Qwen3Config,
    RobertaConfig,
    XLMRobertaConfig,
)

from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.modules import Dense
from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize, Pooling

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
QUERIES = ["the doctor saw", "he saw a nurse and a doctor and bread and fish " * 3]
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "she"]
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]


def bert_tokenizer():
    return tokenizer_of(
        BERT_TOKENS,
        "[CLS] $A [SEP]|[CLS] $A [SEP] $B:1 [SEP]:1",
        *("input_ids", "token_type_ids", "attention_mask"),
    )


def bert_tokenizer_without_types():
    return tokenizer_of(
        BERT_TOKENS, "[CLS] $A [SEP]|[CLS] $A [SEP] $B [SEP]", "input_ids", "attention_mask"
    )


def roberta_tokenizer():
    return tokenizer_of(
        ROBERTA_TOKENS, "<s> $A </s>|<s> $A </s> </s> $B </s>", "input_ids", "attention_mask"
    )


def scores_of(width: int, activation: torch.nn.Module | None = None) -> Dense:
    return Dense(
        width, 1, activation_function=activation or torch.nn.Identity(), module_output_name="scores"
    )


# Each shape: the transformer's configuration, its tokenizer, and what stands behind it.
SHAPES = {
    "BERT, first token": lambda: (
        BertConfig(max_position_embeddings=32, **SIZES),
        bert_tokenizer(),
        [Pooling(16, "cls"), scores_of(16)],
    ),
    "ModernBERT, as Ettin rerankers": lambda: (
        ModernBertConfig(
            max_position_embeddings=64,
            local_attention=8,
            global_attn_every_n_layers=2,
            cls_token_id=1,
            sep_token_id=2,
            **{**SIZES, "num_hidden_layers": 3},
        ),
        bert_tokenizer_without_types(),
        [
            Pooling(16, "cls"),
            Dense(16, 16, bias=False, activation_function=torch.nn.GELU()),
            LayerNorm(16),
            scores_of(16),
        ],
    ),
    "XLM-R, mean": lambda: (
        XLMRobertaConfig(max_position_embeddings=26, type_vocab_size=1, **SIZES),
        roberta_tokenizer(),
        [Pooling(16, "mean"), Dense(16, 8), Normalize(), scores_of(8)],
    ),
    "RoBERTa, two kinds of pooling": lambda: (
        RobertaConfig(max_position_embeddings=26, type_vocab_size=1, **SIZES),
        roberta_tokenizer(),
        [Pooling(16, ("max", "mean_sqrt_len_tokens")), scores_of(32, torch.nn.Tanh())],
    ),
    "MPNet, weighted mean": lambda: (
        MPNetConfig(max_position_embeddings=26, **SIZES),
        roberta_tokenizer(),
        [Pooling(16, "weightedmean"), scores_of(16)],
    ),
    "DistilBERT, residual": lambda: (
        DistilBertConfig(
            vocab_size=SIZES["vocab_size"],
            dim=16,
            n_layers=2,
            n_heads=2,
            hidden_dim=24,
            max_position_embeddings=32,
            initializer_range=0.4,
        ),
        bert_tokenizer_without_types(),
        [
            Pooling(16, "mean"),
            Dense(16, 16, use_residual=True),
            Dense(16, 8, use_residual=True),
            scores_of(8),
        ],
    ),
    "DeBERTa, first token": lambda: (
        DebertaV2Config(max_position_embeddings=32, type_vocab_size=0, **SIZES),
        bert_tokenizer_without_types(),
        [Pooling(16, "cls"), scores_of(16)],
    ),
    "Qwen3, last token": lambda: (
        Qwen3Config(
            num_key_value_heads=1, head_dim=8, max_position_embeddings=64, eos_token_id=2, **SIZES
        ),
        roberta_tokenizer(),
        [Pooling(16, "lasttoken"), scores_of(16)],
    ),
}


def save_shape(name, folder, activation=None, **options):
    """A cross-encoder of that shape with large random weights, saved by its library."""
    from sentence_transformers.base.modules import Transformer

    torch.manual_seed(0)
    config, tokenizer, modules = SHAPES[name]()
    AutoModel.from_config(config).save_pretrained(folder / "transformer")
    tokenizer.save_pretrained(folder / "transformer")
    transformer = Transformer(str(folder / "transformer"), **options)
    model = CrossEncoder(modules=[transformer, *modules], activation_fn=activation, device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(str(folder / "ranker"))
    return folder / "ranker"


@pytest.fixture(params=SHAPES)
def saved(request, tmp_path):
    """The folder of a cross-encoder of each shape."""
    return save_shape(request.param, tmp_path)


def predicted(folder, pairs=PAIRS):
    """Scores by sentence-transformers."""
    return CrossEncoder(str(folder), device="cpu").predict(pairs, show_progress_bar=False)


def test_scores_are_those_of_sentence_transformers(saved):
    scores = load(saved).predict(PAIRS)
    np.testing.assert_allclose(scores, predicted(saved), atol=1e-5)
    assert np.ptp(scores) > 0.02


@pytest.mark.parametrize("activation", [torch.nn.Identity(), torch.nn.Sigmoid(), torch.nn.Tanh()])
def test_the_saved_activation_is_put_on_the_scores(tmp_path, activation):
    folder = save_shape("BERT, first token", tmp_path, activation)
    np.testing.assert_allclose(load(folder).predict(PAIRS), predicted(folder), atol=1e-5)


def test_texts_are_cut_where_the_folder_says(tmp_path):
    folder = save_shape("BERT, first token", tmp_path, max_seq_length=12)
    reranker = load(folder)
    np.testing.assert_allclose(reranker.predict(PAIRS), predicted(folder), atol=1e-5)
    long, longer = reranker.predict([("he saw", "bread " * 8), ("he saw", "bread " * 8 + "fish")])
    assert long == longer
