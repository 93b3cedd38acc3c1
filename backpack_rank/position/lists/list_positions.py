"""Where in its input a listwise ranker reads: the relevant passage at each position, input orders,
and reversals.

The controlled position experiment (DebiasFirst, Figure 4): each list has one relevant passage. It
is placed at position 1, 2, ... m of the input, the others keep their order, and the list is ranked
each time. All that differs between two positions is where the passage stood, so a ranker without
position bias gives the same measures at all.

Order robustness (DebiasFirst, CapCal): the list as it is, reversed and shuffled. A ranker without
    position bias gives
one ranking whatever the order: Kendall's tau between its outputs is 1, and the measures do not
    change.

Reversals (Tang et al., 3.2): for input positions i < j of a randomly shuffled list, the pair is
reversed when the passage read at j comes out before the passage read at i. Shuffling severs input
order from relevance, so without
position bias every pair of positions is reversed in half of the rankings, however good or bad the
ranker is. Fewer: the ranker keeps the input order there. Where the right order is known (the
sorting tasks), pairs can also be counted as
wrong: the output contradicts the right order. A perfect ranker makes no such mistake, a blind one
    half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from scipy import stats

from backpack_rank.data.collection import Qrels
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.position.lists.base import ListwiseRanker, Ranking
from backpack_rank.position.lists.list_runs import effectiveness_of
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import shuffles
from backpack_rank.position.lists.position_curves import PositionCurve
from backpack_rank.position.lists.propensity import stacked_ranks
from backpack_rank.progress import Progress

MEASURES = ("nDCG@10", "MRR", "accuracy@1")


@dataclass(frozen=True, eq=False)
class OneRelevant:
    """Lists of one size with one relevant passage each.

    Attributes:
        lists: in which the relevant passage stands anywhere.
        relevant: its position in each list.
        removed: further relevant passages that were taken out.
        without_relevant: query ids of lists without a relevant passage; they are not in ``lists``.
        too_short: query ids of lists with too few others; likewise.
    """

    lists: tuple[PassageList, ...]
    relevant: tuple[int, ...]
    removed: int
    without_relevant: tuple[str, ...]
    too_short: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ControlledPositions:
    """What came out.

    Attributes:
        ranks: output position, from 0, of the relevant passage of each list, by its input position.
            int64 [lists, m]
    """

    ranks: np.ndarray

    def values(self, measure: str) -> np.ndarray:
        """A measure of :data:`MEASURES` for each list and input position. float64 [lists, m]

        With one relevant passage at rank r (from 1), nDCG@10 is 1 / log2(r + 1), 0 beyond rank 10,
        MRR 1 / r, and accuracy@1 the share of lists that it comes out first of.

        Raises:
            ValueError: another measure.
        """
        rank = self.ranks + 1
        if measure == "nDCG@10":
            return np.where(rank <= 10, 1 / np.log2(rank + 1), 0.0)
        if measure == "MRR":
            return 1 / rank
        if measure == "accuracy@1":
            return (rank == 1).astype(np.float64)
        raise ValueError(f"measure {measure!r}: use one of {', '.join(MEASURES)}")

    def curve(self, measure: str) -> PositionCurve:
        """Means over the lists."""
        values = self.values(measure)
        number = len(values)
        errors = (
            values.std(axis=0, ddof=1) / np.sqrt(number)
            if number > 1
            else np.full(values.shape[1], np.nan)
        )
        return PositionCurve(measure, tuple(values.mean(axis=0).tolist()), tuple(errors.tolist()))


def controlled_positions(
    ranker: ListwiseRanker, lists: Sequence[PassageList], relevant: Sequence[int]
) -> ControlledPositions:
    """Rank every list with its relevant passage at each position, one call of the ranker for each
    position.

    Args:
        ranker: any.
        lists: all of one size m.
        relevant: position of the one relevant passage in each list; see :func:`with_one_relevant`.

    Raises:
        ValueError: no list, lists of several sizes, or a position that a list does not have; names
            the query.
    """
    _check(lists, relevant)
    size = len(lists[0])
    others = [np.delete(np.arange(size), place) for place in relevant]
    ranks = np.empty((len(lists), size), dtype=np.int64)
    for position in Progress(range(size), desc=ranker.name, unit="position"):
        orders = [
            np.insert(rest, position, place) for rest, place in zip(others, relevant, strict=True)
        ]
        shown = [one.select(order) for one, order in zip(lists, orders, strict=True)]
        ranks[:, position] = [ranking.ranks()[position] for ranking in ranker.rank(shown)]
    return ControlledPositions(ranks)


def with_one_relevant(
    lists: Sequence[PassageList],
    relevance: Sequence[Sequence[int]],
    size: int = 20,
    minimum: int = 1,
) -> OneRelevant:
    """Lists of ``size`` passages of which one is relevant, for :func:`controlled_positions`.

    Of each list the first relevant passage stays, wherever it stands, and the first ``size - 1``
    that are not relevant.

    Args:
        lists: of any sizes, in the order of the first stage.
        relevance: of each passage of each list, 0 where it is not judged.
        size: m.
        minimum: relevance from which a passage counts as relevant. Those between 1 and it are taken
            out too: they are neither relevant nor not.

    Raises:
        ValueError: ``size`` below 2, ``minimum`` below 1, relevance that does not fit the lists, or
            no list is left.
    """
    if size < 2 or minimum < 1:
        raise ValueError(
            f"size={size} must be at least 2 passages, and minimum={minimum} a relevance of at "
            "least 1"
        )
    found, places, without, short, removed = [], [], [], [], 0
    for one, grades in zip(lists, relevance, strict=True):
        if len(grades) != len(one):
            raise ValueError(
                f"query {_name(one)}: {len(one)} passages but {len(grades)} judgements"
            )
        first = next((place for place, grade in enumerate(grades) if grade >= minimum), None)
        if first is None:
            without.append(one.query_id)
            continue
        others = [place for place, grade in enumerate(grades) if grade <= 0][: size - 1]
        if len(others) < size - 1:
            short.append(one.query_id)
            continue
        removed += sum(grade > 0 for grade in grades) - 1
        kept = sorted([*others, first])
        found.append(one.select(kept))
        places.append(kept.index(first))
    if not found:
        raise ValueError(
            f"none of the {len(lists)} lists has a relevant passage and {size - 1} others: "
            f"{len(without)} have no relevant one, {len(short)} too few others; give longer lists "
            "or a smaller size"
        )
    return OneRelevant(tuple(found), tuple(places), removed, tuple(without), tuple(short))


def _check(lists: Sequence[PassageList], relevant: Sequence[int]) -> None:
    if not lists:
        raise ValueError("there is no list to place a relevant passage in")
    size = len(lists[0])
    for one, place in zip(lists, relevant, strict=True):
        if len(one) != size:
            raise ValueError(
                f"query {_name(one)} has {len(one)} passages, query {_name(lists[0])} has {size}: "
                "positions compare only between lists of one size"
            )
        if not 0 <= place < size:
            raise ValueError(
                f"query {_name(one)}: there is no position {place} in a list of {size} passages"
            )


def _name(passages: PassageList) -> str:
    return passages.query_id or repr(passages.query)


@dataclass(frozen=True, eq=False)
class OrderRobustness:
    """Rankings of the same lists in several input orders.

    Attributes:
        orders: names of the input orders: ``original``, ``reversed``, ``shuffled 1``, ...
        rankings: for each input order one ranking for each list, in positions of the list as given.
        taus: Kendall's tau between the outputs for each two input orders. float64 [lists, orders,
            orders]
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
    """Rank every list as it is, reversed, and in ``shuffled`` random orders, in one call of the
    ranker.

    Args:
        ranker: any.
        lists: of two passages or more.
        qrels: judgements, for the measures; None: only Kendall's tau. The lists need ids then.
        shuffled: random orders of each list, 0 or more.
        seed: of the shuffles.
        measures: of effectiveness.

    Raises:
        ValueError: no list, a list of one passage (it has one order only), or lists that no run can
            hold.
    """
    if not lists:
        raise ValueError("there is no list to rank in several orders")
    if short := [one for one in lists if len(one) < 2]:
        raise ValueError(
            f"query {short[0].query_id or short[0].query!r} has one passage, which has one order "
            "only"
        )
    if shuffled < 0:
        raise ValueError(f"shuffled={shuffled} must be a number of random orders, 0 or more")
    names = ("original", "reversed", *(f"shuffled {number + 1}" for number in range(shuffled)))
    orders = [_orders(one, shuffled, seed) for one in lists]
    jobs = [(number, place) for place in range(len(names)) for number in range(len(lists))]
    ranked = ranker.rank([lists[number].select(orders[number][place]) for number, place in jobs])
    found = [
        _in_place(r, orders[number][place]) for r, (number, place) in zip(ranked, jobs, strict=True)
    ]
    rankings = tuple(
        tuple(found[place * len(lists) : (place + 1) * len(lists)]) for place in range(len(names))
    )
    measured = (
        ()
        if qrels is None
        else tuple(effectiveness_of(lists, part, qrels, measures) for part in rankings)
    )
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
            taus[number, first, second] = taus[number, second, first] = stats.kendalltau(
                one, other
            ).statistic
    return taus


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Pairs of input positions i < j, and in how many rankings something was the case with them.

    Attributes:
        counts: rankings in which it was, above the diagonal; 0 elsewhere. int64 [k, k]
        of: rankings in which it could have been, likewise.
    """

    counts: np.ndarray
    of: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """``counts / of``; NaN on and below the diagonal, and where nothing was counted. float64
        [k, k]
        """
        return np.divide(
            self.counts, self.of, out=np.full(self.counts.shape, np.nan), where=self.of > 0
        )

    @property
    def mean(self) -> float:
        """Share of all pairs; NaN without a pair."""
        return float(self.counts.sum() / self.of.sum()) if self.of.any() else float("nan")

    @property
    def range(self) -> float:
        """Largest minus smallest of :attr:`shares`: what the positions of a pair make out; NaN
        without a pair.
        """
        shares = self.shares[~np.isnan(self.shares)]
        return float(shares.max() - shares.min()) if len(shares) else float("nan")


def reversals(rankings: Sequence[Ranking], size: int) -> PairCounts:
    """Count reversed pairs.

    Passages that a ranker left out count where :class:`~backpack_rank.position.lists.base.Ranking`
    puts them, behind the others in input order, and are not reversed among themselves.

    Args:
        rankings: of shuffled lists, positions in the order in which they were read.
        size: k, the number of passages of every list.

    Raises:
        ValueError: no ranking, or one of another size.
    """
    ranks = stacked_ranks(rankings, size)
    counts = np.zeros((size, size), dtype=np.int64)
    for row in ranks:  # one at a time: [n, k, k] would be large
        counts += row[:, None] > row[None, :]
    upper = _upper(size)
    return PairCounts(np.where(upper, counts, 0), np.where(upper, len(ranks), 0))


def wrong_pairs(
    rankings: Sequence[Ranking], targets: Sequence[np.ndarray], size: int
) -> PairCounts:
    """Count pairs that come out in the wrong order.

    Args:
        rankings: as in :func:`reversals`.
        targets: for each ranking the right place of the passage at each input position, smaller is
            better; pairs with equal ones have no right order and are not counted. [k] each
        size: k.

    Raises:
        ValueError: no ranking, one of another size, or targets that do not fit.
    """
    ranks = stacked_ranks(rankings, size)
    if len(targets) != len(ranks) or any(np.shape(target) != (size,) for target in targets):
        raise ValueError(
            f"there must be a target of {size} places for each of the {len(ranks)} rankings"
        )
    counts = np.zeros((size, size), dtype=np.int64)
    of = np.zeros((size, size), dtype=np.int64)
    for row, target in zip(ranks, targets, strict=True):
        right = np.sign(np.subtract.outer(target, target))
        counts += np.sign(np.subtract.outer(row, row)) == -right
        of += right != 0
    # Equal targets give 0, as does a passage with itself; only i = j has equal ranks.
    upper = _upper(size)
    return PairCounts(np.where(upper, counts, 0), np.where(upper, of, 0))


def _upper(size: int) -> np.ndarray:
    return np.triu(np.ones((size, size), dtype=bool), 1)
