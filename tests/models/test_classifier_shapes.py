"""Classifiers of every usual shape, with their own tokenizers: scores are those of transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    BertTokenizer,
    DebertaConfig,
    DebertaTokenizer,
    DebertaV2Config,
    DebertaV2Tokenizer,
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
DECODER = {**SIZES, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64}


def word_pieces(tokenizer_class, pad, unknown, first, separator):
    names = [pad, unknown, first, separator, "[MASK]" if pad == "[PAD]" else "<mask>"]
    vocabulary = {
        piece: place for place, piece in enumerate([*names, *WORDS, "##s", "?", "(", ")"])
    }
    return tokenizer_class(vocab=vocabulary)


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
    return word_pieces(BertTokenizer, "[PAD]", "[UNK]", "[CLS]", "[SEP]")


def mpnet_pieces():
    names = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    pieces = [*names, *WORDS, "?", "(", ")"]
    return MPNetTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})


SHAPES = {
    "RoBERTa": lambda: (
        RobertaConfig,
        byte_pieces(RobertaTokenizer),
        {"max_position_embeddings": LENGTH + 2, "pad_token_id": 1, "type_vocab_size": 1},
    ),
    "XLM-R": lambda: (
        XLMRobertaConfig,
        unigrams(XLMRobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
        {"max_position_embeddings": LENGTH + 2, "pad_token_id": 1, "type_vocab_size": 1},
    ),
    "ModernBERT, first token": lambda: (
        ModernBertConfig,
        bert_pieces(),
        {
            "max_position_embeddings": LENGTH,
            "pad_token_id": 0,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "classifier_pooling": "cls",
        },
    ),
    "ModernBERT, mean": lambda: (
        ModernBertConfig,
        bert_pieces(),
        {
            "max_position_embeddings": LENGTH,
            "pad_token_id": 0,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "classifier_pooling": "mean",
        },
    ),
    "DeBERTa": lambda: (
        DebertaConfig,
        byte_pieces(DebertaTokenizer),
        {
            "max_position_embeddings": LENGTH,
            "pad_token_id": 1,
            "type_vocab_size": 0,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
        },
    ),
    "DeBERTa v3": lambda: (
        DebertaV2Config,
        unigrams(DebertaV2Tokenizer, ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]),
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
    "MPNet": lambda: (
        MPNetConfig,
        mpnet_pieces(),
        {"max_position_embeddings": LENGTH + 2, "pad_token_id": 1},
    ),
    "ELECTRA": lambda: (
        ElectraConfig,
        bert_pieces(),
        {"max_position_embeddings": LENGTH, "embedding_size": 8},
    ),
    "Qwen3": lambda: (Qwen3Config, decoder_pieces(), {"pad_token_id": 1}),
    "Qwen3 with windows": lambda: (
        Qwen3Config,
        decoder_pieces(),
        {
            "pad_token_id": 1,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 1,
        },
    ),
    "Gemma": lambda: (GemmaConfig, decoder_pieces(), {"pad_token_id": 1}),
    "Gemma 2": lambda: (Gemma2Config, decoder_pieces(), {"pad_token_id": 1, "sliding_window": 6}),
    "Mistral": lambda: (MistralConfig, decoder_pieces(), {"pad_token_id": 1, "sliding_window": 6}),
    "Llama": lambda: (LlamaConfig, decoder_pieces(), {"pad_token_id": 1}),
}


def save(name, folder):
    """A classifier of that shape with large random weights; the model and its tokenizer."""
    torch.manual_seed(0)
    config_class, tokenizer, options = SHAPES[name]()
    tokenizer.model_max_length = LENGTH
    sizes = DECODER if "num_key_value_heads" in config_class().to_dict() else SIZES
    config = config_class(**{**sizes, "vocab_size": len(tokenizer), **options})
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@torch.no_grad()
def padded_scores(model, tokenizer):
    """Logits of the padded pairs, by transformers' forward pass."""
    queries, documents = zip(*PAIRS, strict=True)
    inputs = tokenizer(
        list(queries),
        list(documents),
        truncation=True,
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    return model(**inputs).logits[:, 0].numpy()


@pytest.mark.parametrize("name", SHAPES)
def test_scores_are_those_of_transformers_on_padded_pairs(tmp_path, name):
    model, tokenizer = save(name, tmp_path)
    scores = load(tmp_path).predict(PAIRS)
    np.testing.assert_allclose(scores, padded_scores(model, tokenizer), atol=1e-5)
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
