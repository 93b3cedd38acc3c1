"""Conv-KNRM against loops over n-grams, pairs of lengths and kernels."""

import math

import numpy as np
import pytest
import torch
from interaction_example import EMBEDDING, batch, cosine, random_weights, texts, weights

from backpack_rank.models.interactions.base import cosine_match
from backpack_rank.models.interactions.knrm import ConvKnrm

MEANS = [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]
WIDTHS = [0.001] + [0.1] * 10


def grams_by_hand(text, weight, bias, length):
    """relu(sum over the window of W e + b) at every term; zeros follow the text."""
    grams = []
    for start in range(len(text)):
        vector = []
        for filter_weight, filter_bias in zip(weight, bias, strict=True):
            total = filter_bias
            for step in range(length):
                if start + step < len(text):
                    total += sum(
                        filter_weight[i][step] * text[start + step][i] for i in range(len(text[0]))
                    )
            vector.append(max(total, 0.0))
        grams.append(np.array(vector))
    return grams


def score_by_hand(model, query, document):
    w = weights(model)
    features = []
    for h in (1, 2, 3):
        query_grams = grams_by_hand(
            query, w[f"convolutions.{h - 1}.weight"], w[f"convolutions.{h - 1}.bias"], h
        )
        for g in (1, 2, 3):
            name = f"convolutions.{g - 1}"
            document_grams = grams_by_hand(document, w[f"{name}.weight"], w[f"{name}.bias"], g)
            for mean, width in zip(MEANS, WIDTHS, strict=True):
                total = 0.0
                for a in query_grams:
                    count = sum(
                        math.exp(-((cosine(a, b) - mean) ** 2) / (2 * width**2))
                        for b in document_grams
                    )
                    total += 0.01 * math.log(max(count, 1e-10))
                features.append(total)
    return float(np.dot(w["score.weight"][0], features) + w["score.bias"][0])


@torch.no_grad()
def test_scores_are_those_of_loops_over_ngrams_pairs_of_lengths_and_kernels():
    model = random_weights(ConvKnrm(EMBEDDING, filters=4))
    arguments = batch([4, 1, 2], [9, 2, 1], seed=3)
    scores = model(*arguments)
    assert scores.shape == (3,)
    for score, (query, document, _) in zip(scores.tolist(), texts(arguments), strict=True):
        assert score == pytest.approx(score_by_hand(model, query, document), abs=1e-5)


@torch.no_grad()
def test_a_repeated_phrase_is_counted_by_the_exact_kernel_of_its_length():
    model = random_weights(ConvKnrm(EMBEDDING, filters=16))
    query, mask, *_ = batch([3], [1], seed=1)
    for order, phrases in (([0, 1, 2], 1), ([2, 1, 0], 0)):
        matches = cosine_match(model.grams(query)[2], model.grams(query[:, order])[2])
        assert round(model.pooling(matches, mask, mask)[0, 0, 0].item()) == phrases


def test_sizes_are_those_of_the_paper():
    model = ConvKnrm(300)
    convolutions = sum(length * 300 * 128 + 128 for length in (1, 2, 3))
    assert (
        sum(parameter.numel() for parameter in model.parameters())
        == convolutions + 9 * 11 + 1
        == 230_884
    )


@pytest.mark.parametrize("options", [{"filters": 0}, {"ngrams": 0}, {"kernels": 1}])
def test_sizes_that_make_no_model_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}={options[name]}"):
        ConvKnrm(EMBEDDING, **options)
