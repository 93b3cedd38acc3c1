r"""Sliding windows over a long list, from its back to its front.

They are those of RankGPT (Tang et al., section 2.2).
With windows of ``size`` passages that move by ``stride``, the last ``size`` passages are ranked
first. The best of them stand at the front of that window, which the next window, ``stride`` nearer
to the front, takes in. So ``size - stride`` passages can come from the very back to the front.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backpack_rank.checks import whole_number
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList


class SlidingWindows(RankerWrapper):
    """Ranks long lists by a ranker of short ones::

        ranker = SlidingWindows(CausalLmRanker(model, pair_tokenizer), size=20, stride=10)
        rankings = ranker.rank(lists)

    Rankings have no scores, since those of different windows do not compare. Passages that the
    ranker leaves out of a window stand at the window's end. In the ranking of the list those count
    as left out that stand behind all others and that the last window to show them left out.

    Attributes:
        ranker: ranks one window.
        size: passages of a window; None: one window for the whole list.
        stride: passages by which the window moves; no more than ``size``, or some would be in no
            window.
    """

    def __init__(self, ranker: ListwiseRanker, size: int | None = 20, stride: int = 10) -> None:
        """See the class.

        Raises:
            ValueError: a size below 2, a stride below 1, or a stride above the size.
        """
        whole_number("windows: size", size, 2, null="for the whole list")
        whole_number("windows: stride", stride, 1)
        if size is not None and stride > size:
            raise ValueError(
                f"stride={stride} is more than size={size}: passages between two windows "
                "would not be ranked"
            )
        super().__init__(ranker)
        self.size = size
        self.stride = stride
        self.label = f"windows {size}/{stride}" if size else "one window"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list.

        All lists move on together, so there is one call of the ranker for each step.
        """
        states = [_ListState(passages, self.size, self.stride) for passages in lists]
        most_windows = max((len(state.edges) for state in states), default=0)
        for step in range(most_windows):
            # Short lists have fewer windows and are done earlier.
            unfinished = [state for state in states if step < len(state.edges)]
            rankings = self.ranker.rank([state.window(step) for state in unfinished])
            for state, ranking in zip(unfinished, rankings, strict=True):
                state.reorder(step, ranking)
        return [state.ranking() for state in states]


class _ListState:
    """A list while windows move over it.

    Attributes:
        passages: the list.
        edges: of its windows, in the order in which they are ranked.
        order: input positions of the passages, as the windows so far have put them. int64 [m]
        left_out: by input position, whether the last window to show the passage left it out.
            bool [m]
    """

    def __init__(self, passages: PassageList, size: int | None, stride: int) -> None:
        self.passages = passages
        self.edges = window_edges(len(passages), size, stride)
        self.order = np.arange(len(passages))
        self.left_out = np.zeros(len(passages), dtype=bool)

    def window(self, step: int) -> PassageList:
        """The passages to rank at a step."""
        start, end = self.edges[step]
        return self.passages.select(self.order[start:end])

    def reorder(self, step: int, ranking: Ranking) -> None:
        """Put the passages of a window into the order of its ranking."""
        start, end = self.edges[step]
        shown = self.order[start:end].copy()
        # A later window that names a passage makes up for an earlier one that left it out.
        self.left_out[shown] = True
        self.left_out[shown[ranking.ranked]] = False
        self.order[start:end] = shown[ranking.order]

    def ranking(self) -> Ranking:
        """The ranking of the list; its tail of passages that were left out counts as left out.

        A passage that was left out but stands before a named one is ranked: a later window moved
        it there.
        """
        named = np.flatnonzero(~self.left_out[self.order])
        num_ranked = int(named[-1]) + 1 if len(named) else 0
        if num_ranked == len(self.order):
            return Ranking(self.order)
        return Ranking(self.order, num_ranked=num_ranked)


def window_edges(length: int, size: int | None, stride: int) -> list[tuple[int, int]]:
    """Which windows a list gets: first position and end of each, as ranked.

    >>> window_edges(25, size=10, stride=5)
    [(15, 25), (10, 20), (5, 15), (0, 10)]
    >>> window_edges(12, size=10, stride=5)  # the front window is smaller
    [(2, 12), (0, 7)]

    The windows of rank_llm (``ListwiseRankLLM.sliding_windows``), with one difference: rank_llm
    does not rank a list of exactly ``size - stride`` passages; here it is one window. The front
    window is smaller than ``size`` where the list is not longer than a window by a multiple of the
    stride. The last window starts at 0.
    """
    edges: list[tuple[int, int]] = []
    end = length
    while not edges or edges[-1][0] > 0:
        edges.append((max(0, end - (size or length)), end))
        end -= stride
    return edges
