r"""The controlled position experiment (paper 000, section 6, Figure 4): the relevant passage at each input position.

Each list has one relevant passage. It is placed at position 1, 2, ... m of the input, the others keep their order, and
the list is ranked each time. All that differs between two positions is where the passage stood, so a ranker without
position bias gives the same measures at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.data.passages import PassageList
from backpack_rank.listwise.base import ListwiseRanker
from backpack_rank.progress import Progress
from backpack_rank.reporting.position_curves import PositionCurve

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
        ranks: output position, from 0, of the relevant passage of each list, by its input position. int64 [lists, m]
    """

    ranks: np.ndarray

    def values(self, measure: str) -> np.ndarray:
        """A measure of :data:`MEASURES` for each list and input position. float64 [lists, m]

        With one relevant passage at rank r (from 1), nDCG@10 is 1 / log2(r + 1), 0 beyond rank 10, MRR 1 / r, and
        accuracy@1 the share of lists that it comes out first of.

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
        errors = values.std(axis=0, ddof=1) / np.sqrt(number) if number > 1 else np.full(values.shape[1], np.nan)
        return PositionCurve(measure, tuple(values.mean(axis=0).tolist()), tuple(errors.tolist()))


def controlled_positions(
    ranker: ListwiseRanker, lists: Sequence[PassageList], relevant: Sequence[int]
) -> ControlledPositions:
    """Rank every list with its relevant passage at each position, one call of the ranker for each position.

    Args:
        ranker: any.
        lists: all of one size m.
        relevant: position of the one relevant passage in each list; see :func:`with_one_relevant`.

    Raises:
        ValueError: no list, lists of several sizes, or a position that a list does not have; names the query.
    """
    _check(lists, relevant)
    size = len(lists[0])
    others = [np.delete(np.arange(size), place) for place in relevant]
    ranks = np.empty((len(lists), size), dtype=np.int64)
    for position in Progress(range(size), desc=ranker.name, unit="position"):
        orders = [np.insert(rest, position, place) for rest, place in zip(others, relevant, strict=True)]
        shown = [one.select(order) for one, order in zip(lists, orders, strict=True)]
        ranks[:, position] = [ranking.ranks()[position] for ranking in ranker.rank(shown)]
    return ControlledPositions(ranks)


def with_one_relevant(
    lists: Sequence[PassageList], relevance: Sequence[Sequence[int]], size: int = 20, minimum: int = 1
) -> OneRelevant:
    """Lists of ``size`` passages of which one is relevant, for :func:`controlled_positions`.

    Of each list the first relevant passage stays, wherever it stands, and the first ``size - 1`` that are not relevant.

    Args:
        lists: of any sizes, in the order of the first stage.
        relevance: of each passage of each list, 0 where it is not judged.
        size: m.
        minimum: relevance from which a passage counts as relevant. Those between 1 and it are taken out too: they are
            neither relevant nor not.

    Raises:
        ValueError: ``size`` below 2, ``minimum`` below 1, relevance that does not fit the lists, or no list is left.
    """
    if size < 2 or minimum < 1:
        raise ValueError(f"size={size} must be at least 2 passages, and minimum={minimum} a relevance of at least 1")
    found, places, without, short, removed = [], [], [], [], 0
    for one, grades in zip(lists, relevance, strict=True):
        if len(grades) != len(one):
            raise ValueError(f"query {_name(one)}: {len(one)} passages but {len(grades)} judgements")
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
            f"none of the {len(lists)} lists has a relevant passage and {size - 1} others: {len(without)} have no "
            f"relevant one, {len(short)} too few others; give longer lists or a smaller size"
        )
    return OneRelevant(tuple(found), tuple(places), removed, tuple(without), tuple(short))


def _check(lists: Sequence[PassageList], relevant: Sequence[int]) -> None:
    if not lists:
        raise ValueError("there is no list to place a relevant passage in")
    size = len(lists[0])
    for one, place in zip(lists, relevant, strict=True):
        if len(one) != size:
            raise ValueError(
                f"query {_name(one)} has {len(one)} passages, query {_name(lists[0])} has {size}: positions compare "
                "only between lists of one size"
            )
        if not 0 <= place < size:
            raise ValueError(f"query {_name(one)}: there is no position {place} in a list of {size} passages")


def _name(passages: PassageList) -> str:
    return passages.query_id or repr(passages.query)
