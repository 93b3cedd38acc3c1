r"""Pairwise ranking prompting: a list is ranked by comparisons of two passages (PRP; Qin et al.,
2023, section 3).

A comparison is a list of two, so any listwise ranker can make it. Both orders are asked; the
passage that comes first in both is preferred, and where they disagree the two are tied, which is
how PRP deals with a preference for the first or the second place. Tang et al. compare with
PRP-Sliding-10 on sorting tasks (Table 8, appendix D.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from backpack_rank.constructors import Count, checked
from backpack_rank.position.lists.base import RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList

_PAIRS_PER_CALL = 4096
"""Comparisons that the inner ranker gets at once at most: it holds the prompts of a call in memory.
"""


@dataclass
class PairwiseRanker(RankerWrapper):
    """What both ways of ranking by comparisons share.

    Passages of one list are compared once; what came out is remembered while the list is ranked. A
    list of one passage is not asked about. An answer to a comparison that names only one passage
    prefers it; one that names none is no answer, and the two are tied. As left out count passages
    behind all others of which no comparison had an answer.

    Attributes:
        ranker: compares two passages, as lists of two; it needs no windows inside.
        compared: comparisons so far, of two lists each.
        tied: those of them that preferred neither passage.
    """

    compared: int = field(default=0, init=False)
    tied: int = field(default=0, init=False)

    def _compare(self, pairs: Sequence[tuple[_Compared, int, int]]) -> None:
        """Ask about pairs of positions that were not compared yet, different ones, of any lists
        together.
        """
        new = [
            (known, min(one, other), max(one, other))
            for known, one, other in pairs
            if (one, other) not in known
        ]
        for start in range(0, len(new), _PAIRS_PER_CALL):
            part = new[start : start + _PAIRS_PER_CALL]
            shown = [
                known.passages.select(order)
                for known, low, high in part
                for order in ((low, high), (high, low))
            ]
            ranked = self.ranker.rank(shown)
            for (known, low, high), forth, back in zip(
                part, ranked[::2], ranked[1::2], strict=True
            ):
                self.compared += 1
                self.tied += not known.add(low, high, forth, back)


@dataclass
class AllPairs(PairwiseRanker):
    """PRP-Allpair: every pair is compared; a passage gets a point for each win and half a point for
    each tie.

    Scores are the points; equal ones stand in input order. m passages take m (m - 1) / 2
    comparisons.
    """

    def __post_init__(self) -> None:
        self.label = "PRP all pairs"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list, the comparisons of all lists together."""
        compared = [_Compared(one) for one in lists]
        self._compare(
            [(one, *pair) for one in compared for pair in combinations(range(len(one.passages)), 2)]
        )
        found = []
        for one in compared:
            points = np.zeros(len(one.passages))
            for low, high in combinations(range(len(points)), 2):
                preferred = one.preferred(low, high)
                if preferred is None:
                    points[[low, high]] += 0.5
                else:
                    points[preferred] += 1
            found.append(one.ranking(Ranking.of_scores(points).order, points))
        return found


@checked("pairwise")
@dataclass
class SlidingPairs(PairwiseRanker):
    """PRP-Sliding-K: K passes of bubble sort from the back to the front, by comparisons of
    neighbours.

    A passage that is preferred to the one before it changes places with it; tied ones stay. The
    first pass brings the best passage to the front, the next one the second best behind it, so the
    first K places are settled and the others
    are only nearer to their places. A pass ends at what earlier passes have settled: going on to
    the front would compare what was compared before. There are no scores. m passages take at most K
    (2m - K - 1) / 2 comparisons, with K below m; more passes than m - 1 change nothing.

    Attributes:
        passes: K; 10 in the paper.
    """

    passes: Count = 10

    def __post_init__(self) -> None:
        self.label = f"PRP sliding {self.passes}"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list. All lists move on together: one call of the ranker for each
        step.
        """
        compared = [_Compared(one) for one in lists]
        orders = [list(range(len(one))) for one in lists]
        for step in range(max((_steps(len(one), self.passes) for one in lists), default=0)):
            places = [
                (n, place)
                for n, one in enumerate(lists)
                for place in _places(len(one), self.passes, step)
            ]
            self._compare(
                [(compared[n], orders[n][place], orders[n][place + 1]) for n, place in places]
            )
            for n, place in places:
                front, back = orders[n][place : place + 2]
                if compared[n].preferred(front, back) == back:
                    orders[n][place : place + 2] = back, front
        return [one.ranking(np.array(order)) for one, order in zip(compared, orders, strict=True)]


class _Compared:
    """A list and what is known about pairs of its passages, whichever of the two is named first."""

    def __init__(self, passages: PassageList) -> None:
        self.passages = passages
        self._preferred: dict[tuple[int, int], int | None] = {}
        self._answered = np.full(
            len(passages), len(passages) == 1
        )  # there was nothing to ask about one passage

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return (min(pair), max(pair)) in self._preferred

    def preferred(self, one: int, other: int) -> int | None:
        """The preferred one of two positions that were compared; None: they are tied."""
        return self._preferred[min(one, other), max(one, other)]

    def add(self, low: int, high: int, forth: Ranking, back: Ranking) -> bool:
        """Take the answers to [low, high] and [high, low]; returns whether they prefer one of the
        two.
        """
        first = [(low, high)[place] for place in forth.ranked[:1]] + [
            (high, low)[place] for place in back.ranked[:1]
        ]
        self._answered[[low, high]] |= bool(first)
        agree = len(first) == 2 and first[0] == first[1]
        self._preferred[low, high] = first[0] if agree else None
        return agree

    def ranking(self, order: np.ndarray, scores: np.ndarray | None = None) -> Ranking:
        """With the length of what was answered, where passages without an answer are at the end.

        They stand there in input order: without an answer there is no preference that could have
            moved them.
        """
        answered = np.flatnonzero(self._answered[order])
        named = int(answered[-1]) + 1 if len(answered) else 0
        return Ranking(order, scores, None if named == len(order) else named)


def _places(length: int, passes: int, step: int) -> Iterator[int]:
    """Places of the front passages of the pairs that a bubble sort with these passes compares at a
    step.

    A pass starts two steps behind the one before it, which has then left the places that it comes
    to, so that the result is that of one pass after the other, in length + passes steps and not in
    length * passes.
    """
    for number in range(min(passes, length - 1)):
        place = length - 2 - (step - 2 * number)
        if number <= place <= length - 2:
            yield place


def _steps(length: int, passes: int) -> int:
    """Steps until the last pass has come to the places that are settled."""
    return max(0, length + min(passes, length - 1) - 2)
