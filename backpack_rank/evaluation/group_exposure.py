r"""Exposure of groups: what AWRF_JS, EE-L, EE-D, EE-R, NDKL and the ratios are taken of.

Formulas: :mod:`backpack_rank.evaluation.group_measures`.

A document without a known group takes its place, and no part. A query has no value where a measure
is not defined: AWRF_JS and NDKL without a known document in the first k, EE without a relevant
document, ratios without two groups to compare, and every measure with a target where there is none
(shares among the relevant, of a query without a relevant document of a known group). A target of
one group alone is refused, and NDKL where the target gives nothing to a group, because it is
infinite then. All but EE, which are of the S rankings of a query together, are taken of one
ranking.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from ir_measures import Measure

from backpack_rank.data.collection import Qrels, Run
from backpack_rank.data.trec import ranking
from backpack_rank.evaluation.document_groups import CROSS, DocumentGroups, crossed
from backpack_rank.evaluation.group_measures import GroupMeasure, QueryGroups
from backpack_rank.evaluation.results import PerQuery

UNIFORM = "uniform"
RELEVANT = "relevant"
TARGETS = (UNIFORM, RELEVANT)
Target: TypeAlias = str | Mapping[str, float]
"""``uniform``, ``relevant`` (shares among the relevant documents), or ``{group: share}``."""


@dataclass(frozen=True, eq=False)
class GroupExposure:
    """Measures how attention is spread over groups of documents.

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
        of_groups = self._checked(measures)
        self.check_target(measures)
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
        groups = self._asked(of_groups, lists_by_query)

        values: dict[str, dict[str, float]] = {name: {} for name in of_groups}
        for query_id, lists in lists_by_query.items():
            relevant = self._relevant(query_id)
            query_by_attribute: dict[str, QueryGroups] = {}
            for attribute, of_attribute in groups.items():
                target = self._target(attribute, of_attribute, relevant)
                query_by_attribute[attribute] = QueryGroups(lists, of_attribute, relevant, target)
            for name, measure in of_groups.items():
                value = measure.value(query_by_attribute[self._attribute(measure)])
                if not math.isnan(value):
                    values[name][query_id] = value
        left_out = tuple(query_id for query_id in wanted if query_id not in lists_by_query)
        return PerQuery(values, left_out)

    def check_target(self, measures: Mapping[str, Measure]) -> None:
        """Before anything is ranked.

        Raises:
            ValueError: a measure against a target that has one group alone, which every ranking
                meets; names it.
        """
        for name, measure in measures.items():
            if not isinstance(measure, GroupMeasure) or not measure.needs_target:
                continue
            attribute = self._attribute(measure)
            if self._uses_relevant(attribute):
                if measure.needs_all_groups:
                    raise ValueError(
                        f"{name} is infinite for a query that shows a group without a relevant "
                        f"document: leave it out under the target {RELEVANT}, or measure AWRF_JS"
                    )
                continue
            if measure.needs_all_groups:
                self._check_shares(name, attribute)
            groups = [crossed(part, self.groups).names for part in attribute.split(CROSS)]
            if math.prod(map(len, groups)) == 1:
                only = CROSS.join(names[0] for names in groups)
                raise ValueError(
                    f"{name}: {attribute} has one group alone, {only!r}, and every ranking would "
                    "be at its best: say in bias.target which other groups should be shown, such "
                    f"as {{{only}:0.5,OTHER:0.5}}"
                )

    def _check_shares(self, measure: str, attribute: str) -> None:
        """Raise ``ValueError`` where a measure is infinite for whoever shows a group."""
        for part in attribute.split(CROSS):
            groups = crossed(part, self.groups).names
            shares = target_shares(self._target_of(part), groups)
            for group, share in zip(groups, shares, strict=True):
                if share == 0:
                    raise ValueError(
                        f"{measure} is infinite for a query that shows {group!r}, which the target "
                        "gives a share of 0: give it a small share, or measure AWRF_JS"
                    )

    def _checked(self, measures: Mapping[str, Measure]) -> dict[str, GroupMeasure]:
        of_groups: dict[str, GroupMeasure] = {}
        for name, measure in measures.items():
            if not isinstance(measure, GroupMeasure):
                raise ValueError(f"{name} is no measure of groups")
            needs = measure.needs_judgements or self._uses_relevant(self._attribute(measure))
            if needs and not self.qrels:
                raise ValueError(f"{name} needs judgements, and there are none")
            of_groups[name] = measure
        return of_groups

    def _attribute(self, measure: GroupMeasure) -> str:
        """Whose groups a measure is of."""
        attribute = measure.params.get("attribute")
        if attribute is not None:
            return str(attribute)
        if len(self.groups) > 1:
            names = list(self.groups)
            crossing = measure(attribute=CROSS.join(names[:2]))
            raise ValueError(
                f"{measure.name}: groups of which attribute? Name one of "
                f"{', '.join(names)}, or several: {crossing.name}"
            )
        return next(iter(self.groups))

    def _asked(
        self,
        measures: Mapping[str, GroupMeasure],
        lists_by_query: Mapping[str, Sequence[Sequence[str]]],
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
