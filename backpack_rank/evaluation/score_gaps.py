"""Score gaps: the same document in a male and a female wording, which one does the ranker prefer?

Needs a collection that holds the wordings (Grep-BiasIR), but no judgement of how gendered a text
is. With s_m and s_f the scores of the two wordings of one item for its query, and sigma the spread
of the ranker's scores:

    gap               s_m - s_f                 positive: the male wording scores higher
    gap/std           (s_m - s_f) / sigma
    |gap|/std         |s_m - s_f| / sigma
    prefers male      1 if s_m - s_f > eps sigma, else 0
    prefers female    1 if s_f - s_m > eps sigma, else 0
    prefers neither   1 otherwise
    rank shift        r_f - r_m                 positive: the male wording ranks higher

r_m and r_f are the ranks of the two wordings, see below.

Why sigma: a dial that shrinks all scores shrinks every raw gap without changing any ranking.
``gap/std``, ``|gap|/std``, the preferences and the rank shift stay the same when all scores are
multiplied by one positive number (and sigma is of the same ranker at the same position of the
dial). Compare positions of a dial by these.

The rank of a wording is its place among the query's other documents, which are all documents of the
query's list that are no wording of the same item: 1 + (others that score higher) + 1/2 (others that
score the same). Halves, because a tie broken by document ids would prefer one wording for its name.
Without others both ranks are 1.

A query with several items (its relevant and its non-relevant document) has the mean over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from backpack_rank.attributes.wording_variants import VariantItem, WordingVariants
from backpack_rank.data.collection import Run
from backpack_rank.evaluation.measure import Described, Direction
from backpack_rank.evaluation.results import PerQuery, Summary, check_finite

MALE_FEMALE = ("male", "female")
ITEMS = ("relevant", "non-relevant", "all")
NOT_STATED = "not stated"


def score_spread(run: Run) -> float:
    """The unit of gaps: the spread of a ranker's scores within the queries' lists.

    It is the pooled standard deviation. With n_q scores s of mean m_q in the list of query q:

        sqrt( sum_q sum_s (s - m_q)^2 / sum_q (n_q - 1) )

    Differences between queries, which no ranking depends on, play no part, and lists of one
    document add nothing. Exactly 0 when every list has equal scores.

    Args:
        run: the ranker's scores of ordinary candidates (a first stage's, not only wordings of the
            same documents), at the same position of the dial as the gaps that are divided by it.

    Raises:
        ValueError: no query has two candidates, or a score is not finite.
    """
    check_finite(run)
    squares = 0.0
    degrees_of_freedom = 0
    for score_by_document in run.values():
        if len(score_by_document) < 2:
            continue
        scores = np.array(list(score_by_document.values()), dtype=np.float64)
        degrees_of_freedom += len(scores) - 1
        # The mean of equal numbers is not always that number.
        if np.ptp(scores) > 0:
            squares += float(((scores - scores.mean()) ** 2).sum())
    if degrees_of_freedom == 0:
        raise ValueError(
            "the spread of scores needs queries with two candidates or more; "
            f"none of the {len(run)} queries has them"
        )
    return math.sqrt(squares / degrees_of_freedom)


def score_gaps(
    run: Run,
    wordings: WordingVariants,
    spread: float | None,
    items: str = "relevant",
    eps: float = 0.0,
    groups: tuple[str, str] = MALE_FEMALE,
) -> PerQuery:
    """Measure which wording a ranker prefers, query by query.

        gaps = score_gaps(run, wordings, score_spread(candidates))
        gaps.mean("gap/std")

    Names and formulas of the measures stand at the head of this module.

    Args:
        run: scores of the wordings; further documents in the lists are the others of the rank
            shift.
        wordings: items of each query with their wordings.
        spread: sigma, see :func:`score_spread`. None or 0 (the ranker tells no two candidates
            apart) leaves out ``gap/std`` and ``|gap|/std``, which have no value then.
        items: ``relevant``, ``non-relevant`` or ``all`` items of a query; items without a label are
            in ``all`` only.
        eps: gaps of at most eps * spread count as neither.
        groups: the two wordings, first minus second; they give their names to ``prefers ...``.

    Returns:
        Per-query values. ``left_out`` has the queries that have no such item in both wordings, or
        no list in the run.

    Raises:
        ValueError: unknown ``items``, a spread or eps that is negative or not finite, eps without a
            spread, no query to measure, a wording that the run does not score (query and document
            are named), or a score not finite.
    """
    _check_options(items, eps, spread, groups)
    check_finite(run)
    sigma = 0.0 if spread is None else check_spread(spread)
    measures = gap_measures(groups, scaled=sigma > 0)
    values: dict[str, dict[str, float]] = {name: {} for name in measures}
    left_out: list[str] = []
    for query_id, items_of_query in wordings.items.items():
        scores = run.get(query_id)
        chosen = [item for item in items_of_query if _is_chosen(item, items, groups)]
        if not scores or not chosen:
            left_out.append(query_id)
            continue
        gaps = [_gap(query_id, scores, item, sigma, eps, groups) for item in chosen]
        for name, measure in measures.items():
            values[name][query_id] = float(np.mean([measure.of(gap) for gap in gaps]))
    if len(left_out) == len(wordings.items):
        wanted = "items" if items == "all" else f"{items} items"
        raise ValueError(
            f"none of the {len(wordings.items)} queries has {wanted} in a {groups[0]} and a "
            f"{groups[1]} wording and a list in the run; was the run made for {wordings.name}?"
        )
    return PerQuery(values, left_out=tuple(left_out))


def split_by(values: PerQuery, labels: Mapping[str, str]) -> dict[str, PerQuery]:
    """A table by topic or stereotype: the values of the queries with each label.

    Args:
        values: of any measures.
        labels: ``{query id: label}``; queries that are not in it, or have an empty label, are ``not
            stated``.

    Returns:
        ``{label: values}``, labels in alphabetical order; every query, also one that is left out,
        is in exactly one part.
    """
    queries_by_label: dict[str, set[str]] = {}
    for query_id in (*values.query_ids, *values.left_out):
        label = labels.get(query_id) or NOT_STATED
        queries_by_label.setdefault(label, set()).add(query_id)
    return {label: values.part(queries_by_label[label]) for label in sorted(queries_by_label)}


def summaries_by(values: PerQuery, labels: Mapping[str, str]) -> dict[str, Summary]:
    """The averages of each part of :func:`split_by`; a part without any value has NaN."""
    return {label: part.summary() for label, part in split_by(values, labels).items()}


def check_spread(spread: float) -> float:
    """The spread. Raises ``ValueError`` when it is no finite number from 0."""
    if not (math.isfinite(spread) and spread >= 0):
        raise ValueError(
            f"the spread of the scores must be a finite number from 0, got {spread}; see "
            "score_spread"
        )
    return float(spread)


def _check_options(items: str, eps: float, spread: float | None, groups: tuple[str, str]) -> None:
    if items not in ITEMS:
        raise ValueError(f"unknown items {items!r}; choose from {', '.join(ITEMS)}")
    if not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps must be a finite number from 0, in units of the spread, got {eps}")
    if eps > 0 and spread is None:
        raise ValueError(f"eps={eps} is in units of the spread of the scores, which is not given")
    if len(groups) != 2 or groups[0] == groups[1]:
        raise ValueError(
            f"a gap is between two wordings, such as {list(MALE_FEMALE)}; got {list(groups)}"
        )


@dataclass(frozen=True)
class ItemGap:
    """One item in both wordings.

    Attributes:
        gap: score of the first wording less that of the second.
        sigma: spread of the ranker's scores, 0 for none.
        eps: gaps up to this share of sigma prefer neither.
        rank_shift: rank of the second wording less that of the first.
    """

    gap: float
    sigma: float
    eps: float
    rank_shift: float

    @property
    def preferred(self) -> int:
        """0 for the first wording, 1 for the second, 2 for neither."""
        if self.gap > self.eps * self.sigma:
            return 0
        return 1 if -self.gap > self.eps * self.sigma else 2


@dataclass(eq=False)
class GapMeasure(Described):
    """A measure of an item in two wordings.

    Attributes:
        of: its value of one item.
        scaled: whether it is in units of the spread, so that it needs one.
    """

    of: Callable[[ItemGap], float] = lambda item: 0.0
    scaled: bool = False


GAP = GapMeasure("gap", Direction.ZERO, best=0.0, of=lambda item: item.gap, main=False)
GAP_STD = replace(GAP, name="gap/std", of=lambda item: item.gap / item.sigma, scaled=True)
ABSOLUTE_GAP = GapMeasure(
    "|gap|/std",
    Direction.LOWER,
    best=0.0,
    of=lambda item: abs(item.gap) / item.sigma,
    scaled=True,
    words="score gap in standard deviations",
    explained="distance of male and female wordings' scores in standard deviations, 0 is none",
    place=6,
)
NEITHER = GapMeasure(
    "prefers neither",
    Direction.HIGHER,
    best=1.0,
    of=lambda item: float(item.preferred == 2),
    main=False,
)
RANK_SHIFT = replace(GAP, name="rank shift", of=lambda item: item.rank_shift)


class Preferred(GapMeasure):
    """Whether a ranker prefers the wording of a group."""

    def is_called(self, name: str) -> bool:
        """Of any group."""
        return name.startswith("prefers ")


PREFERRED = (
    Preferred("prefers", of=lambda item: float(item.preferred == 0)),
    Preferred("prefers", of=lambda item: float(item.preferred == 1)),
)
GAP_MEASURES = (GAP, GAP_STD, ABSOLUTE_GAP, NEITHER, *PREFERRED, RANK_SHIFT)


def gap_measures(groups: tuple[str, str], scaled: bool = True) -> dict[str, GapMeasure]:
    """The measures by name; ``scaled``: also those in units of the spread of the scores."""
    measures = [GAP, *([GAP_STD, ABSOLUTE_GAP] if scaled else [])]
    for group, measure in zip(groups, PREFERRED, strict=True):
        measures.append(replace(measure, name=f"prefers {group}"))
    return {measure.name: measure for measure in [*measures, NEITHER, RANK_SHIFT]}


def _is_chosen(item: VariantItem, items: str, groups: tuple[str, str]) -> bool:
    """Whether an item has both wordings, and the relevance that ``items`` asks for."""
    if not all(group in item.documents for group in groups):
        return False
    if items == "all":
        return True
    # An item without a label is neither relevant nor non-relevant.
    if item.relevance is None:
        return False
    is_relevant = item.relevance > 0
    return is_relevant == (items == "relevant")


def _gap(
    query_id: str,
    scores: Mapping[str, float],
    item: VariantItem,
    sigma: float,
    eps: float,
    groups: tuple[str, str],
) -> ItemGap:
    first = _score(query_id, scores, item.documents[groups[0]])
    second = _score(query_id, scores, item.documents[groups[1]])
    # Other wordings of the same item are no rivals: their place says nothing of this preference.
    wordings = set(item.documents.values())
    rivals = [score for doc_id, score in scores.items() if doc_id not in wordings]
    others = np.array(rivals, dtype=np.float64)
    return ItemGap(first - second, sigma, eps, _rank(second, others) - _rank(first, others))


def _score(query_id: str, scores: Mapping[str, float], doc_id: str) -> float:
    if doc_id not in scores:
        raise ValueError(
            f"the run has no score for document {doc_id!r} of query {query_id!r}, which is one of "
            "the wordings; a gap needs the scores of both, so all wordings must be among the "
            "candidates"
        )
    return scores[doc_id]


def _rank(score: float, others: np.ndarray) -> float:
    """Mean rank among others of a document with this score, from 1."""
    higher = float((others > score).sum())
    equal = float((others == score).sum())
    return 1 + higher + equal / 2
