"""``evaluate.py experiment=lists/bias``: position bias of a listwise ranker, and its remedies."""

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
from backpack_rank.evaluation.results import Estimate
from backpack_rank.experiments.grid import fill_grid, show
from backpack_rank.pipelines.option_types import Rows
from backpack_rank.pipelines.settings import EvaluationSettings, check_positive_ints
from backpack_rank.position.lists.base import ListwiseRanker, Ranking
from backpack_rank.position.lists.bias_lists import ListsToRank, lists_to_rank
from backpack_rank.position.lists.evaluate import (
    ListTask,
    check_rows,
    listwise_with,
    needed_listwise,
)
from backpack_rank.position.lists.list_positions import (
    MEASURES,
    OrderRobustness,
    controlled_positions,
    order_robustness,
    reversals,
    wrong_pairs,
)
from backpack_rank.position.lists.page import ListPage, write_list_page
from backpack_rank.position.lists.permutation import rank_shuffled
from backpack_rank.position.lists.position_curves import (
    PositionReport,
    SystemPositions,
    write_position_curves,
)
from backpack_rank.position.lists.position_matrices import write_heat_map
from backpack_rank.position.lists.propensity import Transitions
from backpack_rank.position.lists.settings import RankerFactory
from backpack_rank.position.lists.sorting_scores import sorting_scores
from backpack_rank.position.lists.sources import (
    KINDS,
    ListSize,
    ListwiseDataConfig,
    dataset_of_lists,
    trained_lists,
)
from backpack_rank.position.tables.sorting import TASKS, sorting_figure, sorting_table
from backpack_rank.reporting.charts import DotRow, dots
from backpack_rank.reporting.paper_layout import ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.vega import save_chart
from backpack_rank.reporting.writers import write_table

log = logging.getLogger(__name__)
MEASURE = "nDCG@10"
INSTRUMENTS = ("positions", "shuffles", "orders", "sorting")


class _BiasResults:
    """What was measured so far, of each system; it grows with every system."""

    def __init__(self) -> None:
        self.positions: list[SystemPositions] = []
        self.evenness: list[PaperRow] = []
        self.orders: list[PaperRow] = []
        self.dots: list[DotRow] = []
        self.sorting: dict[str, dict[tuple[str, str], Figure]] = {}
        self.transitions: dict[str, np.ndarray] = {}
        self.reversed: dict[str, np.ndarray] = {}


