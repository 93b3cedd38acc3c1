"""Exact search for the highest dot products, in blocks: memory does not grow with the collection.

Score and rank of a document are held as one integer, the key: the score in its upper 32 bits, the
rank in its lower 32. So sorting by score with ties by rank is sorting integers, and nothing depends
on the order in which a kernel happens to see equal scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.models.utils import gpu_has_room

BLOCK = 8192
"""Documents of a block."""
GPU_BLOCK = 131_072
"""The same on a GPU, which waits for the CPU once a block."""
QUERIES = 256
"""Queries of a batch."""
_LOW = 2**31 - 1
"""The largest rank, and all bits of an int32 but its sign."""
_WORST = -(2**63)
"""A key below those of all documents."""
_EVEN = 64
"""Matrix products take documents in multiples of this number."""


@dataclass(frozen=True)
class TurnedVectors:
    """Vectors of the documents that alpha acts on, which are few.

        e_alpha = e_0 + alpha (e - e_0)

    They are put in the place of e when a block is read. So a search costs as much as one without a
    dial, at every alpha.

    Attributes:
        rows: which documents, ascending. [M]
        neutral: e_0 of each, in any number format, or what :func:`kept_on` gives. [M, d]
        alpha: 1 leaves e.
    """

    rows: np.ndarray
    neutral: np.ndarray | Tensor
    alpha: float

    def turn(self, documents: Tensor, start: int) -> None:
        """Change the vectors of a block [n, d], whose first document is number ``start``."""
        first, last = np.searchsorted(self.rows, [start, start + len(documents)])
        if first == last:
            return
        places = torch.from_numpy(self.rows[first:last] - start).to(documents.device)
        neutral = _copied(self.neutral[first:last], documents.device).float()
        if self.alpha == 0:
            documents.index_copy_(0, places, neutral)
            return
        # neutral + alpha (own - neutral), in the memory of own.
        own = documents.index_select(0, places)
        turned = own.sub_(neutral).mul_(self.alpha).add_(neutral)
        documents.index_copy_(0, places, turned)


def kept_on(device: torch.device, vectors: np.ndarray) -> np.ndarray | Tensor:
    """The vectors in a GPU's memory where half of what is free holds them; else as they are.

    For who searches several times: each search would take all of them there.
    """
    if not gpu_has_room(device, vectors.nbytes):
        return vectors
    number_format = torch.from_numpy(np.empty(0, vectors.dtype)).dtype  # numpy's, by torch's name
    kept = torch.empty(vectors.shape, dtype=number_format, device=device)
    for start in range(0, len(vectors), GPU_BLOCK):
        kept[start : start + GPU_BLOCK] = _copied(vectors[start : start + GPU_BLOCK], device)
    return kept


def top_k(
    queries: Tensor,
    vectors: np.ndarray | Tensor,
    ranks: np.ndarray,
    k: int,
    device: torch.device,
    block: int | None = None,
    turned: TurnedVectors | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Exact dense retrieval: the k documents with the highest dot product per query.

    Products are computed in fp32.

    >>> queries = torch.tensor([[1.0, 0.0]])
    >>> vectors = np.array([[0.5, 9.0], [2.0, 0.0], [1.0, 1.0]], dtype=np.float16)
    >>> ranks, scores = top_k(queries, vectors, np.arange(3), k=2, device=torch.device("cpu"))
    >>> ranks.tolist(), scores.tolist()
    ([[1, 2]], [[2.0, 1.0]])

    Args:
        queries: [Q, d].
        vectors: of the documents, in any number format, such as a memory map or what
            :func:`kept_on` gives. [N, d]
        ranks: rank of each document in the order that breaks ties, lowest first; a permutation of
            0 .. N - 1. [N]
        k: documents per query; a smaller N gives all of them.
        block: documents that are read at a time; None: :data:`BLOCK` or :data:`GPU_BLOCK`.
        turned: documents whose vectors are others at this alpha; None: none.

    Returns:
        Ranks of the documents [Q, min(k, N)], best first, and their scores in fp32.
    """
    if block is None:
        block = GPU_BLOCK if device.type == "cuda" else BLOCK
    best = []
    for start in range(0, len(queries), QUERIES):
        batch = queries[start : start + QUERIES].to(device, torch.float32)
        blocks = _scores_of_blocks(batch, vectors, ranks, block, turned)
        best.append(_best_of(blocks, len(batch), k))
    if not best:
        shape = (0, min(k, len(vectors)))
        return np.empty(shape, np.int64), np.empty(shape, np.float32)
    keys = torch.cat(best)
    return (_LOW - (keys & 0xFFFFFFFF)).numpy(), _scores(keys).numpy()


