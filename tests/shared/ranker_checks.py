"""What tests of rankers of others compare scores with, and whether the dial moves them."""

from __future__ import annotations

import numpy as np
import pytest
import torch


@torch.no_grad()
def padded_logits(model, tokenizer, pairs) -> np.ndarray:
    """Logits of pairs by transformers' forward pass, padded to one length. [pairs, labels]"""
    queries, documents = zip(*pairs, strict=True)
    inputs = tokenizer(
        list(queries),
        list(documents),
        truncation=True,
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    return model(**inputs).logits.numpy()


def assert_the_dial_acts(reranker, policy=None) -> None:
    """Two texts that differ in words of gender have two scores, and one at alpha = 0."""
    pairs = [("the doctor saw", f"{word} saw a nurse") for word in ("he", "she")]
    he, she = reranker.predict(pairs)
    assert abs(he - she) > 1e-3
    he, she = reranker.predict(pairs, alpha=0, policy=policy)
    assert he == pytest.approx(she, abs=1e-6)
