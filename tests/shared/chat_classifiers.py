"""Small classifiers over language models whose tokenizers have chat templates."""

from __future__ import annotations

import torch
from prompted_models import CONFIGS, SIZES, qwen_tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
)

QUERY = '{{ (messages | selectattr("role", "eq", "query") | first).content }}'
DOCUMENT = QUERY.replace('"query"', '"document"')
SYSTEM = (
    "{% for message in messages if message.role == 'system' %}<|im_start|>system\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
)
# Of conversions of Qwen3-Reranker, of jina-reranker-m0, ChatML, and such as people write.
TEMPLATES = {
    "query first": (
        f"{SYSTEM}<|im_start|>user\n<Query>: {QUERY}\n<Document>: {DOCUMENT}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ),
    "document first": (
        f"<|im_start|>user\n**Document**:\n{DOCUMENT}\n**Query**:\n{QUERY}<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "document first, in one line": f"Document: {DOCUMENT} Query: {QUERY} Relevant:",
    "tags": f"<query>{QUERY}</query>\n<document>{DOCUMENT}</document>\nyes or no?",
    "tags, document first": f"<document>{DOCUMENT}</document>\n<query>{QUERY}</query>\n",
    "a full stop behind": f"Query: {QUERY}\nDocument: {DOCUMENT}.<|im_end|>",
    "ChatML": (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{{ message.content }}<|im_end|>\n{% endfor %}"
    ),
    "structured": (
        '{% for message in messages %}<|im_start|>{{ message["role"] }}\n'
        '{% for item in message.content %}{% if item.type == "text" %}{{ item.text }}'
        "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    ),
}


def classifier(kind: str, folder, chat: str | None):
    torch.manual_seed(1)
    tokenizer = qwen_tokenizer()
    tokenizer.chat_template = chat
    tokenizer.model_max_length = 512
    if kind == "BERT":
        # Padding on the left would move positions, in sentence-transformers too.
        tokenizer.padding_side = "right"
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            initializer_range=0.4,
            num_labels=1,
            pad_token_id=tokenizer.pad_token_id,
        )
        model = BertForSequenceClassification(config)
    else:
        options = {**SIZES, "num_labels": 1, "pad_token_id": tokenizer.pad_token_id}
        config = CONFIGS[kind](vocab_size=len(tokenizer), **options)
        model = AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
