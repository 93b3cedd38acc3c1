"""PACRR against loops over query terms, windows and filters."""

import numpy as np
import pytest
import torch
from interaction_example import EMBEDDING, VOCABULARY, batch, cosine, random_weights, texts, weights

from backpack_rank.models.interactions.pacrr import Pacrr


def row_by_hand(w, matrix, term, windows, top):
    """The strongest signals of one query term for each window size, then zeros."""
    rows, columns = matrix.shape
    row = []
    for length in range(1, windows + 1):
        signals = []
        for j in range(columns):
            if length == 1:
                signals.append(matrix[term, j])
                continue
            weight, bias = (
                w[f"convolutions.{length - 2}.weight"],
                w[f"convolutions.{length - 2}.bias"],
            )
            values = []
            for kernel, shift in zip(weight[:, 0], bias, strict=True):
                total = shift
                for a in range(length):
                    for b in range(length):
                        if term + a < rows and j + b < columns:
                            total += kernel[a, b] * matrix[term + a, j + b]
                values.append(max(total, 0.0))
            signals.append(max(values))
        signals = sorted(signals, reverse=True)[:top]
        row += signals + [0.0] * (top - len(signals))
    return row


def score_by_hand(model, query, document, query_ids, windows, top):
    w = weights(model)
    query, query_ids = query[: model.query_length], query_ids[: model.query_length]
    matrix = np.array([[cosine(q, d) for d in document] for q in query]).reshape(
        len(query), len(document)
    )
    rows = [row_by_hand(w, matrix, term, windows, top) for term in range(len(query))]
    if "idf" in w:
        powers = [np.exp(w["idf"][term]) for term in query_ids]
        rows = [[*row, power / sum(powers)] for row, power in zip(rows, powers, strict=True)]
    width = windows * top + ("idf" in w)
    rows += [[0.0] * width] * (model.query_length - len(rows))
    hidden = np.array(rows).reshape(-1)
    for layer in ("dense_1", "dense_2"):
        hidden = np.maximum(w[f"{layer}.weight"] @ hidden + w[f"{layer}.bias"], 0)
    return float(w["score.weight"][0] @ hidden + w["score.bias"][0])


@torch.no_grad()
@pytest.mark.parametrize("vocabulary", [None, VOCABULARY])
def test_scores_are_those_of_loops_over_terms_windows_and_filters(vocabulary):
    model = Pacrr(EMBEDDING, query_length=5, filters=3, top=3, hidden=4, vocabulary_size=vocabulary)
    random_weights(model)
    if vocabulary:
        model.set_idf(torch.rand(VOCABULARY, generator=torch.Generator().manual_seed(1)) * 5)
    # One query is longer than 5 terms, one document shorter than any window and than k.
    arguments = batch([7, 1, 3, 5], [12, 1, 2, 6], seed=4)
    for score, (query, document, ids) in zip(
        model(*arguments).tolist(), texts(arguments), strict=True
    ):
        assert score == pytest.approx(
            score_by_hand(model, query, document, ids, windows=3, top=3), abs=1e-5
        )


@torch.no_grad()
def test_terms_behind_the_longest_query_change_nothing():
    model = random_weights(Pacrr(EMBEDDING, query_length=4))
    query, query_mask, document, document_mask, query_ids, document_ids = batch([6, 6], [8, 9])
    expected = model(query, query_mask, document, document_mask, query_ids, document_ids)
    cut = model(
        query[:, :4], query_mask[:, :4], document, document_mask, query_ids[:, :4], document_ids
    )
    assert torch.equal(expected, cut)


def test_sizes_are_those_of_the_paper():
    convolutions = (32 * 4 + 32) + (32 * 9 + 32)
    layers = 32 * 32 + 32 + 32 + 1
    assert count(Pacrr(300)) == convolutions + 16 * 6 * 32 + 32 + layers == 4_673
    assert count(Pacrr(300, vocabulary_size=50)) == convolutions + 16 * 7 * 32 + 32 + layers


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_idf_is_saved_with_the_weights_and_checked():
    model = Pacrr(EMBEDDING, vocabulary_size=3)
    model.set_idf(torch.tensor([1.0, 2.0, 3.0]))
    assert model.state_dict()["idf"].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="vocabulary of 3 terms"):
        model.set_idf(torch.ones(4))
    with pytest.raises(ValueError, match="give vocabulary_size"):
        Pacrr(EMBEDDING).set_idf(torch.ones(3))
    assert "idf" not in Pacrr(EMBEDDING).state_dict()


def test_sizes_that_make_no_model_are_refused():
    with pytest.raises(ValueError, match="top=0 must be at least 1"):
        Pacrr(EMBEDDING, top=0)
