r"""How much a ranking depends on the order of its input: the list as it is, reversed and shuffled (papers 000, 002).

A ranker without position bias gives one ranking whatever the order: Kendall's tau between its outputs is 1, and the
measures do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from scipy import stats

from backpack_rank.data.collection import Qrels
from backpack_rank.data.passages import PassageList
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.listwise.base import ListwiseRanker, Ranking
from backpack_rank.listwise.list_runs import effectiveness_of
from backpack_rank.listwise.permutation import shuffles


@dataclass(frozen=True, eq=False)
class OrderRobustness:
    """Rankings of the same lists in several input orders.

    Attributes:
        orders: names of the input orders: ``original``, ``reversed``, ``shuffled 1``, ...
        rankings: for each input order one ranking for each list, in positions of the list as given.
        taus: Kendall's tau between the outputs for each two input orders. float64 [lists, orders, orders]
        effectiveness: measures for each input order; empty without judgements.
    """

    orders: tuple[str, ...]
    rankings: tuple[tuple[Ranking, ...], ...]
    taus: np.ndarray
    effectiveness: tuple[PerQuery, ...]

    @property
    def tau(self) -> np.ndarray:
        """Mean of :attr:`taus` over the lists. float64 [orders, orders]"""
        return self.taus.mean(axis=0)


def order_robustness(
    ranker: ListwiseRanker,
    lists: Sequence[PassageList],
    qrels: Qrels | None = None,
    *,
    shuffled: int = 1,
    seed: int = 0,
    measures: Sequence[str] = ("nDCG@10",),
) -> OrderRobustness:
    """Rank every list as it is, reversed, and in ``shuffled`` random orders, in one call of the ranker.

    Args:
        ranker: any.
        lists: of two passages or more.
        qrels: judgements, for the measures; None: only Kendall's tau. The lists need ids then.
        shuffled: random orders of each list, 0 or more.
        seed: of the shuffles.
        measures: of effectiveness.

    Raises:
        ValueError: no list, a list of one passage (it has one order only), or lists that no run can hold.
    """
    if not lists:
        raise ValueError("there is no list to rank in several orders")
    if short := [one for one in lists if len(one) < 2]:
        raise ValueError(f"query {short[0].query_id or short[0].query!r} has one passage, which has one order only")
    if shuffled < 0:
        raise ValueError(f"shuffled={shuffled} must be a number of random orders, 0 or more")
    names = ("original", "reversed", *(f"shuffled {number + 1}" for number in range(shuffled)))
    orders = [_orders(one, shuffled, seed) for one in lists]
    jobs = [(number, place) for place in range(len(names)) for number in range(len(lists))]
    ranked = ranker.rank([lists[number].select(orders[number][place]) for number, place in jobs])
    found = [_in_place(r, orders[number][place]) for r, (number, place) in zip(ranked, jobs, strict=True)]
    rankings = tuple(tuple(found[place * len(lists) : (place + 1) * len(lists)]) for place in range(len(names)))
    measured = () if qrels is None else tuple(effectiveness_of(lists, part, qrels, measures) for part in rankings)
    return OrderRobustness(names, rankings, _taus(rankings), measured)


def _orders(passages: PassageList, shuffled: int, seed: int) -> list[np.ndarray]:
    original = np.arange(len(passages))
    return [original, original[::-1], *islice(shuffles(passages, seed), shuffled)]


def _in_place(ranking: Ranking, order: np.ndarray) -> Ranking:
    """The ranking of a list in another order, in positions of the list as given."""
    return Ranking(order[ranking.order], num_ranked=ranking.num_ranked)


def _taus(rankings: Sequence[Sequence[Ranking]]) -> np.ndarray:
    ranks = [[ranking.ranks() for ranking in part] for part in rankings]
    taus = np.ones((len(ranks[0]), len(ranks), len(ranks)))
    for first, second in combinations(range(len(ranks)), 2):
        for number, (one, other) in enumerate(zip(ranks[first], ranks[second], strict=True)):
            taus[number, first, second] = taus[number, second, first] = stats.kendalltau(one, other).statistic
    return taus
