r"""Recalibration of any ranker's scores with the changes that alpha makes to a Backpack's.

Afzali et al., appendix D. delta(d) = s_alpha(d) - s_1(d) is the change that alpha makes to the
score of document d. Another ranker's score f(d) becomes

    z(f(d)) + lambda z(delta(d)),        z(x) = (x - mean) / standard deviation

with mean and standard deviation within the list of the query, so the unit of lambda is one standard
deviation of the other ranker's scores. The standard deviation is that of the list itself (divided
by n, not n - 1). Where all values of a list are equal, which a list of one document always is, z is
0 for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.constructors import FilePath
from backpack_rank.data.collection import Run
from backpack_rank.evaluation.results import check_finite


@dataclass(frozen=True)
class Recalibration:
    """``recalibrate``: a run that is moved by what alpha changes, and how far.

    Attributes:
        run: file of the run; None: nothing is moved.
        weight: in standard deviations of its scores.
    """

    run: FilePath | None = None
    weight: float = 1.0


def deltas(before: Run, after: Run) -> Run:
    """On two runs of a Backpack: the change of every score, ``after - before``.

    >>> deltas({"q1": {"d1": 2.0, "d2": 1.0}}, {"q1": {"d1": 1.5, "d2": 1.0}})
    {'q1': {'d1': -0.5, 'd2': 0.0}}

    Args:
        before: scores at alpha = 1.
        after: scores of the same documents for the same queries at another alpha.

    Raises:
        ValueError: a query or a document that only one of the runs has, or a score that is not
            finite; names them.
    """
    check_finite(before)
    check_finite(after)
    _same_ids(list(before), list(after), "queries")
    for query_id, scores in before.items():
        _same_ids(list(scores), list(after[query_id]), f"documents of query {query_id!r}")
    changes: dict[str, dict[str, float]] = {}
    for query_id, scores in before.items():
        scores_after = after[query_id]
        changes[query_id] = {doc_id: scores_after[doc_id] - scores[doc_id] for doc_id in scores}
    return changes


def recalibrate(run: Run, delta: Run, weight: float) -> Run:
    """Carry the changes of a Backpack over to another ranker: z(f) + weight * z(delta).

    >>> run = {"q1": {"d1": 3.0, "d2": 1.0}}
    >>> recalibrate(run, {"q1": {"d1": -0.5, "d2": 0.0}}, weight=0.5)
    {'q1': {'d1': 0.5, 'd2': -0.5}}

    Args:
        run: another ranker's scores f.
        delta: changes of scores, see :func:`deltas`; documents and queries that the run does not
            have are ignored, in the mean and the standard deviation too.
        weight: lambda; 0 keeps the order of the run.

    Raises:
        ValueError: a query or a document of the run without a delta (named), a score that is not
            finite, or a weight that is no finite number.
    """
    is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not is_number or not math.isfinite(weight):
        raise ValueError(
            f"the weight of a recalibration must be a finite number such as 0.5, got {weight!r}"
        )
    check_finite(run)
    check_finite(delta)
    unknown = [query_id for query_id, scores in run.items() if scores and query_id not in delta]
    if unknown:
        raise ValueError(
            f"no changes of scores for {_named(unknown, 'queries')}; score their documents under "
            "the dial"
        )
    recalibrated = {}
    for query_id, scores in run.items():
        # A list without documents needs no changes.
        changes = delta.get(query_id, {})
        recalibrated[query_id] = _recalibrated(query_id, scores, changes, weight)
    return recalibrated


def standardised(values: np.ndarray) -> np.ndarray:
    """Z of the values of a list [m]; 0 where all values are equal. float64 [m]

    >>> standardised(np.array([3.0, 1.0]))
    array([ 1., -1.])
    """
    values = np.asarray(values, dtype=np.float64)
    # Asked of the values and not of their deviation: the mean of equal numbers is not always that
    # number.
    if not values.size or values.min() == values.max():
        return np.zeros(len(values))
    # Scaled twice and centred twice, so that neither huge or tiny values nor a large common part
    # spoil the squares.
    deviations = values / np.abs(values).max()
    deviations -= deviations.mean()
    deviations /= np.abs(deviations).max()
    deviations -= deviations.mean()
    return deviations / np.sqrt(np.mean(deviations**2))


def _recalibrated(
    query_id: str, scores: Mapping[str, float], changes: Mapping[str, float], weight: float
) -> dict[str, float]:
    missing = [doc_id for doc_id in scores if doc_id not in changes]
    if missing:
        raise ValueError(
            f"no change of score for {_named(missing, 'documents')} of query {query_id!r}; "
            "score every document of the run under the dial"
        )
    standardised_scores = standardised(np.array(list(scores.values())))
    standardised_changes = standardised(np.array([changes[doc_id] for doc_id in scores]))
    recalibrated = standardised_scores + weight * standardised_changes
    return dict(zip(scores, recalibrated.tolist(), strict=True))


def _same_ids(before: Sequence[str], after: Sequence[str], what: str) -> None:
    for first, second, missing in ((before, after, "after"), (after, before, "before")):
        others = set(second)
        lacking = [identifier for identifier in first if identifier not in others]
        if lacking:
            raise ValueError(
                f"the run {missing} the change lacks {_named(lacking, what)}; both runs must score "
                "the same candidates"
            )


def _named(identifiers: Sequence[str], what: str) -> str:
    shown = ", ".join(repr(identifier) for identifier in identifiers[:5])
    more = f" and {len(identifiers) - 5} more" if len(identifiers) > 5 else ""
    return f"{len(identifiers)} {what} ({shown}{more})"
