"""Rankers that others trained, small: classifiers as transformers saves them, and HTTP rerank
endpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from json_servers import JsonHandler, listening
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

WORDS = ["the", "doctor", "saw", "he", "she", "a", "nurse", "bread", "and", "fish", "b"]
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.4,
    "num_labels": 1,
}


def tokenizer_of(specials: dict[str, str], template: str, *inputs: str) -> PreTrainedTokenizerFast:
    names = list(dict.fromkeys(specials.values()))
    vocabulary = {piece: index for index, piece in enumerate([*names, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=specials["unk_token"]))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = template.split("|")
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, vocabulary[name]) for name in names]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=24, model_input_names=list(inputs), **specials
    )


def bert():
    tokenizer = tokenizer_of(
        {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"},
        "[CLS] $A [SEP]|[CLS] $A [SEP] $B:1 [SEP]:1",
        *("input_ids", "token_type_ids", "attention_mask"),
    )
    config = BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=32, pad_token_id=0, **SHAPE
    )
    return BertForSequenceClassification(config), tokenizer


def xlm_roberta():
    tokenizer = tokenizer_of(
        {
            "pad_token": "<pad>",
            "cls_token": "<s>",
            "bos_token": "<s>",
            "sep_token": "</s>",
            "eos_token": "</s>",
        }
        | {"unk_token": "<unk>"},
        "<s> $A </s>|<s> $A </s> </s> $B </s>",
        *("input_ids", "attention_mask"),
    )
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=26,
        type_vocab_size=1,
        pad_token_id=0,
        **SHAPE,
    )
    return XLMRobertaForSequenceClassification(config), tokenizer


def saved(make, folder):
    """The folder of a classifier with large random weights, and model and tokenizer as they were
    saved.
    """
    torch.manual_seed(0)
    model, tokenizer = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def score(query: str, document: str) -> float:
    """Words in common, and a dislike of "she"."""
    words = document.split()
    return float(
        sum(word in query.split() for word in words) / max(len(words), 1) - ("she" in words)
    )


@contextmanager
def served(form: str, busy: int = 0, key: str = "") -> Iterator[tuple[str, list[dict]]]:
    """A server that answers as Jina's or as text-embeddings-inference (32 texts at most); requests
    are kept.
    """
    requests: list[dict] = []
    turns = {"busy": busy}

    class Handler(JsonHandler):
        def post(self, body: Any) -> None:
            requests.append(body)
            if key and self.headers.get("Authorization") != f"Bearer {key}":
                return self.answer(401, {"message": "no such key"})
            if turns["busy"]:
                turns["busy"] -= 1
                return self.answer(429, {}, {"Retry-After": "0"})
            texts = (
                None if form == "neither" else body.get("documents" if form == "jina" else "texts")
            )
            if texts is None or (form == "tei" and len(texts) > 32):
                return self.answer(422, {"error": "no texts"})
            name = "relevance_score" if form == "jina" else "score"
            rows = [
                {"index": place, name: score(body["query"], text)}
                for place, text in enumerate(texts)
            ]
            rows.sort(key=lambda row: -row[name])
            if form == "short":
                rows.pop()
            self.answer(200, {"results": rows} if form == "jina" else rows)

    with listening(Handler) as url:
        yield url, requests
