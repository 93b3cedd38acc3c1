"""MatchPyramid: the match matrix of two texts is read like a picture.

Pang et al. 2016, at AAAI and at Neu-IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backpack_rank.checks import one_of
from backpack_rank.constructors import Layers, Length, OneOf, Width
from backpack_rank.models.interactions.base import Interaction, Words, cosine_match

MATCHES = ("cosine", "dot")


class MatchPyramid(Interaction):
    """Convolutions over the match matrix, dynamic max pooling to a fixed grid, and an MLP.

    The matrix has the size of the two texts. What lies beyond is cleared after every convolution,
    so convolutions see zeros there, however large the batch. Dynamic pooling divides the real rows
    and columns of a pair into cells (cell i of p covers floor(i n / p) to ceil((i + 1) n / p), so
    that cells share terms where a text has fewer than p) and takes the maximum of each. A pair with
    an empty text has 0 in every cell.

    Feature maps and windows are those of the AAAI paper, the grid is that of the study on ad-hoc
    retrieval. As in the authors' toolkit there is one pooling, behind the last convolution.

    Args:
        embedding_size: e; no weight depends on it.
        filters: feature maps of each convolution.
        windows: height and width of each convolution, odd.
        pool: cells for query and document.
        hidden: width of the MLP.
        match: ``cosine`` or ``dot`` product of word vectors.

    Raises:
        ValueError: an option has a value that the network cannot be built from; it is named.
    """

    def __init__(
        self,
        embedding_size: int,
        filters: Annotated[Sequence[Width], Length(1, 10)] = (8, 16),
        windows: Annotated[Sequence[Layers], Length(1, 10)] = (5, 3),
        pool: Annotated[Sequence[Layers], Length(2, 2)] = (3, 10),
        hidden: Width = 128,
        match: Annotated[str, OneOf(MATCHES)] = "cosine",
    ) -> None:
        super().__init__()
        one_of("match", match, MATCHES)
        if not filters or len(filters) != len(windows):
            raise ValueError(
                f"filters={list(filters)} and windows={list(windows)}: give one of each per "
                "convolution"
            )
        for window in windows:
            if window < 1 or window % 2 == 0:
                raise ValueError(
                    f"windows={list(windows)}: {window} is not odd, so such a window has no middle"
                )
        if len(pool) != 2 or min(pool) < 1:
            raise ValueError(
                f"pool={list(pool)}: give two numbers of cells, for query and document, each at "
                "least 1"
            )
        self.match = match
        self.pool = tuple(pool)
        self.convolutions = nn.ModuleList()
        for (before, after), window in zip(pairwise((1, *filters)), windows, strict=True):
            self.convolutions.append(nn.Conv2d(before, after, window, padding=window // 2))
        self.dense = nn.Linear(filters[-1] * pool[0] * pool[1], hidden)
        self.score = nn.Linear(hidden, 1)

    def compare(self, query: Words, document: Words) -> Tensor:
        """See :class:`Interaction`."""
        if self.match == "cosine":
            matrix = cosine_match(query.vectors, document.vectors)
        else:
            matrix = query.vectors @ document.vectors.transpose(1, 2)
        outside = ~(query.mask[:, None, :, None] & document.mask[:, None, None, :])
        maps = matrix[:, None].to(self.dense.weight.dtype)
        for convolution in self.convolutions:
            maps = F.relu(convolution(maps)).masked_fill(outside, 0.0)
        cells = dynamic_max_pool(maps, query.mask.sum(dim=1), document.mask.sum(dim=1), self.pool)
        return self.score(F.relu(self.dense(cells.flatten(1)))).squeeze(-1)


def dynamic_max_pool(maps: Tensor, rows: Tensor, columns: Tensor, pool: Sequence[int]) -> Tensor:
    """Largest value in each cell of a grid over the real rows and columns of each map.

    >>> maps = torch.arange(6.0).view(1, 1, 2, 3)  # rows 0 1 2 and 3 4 5
    >>> dynamic_max_pool(maps, torch.tensor([2]), torch.tensor([2]), (1, 2))
    tensor([[[[3., 4.]]]])

    Args:
        maps: [B, C, Q, D].
        rows: real rows of each map, at most Q. [B]
        columns: real columns, at most D. [B]
        pool: cells of the grid, p and r.

    Returns:
        [B, C, p, r]; 0 where a map has no real row or no real column.
    """
    by_row = _max_of_cells(maps, rows, pool[0])  # [B, C, p, D]
    return _max_of_cells(by_row.transpose(2, 3), columns, pool[1]).transpose(2, 3)


def _max_of_cells(values: Tensor, sizes: Tensor, cells: int) -> Tensor:
    """Largest values in equal parts of the third dimension, 0 in maps where its size is 0.

    Args:
        values: [B, C, N, M].
        sizes: real length of the third dimension. [B]
        cells: number of parts.

    Returns:
        [B, C, cells, M]
    """
    place = torch.arange(values.shape[2], device=values.device)
    maxima = []
    for cell in range(cells):
        # Cell i of p covers floor(i n / p) to ceil((i + 1) n / p).
        start = cell * sizes // cells
        end = -(-(cell + 1) * sizes // cells)
        inside = (place >= start[:, None]) & (place < end[:, None])
        outside = ~inside[:, None, :, None]
        maxima.append(values.masked_fill(outside, float("-inf")).amax(dim=2))
    empty = (sizes == 0)[:, None, None, None]
    return torch.stack(maxima, dim=2).masked_fill(empty, 0.0)
