"""The table of results: systems x query sets x measures x queries, with averages and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backpack_rank.evaluation.results import (
    PerQuery,
    Report,
    RunInfo,
    SystemResult,
    shared_measures,
)
from backpack_rank.evaluation.significance import Comparison, compare
from backpack_rank.notebook import PlottedInNotebooks

if TYPE_CHECKING:
    from pandas import DataFrame

# Names of query sets: each kind of measure is taken over queries that are chosen for it.
EFFECTIVENESS = "effectiveness"
BIAS = "bias"
SWAP = "swap"
CHANGED = "swapped documents"
VARIANTS = "wordings"
CONTRAST = "queries that ask for a group"


@dataclass(frozen=True)
class SystemMetrics:
    """Values of one system.

    Attributes:
        label: name in the tables.
        alpha: position of the dial, None without one.
        values: by name of the query set; a set that was not measured is absent.
        rankings: of a system of several rankings, the values of each, by its label: ``values`` are
            the means over them, but for EE, which is of all together.
    """

    label: str
    alpha: float | None
    values: Mapping[str, PerQuery]
    rankings: Mapping[str, Mapping[str, PerQuery]] = field(default_factory=dict)

    def summary(self) -> SystemResult:
        """Averages with their intervals."""
        # Effectiveness and bias have fields of their own; the other query sets are further ones.
        summaries = {name: values.summary() for name, values in self.values.items()}
        effectiveness = summaries.pop(EFFECTIVENESS, None)
        bias = summaries.pop(BIAS, None)
        return SystemResult(self.label, self.alpha, effectiveness, bias, further=summaries)


@dataclass(frozen=True, repr=False)
class ResultTable(PlottedInNotebooks):
    """What :func:`backpack_rank.evaluate` gives: ask it for averages, tests, or every value.

        table = backpack_rank.evaluate([reranker], collection)
        table.summary()             # mean and interval of each system and measure, a pandas frame
        table.compare(["nDCG@10"])  # paired tests between the systems
        table.frame()               # the value of every query
        table.plot()                # effectiveness against bias, in a notebook

    Attributes:
        systems: in the order of the tables.
        info: how the values came about.
        names: ``{query set: name to show}``; a set without one is shown under its own name.
    """

    systems: tuple[SystemMetrics, ...]
    info: RunInfo = field(default_factory=RunInfo)
    names: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Not the values, one for each query and measure.
        systems = ", ".join(system.label for system in self.systems)
        return f"ResultTable({systems or 'no system'})"

    def report(self) -> Report:
        """Averages of every system with their intervals, for the writers of tables and files."""
        return Report(tuple(system.summary() for system in self.systems), self.info)

    def frame(self) -> DataFrame:
        """The long form, a row for each value: system, alpha, set, measure, query_id, value.

        >>> ResultTable(()).frame().columns.tolist()
        ['system', 'alpha', 'set', 'measure', 'query_id', 'value']
        """
        from pandas import DataFrame

        rows = []
        for system in self.systems:
            for name, values in system.values.items():
                for measure, query_id, value in values.rows():
                    rows.append((system.label, system.alpha, name, measure, query_id, value))
        columns = ["system", "alpha", "set", "measure", "query_id", "value"]
        return DataFrame(rows, columns=columns)

    def summary(self) -> DataFrame:
        """A row for each system and measure: mean over queries, bootstrap interval, queries.

        >>> ResultTable(()).summary().columns.tolist()
        ['system', 'alpha', 'set', 'measure', 'mean', 'low', 'high', 'queries']
        """
        from pandas import DataFrame

        rows = []
        for system in self.report().rows:
            for name, block in system.blocks.items():
                for measure, estimate in block.figures.items():
                    figures = (estimate.mean, estimate.low, estimate.high, block.queries)
                    rows.append((system.label, system.alpha, name, measure, *figures))
        columns = ["system", "alpha", "set", "measure", "mean", "low", "high", "queries"]
        return DataFrame(rows, columns=columns)

    def compare(self, measures: Sequence[str] | None = None) -> list[Comparison]:
        """Paired tests between all systems that have values of a query set.

            for comparison in table.compare(["nDCG@10"]):
                for test in comparison.measures[0].tests:
                    print(test.first, test.second, test.difference, test.p_holm)

        Args:
            measures: names; None: all that the systems share.
        """
        comparisons = []
        for name in self._query_sets():
            # Not every system has every set: a first stage, for example, takes no swaps.
            systems: dict[str, PerQuery] = {}
            for system in self.systems:
                if name in system.values:
                    systems[system.label] = system.values[name]
            if len(systems) < 2:
                continue
            shared = shared_measures(systems.values())
            if measures is not None:
                shared = [measure for measure in shared if measure in measures]
            # AWRF_JS, for example, has no value where no ranked document is of a known group.
            shared = [measure for measure in shared if _has_common_query(measure, systems)]
            if shared:
                where = self.names.get(name, name)
                comparisons.append(compare(systems, shared, where=where))
        return comparisons

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
        system_by_label = {system.label: system for system in self.systems}
        query_sets = self._query_sets()
        wanted_labels = list(system_by_label) if systems is None else list(systems)
        wanted_sets = query_sets if sets is None else list(sets)
        wanted_measures = None if measures is None else set(measures)
        _check_known("system", wanted_labels, list(system_by_label))
        _check_known("query set", wanted_sets, query_sets)
        rows = []
        for label in wanted_labels:
            system = system_by_label[label]
            values: dict[str, PerQuery] = {}
            for name in wanted_sets:
                # Not every system has every set: a first stage, for example, takes no swaps.
                if name not in system.values:
                    continue
                values_of_set = system.values[name]
                if wanted_measures is not None:
                    values_of_set = values_of_set.with_measures(wanted_measures)
                if values_of_set.measures:
                    values[name] = values_of_set
            rows.append(replace(system, values=values))
        return replace(self, systems=tuple(rows))

    def _query_sets(self) -> list[str]:
        """Query sets of any system, in the order in which they first stand."""
        names: dict[str, None] = {}
        for system in self.systems:
            names.update(dict.fromkeys(system.values))
        return list(names)


def _has_common_query(measure: str, systems: Mapping[str, PerQuery]) -> bool:
    queries = [set(values.values[measure]) for values in systems.values()]
    return bool(set.intersection(*queries))


def _check_known(what: str, wanted: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``KeyError`` for a name that is not among the known ones."""
    for name in wanted:
        if name not in known:
            raise KeyError(f"no {what} {name!r} here; there are: {', '.join(known)}")