@dataclass(frozen=True)
class ListPositionBias(ListTask):
    """Measures the position bias of a listwise ranker, with and without remedies.

    It is the ``task`` of ``conf/experiment/lists/bias.yaml``.

    Attributes:
        rows: by name of the system, options that differ from those of the command line; the first
            is the baseline.
        instruments: of :data:`INSTRUMENTS`.
        lists: ``collection``, ``mathsort`` or ``wordsort``; None: those that the ranker was trained
            on.
        size: passages of a list; None: as the ranker was trained.
        number: lists at most.
        shuffles: of each list, for transitions and reversals.
        shuffled_orders: random orders beside the original and the reversed one.
        minimum: relevance from which a passage counts as relevant.
        seed: of shuffles, and of a sorting task's lists.
        options: parts of the configuration that several rows refer to by interpolation.
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
            raise ValueError(
                "task.rows and task.instruments must name at least one system and one instrument"
            )
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
        source = ListwiseDataConfig(kind, size, self.number, held_out=self.number, seed=self.seed)
        given = lists_to_rank(dataset, source, self.minimum)
        settings.save(folder, checkpoint)
        results = _BiasResults()
        rankers = RankerFactory()

        def measure(label: str, ranker: ListwiseRanker, _: str, given: ListsToRank) -> None:
            log.info("%s: %s", label, ranker.name)
            self._measure(label, ranker, given, results)

        fill_grid(
            self.rows,
            {given.name: given},
            prepare=lambda options: rankers.build(listwise_with(settings, options)),
            measure=measure,
            after_each=lambda _: self._write(folder, given, results),
        )
        show(_tables(given, results), f"Report: {folder / 'report.html'}", quiet)

    def _measure(
        self, label: str, ranker: ListwiseRanker, given: ListsToRank, results: _BiasResults
    ) -> None:
        if "positions" in self.instruments:
            results.positions.append(_positions(label, ranker, given))
        if "shuffles" in self.instruments:
            self._measure_shuffled(label, ranker, given, results)
        original: Sequence[Ranking] | None = None
        if "orders" in self.instruments:
            robust = order_robustness(
                ranker,
                given.lists,
                given.qrels or None,
                shuffled=self.shuffled_orders,
                seed=self.seed,
            )
            figures = _effectiveness_by_order(robust)
            if figures:
                results.dots.append(DotRow(label, figures))
            results.orders.append(order_row(label, figures, _taus(robust)))
            original = robust.rankings[0]
        if "sorting" in self.instruments and given.targets:
            # The lists in their original order were ranked for the input orders already.
            scores = sorting_scores(original or ranker.rank(given.lists), given.targets)
            results.sorting[label] = {(TASKS[given.name], "Orig."): sorting_figure(scores)}

    def _measure_shuffled(
        self, label: str, ranker: ListwiseRanker, given: ListsToRank, results: _BiasResults
    ) -> None:
        """Transitions of single passages, and reversals of pairs, over shuffled lists."""
        size = len(given.lists[0])
        shuffled = rank_shuffled(ranker, given.lists, self.shuffles, self.seed)
        transitions = Transitions.of(shuffled.rankings, size)
        pairs = reversals(shuffled.rankings, size)
        figures: dict[ColumnKey, Figure | float] = {
            ("", "rankings"): transitions.rankings,
            ("transitions", "TV"): transitions.total_variation,
            ("transitions", "chance"): transitions.chance,
            ("pairs", "reversed"): pairs.mean,
            ("pairs", "range"): pairs.range,
        }
        if given.targets:
            # Right places in the order in which each shuffle was shown.
            targets = []
            for number, order in zip(shuffled.lists, shuffled.permutations, strict=True):
                targets.append(given.targets[number][order])
            figures["pairs", "wrong"] = wrong_pairs(shuffled.rankings, targets, size).mean
        results.evenness.append(PaperRow((label,), figures))
        results.transitions[label] = transitions.given_input
        results.reversed[label] = pairs.shares

    def _write(self, folder: Path, given: ListsToRank, results: _BiasResults) -> None:
        """Write tables, pictures and the page of what there is so far."""
        pictures: dict[str, Path] = {}
        if results.positions:
            *_, picture = write_position_curves(folder, _position_report(given, results))
            pictures["Position of the relevant passage"] = picture
        if results.transitions:
            *_, picture = write_heat_map(
                folder,
                "transitions",
                results.transitions,
                title="Output position by input position, lists shuffled",
                value="share of an input position",
                centre=1 / len(given.lists[0]),
            )
            pictures["From input to output position"] = picture
            *_, picture = write_heat_map(
                folder,
                "reversals",
                results.reversed,
                title="Share of pairs that come out reversed, by their input positions",
                rows="first input position",
                columns="second input position",
                value="share reversed",
                centre=0.5,
            )
            pictures["Reversed pairs"] = picture
        if results.dots:
            _, picture = save_chart(folder / "input_orders", dots({"": results.dots}, MEASURE))
            pictures["Input orders"] = picture
        tables = _tables(given, results)
        for table in tables:
            write_table(folder, table)
        page = ListPage(f"Position bias in lists: {given.name}", tuple(tables), pictures)
        write_list_page(folder / "report.html", page)


def _positions(label: str, ranker: ListwiseRanker, given: ListsToRank) -> SystemPositions:
    """The relevant passage of each list at every position, and what ranking them cost."""
    usage_before = copy.copy(ranker.usage)
    start = time.perf_counter()
    positions = controlled_positions(ranker, given.controlled, given.relevant)
    seconds = time.perf_counter() - start
    usage = ranker.usage.since(usage_before)
    return SystemPositions(
        label=label,
        curves=tuple(positions.curve(measure) for measure in MEASURES),
        ranked=len(given.controlled) * len(given.controlled[0]),
        passes=usage.passes or None,
        seconds=seconds,
    )


def _effectiveness_by_order(robust: OrderRobustness) -> dict[str, Estimate]:
    figures = {}
    # Without judgements there is no effectiveness.
    for order, values in zip(robust.orders, robust.effectiveness, strict=False):
        figures[order] = values.summary().figures[MEASURE]
    return figures


def _taus(robust: OrderRobustness) -> dict[tuple[str, str], float]:
    """Mean Kendall's tau between the outputs of two input orders, by both names."""
    taus = {}
    for (i, order), (j, other) in combinations(enumerate(robust.orders), 2):
        taus[order, other] = float(robust.tau[i, j])
    return taus


