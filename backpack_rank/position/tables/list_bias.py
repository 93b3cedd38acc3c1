"""``evaluate.py experiment=lists/bias``: position bias of a listwise ranker, without and with remedies."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from backpack_rank.constructors import Count, Length, OneOf, Seed
from backpack_rank.data.collection import Qrels
from backpack_rank.data.dataset import Dataset
from backpack_rank.experiments.grid import show
from backpack_rank.pipelines.option_types import Rows
from backpack_rank.pipelines.settings import EvaluationSettings, check_positive_ints
from backpack_rank.position.lists.base import ListwiseRanker, Ranking
from backpack_rank.position.lists.evaluate import ListTask, check_rows, listwise_with, needed_listwise
from backpack_rank.position.lists.list_positions import (
    MEASURES,
    controlled_positions,
    order_robustness,
    reversals,
    with_one_relevant,
    wrong_pairs,
)
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.page import ListPage, write_list_page
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import rank_shuffled
from backpack_rank.position.lists.position_curves import PositionReport, SystemPositions, write_position_curves
from backpack_rank.position.lists.position_matrices import write_heat_map
from backpack_rank.position.lists.propensity import Transitions
from backpack_rank.position.lists.settings import RankerFactory
from backpack_rank.position.lists.sorting_scores import sorting_scores
from backpack_rank.position.lists.sources import (
    COLLECTION,
    KINDS,
    ListSize,
    ListwiseDataConfig,
    dataset_of_lists,
    trained_lists,
)
from backpack_rank.position.tables.list_bias_tables import (
    PositionBiasStats,
    SystemOrders,
    evenness_table,
    order_table,
    remedies_table,
)
from backpack_rank.position.tables.list_tables import Sorted, SortingFigures, sorting_table
from backpack_rank.position.tables.sorting import TASKS
from backpack_rank.reporting.charts import DotRow, dots
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.vega import save_chart
from backpack_rank.reporting.writers import write_table

log = logging.getLogger(__name__)
INSTRUMENTS = ("positions", "shuffles", "orders", "sorting")
_POOL = 100
"""Candidates of a query among which a relevant passage and others that are not relevant are looked for."""


@dataclass(frozen=True)
class ListsToRank:
    """Lists to look at a ranker's position bias with.

    Attributes:
        name: what they are.
        whole: lists of one size.
        qrels: judgements of a collection; empty for a sorting task.
        targets: of a sorting task, the right place of the item at each input position, equal ones tied; empty for a
            collection.
        controlled: lists with one relevant passage each.
        relevant: its position in each of them.
        notes: sentences about them.
    """

    name: str
    whole: tuple[PassageList, ...]
    qrels: Qrels
    targets: tuple[np.ndarray, ...]
    controlled: tuple[PassageList, ...]
    relevant: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass
class _BiasResults:
    """What was measured, by system."""

    positions: list[SystemPositions] = field(default_factory=list)
    evenness: list[PositionBiasStats] = field(default_factory=list)
    orders: list[SystemOrders] = field(default_factory=list)
    sorting: list[SortingFigures] = field(default_factory=list)
    transitions: dict[str, np.ndarray] = field(default_factory=dict)
    reversed: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class ListPositionBias(ListTask):
    """``task`` of ``conf/experiment/lists/bias.yaml``.

    Attributes:
        rows: by name of the system, options that differ from those of the command line; the first is the baseline.
        instruments: of :data:`INSTRUMENTS`.
        lists: ``collection``, ``mathsort`` or ``wordsort``; None: those that the ranker was trained on.
        size: passages of a list; None: as the ranker was trained.
        number: lists at most.
        shuffles: of each list, for transitions and reversals.
        shuffled_orders: random orders beside the original and the reversed one.
        minimum: relevance from which a passage counts as relevant.
        seed: of shuffles, and of a sorting task's lists.
        options: parts of the configuration that several rows refer to; not read here.
    """

    rows: Rows
    instruments: Annotated[Sequence[Annotated[str, OneOf(INSTRUMENTS)]], Length(1)] = INSTRUMENTS
    lists: Annotated[str, OneOf(KINDS)] | None = None
    size: ListSize | None = None
    number: Count = 100
    shuffles: Count = 10
    shuffled_orders: Count = 2
    minimum: Count = 1
    seed: Seed = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.instruments, str):
            object.__setattr__(self, "instruments", (self.instruments,))
        for name in self.instruments:
            if name not in INSTRUMENTS:
                raise ValueError(f"task.instruments: {name!r} is none of {', '.join(INSTRUMENTS)}")
        if not self.rows or not self.instruments:
            raise ValueError("task.rows and task.instruments must name at least one system and one instrument")
        check_positive_ints(self, ("number", "shuffles", "shuffled_orders", "minimum"))

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of a row."""
        check_rows(settings, self.rows, "task.rows")

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure every system, write tables, pictures and ``report.html``, and print the tables.

        Raises:
            ValueError: no listwise ranker, or it is not known which lists are meant.
        """
        needed_listwise(settings, "position bias in lists is that of a listwise ranker")
        self.check(settings)
        checkpoint = listwise_with(settings, next(iter(self.rows.values()))).trained()
        kind, size = trained_lists(checkpoint, self.lists, self.size)
        dataset = dataset_of_lists(settings, checkpoint, kind)
        given = self.lists_to_rank(
            dataset, ListwiseDataConfig(kind, size, self.number, held_out=self.number, seed=self.seed)
        )
        settings.save(folder, checkpoint)
        found, rankers = _BiasResults(), RankerFactory()
        for label, options in self.rows.items():
            self._measure(label, rankers.build(listwise_with(settings, options)), given, found)
            tables = self._write(folder, given, found)  # what there is so far
        show(tables, f"Report: {folder / 'report.html'}", quiet)

    def lists_to_rank(self, dataset: Dataset | None, settings: ListwiseDataConfig) -> ListsToRank:
        """The lists of the test split, or of the sorting task in random order."""
        if settings.kind != COLLECTION:
            items = settings.held_out_lists(dataset)
            whole, targets = tuple(item.passages for item in items), tuple(item.relevance_levels for item in items)
            single = [item for item in items if (item.relevance_levels == 0).sum() == 1]
            controlled = tuple(item.passages for item in single)
            best = tuple(int(item.relevance_levels.argmin()) for item in single)
            note = f"The relevant item is the one that belongs first; {len(items) - len(single)} lists have several."
            return ListsToRank(settings.kind, whole, {}, targets, controlled, best, (note,))
        assert dataset is not None
        test = dataset.split("test")
        pool = lists_of(dataset.candidates("test", test)[1], test, _POOL, judged=True)
        grades = [[test.qrels.get(one.query_id, {}).get(doc_id, 0) for doc_id in one.ids] for one in pool]
        chosen = with_one_relevant(pool, grades, settings.size, self.minimum)
        whole = tuple(one.select(range(settings.size)) for one in pool if len(one) >= settings.size)[: self.number]
        notes = (
            f"Lists for the position of the relevant passage: {len(chosen.lists)} queries, from which "
            f"{chosen.removed} further relevant passages were taken out; {len(chosen.without_relevant)} "
            f"queries have no relevant candidate and {len(chosen.too_short)} too few others.",
            f"All else: the first {settings.size} candidates of {len(whole)} judged queries.",
        )
        kept = slice(self.number)
        return ListsToRank(test.name, whole, test.qrels, (), chosen.lists[kept], chosen.relevant[kept], notes)

    def _measure(self, label: str, ranker: ListwiseRanker, given: ListsToRank, found: _BiasResults) -> None:
        log.info("%s: %s", label, ranker.name)
        if "positions" in self.instruments:
            before, start = copy.copy(ranker.usage), time.perf_counter()
            positions = controlled_positions(ranker, given.controlled, given.relevant)
            usage, seconds = ranker.usage.since(before), time.perf_counter() - start
            curves = tuple(positions.curve(measure) for measure in MEASURES)
            ranked = len(given.controlled) * len(given.controlled[0])
            found.positions.append(SystemPositions(label, curves, ranked, usage.passes or None, seconds))
        if "shuffles" in self.instruments:
            self._shuffled(label, ranker, given, found)
        original: Sequence[Ranking] | None = None
        if "orders" in self.instruments:
            robust = order_robustness(
                ranker, given.whole, given.qrels or None, shuffled=self.shuffled_orders, seed=self.seed
            )
            measured = dict(zip(robust.orders, robust.effectiveness, strict=False))
            figures = {order: values.summary().figures["nDCG@10"] for order, values in measured.items()}
            pairs = combinations(enumerate(robust.orders), 2)
            taus = {(one, other): float(robust.tau[i, j]) for (i, one), (j, other) in pairs}
            found.orders.append(SystemOrders(label, figures, taus))
            original = robust.rankings[0]
        if "sorting" in self.instruments and given.targets:
            scores = sorting_scores(original or ranker.rank(given.whole), given.targets)
            found.sorting.append(
                SortingFigures(label, {(TASKS[given.name], "Orig."): Sorted(scores.tau, scores.exact_share)})
            )

    def _shuffled(self, label: str, ranker: ListwiseRanker, given: ListsToRank, found: _BiasResults) -> None:
        size = len(given.whole[0])
        shuffled = rank_shuffled(ranker, given.whole, self.shuffles, self.seed)
        transitions = Transitions.of(shuffled.rankings, size)
        pairs = reversals(shuffled.rankings, size)
        wrong = None
        if given.targets:
            orders = zip(shuffled.lists, shuffled.permutations, strict=True)
            wrong = wrong_pairs(shuffled.rankings, [given.targets[n][order] for n, order in orders], size).mean
        even = (transitions.rankings, transitions.total_variation, transitions.chance)
        found.evenness.append(PositionBiasStats(label, *even, pairs.mean, pairs.range, wrong))
        found.transitions[label] = transitions.given_input
        found.reversed[label] = pairs.shares

    def _write(self, folder: Path, given: ListsToRank, found: _BiasResults) -> list[Table]:
        """Write tables, pictures and the page; returns the tables."""
        pictures: dict[str, Path] = {}
        if found.positions:
            report = _position_report(given, found)
            *_, pictures["Position of the relevant passage"] = write_position_curves(folder, report)
        if found.transitions:
            *_, pictures["From input to output position"] = write_heat_map(
                folder,
                "transitions",
                found.transitions,
                title="Output position by input position, lists shuffled",
                value="share of an input position",
                centre=1 / len(given.whole[0]),
            )
            *_, pictures["Reversed pairs"] = write_heat_map(
                folder,
                "reversals",
                found.reversed,
                title="Share of pairs that come out reversed, by their input positions",
                rows="first input position",
                columns="second input position",
                value="share reversed",
                centre=0.5,
            )
        if any(one.figures for one in found.orders):
            rows = [DotRow(one.label, one.figures) for one in found.orders]
            pictures["Input orders"] = save_chart(folder / "input_orders", dots({"": rows}, "nDCG@10"))[1]
        tables = _tables(given, found)
        for table in tables:
            write_table(folder, table)
        title = f"Position bias in lists: {given.name}"
        write_list_page(folder / "report.html", ListPage(title, tuple(tables), pictures))
        return tables


def _tables(given: ListsToRank, found: _BiasResults) -> list[Table]:
    tables = []
    if found.positions:
        tables.append(remedies_table(_position_report(given, found)))
    if found.orders:
        tables.append(order_table(found.orders, given.name))
    if found.evenness:
        tables.append(evenness_table(found.evenness, given.name))
    if found.sorting:
        tables.append(sorting_table("psc_table3", found.sorting))
    return tables


def _position_report(given: ListsToRank, found: _BiasResults) -> PositionReport:
    return PositionReport(given.name, len(given.controlled), tuple(found.positions), given.notes)
