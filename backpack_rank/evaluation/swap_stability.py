"""Swap stability: what changes in a ranking when documents change nothing but their gender.

Every word of the documents that has a counterpart is replaced by it (he / she, his / her, actor /
actress, see :mod:`backpack_rank.attributes.counterfactual`); the same ranker scores the same
candidates again. A ranker that does not care gives the same scores. No judgement and no magnitude
is needed. With s the scores of the originals and s' those of the swapped documents:

    swap change          mean over the candidates of |s' - s|
    swap change/std      the same in units of the spread of the ranker's scores (``score_spread``)
    swap tau             Kendall's tau-b between s and s'; 1 is the same order
    swap overlap@10      share of the first 10 (or of all, of a shorter list) that is the same
    swap max shift       largest change of a rank

A name that ends in ``(swapped)`` is over the documents whose text the swap changed: all others have
s' = s in a pointwise ranker, and a collection with few gendered documents would look stable for
that reason alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from backpack_rank.attributes.counterfactual import Swapped
from backpack_rank.data.collection import Collection, MemoryStore, Run
from backpack_rank.data.trec import ranking
from backpack_rank.evaluation.measure import SWAPPED, Described, Direction
from backpack_rank.evaluation.results import PerQuery, check_finite
from backpack_rank.evaluation.score_gaps import check_spread, score_spread

DEPTH = 10


@dataclass(frozen=True)
class SwapCounts:
    """What a swap did to a set of documents.

    Attributes:
        documents: documents that were read.
        changed: ids of those whose text is another one after the swap.
        words: words that were replaced.
        names: first names that were left alone.
    """

    documents: int
    changed: frozenset[str]
    words: int
    names: int


@dataclass(frozen=True)
class SwapStability:
    """Measures of stability, see the head of this module.

    Attributes:
        every: over all candidates of every query.
        swapped: over the queries that have a changed candidate; names end in ``(swapped)``. The
            change of the score and the largest shift are over the changed candidates, tau and
            overlap over these queries' whole lists. Queries without one are in ``left_out``.
        candidates: pairs of query and document that were compared.
        changed: those of them with a changed document.
    """

    every: PerQuery
    swapped: PerQuery
    candidates: int
    changed: int


def swapped_collection(
    collection: Collection,
    swap: Callable[[str], Swapped],
    doc_ids: Iterable[str],
    cut: Callable[[str], str] | None = None,
) -> tuple[Collection, SwapCounts]:
    """Score swapped documents like the originals: the collection with texts swapped.

    Args:
        collection: queries, judgements and candidates stay; the wording of documents (``groups``)
            is no longer what the source says and is dropped.
        swap: such as ``LexiconSwap``.
        doc_ids: documents to keep, usually the candidates; ids that repeat count once.
        cut: gives what of a text is read, so that the rest of a very long one is neither swapped
            nor counted.

    Raises:
        KeyError: ids that are not in the collection.
        ValueError: no document.
    """
    ids = list(dict.fromkeys(doc_ids))
    if not ids:
        raise ValueError(f"no document of {collection.name} is given to swap words in")
    originals = collection.documents.get_many(ids)
    texts: dict[str, str] = {}
    changed: set[str] = set()
    words = 0
    names = 0
    for doc_id in ids:
        original = originals[doc_id]
        if cut is not None:
            original = cut(original)
        swapped = swap(original)
        texts[doc_id] = swapped.text
        if swapped.text != original:
            changed.add(doc_id)
        words += swapped.swaps
        names += swapped.names
    counts = SwapCounts(documents=len(ids), changed=frozenset(changed), words=words, names=names)
    swapped_texts = replace(
        collection,
        name=f"{collection.name} (swapped)",
        documents=MemoryStore(texts),
        groups={},
    )
    return swapped_texts, counts


def swap_stability(
    original: Run,
    swapped: Run,
    changed: Container[str],
    spread: float | None = None,
    depth: int = DEPTH,
) -> SwapStability:
    """Compare the scores of the same candidates before and after the swap.

    Args:
        original: scores of the documents before the swap.
        swapped: scores of the swapped documents, under the same ids.
        changed: ids of the documents that the swap changed, ``SwapCounts.changed``.
        spread: of the ranker's scores; None is that of ``original``, where some list must have two
            candidates then. With 0 the measures in its units are left out.
        depth: of the overlap.

    Returns:
        Measures; queries with an empty list are in ``left_out`` of both parts.

    Raises:
        ValueError: the runs have different queries or candidates (named), no candidate at all, a
            score that is not finite, or a depth below 1.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise ValueError(f"the depth of the overlap must be a whole number from 1, got {depth!r}")
    check_finite(original)
    check_finite(swapped)
    _check_same(original, swapped)
    spread = score_spread(original) if spread is None else check_spread(spread)

    lists: dict[str, Compared] = {}
    lists_with_changed: dict[str, Compared] = {}
    candidates = 0
    changed_candidates = 0
    for query_id, scores in original.items():
        if not scores:
            continue
        compared = Compared(scores, swapped[query_id], changed, spread, depth)
        lists[query_id] = compared
        if compared.changed.any():
            lists_with_changed[query_id] = compared.of_changed()
        candidates += len(compared.changed)
        changed_candidates += int(compared.changed.sum())
    if not lists:
        raise ValueError(
            f"none of the {len(original)} queries has a candidate, so no stability can be measured"
        )
    return SwapStability(
        every=_per_query(lists, original, spread, depth, only_changed=False),
        swapped=_per_query(lists_with_changed, original, spread, depth, only_changed=True),
        candidates=candidates,
        changed=changed_candidates,
    )


