"""Where in its input a listwise ranker reads: three experiments.

The controlled position experiment (DebiasFirst, Figure 4): each list has one relevant passage. It
is placed at position 1, 2, ... m of the input, the others keep their order, and the list is ranked
each time. All that differs between two positions is where the passage stood, so a ranker without
position bias gives the same measures at all.

Order robustness (DebiasFirst, CapCal): the list in its order, reversed and shuffled. A ranker
without position bias gives one ranking whatever the order: Kendall's tau between its outputs is 1,
and the measures do not change.

Reversals (Tang et al., 3.2): for input positions i < j of a randomly shuffled list, the pair is
reversed when the passage read at j comes out before the passage read at i. Shuffling severs input
order from relevance, so without position bias every pair of positions is reversed in half of the
rankings, however good or bad the ranker is. Fewer: the ranker keeps the input order there. Where
the right order is known (the sorting tasks), pairs can also be counted as wrong: the output
contradicts the right order. A perfect ranker makes no such mistake, a blind one half.
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
    """Lists of the same size with one relevant passage, as :func:`with_one_relevant` gives them.

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


class ControlledPositions:
    """What the controlled position experiment gives: output positions by input positions.

    Attributes:
        ranks: output position, from 0, of the relevant passage of each list, by its input position.
            int64 [lists, m]
    """

    def __init__(self, ranks: np.ndarray) -> None:
        self.ranks = ranks

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
        errors = np.full(values.shape[1], np.nan)
        if number > 1:
            errors = values.std(axis=0, ddof=1) / np.sqrt(number)
        return PositionCurve(measure, tuple(values.mean(axis=0).tolist()), tuple(errors.tolist()))


def controlled_positions(
    ranker: ListwiseRanker, lists: Sequence[PassageList], relevant: Sequence[int]
) -> ControlledPositions:
    """See at which input positions a ranker overlooks a relevant passage.

    Every list is ranked with its relevant passage at each position, in one call of the ranker for
    each position::

        chosen = with_one_relevant(lists, relevance, size=20)
        positions = controlled_positions(ranker, chosen.lists, chosen.relevant)
        positions.curve("nDCG@10").range

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
    ranks = np.empty((len(lists), size), dtype=np.int64)
    for position in Progress(range(size), desc=ranker.name, unit="position"):
        shown = []
        for passages, place in zip(lists, relevant, strict=True):
            # The others keep their order, and the relevant passage goes to the position.
            others = np.delete(np.arange(size), place)
            shown.append(passages.select(np.insert(others, position, place)))
        for number, ranking in enumerate(ranker.rank(shown)):
            ranks[number, position] = ranking.ranks()[position]
    return ControlledPositions(ranks)


def with_one_relevant(
    lists: Sequence[PassageList],
    relevance: Sequence[Sequence[int]],
    size: int = 20,
    minimum: int = 1,
) -> OneRelevant:
    """Get lists of ``size`` passages of which exactly one is relevant.

    >>> passages = PassageList("a query", ("no", "yes", "no", "yes"), query_id="q1")
    >>> chosen = with_one_relevant([passages], [[0, 1, 0, 1]], size=3)
    >>> chosen.lists[0].passages, chosen.relevant
    (('no', 'yes', 'no'), (1,))

    :func:`controlled_positions` moves the relevant passage through them.

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
    chosen = []
    relevant_places = []
    without_relevant = []
    too_short = []
    removed = 0
    for passages, grades in zip(lists, relevance, strict=True):
        if len(grades) != len(passages):
            raise ValueError(
                f"query {_name(passages)}: {len(passages)} passages but {len(grades)} judgements"
            )
        relevant = []
        others: list[int] = []
        above_zero = 0
        for place, grade in enumerate(grades):
            if grade >= minimum:
                relevant.append(place)
            if grade > 0:
                above_zero += 1
            elif len(others) < size - 1:
                others.append(place)
        if not relevant:
            without_relevant.append(passages.query_id)
            continue
        if len(others) < size - 1:
            too_short.append(passages.query_id)
            continue
        removed += above_zero - 1
        # In the order of the first stage, which the experiment then changes for the relevant one.
        kept = sorted([*others, relevant[0]])
        chosen.append(passages.select(kept))
        relevant_places.append(kept.index(relevant[0]))
    if not chosen:
        raise ValueError(
            f"none of the {len(lists)} lists has a relevant passage and {size - 1} others: "
            f"{len(without_relevant)} have no relevant one, {len(too_short)} too few others; give "
            "longer lists or a smaller size"
        )
    return OneRelevant(
        lists=tuple(chosen),
        relevant=tuple(relevant_places),
        removed=removed,
        without_relevant=tuple(without_relevant),
        too_short=tuple(too_short),
    )


