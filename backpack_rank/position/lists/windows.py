r"""Sliding windows over a long list, from its back to its front.

They are those of RankGPT (Tang et al., section 2.2).
With windows of ``size`` passages that move by ``stride``, the last ``size`` passages are ranked
first. The best of them stand at the front of that window, which the next window, ``stride`` nearer
to the front, takes in. So ``size - stride`` passages can come from the very back to the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.checks import whole_number
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList


@dataclass
class SlidingWindows(RankerWrapper):
    """Use this to rank long lists by a ranker of short ones::

        ranker = SlidingWindows(CausalLmRanker(model, pair_tokenizer), size=20, stride=10)
        rankings = ranker.rank(lists)

    Rankings have no scores, since those of different windows do not compare. Passages of a window
    that the ranker left out stand at its end, as it has them; of the whole ranking those count as
    left out that stand behind all others and that the last window to show them left out.

    Attributes:
        ranker: ranks one window.
        size: passages of a window; None: one window for the whole list.
        stride: passages by which the window moves; no more than ``size``, or some would be in no
            window.
    """

    ranker: ListwiseRanker
    size: int | None = 20
    stride: int = 10

    def __post_init__(self) -> None:
        whole_number("windows: size", self.size, 2, null="for the whole list")
        whole_number("windows: stride", self.stride, 1)
        if self.size is not None and self.stride > self.size:
            raise ValueError(
                f"stride={self.stride} is more than size={self.size}: passages between two windows "
                "would not be ranked"
            )
        self.label = f"windows {self.size}/{self.stride}" if self.size else "one window"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list.

        All lists move on together, so there is one call of the ranker for each step.
        """
        orders = [np.arange(len(passages)) for passages in lists]
        left_out = [np.zeros(len(passages), dtype=bool) for passages in lists]
        edges = [window_edges(len(passages), self.size, self.stride) for passages in lists]
        for step in range(max(map(len, edges), default=0)):
            # A part of ``orders[number]`` for each list that has a window left; writing to it moves
            # passages of the list.
            numbers = [number for number in range(len(lists)) if step < len(edges[number])]
            windows = [orders[number][slice(*edges[number][step])] for number in numbers]
            shown = [lists[n].select(window) for n, window in zip(numbers, windows, strict=True)]
            rankings = self.ranker.rank(shown)
            for number, window, ranking in zip(numbers, windows, rankings, strict=True):
                # The last window to show a passage decides whether it was left out.
                left_out[number][window] = True
                left_out[number][window[ranking.ranked]] = False
                window[:] = window[ranking.order]
        return [_ranking(order, out) for order, out in zip(orders, left_out, strict=True)]


def window_edges(length: int, size: int | None, stride: int) -> list[tuple[int, int]]:
    """First position and end of each window, in the order in which they are ranked.

    The last one starts at 0.

    >>> window_edges(25, size=10, stride=5)
    [(15, 25), (10, 20), (5, 15), (0, 10)]
    >>> window_edges(12, size=10, stride=5)  # the front window is smaller
    [(2, 12), (0, 7)]

    The windows of rank_llm (``ListwiseRankLLM.sliding_windows``), with one difference: rank_llm
    does not rank a list of exactly ``size - stride`` passages; here it is one window. The front
    window is smaller than ``size`` where the list is no whole number of strides longer than a
    window.
    """
    edges: list[tuple[int, int]] = []
    end = length
    while not edges or edges[-1][0] > 0:
        edges.append((max(0, end - (size or length)), end))
        end -= stride
    return edges


def _ranking(order: np.ndarray, left_out: np.ndarray) -> Ranking:
    """The ranking of a list; passages at its end that the ranker left out count as left out."""
    named = np.flatnonzero(~left_out[order])
    num_ranked = int(named[-1]) + 1 if len(named) else 0
    return Ranking(order, num_ranked=None if num_ranked == len(order) else num_ranked)