def order_row(
    label: str, figures: Mapping[str, Estimate], taus: Mapping[tuple[str, str], float]
) -> PaperRow:
    """A system on lists in several input orders: effectiveness, and taus of the outputs."""
    row: dict[ColumnKey, Figure] = {}
    for order, figure in figures.items():
        record = {"order": order, "measure": MEASURE}
        row[MEASURE, order] = Figure(figure, record=record)
    for (order, other), tau in taus.items():
        record = {"order": order, "other_order": other, "measure": "kendall tau"}
        row["tau of", f"{_short(order)}-{_short(other)}"] = Figure(tau, record=record)
    return PaperRow((label,), row)


def _short(order: str) -> str:
    """``o``, ``r``, ``s1`` for original, reversed, shuffled 1."""
    kind, _, number = order.partition(" ")
    return kind[:1] + number


def remedies_table(report: PositionReport, measure: str = MEASURE) -> Table:
    """What each remedy does to a measure over positions, and what it costs.

    The first system of the report is the one without remedy.
    """
    base = report.systems[0].curve(measure)
    rows = []
    for system in report.systems:
        curve = system.curve(measure)
        milliseconds = None if system.seconds is None else 1000 * system.seconds
        figures = {
            ("", "mean"): curve.mean,
            ("", "range"): curve.range,
            ("", "change"): None if curve is base else curve.range - base.range,
            ("", "variance"): curve.variance,
            ("per list", "passes"): _per_list(system, system.passes),
            ("per list", "ms"): _per_list(system, milliseconds),
        }
        record = {
            "measure": measure,
            "worst_position": int(np.argmin(curve.values)) + 1,
            "ranked": system.ranked,
            "all_passes": system.passes,
            "seconds": system.seconds,
        }
        rows.append(PaperRow((system.label,), figures, record=record))
    facts = {
        "measure": measure,
        "collection": report.collection,
        "lists": f"{report.lists:,}",
        "positions": report.positions,
        "baseline": report.systems[0].label,
    }
    return lay_out("remedies", rows, facts=facts, notes=report.notes)


def _per_list(system: SystemPositions, total: float | None) -> float | None:
    """A cost divided by the lists; None where it was not counted."""
    return total / system.ranked if total is not None and system.ranked else None


def evenness_table(rows: Sequence[PaperRow], collection: str) -> Table:
    """Where passages of each input position come out, and how often pairs of them are reversed."""
    with_wrong = any(("pairs", "wrong") in (row.measured or {}) for row in rows)
    facts = {
        "collection": collection,
        "wrong_pairs": "; share in the wrong order" if with_wrong else "",
    }
    return lay_out("evenness", rows, facts=facts)


def _tables(given: ListsToRank, results: _BiasResults) -> list[Table]:
    tables = []
    if results.positions:
        tables.append(remedies_table(_position_report(given, results)))
    if results.orders:
        tables.append(lay_out("input_orders", results.orders, facts={"collection": given.name}))
    if results.evenness:
        tables.append(evenness_table(results.evenness, given.name))
    if results.sorting:
        tables.append(sorting_table("psc_table3", results.sorting))
    return tables


def _position_report(given: ListsToRank, results: _BiasResults) -> PositionReport:
    lists = len(given.controlled)
    return PositionReport(given.name, lists, tuple(results.positions), given.notes)
