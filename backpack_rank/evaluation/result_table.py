"""The ResultTable: systems x query sets x measures x queries, and every average and test that is
taken of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backpack_rank.evaluation.results import PerQuery, Report, RunInfo, SystemResult
from backpack_rank.evaluation.significance import Comparison, compare

if TYPE_CHECKING:
    from pandas import DataFrame

EFFECTIVENESS, BIAS, SWAP, CHANGED, VARIANTS = (
    "effectiveness",
    "bias",
    "swap",
    "swapped documents",
    "wordings",
)
"""Query sets: each kind of measure has queries of its own."""


@dataclass(frozen=True)
class SystemMetrics:
    """Values of one system.

    Attributes:
        label: name in the tables.
        alpha: position of the dial, None without one.
        values: by query set; a set that was not measured is absent.
    """

    label: str
    alpha: float | None
    values: Mapping[str, PerQuery]

    def summary(self) -> SystemResult:
        """Averages with their intervals."""
        summaries = {name: values.summary() for name, values in self.values.items()}
        first, second = summaries.pop(EFFECTIVENESS, None), summaries.pop(BIAS, None)
        return SystemResult(self.label, self.alpha, first, second, summaries)


@dataclass(frozen=True)
class ResultTable:
    """What :func:`backpack_rank.evaluate` gives.

    Attributes:
        systems: in the order of the tables.
        info: how the values came about.
        names: of the query sets, for a reader.
    """

    systems: tuple[SystemMetrics, ...]
    info: RunInfo = field(default_factory=RunInfo)
    names: Mapping[str, str] = field(default_factory=dict)

    def report(self) -> Report:
        """Averages of every system with their intervals, for the writers of tables and files."""
        return Report(tuple(system.summary() for system in self.systems), self.info)

    def frame(self) -> DataFrame:
        """The long form: a row for each value, columns system, alpha, set, measure, query_id,
        value.
        """
        from pandas import DataFrame

        rows = [
            (system.label, system.alpha, name, measure, query_id, value)
            for system in self.systems
            for name, values in system.values.items()
            for measure, by_query in values.values.items()
            for query_id, value in by_query.items()
        ]
        return DataFrame(rows, columns=["system", "alpha", "set", "measure", "query_id", "value"])

    def summary(self) -> DataFrame:
        """A row for each system and measure: mean over queries, bootstrap interval, number of
        queries.
        """
        from pandas import DataFrame

        rows = [
            (
                row.label,
                row.alpha,
                name,
                measure,
                estimate.mean,
                estimate.low,
                estimate.high,
                block.queries,
            )
            for row in self.report().rows
            for name, block in row.blocks.items()
            for measure, estimate in block.figures.items()
        ]
        columns = ["system", "alpha", "set", "measure", "mean", "low", "high", "queries"]
        return DataFrame(rows, columns=columns)

    def compare(self, measures: Sequence[str] | None = None) -> list[Comparison]:
        """Paired tests between all systems that have values of a query set: a first stage, for
        example, takes no swaps.

        Args:
            measures: names; None: all that the systems share.
        """
        tests = []
        for name in dict.fromkeys(name for system in self.systems for name in system.values):
            systems = {
                system.label: system.values[name]
                for system in self.systems
                if name in system.values
            }
            first, *others = systems.values()
            shared = [
                measure
                for measure in first.measures
                if all(measure in other.values for other in others)
                and (measures is None or measure in measures)
            ]
            if others and shared:
                tests.append(compare(systems, shared, where=self.names.get(name, name)))
        return tests

    def select(
        self,
        systems: Iterable[str] | None = None,
        sets: Iterable[str] | None = None,
        measures: Iterable[str] | None = None,
    ) -> ResultTable:
        """The part with these systems, query sets and measures; None: all.

        Raises:
            KeyError: there is no such system or query set; lists those that there are.
        """
        labels = [system.label for system in self.systems]
        wanted = labels if systems is None else list(systems)
        if unknown := [label for label in wanted if label not in labels]:
            raise KeyError(f"no system {unknown[0]!r} here; there are: {', '.join(labels)}")
        known = dict.fromkeys(name for system in self.systems for name in system.values)
        kept = list(known) if sets is None else list(sets)
        if unknown := [name for name in kept if name not in known]:
            raise KeyError(f"no query set {unknown[0]!r} here; there are: {', '.join(known)}")
        chosen = None if measures is None else set(measures)

        def part(values: PerQuery) -> PerQuery:
            if chosen is None:
                return values
            return replace(
                values, values={name: of for name, of in values.values.items() if name in chosen}
            )

        by_label = {system.label: system for system in self.systems}
        rows = []
        for label in wanted:
            values = {
                name: part(by_label[label].values[name])
                for name in kept
                if name in by_label[label].values
            }
            rows.append(
                replace(
                    by_label[label], values={name: of for name, of in values.items() if of.measures}
                )
            )
        return replace(self, systems=tuple(rows))
