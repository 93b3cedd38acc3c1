"""Listwise rankers whose answers are known by hand. Passages are numbers as text; larger ones are
more relevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from backpack_rank.position.lists.base import ListwiseRanker, Ranking, Usage
from backpack_rank.position.lists.passages import PassageList


class SmallRanker(ListwiseRanker):
    """Best first by number minus ``slope`` times input position; equal scores in input order.

    A slope of 0 is an oracle without position bias, a large one gives the input order back.

    Attributes:
        calls: the lists of every call.
    """

    def __init__(self, slope: float = 0.0, keeps: int | None = None, scores: bool = True) -> None:
        """``keeps``: passages that an answer names; None: all of them."""
        self.slope = slope
        self.keeps = keeps
        self.scores = scores
        self.calls: list[list[PassageList]] = []
        self._usage = Usage()

    @property
    def name(self) -> str:
        return "small"

    @property
    def usage(self) -> Usage:
        return self._usage

    @property
    def lists_asked(self) -> list[PassageList]:
        """The lists of all calls, one after the other."""
        return list(chain.from_iterable(self.calls))

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        self.calls.append(list(lists))
        self._usage.lists += len(lists)
        return [self._rank_list(passages) for passages in lists]

    def _rank_list(self, passages: PassageList) -> Ranking:
        worth = np.array([float(text) for text in passages.passages])
        complete = Ranking.of_scores(worth - self.slope * np.arange(len(passages)))
        if self.keeps is None or self.keeps >= len(passages):
            return complete if self.scores else Ranking(complete.order)
        # Passages that the answer does not name follow in input order.
        named, left_out = np.split(complete.order, [self.keeps])
        return Ranking(np.concatenate([named, np.sort(left_out)]), num_ranked=self.keeps)


class RandomRanker(SmallRanker):
    """Any order, drawn anew for every list."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def _rank_list(self, passages: PassageList) -> Ranking:
        return Ranking(self._rng.permutation(len(passages)))


def numbers(*values: float, query_id: str = "q") -> PassageList:
    """A list of these numbers; ids are d and the number."""
    texts = tuple(f"{value:g}" for value in values)
    return PassageList("which is largest", texts, tuple(f"d{text}" for text in texts), query_id)


def shown(passages: PassageList, ranking: Ranking) -> list[str]:
    """The passages as ranked."""
    return [passages.passages[place] for place in ranking.order]
