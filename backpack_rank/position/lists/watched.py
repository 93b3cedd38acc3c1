"""A listwise ranker that looks at a clock while it ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList

_LISTS_PER_LOOK = 4
"""On a CPU, each may take a second."""


class _Watched(RankerWrapper):
    """The innermost ranker, which runs a model, a few lists at a time."""

    def __init__(self, ranker: ListwiseRanker, look: Callable[[], None]) -> None:
        super().__init__(ranker)
        self._look = look

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        rankings: list[Ranking] = []
        for start in range(0, len(lists), _LISTS_PER_LOOK):
            self._look()
            rankings += self.ranker.rank(lists[start : start + _LISTS_PER_LOOK])
        return rankings


def watched(ranker: ListwiseRanker, look: Callable[[], None]) -> ListwiseRanker:
    """End the work of a ranker and all its wrappers early: ``look`` raises then.

    Args:
        ranker: it is not changed; its model is shared.
        look: called every few lists, in front of them.
    """
    if not isinstance(ranker, RankerWrapper):
        return _Watched(ranker, look)
    wrapper = copy.copy(ranker)
    wrapper.ranker = watched(ranker.ranker, look)
    return wrapper
