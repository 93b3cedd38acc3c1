"""Swap stability: what happens to a ranking when every document changes its gender and nothing else.

Every word of the documents that has a counterpart is replaced by it (he / she, his / her, actor / actress, see
``data/swap.py``); the same ranker scores the same candidates again. A ranker that does not care gives the same scores.
No judgement and no magnitude is needed. With s the scores of the originals and s' those of the swapped documents:

    swap change          mean over the candidates of |s' - s|
    swap change/std      the same in units of the spread of the ranker's scores, see ``score_spread``
    swap tau             Kendall's tau-b between s and s'; 1 is the same order
    swap overlap@10      share of the first 10 (or of all, of a shorter list) that is the same
    swap max shift       largest change of a rank

A name that ends in ``(swapped)`` is over the documents whose text the swap changed: all others have s' = s in a
pointwise ranker, and a collection with few gendered documents would look stable for that reason alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from backpack_rank.attributes.counterfactual import Swapped
from backpack_rank.data.collection import Collection, MemoryStore, Run
from backpack_rank.data.trec import ranking
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
        swapped: over the queries that have a changed candidate; names end in ``(swapped)``. The change of the score
            and the largest shift are over the changed candidates, tau and overlap over these queries' whole lists.
            Queries without one are in ``left_out``.
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
    """The collection with the texts of these documents swapped, to be scored like the original.

    Args:
        collection: queries, judgements and candidates stay as they are; the wording of documents (``groups``) is no
            longer what the source says and is dropped.
        swap: such as ``LexiconSwap``.
        doc_ids: documents to keep, usually the candidates; ids that repeat count once.
        cut: gives what of a text is read, so that the rest of a very long one is neither swapped nor counted.

    Raises:
        KeyError: ids that are not in the collection.
        ValueError: no document.
    """
    ids = list(dict.fromkeys(doc_ids))
    if not ids:
        raise ValueError(f"no document of {collection.name} is given to swap words in")
    originals = collection.documents.get_many(ids)
    if cut is not None:
        originals = {doc_id: cut(text) for doc_id, text in originals.items()}
    swapped = {doc_id: swap(originals[doc_id]) for doc_id in ids}
    counts = SwapCounts(
        documents=len(ids),
        changed=frozenset(doc_id for doc_id in ids if swapped[doc_id].text != originals[doc_id]),
        words=sum(found.swaps for found in swapped.values()),
        names=sum(found.names for found in swapped.values()),
    )
    store = MemoryStore({doc_id: found.text for doc_id, found in swapped.items()})
    return replace(collection, name=f"{collection.name} (swapped)", documents=store, groups={}), counts


def swap_stability(
    original: Run, swapped: Run, changed: Container[str], spread: float | None = None, depth: int = DEPTH
) -> SwapStability:
    """Compare the scores of the same candidates before and after the swap.

    Args:
        original: scores of the documents as they are.
        swapped: scores of the swapped documents, under the same ids.
        changed: ids of the documents that the swap changed, ``SwapCounts.changed``.
        spread: of the ranker's scores; None is that of ``original``, where some list must have two candidates then.
            With 0 the measures in its units are left out.
        depth: of the overlap.

    Returns:
        Measures; queries with an empty list are in ``left_out`` of both parts.

    Raises:
        ValueError: the runs have different queries or candidates (named), no candidate at all, a score that is not
            finite, or a depth below 1.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise ValueError(f"the depth of the overlap must be a whole number from 1, got {depth!r}")
    check_finite(original)
    check_finite(swapped)
    _check_same(original, swapped)
    spread = score_spread(original) if spread is None else check_spread(spread)
    lists = [query_id for query_id, scores in original.items() if scores]
    if not lists:
        raise ValueError(f"none of the {len(original)} queries has a candidate, so no stability can be measured")
    compared = {query_id: _Compared.of(original[query_id], swapped[query_id], changed) for query_id in lists}
    with_changed = [query_id for query_id in lists if compared[query_id].changed.any()]
    return SwapStability(
        every=_per_query(compared, lists, original, spread, depth, only_changed=False),
        swapped=_per_query(compared, with_changed, original, spread, depth, only_changed=True),
        candidates=sum(len(found.changed) for found in compared.values()),
        changed=sum(int(found.changed.sum()) for found in compared.values()),
    )


