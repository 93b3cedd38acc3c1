r"""Exposure of groups: AWRF_JS, EE-L, EE-D, EE-R, NDKL, exposure ratio, exposure per relevance.

Documents have shares g_d of groups (:mod:`backpack_rank.evaluation.document_groups`), and there is
a target t: the shares that groups should have. For the ranking d_1, d_2, ... of a query, cut at k:

    attention       a_i = 1 / log2(max(i, 2))                       b_i = 1 / log2(i + 1)

    AWRF_JS         e = sum_i a_i g_(d_i) / sum of a_i over documents with a known group
                    1 - JSD(e, t), the Jensen-Shannon divergence in nats

    EE-D, EE-R      eps = 1/S sum over the S rankings of a query, of sum_i a_i g_(d_i) over its
    EE-L            relevant documents;  eps* = t sum_{i=1..k} a_i
                    EE-D = eps . eps,  EE-R = eps . eps*,  EE-L = |eps - eps*|^2

    NDKL            sum_i b_i KL(shares among the known of the first i || t) / sum_i b_i

    ExposureRatio   x_g = sum_{i<=k} b_i g_(d_i) / sum over all ranked documents of g_(d_i)
                    smallest x_g / largest x_g
    ExposurePerRelevance   the same with the relevant ranked documents alone below the bar

AWRF_JS and EE are those of TREC Fair Ranking 2021 and 2022 (tasks 1 and 2; EE of relevant documents
only, as in 2022, and not normalised), after Diaz et al. 2020. NDKL is of Geyik et al. 2019. The
ratios are demographic parity and disparate treatment of Singh and Joachims 2018.

A document without a known group takes its place, and no part. A query has no value where a measure
is not defined: AWRF_JS and NDKL without a known document in the first k, EE without a relevant
document, ratios without two groups to compare, NDKL where the target gives nothing to a group that
is ranked, and every measure with a target where there is none (shares among the relevant, of a
query without a relevant document of a known group). All but EE, which are of the S rankings of a
query together, are taken of one ranking.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from ir_measures import Measure
from scipy.special import rel_entr

from backpack_rank.data.collection import Qrels, Run
from backpack_rank.data.trec import ranking
from backpack_rank.evaluation.document_groups import CROSS, DocumentGroups, crossed
from backpack_rank.evaluation.measure_names import (
    AWRF_JS,
    EE_D,
    EE_L,
    EE_R,
    NDKL,
    ExposurePerRelevance,
    GroupMeasure,
    shown_name,
)
from backpack_rank.evaluation.results import PerQuery

UNIFORM = "uniform"
RELEVANT = "relevant"
TARGETS = (UNIFORM, RELEVANT)
EXPECTED = (EE_L.NAME, EE_D.NAME, EE_R.NAME)
"""Measures of all rankings of a query together."""
OF_RELEVANT = (*EXPECTED, ExposurePerRelevance.NAME)
"""Measures that need judgements."""

Target: TypeAlias = str | Mapping[str, float]
"""``uniform``, ``relevant`` (shares among the relevant documents), or ``{group: share}``."""


@dataclass(frozen=True, eq=False)
class GroupExposure:
    """Use it to measure how attention is spread over groups of documents.

        groups = DocumentGroups.of({"d1": "female", "d2": "male", ...})
        exposure = GroupExposure({"gender": groups}, collection.qrels)
        values = exposure.measure([run], parse_measures(["AWRF_JS@20", "EE-L@20"]))

    Attributes:
        groups: by attribute; a measure of ``gender x region`` crosses them.
        qrels: judgements, for EE, for exposure per relevance, and for the target ``relevant``.
        target: for every attribute, or ``{attribute: target}``.
        relevant_from: lowest label of a relevant document.

    Raises:
        ValueError: a target that is none, or that is not of the groups.
    """

    groups: Mapping[str, DocumentGroups]
    qrels: Qrels | None = None
    target: Target | Mapping[str, Target] = UNIFORM
    relevant_from: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.target, Mapping) and len(self.groups) > 1:
            for attribute in self.target:
                if attribute not in self.groups:
                    raise ValueError(
                        f"the target has {attribute!r}, and the attributes are "
                        f"{', '.join(self.groups)}: give a target to each of these"
                    )
        for attribute, groups in self.groups.items():
            target = self._target_of(attribute)
            if isinstance(target, Mapping):
                target_shares(target, groups.names)

    def measure(
        self,
        rankings: Sequence[Run],
        measures: Mapping[str, Measure],
        query_ids: Iterable[str] | None = None,
    ) -> PerQuery:
        """Values of every query.

        Args:
            rankings: one run, or several rankings of the same queries (seeds, folds, sampled
                permutations): EE is of all together, other measures are means over them.
            measures: ``{name: measure}``, as
                :func:`~backpack_rank.evaluation.measure_names.parse_measures` gives them.
            query_ids: queries to measure; None: those of the rankings.

        Raises:
            ValueError: a measure that is none of groups, an unknown attribute, a measure that needs
                judgements without any, or no query to measure.
        """
        self._check(measures)
        if query_ids is None:
            query_ids = [query_id for run in rankings for query_id in run]
        wanted = list(dict.fromkeys(query_ids))
        lists_by_query: dict[str, list[list[str]]] = {}
        for query_id in wanted:
            lists = [ranking(run[query_id]) for run in rankings if run.get(query_id)]
            if lists:
                lists_by_query[query_id] = lists
        if not lists_by_query:
            raise ValueError(f"none of the {len(wanted)} queries has a ranked document")
        groups = self._asked(measures, lists_by_query)

        values: dict[str, dict[str, float]] = {name: {} for name in measures}
        for query_id, lists in lists_by_query.items():
            relevant = self._relevant(query_id)
            query_by_attribute: dict[str, _Query] = {}
            for attribute, of_attribute in groups.items():
                target = self._target(attribute, of_attribute, relevant)
                query_by_attribute[attribute] = _Query(lists, of_attribute, relevant, target)
            for name, measure in measures.items():
                value = query_by_attribute[self._attribute(measure)].value(measure)
                if not math.isnan(value):
                    values[name][query_id] = value
        left_out = tuple(query_id for query_id in wanted if query_id not in lists_by_query)
        return PerQuery(values, left_out)

    def _check(self, measures: Mapping[str, Measure]) -> None:
        for name, measure in measures.items():
            if not isinstance(measure, GroupMeasure):
                raise ValueError(f"{name} is no measure of groups")
            needs = measure.NAME in OF_RELEVANT or self._uses_relevant(self._attribute(measure))
            if needs and not self.qrels:
                raise ValueError(f"{name} needs judgements, and there are none")

    def _attribute(self, measure: Measure) -> str:
        """Whose groups a measure is of."""
        attribute = measure.params.get("attribute")
        if attribute is not None:
            return str(attribute)
        if len(self.groups) > 1:
            names = list(self.groups)
            raise ValueError(
                f"{shown_name(measure)}: groups of which attribute? Name one of "
                f"{', '.join(names)}, or several: {shown_name(measure, CROSS.join(names[:2]))}"
            )
        return next(iter(self.groups))

    def _asked(
        self, measures: Mapping[str, Measure], lists_by_query: Mapping[str, Sequence[Sequence[str]]]
    ) -> dict[str, DocumentGroups]:
        """The groups that measures are of, for the documents of these lists alone.

        A file may know the groups of millions, and crossed attributes have many groups.
        """
        doc_ids: dict[str, None] = {}
        for query_id, lists in lists_by_query.items():
            for ranked in lists:
                doc_ids.update(dict.fromkeys(ranked))
            doc_ids.update(dict.fromkeys(sorted(self._relevant(query_id))))
        selected = {attribute: groups.select(doc_ids) for attribute, groups in self.groups.items()}
        asked: dict[str, DocumentGroups] = {}
        for measure in measures.values():
            attribute = self._attribute(measure)
            asked[attribute] = crossed(attribute, selected)
        return asked

    def _relevant(self, query_id: str) -> set[str]:
        labels = (self.qrels or {}).get(query_id, {})
        return {doc_id for doc_id, label in labels.items() if label >= self.relevant_from}

    def _target_of(self, attribute: str) -> Target:
        target = self.target
        if isinstance(target, Mapping) and attribute in target:
            target = target[attribute]  # type: ignore[assignment]
        elif isinstance(target, Mapping) and len(self.groups) > 1:
            target = UNIFORM  # of an attribute that the mapping does not name
        if isinstance(target, str) and target not in TARGETS:
            raise ValueError(
                f"target={target}: use one of {', '.join(TARGETS)}, or a share for each group"
            )
        return target  # type: ignore[return-value]

    def _uses_relevant(self, attribute: str) -> bool:
        return any(self._target_of(name) == RELEVANT for name in attribute.split(CROSS))

    def _target(
        self, attribute: str, groups: DocumentGroups, relevant: set[str]
    ) -> np.ndarray | None:
        """Shares that the groups should have, float64 [n]; None where there are none."""
        if self._uses_relevant(attribute):
            # Sorted, because the order of a set, and so the last digit of a sum, would change.
            of_relevant = groups.shares_of(sorted(relevant)).sum(axis=0)
            total = of_relevant.sum()
            return of_relevant / total if total > 0 else None
        shares = np.ones(1)
        for name in attribute.split(CROSS):
            part = target_shares(self._target_of(name), self.groups[name].names)
            # Of crossed attributes, the product of the targets of each.
            shares = np.outer(shares, part).ravel()
        return shares


def target_shares(target: Target, names: Sequence[str]) -> np.ndarray:
    """The share of each group under ``uniform`` or given shares, which are divided by their sum.

    >>> target_shares({"female": 1, "male": 3}, ["female", "male"])
    array([0.25, 0.75])

    Raises:
        ValueError: shares that are not of these groups, negative, or 0 throughout.
    """
    if isinstance(target, str):
        return np.full(len(names), 1 / max(1, len(names)))
    different = sorted(set(target) ^ set(names))
    if different:
        raise ValueError(
            f"the target has shares of {', '.join(map(str, target))}, and the groups are "
            f"{', '.join(names)}: give a share to each of them (0 for none)"
        )
    shares = np.array([float(target[name]) for name in names])
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() == 0:
        raise ValueError(
            f"the target {dict(target)} must be shares of at least 0, not all of them 0"
        )
    return shares / shares.sum()


class _Query:
    """A query's rankings with the groups of their documents: what every measure is taken of."""

    def __init__(
        self,
        lists: Sequence[Sequence[str]],
        groups: DocumentGroups,
        relevant: set[str],
        target: np.ndarray | None,
    ) -> None:
        self.has_relevant = bool(relevant)
        self.target = target
        self.shares = [groups.shares_of(doc_ids) for doc_ids in lists]
        self.relevant: list[np.ndarray] = []
        for doc_ids in lists:
            self.relevant.append(np.array([doc_id in relevant for doc_id in doc_ids], dtype=float))

    def value(self, measure: Measure) -> float:
        """A measure's value; NaN where it is not defined."""
        cutoff = int(measure["cutoff"])
        name = measure.NAME
        if name in EXPECTED:
            return self._expected(name, cutoff)
        found: list[float] = []
        for shares, relevant in zip(self.shares, self.relevant, strict=True):
            if name == AWRF_JS.NAME:
                value = awrf_js(shares[:cutoff], self.target)
            elif name == NDKL.NAME:
                value = ndkl(shares[:cutoff], self.target)
            elif name == ExposurePerRelevance.NAME:
                value = exposure_ratio(shares, cutoff, shares * relevant[:, None])
            else:
                value = exposure_ratio(shares, cutoff, shares)
            if not math.isnan(value):
                found.append(value)
        return float(np.mean(found)) if found else math.nan

    def _expected(self, name: str, cutoff: int) -> float:
        if self.target is None or not self.has_relevant:
            return math.nan
        exposures: list[np.ndarray] = []
        for shares, relevant in zip(self.shares, self.relevant, strict=True):
            of_relevant = (shares * relevant[:, None])[:cutoff]
            exposures.append(attention(len(of_relevant)) @ of_relevant)
        expected = np.mean(exposures, axis=0)
        # Of a full list, also where a ranking is shorter.
        wanted = self.target * attention(cutoff).sum()
        if name == EE_D.NAME:
            return float(expected @ expected)
        if name == EE_R.NAME:
            return float(expected @ wanted)
        return float((expected - wanted) @ (expected - wanted))


