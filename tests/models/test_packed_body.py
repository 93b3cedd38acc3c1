"""Classifiers read without padding: their logits are those that transformers gives padded texts."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    CamembertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from backpack_rank.models.packed_body import PackedBody, pack_body

SHAPE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
    "num_labels": 1,
    "pad_token_id": 1,
    "max_position_embeddings": 64,
}
MODERN = {
    **SHAPE,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
CONFIGS = {
    "bert": BertConfig(**SHAPE),
    "electra": ElectraConfig(**SHAPE, embedding_size=16),
    "distilbert": DistilBertConfig(
        **{key: SHAPE[key] for key in ("vocab_size", "num_labels", "pad_token_id")},
        dim=32,
        hidden_dim=48,
        n_layers=3,
        n_heads=4,
        initializer_range=0.3,
        max_position_embeddings=64,
    ),
    "roberta": RobertaConfig(**SHAPE),
    "xlm-roberta": XLMRobertaConfig(**SHAPE),
    "camembert": CamembertConfig(**SHAPE),
    "modernbert, first token": ModernBertConfig(**MODERN, classifier_pooling="cls"),
    "modernbert, mean": ModernBertConfig(**MODERN, classifier_pooling="mean"),
}
LENGTHS = (3, 50, 11, 1, 24)


def texts(with_types: bool) -> dict[str, torch.Tensor]:
    """A padded batch of texts, some of them longer than ModernBERT's windows."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
    ids = torch.randint(4, 60, mask.shape, generator=generator).masked_fill(mask == 0, 1)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if with_types:
        inputs["token_type_ids"] = (mask.cumsum(1) > 2).long() * mask
    return inputs


@pytest.fixture(params=CONFIGS)
def classifier(request):
    """A classifier with large random weights."""
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(copy.deepcopy(CONFIGS[request.param]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


def test_logits_are_those_of_the_padded_texts(classifier):
    inputs = texts(classifier.config.model_type in ("bert", "electra"))
    packed = copy.deepcopy(classifier)
    assert pack_body(packed)
    body = getattr(packed, packed.base_model_prefix)
    assert isinstance(body, PackedBody)
    with torch.no_grad():
        expected = classifier(**inputs).logits
        logits = packed(**inputs).logits
    assert expected.std() > 0.05
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_a_text_has_the_same_logit_alone(classifier):
    inputs = texts(False)
    assert pack_body(classifier)
    with torch.no_grad():
        together = classifier(**inputs).logits
        for row, length in enumerate(LENGTHS):
            alone = classifier(
                input_ids=inputs["input_ids"][row : row + 1, :length],
                attention_mask=inputs["attention_mask"][row : row + 1, :length],
            ).logits
            torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)


def test_windows_of_modernbert_are_narrower_than_the_texts():
    model = AutoModelForSequenceClassification.from_config(CONFIGS["modernbert, mean"])
    assert max(LENGTHS) > 2 * model.config.sliding_window + 1


def test_a_body_of_another_type_is_left_unchanged():
    config = DebertaV2Config(
        **{**SHAPE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    )
    model = AutoModelForSequenceClassification.from_config(config)
    assert not pack_body(model)
    assert not isinstance(model.deberta, PackedBody)