def swap_measures(scaled: bool = True, only_changed: bool = False, depth: int = DEPTH) -> list[str]:
    """Names of the measures.

    Args:
        scaled: also those in units of the spread of the scores.
        only_changed: those over documents that a swap changed, whose names end in ``(swapped)``.
        depth: of the overlap.
    """
    names = ["swap change", "swap tau", f"swap overlap@{depth}", "swap max shift"]
    if scaled:
        names.insert(1, "swap change/std")
    return [f"{name} (swapped)" for name in names] if only_changed else names


@dataclass(frozen=True, eq=False)
class _Compared:
    """One list: arrays [m] in the order of its documents.

    Attributes:
        before, after: scores.
        ranks_before, ranks_after: ranks from 0, equal scores by document id.
        changed: whether the document was changed by the swap.
    """

    before: np.ndarray
    after: np.ndarray
    ranks_before: np.ndarray
    ranks_after: np.ndarray
    changed: np.ndarray

    @classmethod
    def of(cls, before: Mapping[str, float], after: Mapping[str, float], changed: Container[str]) -> _Compared:
        """Scores of one list before and after the swap, in the order of ``before``."""
        return cls(
            np.array(list(before.values()), dtype=np.float64),
            np.array([after[doc_id] for doc_id in before], dtype=np.float64),
            _ranks(before, before),
            _ranks(after, before),
            np.array([doc_id in changed for doc_id in before], dtype=bool),
        )

    def tau(self) -> float:
        """tau-b, which has no value where all scores are equal: then 1 if they are so on both sides, else 0."""
        from scipy import stats  # here: it takes long to import, and is needed after everything is scored

        equal = [np.ptp(scores) == 0 for scores in (self.before, self.after)]
        if any(equal):
            return float(all(equal))
        return float(stats.kendalltau(self.before, self.after).statistic)

    def overlap(self, depth: int) -> float:
        depth = min(depth, len(self.before))
        return float(((self.ranks_before < depth) & (self.ranks_after < depth)).sum() / depth)


def _per_query(
    compared: Mapping[str, _Compared],
    query_ids: list[str],
    original: Run,
    spread: float,
    depth: int,
    only_changed: bool,
) -> PerQuery:
    names = swap_measures(scaled=spread > 0, only_changed=only_changed, depth=depth)
    values: dict[str, dict[str, float]] = {name: {} for name in names}
    for query_id in query_ids:
        found = compared[query_id]
        chosen = found.changed if only_changed else np.ones(len(found.changed), dtype=bool)
        change = float(np.abs(found.after - found.before)[chosen].mean())
        shift = float(np.abs(found.ranks_after - found.ranks_before)[chosen].max())
        scaled = [change / spread] if spread > 0 else []
        numbers = [change, *scaled, found.tau(), found.overlap(depth), shift]
        for by_query, number in zip(values.values(), numbers, strict=True):
            by_query[query_id] = number
    measured = frozenset(query_ids)
    return PerQuery(values, left_out=tuple(query_id for query_id in original if query_id not in measured))


def _ranks(scores: Mapping[str, float], order: Iterable[str]) -> np.ndarray:
    """Ranks from 0 of these documents in the list of these scores."""
    place = {doc_id: rank for rank, doc_id in enumerate(ranking(scores))}
    return np.array([place[doc_id] for doc_id in order], dtype=np.int64)


def _check_same(original: Run, swapped: Run) -> None:
    for query_id in [*original, *swapped]:
        one, other = original.get(query_id), swapped.get(query_id)
        if one is None or other is None:
            lacking = "swapped" if other is None else "original"
            raise ValueError(f"the run of the {lacking} documents lacks query {query_id!r}; score the same candidates")
        if different := sorted(one.keys() ^ other.keys()):
            raise ValueError(
                f"query {query_id!r}: {len(different)} documents are in one of the runs of originals and swapped "
                f"documents only, such as {different[0]!r}; score the same candidates"
            )