def _check(lists: Sequence[PassageList], relevant: Sequence[int]) -> None:
    if not lists:
        raise ValueError("there is no list to place a relevant passage in")
    size = len(lists[0])
    for passages, place in zip(lists, relevant, strict=True):
        if len(passages) != size:
            raise ValueError(
                f"query {_name(passages)} has {len(passages)} passages, query {_name(lists[0])} "
                f"has {size}: positions compare only between lists of one size"
            )
        if not 0 <= place < size:
            raise ValueError(
                f"query {_name(passages)}: there is no position {place} in a list of {size} "
                "passages"
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
    """How far a ranker's output depends on the order of its input::

        robustness = order_robustness(ranker, lists, collection.qrels, shuffled=2)
        robustness.tau  # mean Kendall's tau between the outputs of each two input orders

    Every list is ranked in its order, reversed, and in ``shuffled`` random orders, in one call of
    the ranker.

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
    for passages in lists:
        if len(passages) < 2:
            raise ValueError(
                f"query {passages.query_id or passages.query!r} has one passage, which has one "
                "order only"
            )
    if shuffled < 0:
        raise ValueError(f"shuffled={shuffled} must be a number of random orders, 0 or more")
    names = ["original", "reversed"]
    for number in range(1, shuffled + 1):
        names.append(f"shuffled {number}")
    orders_of_lists = []
    for passages in lists:
        original = np.arange(len(passages))
        shuffles_of_list = islice(shuffles(passages, seed), shuffled)
        orders_of_lists.append([original, original[::-1], *shuffles_of_list])
    # All lists in their original order, then all of them reversed, and so on.
    shown = []
    orders_shown = []
    for orders in zip(*orders_of_lists, strict=True):
        for passages, order in zip(lists, orders, strict=True):
            shown.append(passages.select(order))
            orders_shown.append(order)
    in_place = []
    for ranking, order in zip(ranker.rank(shown), orders_shown, strict=True):
        # Back from positions of the list as shown to those of the list as given.
        in_place.append(Ranking(order[ranking.order], num_ranked=ranking.num_ranked))
    rankings = []
    for start in range(0, len(in_place), len(lists)):
        rankings.append(tuple(in_place[start : start + len(lists)]))
    effectiveness: list[PerQuery] = []
    if qrels is not None:
        effectiveness = [effectiveness_of(lists, part, qrels, measures) for part in rankings]
    return OrderRobustness(
        orders=tuple(names),
        rankings=tuple(rankings),
        taus=_taus(rankings),
        effectiveness=tuple(effectiveness),
    )


def _taus(rankings: Sequence[Sequence[Ranking]]) -> np.ndarray:
    """Kendall's tau of each list between each two input orders. float64 [lists, orders, orders]"""
    taus = np.ones((len(rankings[0]), len(rankings), len(rankings)))
    for number, rankings_of_list in enumerate(zip(*rankings, strict=True)):
        ranks = [ranking.ranks() for ranking in rankings_of_list]
        for first, second in combinations(range(len(ranks)), 2):
            tau = stats.kendalltau(ranks[first], ranks[second]).statistic
            taus[number, first, second] = tau
            taus[number, second, first] = tau
    return taus


class PairCounts:
    """Pairs of input positions i < j, and in how many rankings something was the case with them.

    Attributes:
        counts: rankings in which it was, above the diagonal; 0 elsewhere. int64 [k, k]
        of: rankings in which it could have been, likewise.
    """

    def __init__(self, counts: np.ndarray, of: np.ndarray) -> None:
        self.counts = counts
        self.of = of

    @property
    def shares(self) -> np.ndarray:
        """``counts / of``. float64 [k, k]

        NaN on and below the diagonal, and where nothing was counted.
        """
        shares = np.full(self.counts.shape, np.nan)
        return np.divide(self.counts, self.of, out=shares, where=self.of > 0)

    @property
    def mean(self) -> float:
        """Share of all pairs; NaN without a pair."""
        return float(self.counts.sum() / self.of.sum()) if self.of.any() else float("nan")

    @property
    def range(self) -> float:
        """Largest minus smallest of :attr:`shares`; NaN without a pair.

        It says how much depends on the positions of a pair.
        """
        shares = self.shares[~np.isnan(self.shares)]
        return float(shares.max() - shares.min()) if len(shares) else float("nan")


def reversals(rankings: Sequence[Ranking], size: int) -> PairCounts:
    """See between which input positions a ranker keeps the input order.

    >>> counts = reversals([Ranking(np.array([1, 0])), Ranking(np.array([0, 1]))], size=2)
    >>> counts.mean  # reversed in one of the two
    0.5

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
    """Where the right order is known: it counts pairs that come out in the wrong order.

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
    """Pairs i < j. bool [k, k]"""
    return np.triu(np.ones((size, size), dtype=bool), 1)
