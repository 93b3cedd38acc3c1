"""Padded batches of random word vectors, and each text of a batch alone."""

from __future__ import annotations

import numpy as np
import torch

EMBEDDING = 6
VOCABULARY = 30


def padded(lengths, seed, width=None, table_seed=0):
    """Word vectors [B, N, e], mask [B, N] and ids [B, N] of texts of these lengths; padding holds
    other vectors.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(
        (VOCABULARY, EMBEDDING), generator=torch.Generator().manual_seed(table_seed)
    )
    width = max(lengths) if width is None else width
    ids = torch.randint(VOCABULARY, (len(lengths), width), generator=generator)
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    return table[ids], mask, ids


def batch(query_lengths, document_lengths, seed=0, query_width=None, document_width=None):
    """The six arguments of an interaction model."""
    query, query_mask, query_ids = padded(query_lengths, seed, query_width)
    document, document_mask, document_ids = padded(document_lengths, seed + 1, document_width)
    return query, query_mask, document, document_mask, query_ids, document_ids


def alone(arguments, row):
    """The arguments for one pair of the batch, without any padding."""
    query, query_mask, document, document_mask, query_ids, document_ids = arguments
    q, d = int(query_mask[row].sum()), int(document_mask[row].sum())
    return (
        query[row : row + 1, :q],
        query_mask[row : row + 1, :q],
        document[row : row + 1, :d],
        document_mask[row : row + 1, :d],
        query_ids[row : row + 1, :q],
        document_ids[row : row + 1, :d],
    )


def texts(arguments):
    """(query vectors, document vectors, query ids) of each pair as float64 arrays without padding."""
    for row in range(len(arguments[0])):
        query, _, document, _, query_ids, _ = alone(arguments, row)
        yield query[0].double().numpy(), document[0].double().numpy(), query_ids[0].numpy()


def weights(module):
    """Parameters and buffers by name as float64 arrays."""
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def cosine(a, b):
    size = np.sqrt((a * a).sum()) * np.sqrt((b * b).sum())
    return float((a * b).sum() / size) if size > 0 else 0.0


def random_weights(module, seed=0, scale=0.5):
    """The module with random values in all parameters, biases and gates included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return module.eval()