def best_of(
    blocks: Iterable[tuple[Tensor, np.ndarray]], queries: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """On scores of all documents, some at a time, for the k best of each query.

    >>> blocks = [(torch.tensor([[0.5, 2.0]]), np.array([0, 1])), (torch.ones(1, 1), np.array([2]))]
    >>> ranks, scores = best_of(blocks, queries=1, k=2)
    >>> ranks.tolist(), scores.tolist()
    ([[1, 2]], [[2.0, 1.0]])

    Args:
        blocks: scores [Q, n] in fp32, and the documents' ranks in the order that breaks ties [n].
        queries: Q.
        k: documents per query.

    Returns:
        As :func:`top_k`.
    """
    keys = _best_of(blocks, queries, k)
    return (_LOW - (keys & 0xFFFFFFFF)).numpy(), _scores(keys).numpy()


def _best_of(blocks: Iterable[tuple[Tensor, np.ndarray]], queries: int, k: int) -> Tensor:
    """Keys of the best documents of some queries. [Q, min(k, N)]"""
    best: Tensor | None = None
    for scores, ranks in blocks:
        if best is None:
            best = torch.empty((queries, 0), dtype=torch.int64, device=scores.device)
        block_ranks = torch.from_numpy(np.asarray(ranks)).to(scores.device).long()
        best = torch.cat([best, _candidates(scores, block_ranks, best, k)], dim=1)
        best = best.topk(min(k, best.shape[1]), dim=1).values
    if best is None:
        return torch.empty((queries, 0), dtype=torch.int64)
    return best.cpu()


def _scores_of_blocks(
    queries: Tensor,
    vectors: np.ndarray | Tensor,
    ranks: np.ndarray,
    block: int,
    turned: TurnedVectors | None,
) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Scores [Q, n] of some documents at a time, and their ranks."""
    for start in range(0, len(vectors), block):
        documents = _copied(vectors[start : start + block], queries.device).float()
        if turned is not None:
            turned.turn(documents, start)
        # Matrix products treat a last incomplete group of rows differently, in the last bit; equal
        # documents must tie.
        padded = documents
        if len(documents) % _EVEN:
            padded = F.pad(documents, (0, 0, 0, -len(documents) % _EVEN))
        yield (queries @ padded.T)[:, : len(documents)], ranks[start : start + block]


def _copied(vectors: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """A copy on a device: vectors may be a read-only map of a file, and alpha changes them."""
    if isinstance(vectors, Tensor):
        return vectors.to(device, copy=True)
    return torch.from_numpy(np.array(vectors)).to(device)


def _candidates(scores: Tensor, ranks: Tensor, best: Tensor, k: int) -> Tensor:
    """Keys of a block's documents that may be among the k best. [Q, ...]

    Rows with fewer of them are filled up with the worst key.
    """
    if best.shape[1] < k:
        return _keys(scores, ranks)
    # Behind the first blocks few documents beat the k-th best, and only their keys are computed.
    kept = scores >= _scores(best[:, -1:])
    queries, columns = kept.nonzero(as_tuple=True)
    counts = kept.sum(dim=1)
    keys = torch.full(
        (len(scores), int(counts.max())), _WORST, dtype=torch.int64, device=scores.device
    )
    # Kept documents stand query by query: number each within its query.
    first_of_query = counts.cumsum(0) - counts
    numbers = torch.arange(len(queries), device=scores.device) - first_of_query[queries]
    keys[queries, numbers] = _keys(scores[queries, columns], ranks[columns])
    return keys


def _keys(scores: Tensor, ranks: Tensor) -> Tensor:
    """Integers in the order of the scores; among equal scores a lower rank has the higher key."""
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    # The bits of a positive float are in its order. Those of a negative one grow with its size, so
    # all but the sign are inverted.
    ordered = torch.where(bits < 0, bits ^ _LOW, bits).long()
    return (ordered << 32) | (_LOW - ranks)


def _scores(keys: Tensor) -> Tensor:
    """The scores of keys: :func:`_keys` the other way round."""
    ordered = (keys >> 32).int()
    return torch.where(ordered < 0, ordered ^ _LOW, ordered).view(torch.float32)