def attention(places: int) -> np.ndarray:
    """a_i = 1 / log2(max(i, 2)) of the first places, float64 [places]; the first two are 1."""
    return 1 / np.log2(np.maximum(np.arange(1, places + 1), 2))


def awrf_js(shares: np.ndarray, target: np.ndarray | None) -> float:
    """1 - JSD(exposure, target) of one ranking; NaN without a known document or a target.

    Args:
        shares: of the documents in their order, [places, n]; 0 throughout for unknown ones.
        target: [n].
    """
    exposure = attention(len(shares)) @ shares
    if target is None or exposure.sum() == 0:
        return math.nan
    exposure = exposure / exposure.sum()
    middle = (exposure + target) / 2
    divergence = (rel_entr(exposure, middle).sum() + rel_entr(target, middle).sum()) / 2
    return float(1 - divergence)


def ndkl(shares: np.ndarray, target: np.ndarray | None) -> float:
    """Normalised discounted KL divergence of the first places from the target, see the formula.

    Args:
        shares: of the documents in their order, [places, n]; 0 throughout for unknown ones.
        target: [n].
    """
    totals = np.cumsum(shares, axis=0)
    known = totals.sum(axis=1)
    # Places in front of the first known document say nothing.
    there = known > 0
    if target is None or not there.any():
        return math.nan
    divergences = rel_entr(totals[there] / known[there, None], target).sum(axis=1)
    weights = (1 / np.log2(np.arange(1, len(shares) + 1) + 1))[there]
    value = float((weights * divergences).sum() / weights.sum())
    return value if math.isfinite(value) else math.nan


def exposure_ratio(shares: np.ndarray, cutoff: int, merit: np.ndarray) -> float:
    """Smallest over largest exposure of a group for each unit of its merit.

    NaN without two groups that have any merit.

    Args:
        shares: of all ranked documents in their order, [documents, n].
        cutoff: places that get any exposure.
        merit: [documents, n]: the shares for the exposure of a document, those of relevant
            documents for the exposure that a unit of relevance earns.
    """
    seen = shares[:cutoff]
    exposure = (1 / np.log2(np.arange(1, len(seen) + 1) + 1)) @ seen
    deserved = merit.sum(axis=0)
    has_merit = deserved > 0
    if np.count_nonzero(has_merit) < 2:
        return math.nan
    ratios = exposure[has_merit] / deserved[has_merit]
    # Nobody is seen: nothing that could be compared.
    return float(ratios.min() / ratios.max()) if ratios.max() > 0 else math.nan
