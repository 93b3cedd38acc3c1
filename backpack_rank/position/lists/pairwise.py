r"""Pairwise ranking prompting (PRP): a list is ranked by comparisons of two passages.

See Qin et al., 2023, section 3.

A comparison is a list of two, so any listwise ranker can make it. Both orders are asked; the
passage that comes first in both is preferred, and where they disagree the two are tied, which is
how PRP deals with a preference for the first or the second place. Tang et al. compare with
PRP-Sliding-10 on sorting tasks (Table 8, appendix D.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from backpack_rank.constructors import Count, checked
from backpack_rank.position.lists.base import ListwiseRanker, RankerWrapper, Ranking
from backpack_rank.position.lists.passages import PassageList

_PAIRS_PER_CALL = 4096
"""Comparisons that the inner ranker gets at once at most: it holds the prompts of a call in memory.
"""


class PairwiseRanker(RankerWrapper):
    """What to subclass for a way of ranking by comparisons.

    Passages of one list are compared once; what came out is remembered while the list is ranked. A
    list of one passage is not asked about. An answer to a comparison that names only one passage
    prefers it; one that names none is no answer, and the two are tied. Passages behind all others
    of which no comparison had an answer count as left out.

    Attributes:
        ranker: compares two passages, as lists of two; it needs no windows inside.
        compared: comparisons so far, of two lists each.
        tied: those of them that preferred neither passage.
    """

    def __init__(self, ranker: ListwiseRanker) -> None:
        super().__init__(ranker)
        self.compared = 0
        self.tied = 0

    def _compare(self, pairs: Sequence[tuple[_Compared, int, int]]) -> None:
        """Ask about the pairs of positions that were not compared yet.

        Args:
            pairs: each a list with two positions; no pair stands twice. Those of all lists are
                asked about together.
        """
        new = []
        for known, first, second in pairs:
            if (first, second) not in known:
                new.append((known, min(first, second), max(first, second)))
        for start in range(0, len(new), _PAIRS_PER_CALL):
            part = new[start : start + _PAIRS_PER_CALL]
            shown = []
            for known, low, high in part:
                shown.append(known.passages.select((low, high)))
                shown.append(known.passages.select((high, low)))
            answers = self.ranker.rank(shown)
            answers_to_both_orders = zip(answers[::2], answers[1::2], strict=True)
            for (known, low, high), (forth, back) in zip(part, answers_to_both_orders, strict=True):
                self.compared += 1
                if not known.add(low, high, forth, back):
                    self.tied += 1


class AllPairs(PairwiseRanker):
    """Short lists: every pair is compared (PRP-Allpair)::

        rankings = AllPairs(CausalLmRanker(model, pair_tokenizer)).rank(lists)

    A passage gets a point for each win and half a point for each tie. Scores are the points; equal
    ones stand in input order. m passages take m (m - 1) / 2 comparisons.
    """

    label = "PRP all pairs"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list, the comparisons of all lists together."""
        compared = [_Compared(passages) for passages in lists]
        pairs = []
        for known in compared:
            for low, high in combinations(range(len(known.passages)), 2):
                pairs.append((known, low, high))
        self._compare(pairs)
        rankings = []
        for known in compared:
            points = np.zeros(len(known.passages))
            for low, high in combinations(range(len(points)), 2):
                preferred = known.preferred(low, high)
                if preferred is None:
                    points[[low, high]] += 0.5
                else:
                    points[preferred] += 1
            rankings.append(known.ranking(Ranking.of_scores(points).order, points))
        return rankings


@checked("pairwise")
class SlidingPairs(PairwiseRanker):
    """Long lists of which the first places matter (PRP-Sliding-K)::

        rankings = SlidingPairs(CausalLmRanker(model, pair_tokenizer), passes=10).rank(lists)

    It makes K passes of bubble sort from the back to the front, by comparisons of neighbours. A
    passage that is preferred to the one before it changes places with it; tied ones stay. The first
    pass brings the best passage to the front, the next one the second best behind it, so the first
    K places are settled and the others are only nearer to their places. A pass ends at what earlier
    passes have settled: going on to the front would compare what was compared before. There are no
    scores. m passages take at most K (2m - K - 1) / 2 comparisons, with K below m; more passes than
    m - 1 change nothing.

    Attributes:
        passes: K; 10 in the paper.
    """

    def __init__(self, ranker: ListwiseRanker, passes: Count = 10) -> None:
        super().__init__(ranker)
        self.passes = passes
        self.label = f"PRP sliding {passes}"

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list.

        All lists move on together, so there is one call of the ranker for each step.
        """
        compared = [_Compared(passages) for passages in lists]
        orders = [list(range(len(passages))) for passages in lists]
        # Until the last pass of the longest list has come to the places that are settled.
        longest = max(map(len, orders), default=0)
        steps = longest + min(self.passes, longest - 1) - 2
        for step in range(max(0, steps)):
            neighbours = []
            pairs = []
            for known, order in zip(compared, orders, strict=True):
                for place in _places(len(order), self.passes, step):
                    neighbours.append((known, order, place))
                    pairs.append((known, order[place], order[place + 1]))
            self._compare(pairs)
            # Pairs of one step share no passage, so the order of these swaps does not matter.
            for known, order, place in neighbours:
                front, back = order[place : place + 2]
                if known.preferred(front, back) == back:
                    order[place : place + 2] = back, front
        rankings = []
        for known, order in zip(compared, orders, strict=True):
            rankings.append(known.ranking(np.array(order)))
        return rankings


class _Compared:
    """A list and the answers about pairs of its passages, whichever of the two is named first."""

    def __init__(self, passages: PassageList) -> None:
        self.passages = passages
        self._preferred: dict[tuple[int, int], int | None] = {}
        # Of one passage there was nothing to ask.
        self._answered = np.full(len(passages), len(passages) == 1)

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return (min(pair), max(pair)) in self._preferred

    def preferred(self, first: int, second: int) -> int | None:
        """Which of two positions that were compared is preferred; None: they are tied."""
        return self._preferred[min(first, second), max(first, second)]

    def add(self, low: int, high: int, forth: Ranking, back: Ranking) -> bool:
        """Take the answers to [low, high] and [high, low]; returns whether both prefer the same."""
        # An answer may name nothing, and then prefers neither.
        preferences = []
        if len(forth.ranked):
            preferences.append((low, high)[forth.ranked[0]])
        if len(back.ranked):
            preferences.append((high, low)[back.ranked[0]])
        if preferences:
            self._answered[[low, high]] = True
        agree = len(preferences) == 2 and preferences[0] == preferences[1]
        self._preferred[low, high] = preferences[0] if agree else None
        return agree

    def ranking(self, order: np.ndarray, scores: np.ndarray | None = None) -> Ranking:
        """With the length of what was answered, where passages without an answer are at the end.

        They stand there in input order: without an answer there is no preference that could have
        moved them.
        """
        answered = np.flatnonzero(self._answered[order])
        num_ranked = int(answered[-1]) + 1 if len(answered) else 0
        if num_ranked == len(order):
            return Ranking(order, scores)
        return Ranking(order, scores, num_ranked)


def _places(length: int, passes: int, step: int) -> Iterator[int]:
    """Places of the front passages of the pairs that are compared at a step of the bubble sort.

    A pass starts two steps behind the pass before it, which has then left the places that it comes
    to. So the result is that of passes one after the other, in length + passes steps and not in
    length * passes.
    """
    for number in range(min(passes, length - 1)):
        place = length - 2 - (step - 2 * number)
        # A pass begins at the last pair, and ends in front of what earlier passes have settled.
        if number <= place <= length - 2:
            yield place
