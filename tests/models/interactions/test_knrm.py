"""KNRM against loops over terms and kernels."""

import math

import pytest
import torch
from interaction_example import EMBEDDING, alone, batch, cosine, random_weights, texts, weights

from backpack_rank.models.interactions.knrm import Knrm

MEANS = [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]
WIDTHS = [0.001] + [0.1] * 10


def score_by_hand(model, query, document):
    w = weights(model)
    total = w["score.bias"][0]
    for k, (mean, width) in enumerate(zip(MEANS, WIDTHS, strict=True)):
        for a in query:
            count = 0.0
            for b in document:
                count += math.exp(-((cosine(a, b) - mean) ** 2) / (2 * width**2))
            total += w["score.weight"][0][k] * 0.01 * math.log(max(count, 1e-10))
    return float(total)


@torch.no_grad()
def test_scores_are_those_of_loops_over_terms_and_kernels():
    model = random_weights(Knrm(EMBEDDING))
    arguments = batch([3, 1, 5, 2], [7, 4, 1, 9])
    expected = [score_by_hand(model, query, document) for query, document, _ in texts(arguments)]
    assert max(expected) - min(expected) > 0.1
    assert model(*arguments).tolist() == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_a_text_in_a_padded_batch_has_the_score_that_it_has_alone():
    model = random_weights(Knrm(EMBEDDING))
    arguments = batch([3, 1, 0, 2], [7, 0, 4, 9], query_width=6, document_width=12)
    scores = model(*arguments)
    for row in range(4):
        assert model(*alone(arguments, row)).item() == pytest.approx(scores[row].item(), abs=1e-6)


def test_words_and_weights_get_gradients():
    model = random_weights(Knrm(EMBEDDING))
    arguments = [
        tensor.requires_grad_() if tensor.is_floating_point() else tensor
        for tensor in batch([3, 2], [7, 4])
    ]
    model(*arguments).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad != 0).all(), name
    query, query_mask, document, document_mask, _, _ = arguments
    assert ((query.grad != 0).any(-1) == query_mask).all()
    assert ((document.grad != 0).any(-1) == document_mask).all()
