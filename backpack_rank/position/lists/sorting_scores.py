"""Scores of sorting tasks: Kendall's tau to the right order, and the share exactly right.

See Tang et al., section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from backpack_rank.position.lists.base import Ranking


class SortingScores:
    """How well lists were sorted.

    Attributes:
        taus: Kendall's tau of each list, 1 is the right order and -1 its reverse. float64 [n]
        exact: whether each list came out exactly right. bool [n]
    """

    def __init__(self, taus: np.ndarray, exact: np.ndarray) -> None:
        self.taus = taus
        self.exact = exact

    @property
    def tau(self) -> float:
        """Mean over the lists; the paper's tables show it times 100."""
        return float(self.taus.mean())

    @property
    def exact_share(self) -> float:
        """Share of the lists that came out exactly right."""
        return float(self.exact.mean())


def sorting_scores(
    rankings: Sequence[Ranking], targets: Sequence[Sequence[float] | np.ndarray]
) -> SortingScores:
    """Compare rankings of a sorting task with the right order.

    >>> scores = sorting_scores([Ranking(np.array([0, 1, 2]))], [[10, 20, 15]])
    >>> round(scores.tau, 3), scores.exact_share
    (0.333, 0.0)

    Items that an answer left out count where :class:`~backpack_rank.position.lists.base.Ranking`
    puts them: behind the others, in input order. Equal targets have no right order: tau is then
    tau-b, in which such pairs count for neither side, and a list is exactly right when every other
    pair is.

    Args:
        rankings: one for each list.
        targets: right place of the item at each input position, smaller comes first; any numbers,
            such as the items' values. [m] each, m at least 2

    Raises:
        ValueError: no list, targets of another number or size, or of which all are equal.
    """
    if not rankings or len(rankings) != len(targets):
        raise ValueError(
            f"there are {len(rankings)} rankings and {len(targets)} right orders, each ranking "
            "needs one"
        )
    taus = np.empty(len(rankings))
    exact = np.empty(len(rankings), dtype=bool)
    for number, (ranking, target) in enumerate(zip(rankings, targets, strict=True)):
        places = np.asarray(target, dtype=np.float64)
        if places.shape != ranking.order.shape:
            raise ValueError(
                f"list {number + 1}: {len(ranking.order)} items were ranked, {places.size} have a "
                "place"
            )
        if np.all(places == places[0]):
            raise ValueError(
                f"list {number + 1}: its {len(places)} items have one place, so there is nothing "
                "to sort"
            )
        taus[number] = stats.kendalltau(ranking.ranks(), places).statistic
        exact[number] = bool(np.all(np.diff(places[ranking.order]) >= 0))
    return SortingScores(taus, exact)
