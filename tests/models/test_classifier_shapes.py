"""Classifiers of every usual shape, with their own tokenizers: scores are those of transformers."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch
from foreign_rankers import saved
from ranker_checks import padded_logits
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    BertTokenizer,
    CamembertConfig,
    DebertaConfig,
    DebertaTokenizer,
    DebertaV2Config,
    DebertaV2Tokenizer,
    DistilBertConfig,
    ElectraConfig,
    Gemma2Config,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    ModernBertConfig,
    MPNetConfig,
    MPNetTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaTokenizer,
)

from backpack_rank.reranking.load import load

WORDS = ["the", "doctor", "saw", "he", "she", "a", "nurse", "bread", "and", "fish", "."]
QUERIES = ["the doctor saw", "he saw a nurse and a doctor and bread and fish " * 4]
DOCUMENTS = ["he saw a nurse.", "she saw a nurse.", "", "bread and fish " * 20, "the nurse? (she)"]
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]
LENGTH = 40
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.4,
    "num_labels": 1,
}
DECODER = {
    **SIZES,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}


def byte_pieces(tokenizer_class):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*QUERIES, *DOCUMENTS], trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    names = {}
    if tokenizer_class is DebertaTokenizer:
        names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
        names |= {"unk_token": "<unk>", "mask_token": "<mask>"}
        names |= {"bos_token": "<s>", "eos_token": "</s>"}
    return tokenizer_class(vocab=model["vocab"], merges=merges, **names)


def unigrams(tokenizer_class, first):
    pieces = [*first, *[f"▁{word}" for word in WORDS], "▁", "?", "(", ")", *"abcdefghijklmnop"]
    vocabulary = [
        (piece, 0.0 if place < len(first) else -2.0) for place, piece in enumerate(pieces)
    ]
    return tokenizer_class(vocab=vocabulary)


def decoder_pieces():
    """A byte-level tokenizer with a start token, as Llama's and Gemma's."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_pieces(RobertaTokenizer).backend_tokenizer
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


def bert_pieces():
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*names, *WORDS, "##s", "?", "(", ")"]
    return BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})


def pieces_without_types():
    tokenizer = bert_pieces()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer


def mpnet_pieces():
    names = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    pieces = [*names, *WORDS, "?", "(", ")"]
    return MPNetTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})


MODERN = {
    "max_position_embeddings": LENGTH,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
}
# Positions begin behind that of padding.
BEHIND_PADDING = {"max_position_embeddings": LENGTH + 2, "pad_token_id": 1}
XLM_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# Each shape: its configuration, its tokenizer, and options.
SHAPES = {
    "RoBERTa": (
        RobertaConfig,
        partial(byte_pieces, RobertaTokenizer),
        {**BEHIND_PADDING, "type_vocab_size": 1},
    ),
    "XLM-R": (
        XLMRobertaConfig,
        partial(unigrams, XLMRobertaTokenizer, XLM_ROBERTA),
        {**BEHIND_PADDING, "type_vocab_size": 1},
    ),
    "XLM-R, more positions": (
        XLMRobertaConfig,
        partial(unigrams, XLMRobertaTokenizer, XLM_ROBERTA),
        {"max_position_embeddings": 130, "pad_token_id": 1},
    ),
    "CamemBERT": (
        CamembertConfig,
        partial(unigrams, XLMRobertaTokenizer, XLM_ROBERTA),
        BEHIND_PADDING,
    ),
    "ModernBERT, first token": (
        ModernBertConfig,
        bert_pieces,
        {**MODERN, "classifier_pooling": "cls"},
    ),
    "ModernBERT, mean": (ModernBertConfig, bert_pieces, {**MODERN, "classifier_pooling": "mean"}),
    "DeBERTa": (
        DebertaConfig,
        partial(byte_pieces, DebertaTokenizer),
        {
            "max_position_embeddings": LENGTH,
            "pad_token_id": 1,
            "type_vocab_size": 0,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
        },
    ),
    "DeBERTa v3": (
        DebertaV2Config,
        partial(unigrams, DebertaV2Tokenizer, ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]),
        {
            "max_position_embeddings": LENGTH,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
    ),
    "MPNet": (MPNetConfig, mpnet_pieces, BEHIND_PADDING),
    "DistilBERT": (
        DistilBertConfig,
        pieces_without_types,
        {
            "dim": 16,
            "hidden_dim": 24,
            "n_layers": 2,
            "n_heads": 2,
            "max_position_embeddings": LENGTH,
        },
    ),
    "ELECTRA": (
        ElectraConfig,
        bert_pieces,
        {"max_position_embeddings": LENGTH, "embedding_size": 8},
    ),
    "Qwen3": (Qwen3Config, decoder_pieces, {}),
    "Qwen3 with windows": (
        Qwen3Config,
        decoder_pieces,
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "Gemma": (GemmaConfig, decoder_pieces, {}),
    "Gemma 2": (Gemma2Config, decoder_pieces, {"sliding_window": 6}),
    "Mistral": (MistralConfig, decoder_pieces, {"sliding_window": 6}),
    "Llama": (LlamaConfig, decoder_pieces, {}),
}


def classifier(name):
    """A classifier of that shape and its tokenizer."""
    config_class, make_tokenizer, options = SHAPES[name]
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = LENGTH
    sizes = DECODER if make_tokenizer is decoder_pieces else SIZES
    config = config_class(**{**sizes, "vocab_size": len(tokenizer), **options})
    return AutoModelForSequenceClassification.from_config(config), tokenizer


def save(name, folder):
    return saved(partial(classifier, name), folder)


@pytest.mark.parametrize("name", SHAPES)
def test_scores_are_those_of_transformers_on_padded_pairs(tmp_path, name):
    model, tokenizer = save(name, tmp_path)
    scores = load(tmp_path).predict(PAIRS)
    np.testing.assert_allclose(scores, padded_logits(model, tokenizer, PAIRS)[:, 0], atol=1e-5)
    assert np.ptp(scores) > 0.05


@pytest.mark.parametrize("name", ["Qwen3", "Mistral"])
@pytest.mark.parametrize("padding", ["<pad>", "</s>", None])
def test_a_decoder_that_names_no_padding_is_read(tmp_path, name, padding):
    """transformers alone would refuse a batch of several texts."""
    model, tokenizer = save(name, tmp_path)
    tokenizer.pad_token = padding
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["pad_token_id"] = None
    (tmp_path / "config.json").write_text(json.dumps(config))
    pairs = [*PAIRS, ("he saw", "a nurse</s>"), ("he saw", "a nurse<pad>")]
    alone = []
    # One text has no padding, and is read at its last token.
    model.config.pad_token_id = None
    for query, document in pairs:
        inputs = tokenizer([query], [document], truncation=True, return_tensors="pt")
        with torch.no_grad():
            alone.append(model(**inputs).logits[0, 0].item())
    scores = load(tmp_path).predict(pairs)
    # A text that ends with the padding token itself is read in front of it.
    read = len(pairs) - (padding == "<pad>")
    np.testing.assert_allclose(scores[:read], alone[:read], atol=1e-5)
