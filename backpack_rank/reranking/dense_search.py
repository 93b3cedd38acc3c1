"""Exact search for the highest dot products, in blocks, so that memory does not grow with the
collection.

Scores and places of documents are held as one integer each, the score above the place, so that
sorting by score with ties by place is sorting integers: nothing depends on the order in which a
kernel happens to see equal scores.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 8192
"""Documents of a block."""
QUERIES = 256
"""Queries of a batch."""
_LOW = 2**31 - 1
_WORST = -(2**63)
_EVEN = 64


def top_k(
    queries: Tensor,
    vectors: np.ndarray,
    ranks: np.ndarray,
    k: int,
    device: torch.device,
    block: int = BLOCK,
) -> tuple[np.ndarray, np.ndarray]:
    """The k documents with the highest dot product for every query; products in fp32.

    Args:
        queries: [Q, d].
        vectors: of the documents, in any number format, such as a memory map. [N, d]
        ranks: place of each document among all of them, by which ties are broken, lowest first; a
            permutation of 0 .. N - 1. [N]
        k: documents per query; a smaller N gives all of them.
        block: documents that are read at a time.

    Returns:
        Ranks of the documents [Q, min(k, N)], best first, and their scores in fp32.
    """
    found = [
        _batch(queries[start : start + QUERIES].to(device, torch.float32), vectors, ranks, k, block)
        for start in range(0, len(queries), QUERIES)
    ]
    if not found:
        return np.empty((0, min(k, len(vectors))), dtype=np.int64), np.empty(
            (0, min(k, len(vectors))), np.float32
        )
    best = torch.cat(found)
    return (_LOW - (best & 0xFFFFFFFF)).numpy(), _scores(best).numpy()


def _batch(queries: Tensor, vectors: np.ndarray, ranks: np.ndarray, k: int, block: int) -> Tensor:
    """Keys of the best documents of some queries. [Q, min(k, N)]"""
    best = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
    for start in range(0, len(vectors), block):
        rows = torch.from_numpy(np.array(vectors[start : start + block])).to(queries.device).float()
        places = (
            torch.from_numpy(np.asarray(ranks[start : start + block])).to(queries.device).long()
        )
        # Matrix products treat a last incomplete group of rows differently, in the last bit; equal
        # documents must tie.
        whole = F.pad(rows, (0, 0, 0, -len(rows) % _EVEN))
        found = _candidates((queries @ whole.T)[:, : len(rows)], places, best, k)
        best = torch.cat([best, found], dim=1)
        best = best.topk(min(k, best.shape[1]), dim=1).values
    return best.cpu()


def _candidates(scores: Tensor, places: Tensor, best: Tensor, k: int) -> Tensor:
    """Keys of the documents of a block that may be among the k best, in rows filled up with the
    worst key. [Q, ...]
    """
    if best.shape[1] < k:
        return _keys(scores, places)
    # Past the first blocks this leaves few, and keys are made of these alone.
    kept = scores >= _scores(best[:, -1:])
    queries, columns = kept.nonzero(as_tuple=True)
    counts = kept.sum(dim=1)
    firsts = counts.cumsum(0) - counts
    keys = torch.full(
        (len(scores), int(counts.max())), _WORST, dtype=torch.int64, device=scores.device
    )
    numbers = torch.arange(len(queries), device=scores.device) - firsts[queries]
    keys[queries, numbers] = _keys(scores[queries, columns], places[columns])
    return keys


def _keys(scores: Tensor, places: Tensor) -> Tensor:
    """Integers in the order of the scores, among equal scores in the opposite order of the
    places.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    # The bits of a negative float grow with its size.
    ordered = torch.where(bits < 0, bits ^ _LOW, bits).long()
    return (ordered << 32) | (_LOW - places)


def _scores(keys: Tensor) -> Tensor:
    """The scores of keys."""
    ordered = (keys >> 32).int()
    return torch.where(ordered < 0, ordered ^ _LOW, ordered).view(torch.float32)