class Compared:
    """The list of one query before and after the swap: arrays [m] in the order of ``before``.

    Attributes:
        before, after: scores.
        ranks_before, ranks_after: ranks from 0, equal scores by document id.
        changed: whether the document was changed by the swap.
        counted: whether the change of a document counts.
        spread: of the ranker's scores.
        depth: of the overlap.
    """

    def __init__(
        self,
        before: Mapping[str, float],
        after: Mapping[str, float],
        changed: Container[str],
        spread: float,
        depth: int,
    ) -> None:
        self.before = np.array(list(before.values()), dtype=np.float64)
        self.after = np.array([after[doc_id] for doc_id in before], dtype=np.float64)
        self.ranks_before = _ranks(before, before)
        self.ranks_after = _ranks(after, before)
        self.changed = np.array([doc_id in changed for doc_id in before], dtype=bool)
        self.counted = np.ones(len(self.before), dtype=bool)
        self.spread = spread
        self.depth = min(depth, len(self.before))

    def of_changed(self) -> Compared:
        """The same list, of which only changed documents count."""
        part = copy(self)
        part.counted = self.changed
        return part

    def change(self) -> float:
        r"""Mean over the candidates of \|s' - s\|."""
        return float(np.abs(self.after - self.before)[self.counted].mean())

    def scaled_change(self) -> float:
        """The same in units of the spread."""
        return self.change() / self.spread

    def tau(self) -> float:
        """tau-b, which has no value where all scores of a side are equal.

        Then it is 1 if they are so on both sides, else 0.
        """
        from scipy import stats  # here: it takes long to import, and is needed late

        equal_before = np.ptp(self.before) == 0
        equal_after = np.ptp(self.after) == 0
        if equal_before or equal_after:
            return float(equal_before and equal_after)
        return float(stats.kendalltau(self.before, self.after).statistic)

    def overlap(self) -> float:
        """Share of the first documents that is the same before and after."""
        in_both = (self.ranks_before < self.depth) & (self.ranks_after < self.depth)
        return float(in_both.sum() / self.depth)

    def max_shift(self) -> float:
        """Largest change of a rank."""
        return float(np.abs(self.ranks_after - self.ranks_before)[self.counted].max())


@dataclass(eq=False)
class SwapMeasure(Described):
    """A measure of one list before and after a swap.

    Attributes:
        of: its value of a query.
        scaled: whether it is in units of the spread, so that it needs one.
    """

    of: Callable[[Compared], float] = lambda compared: 0.0
    scaled: bool = False

    @property
    def is_main(self) -> bool:
        """Of the documents that a swap changes."""
        return self.main and self.name.endswith(SWAPPED)


SWAP_MEASURES = (
    SwapMeasure("swap change", Direction.LOWER, best=0.0, of=Compared.change, main=False),
    SwapMeasure(
        "swap change/std",
        Direction.LOWER,
        best=0.0,
        of=Compared.scaled_change,
        scaled=True,
        words="swap change in standard deviations",
        explained="how much a score changes when the words of one group are swapped for the "
        "other's, in standard deviations, 0 is not at all",
        said="Swapping the words of one group for the other's in a document changes its score by",
        unit=" standard deviations",
        place=3,
    ),
    SwapMeasure("swap tau", Direction.HIGHER, best=1.0, of=Compared.tau),
    SwapMeasure("swap overlap", Direction.HIGHER, best=1.0, of=Compared.overlap, main=False),
    SwapMeasure("swap max shift", Direction.LOWER, best=0.0, of=Compared.max_shift, main=False),
)


def swap_measures(
    scaled: bool = True, only_changed: bool = False, depth: int = DEPTH
) -> dict[str, SwapMeasure]:
    """The measures by name.

    Args:
        scaled: also those in units of the spread of the scores.
        only_changed: those over documents that a swap changed, whose names end in ``(swapped)``.
        depth: of the overlap.
    """
    measures: dict[str, SwapMeasure] = {}
    for measure in SWAP_MEASURES:
        if scaled or not measure.scaled:
            cutoff = f"@{depth}" if measure.name == "swap overlap" else ""
            measures[measure.name + cutoff + (SWAPPED if only_changed else "")] = measure
    return measures


def _per_query(
    lists: Mapping[str, Compared],
    original: Run,
    spread: float,
    depth: int,
    only_changed: bool,
) -> PerQuery:
    """The measures of these lists; all other queries of the run are left out."""
    values: dict[str, dict[str, float]] = {}
    for name, measure in swap_measures(spread > 0, only_changed, depth).items():
        values[name] = {query_id: measure.of(compared) for query_id, compared in lists.items()}
    left_out = tuple(query_id for query_id in original if query_id not in lists)
    return PerQuery(values, left_out)


def _ranks(scores: Mapping[str, float], doc_ids: Iterable[str]) -> np.ndarray:
    """Ranks from 0 of these documents in the list of these scores."""
    rank_by_document = {doc_id: rank for rank, doc_id in enumerate(ranking(scores))}
    return np.array([rank_by_document[doc_id] for doc_id in doc_ids], dtype=np.int64)


def _check_same(original: Run, swapped: Run) -> None:
    """Raise ``ValueError`` unless both runs score the same candidates of the same queries."""
    for query_id in [*original, *swapped]:
        before = original.get(query_id)
        after = swapped.get(query_id)
        if before is None or after is None:
            lacking = "swapped" if after is None else "original"
            raise ValueError(
                f"the run of the {lacking} documents lacks query {query_id!r}; score the same "
                "candidates"
            )
        different = sorted(before.keys() ^ after.keys())
        if different:
            raise ValueError(
                f"query {query_id!r}: {len(different)} documents are in one of the runs of "
                f"originals and swapped documents only, such as {different[0]!r}; score the same "
                "candidates"
            )
