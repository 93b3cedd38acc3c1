"""TK against loops over heads, positions, terms and kernels."""

import math

import numpy as np
import pytest
import torch
from interaction_example import EMBEDDING, batch, cosine, random_weights, texts, weights

from backpack_rank.models.interactions.tk import Tk, sinusoids

SMALL = {"layers": 2, "heads": 3, "head_size": 4, "feed_forward": 5}


def position_by_hand(position, size):
    features = []
    for dimension in range(size):
        angle = position / 10_000 ** (2 * (dimension // 2) / size)
        features.append(math.cos(angle) if dimension % 2 else math.sin(angle))
    return np.array(features)


def norm(vector, weight, bias):
    return (vector - vector.mean()) / np.sqrt(vector.var() + 1e-5) * weight + bias


def layer_by_hand(w, name, hidden, heads, size):
    """One post-norm layer of Vaswani et al.: every head of every position by itself."""
    weight, bias = w[f"{name}.projections.weight"], w[f"{name}.projections.bias"]
    width = heads * size
    queries, keys, values = (
        [
            weight[part * width : (part + 1) * width] @ x + bias[part * width : (part + 1) * width]
            for x in hidden
        ]
        for part in range(3)
    )
    out = []
    for i, x in enumerate(hidden):
        mixed = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            powers = [math.exp(queries[i][part] @ key[part] / math.sqrt(size)) for key in keys]
            mixed.append(
                sum(p / sum(powers) * value[part] for p, value in zip(powers, values, strict=True))
            )
        attended = w[f"{name}.out.weight"] @ np.concatenate(mixed) + w[f"{name}.out.bias"]
        y = norm(x + attended, w[f"{name}.norm_1.weight"], w[f"{name}.norm_1.bias"])
        inner = np.maximum(w[f"{name}.wide.weight"] @ y + w[f"{name}.wide.bias"], 0)
        y = y + w[f"{name}.narrow.weight"] @ inner + w[f"{name}.narrow.bias"]
        out.append(norm(y, w[f"{name}.norm_2.weight"], w[f"{name}.norm_2.bias"]))
    return out


def contextualised_by_hand(model, text, shift):
    w = weights(model)
    hidden = [x + position_by_hand(shift + i, len(x)) for i, x in enumerate(text)]
    for layer in range(SMALL["layers"]):
        hidden = layer_by_hand(w, f"layers.{layer}", hidden, SMALL["heads"], SMALL["head_size"])
    gate = w["gate"][0]
    return [x * gate + h * (1 - gate) for x, h in zip(text, hidden, strict=True)]


def score_by_hand(model, query, document):
    w = weights(model)
    queries = contextualised_by_hand(model, query, 0)
    documents = contextualised_by_hand(model, document, 500)
    features = []
    for mean in (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        total = 0.0
        for q in queries:
            count = sum(math.exp(-((cosine(q, d) - mean) ** 2) / (2 * 0.1**2)) for d in documents)
            total += math.log(max(count, 1e-10))
        features.append(total)
    return float(np.dot(w["score.weight"][0], features) + w["score.bias"][0])


@pytest.fixture
def model():
    return random_weights(Tk(EMBEDDING, **SMALL), scale=0.4)


@torch.no_grad()
def test_contextualised_terms_are_those_of_loops_over_heads_and_positions(model):
    vectors, mask, *_ = batch([6, 2], [1, 1], seed=5)
    contextualised = model.contextualise(vectors, mask, 500)
    for row, length in enumerate((6, 2)):
        expected = np.array(
            contextualised_by_hand(model, vectors[row, :length].double().numpy(), 500)
        )
        np.testing.assert_allclose(contextualised[row, :length].numpy(), expected, atol=1e-5)
        assert (contextualised[row, length:] == 0).all()


@torch.no_grad()
def test_scores_are_those_of_loops_over_terms_and_kernels(model):
    # Log sums of far kernels are large, so the layer above them is given weights of the size it has
    # when trained.
    model.score.weight.mul_(0.02)
    arguments = batch([4, 1, 3], [9, 2, 1], seed=7)
    for score, (query, document, _) in zip(
        model(*arguments).tolist(), texts(arguments), strict=True
    ):
        assert score == pytest.approx(score_by_hand(model, query, document), abs=1e-5)


@torch.no_grad()
def test_documents_and_queries_of_the_same_terms_differ_by_their_positions(model):
    vectors, mask, *_ = batch([5], [1])
    query, document = (
        model.contextualise(vectors, mask, 0),
        model.contextualise(vectors, mask, model.document_shift),
    )
    assert (query - document).abs().max() > 1e-3
    assert torch.equal(model.contextualise(vectors, mask, 500), document)


@torch.no_grad()
def test_a_gate_of_one_leaves_word_vectors_as_they_are(model):
    model.gate.fill_(1.0)
    vectors, mask, *_ = batch([5, 2], [1, 1])
    expected = vectors * mask[..., None]
    torch.testing.assert_close(model.contextualise(vectors, mask, 500), expected)


def test_positions_may_be_of_odd_size():
    features = sinusoids(3, 5, shift=500)
    for row in range(3):
        np.testing.assert_allclose(features[row].numpy(), position_by_hand(500 + row, 5), atol=1e-4)


def test_sizes_are_those_of_the_paper():
    attention = 300 * 3 * 16 * 32 + 3 * 16 * 32 + 16 * 32 * 300 + 300
    feed_forward = 300 * 100 + 100 + 100 * 300 + 300
    layer = attention + feed_forward + 2 * 2 * 300
    model = Tk(300)
    assert (
        sum(parameter.numel() for parameter in model.parameters())
        == 2 * layer + 1 + 11 + 1
        == 1_355_685
    )
    assert model.document_shift == 500


@pytest.mark.parametrize("options", [{"layers": 0}, {"heads": 0}, {"kernels": 1}, {"sigma": 0}])
def test_sizes_that_make_no_model_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}={options[name]}"):
        Tk(EMBEDDING, **options)
