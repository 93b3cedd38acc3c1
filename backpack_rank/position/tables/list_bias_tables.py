"""Tables about position bias in lists.

Remedies, robustness to input order, evenness of positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backpack_rank.evaluation.results import Estimate
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.position.lists.position_curves import PositionReport, SystemPositions
from backpack_rank.reporting.table import (
    NONE,
    Cell,
    Group,
    Row,
    Section,
    Table,
    extreme,
    number,
    signed,
)

REMEDY_COLUMNS = (
    *("system", "measure", "mean", "range", "variance", "worst_position"),
    *("ranked", "passes", "seconds"),
)
ORDER_COLUMNS = ("system", "order", "other_order", "measure", "value", "low", "high")
EVENNESS_COLUMNS = (
    *("system", "rankings", "total_variation", "chance"),
    *("reversed", "reversed_range", "wrong"),
)
STAGE_COLUMNS = (
    *("collection", "first_stage", "queries", "measure", "ranking"),
    *("value", "low", "high", "p_wilcoxon"),
)


@dataclass(frozen=True)
class SystemOrders:
    """A row of :func:`order_table`: a system on the same lists in several input orders.

    Attributes:
        label: name of the system.
        figures: a measure of effectiveness by input order, ``original`` first; empty without
            judgements.
        taus: mean Kendall's tau between the outputs of two input orders, by both names.
    """

    label: str
    figures: Mapping[str, Estimate]
    taus: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class PositionBiasStats:
    """A row of :func:`evenness_table`: position bias of a system over shuffled lists.

    Attributes:
        label: name of the system.
        rankings: that were counted.
        total_variation: of the transitions from even ones; 0 is no position bias.
        chance: what it is expected to be for as many random rankings.
        reversed: share of the pairs of passages that come out in another order than they were read
            in; 1/2 without position bias.
        reversed_range: of that share over the pairs of input positions.
        wrong: share of the pairs that come out in the wrong order, where the right one is known.
    """

    label: str
    rankings: int
    total_variation: float
    chance: float
    reversed: float
    reversed_range: float
    wrong: float | None = None


@dataclass(frozen=True)
class StageFigures:
    """A row of :func:`first_stage_table`: a first stage on a collection.

    Attributes:
        collection: the queries' collection.
        stage: name of the first stage.
        queries: that were ranked.
        before: a measure of the first stage's own ranking.
        after: of what the ranker made of it.
        p: of the difference over the queries; None where it was not tested.
    """

    collection: str
    stage: str
    queries: int
    before: Estimate
    after: Estimate
    p: float | None = None


def remedies_table(
    report: PositionReport, measure: str = "nDCG@10", notes: Sequence[str] = ()
) -> Table:
    """Show what each remedy does to a measure over positions, and what it costs.

    Args:
        report: the first system is the one without remedy.
        measure: of the report.
        notes: further sentences.

    Raises:
        KeyError: the report does not have the measure.
    """
    curves = [system.curve(measure) for system in report.systems]
    base = curves[0]
    best_mean = extreme((curve.mean for curve in curves), smallest=False)
    best_range = extreme((curve.range for curve in curves), smallest=True)
    rows, records = [], []
    for system, curve in zip(report.systems, curves, strict=True):
        milliseconds = None if system.seconds is None else 1000 * system.seconds
        cells = [
            # Rounded as in print: all that read like the best are bold.
            Cell(f"{curve.mean:.4f}", bold=round(curve.mean, 4) == best_mean),
            Cell(f"{curve.range:.4f}", bold=round(curve.range, 4) == best_range),
            Cell(NONE if curve is base else signed(curve.range - base.range)),
            Cell(f"{curve.variance:.5f}"),
            Cell(_per_list(system, system.passes, 2)),
            Cell(_per_list(system, milliseconds, 1)),
        ]
        rows.append(Row((system.label,), cells))
        worst = min(range(len(curve.values)), key=curve.values.__getitem__) + 1
        summary = (curve.mean, curve.range, curve.variance, worst)
        costs = (system.ranked, system.passes, system.seconds)
        records.append((system.label, measure, *summary, *costs))
    sentences = (
        f"{report.collection}: {report.lists:,} lists, the relevant passage of each at every one "
        f"of {report.positions} positions. Mean, range (best position minus worst) and variance "
        "are of the positions' means over the lists.",
        f"Change: of the range, against {report.systems[0].label}. Passes: forward passes for one "
        "list. ms: wall-clock time for one list.",
        *report.notes,
        *notes,
    )
    return Table(
        name="remedies",
        title=f"{measure} over input positions of the relevant passage",
        labels=("system",),
        groups=(
            Group("", ("mean", "range", "change", "variance")),
            Group("per list", ("passes", "ms")),
        ),
        sections=[Section("", rows)],
        notes=sentences,
        columns=REMEDY_COLUMNS,
        records=records,
    )


def order_table(
    systems: Sequence[SystemOrders],
    collection: str,
    measure: str = "nDCG@10",
    notes: Sequence[str] = (),
) -> Table:
    """Show how much the input order changes: original, reversed and shuffled lists.

    Raises:
        ValueError: no system, or systems with other input orders than the first.
    """
    if not systems:
        raise ValueError("a table of input orders needs a system")
    orders = tuple(systems[0].figures)
    pairs = tuple(systems[0].taus)
    rows: list[Row] = []
    records: list[tuple[Any, ...]] = []
    for system in systems:
        if (tuple(system.figures), tuple(system.taus)) != (orders, pairs):
            raise ValueError(f"{system.label} has other input orders than {systems[0].label}")
        cells = []
        for order, figure in system.figures.items():
            cells.append(Cell(f"{figure.mean:.4f}"))
            values = (figure.mean, figure.low, figure.high)
            records.append((system.label, order, "", measure, *values))
        for (order, other), tau in system.taus.items():
            cells.append(Cell(number(tau, 3)))
            records.append((system.label, order, other, "kendall tau", tau, None, None))
        rows.append(Row((system.label,), cells))
    groups = []
    # Without judgements there are no figures of effectiveness.
    if orders:
        groups.append(Group(measure, orders))
    headings = tuple(f"{_short(order)}-{_short(other)}" for order, other in pairs)
    groups.append(Group("tau of", headings))
    sentences = (
        f"{collection}: the same lists in several input orders. tau of: mean Kendall's tau between "
        "the outputs of two input orders; 1: the input order changes nothing. o: original, r: "
        "reversed, s: shuffled.",
        *notes,
    )
    return Table(
        name="input_orders",
        title="Robustness to the input order",
        labels=("system",),
        groups=groups,
        sections=[Section("", rows)],
        notes=sentences,
        columns=ORDER_COLUMNS,
        records=records,
    )


def evenness_table(
    systems: Sequence[PositionBiasStats], collection: str, notes: Sequence[str] = ()
) -> Table:
    """Show how evenly a system treats input positions, by rankings of shuffled lists.

    Transitions are where passages of each input position come out; pairs are how often two of them
    are reversed.
    """
    with_wrong = any(system.wrong is not None for system in systems)
    rows, records = [], []
    for system in systems:
        evenness = (system.total_variation, system.chance, system.reversed, system.reversed_range)
        cells = [Cell(f"{system.rankings:,}")]
        for share in evenness:
            cells.append(Cell(number(share, 3)))
        if with_wrong:
            cells.append(Cell(number(system.wrong, 3)))
        rows.append(Row((system.label,), cells))
        records.append((system.label, system.rankings, *evenness, system.wrong))
    pairs = ("reversed", "range", "wrong") if with_wrong else ("reversed", "range")
    about_pairs = (
        "Pairs: share that comes out in the opposite of the input order, 1/2 without position "
        "bias, and its range over the pairs of input positions"
    )
    if with_wrong:
        about_pairs += "; share in the wrong order"
    sentences = (
        f"{collection}, lists shuffled. TV: total variation between transitions from input to "
        "output positions and even ones, 0 is no position bias; chance: what random rankings, as "
        "many, would have.",
        f"{about_pairs}.",
        *notes,
    )
    return Table(
        name="evenness",
        title="Evenness of input positions",
        labels=("system",),
        groups=(
            Group("", ("rankings",)),
            Group("transitions", ("TV", "chance")),
            Group("pairs", pairs),
        ),
        sections=[Section("", rows)],
        notes=sentences,
        columns=EVENNESS_COLUMNS,
        records=records,
    )


def first_stage_table(
    stages: Sequence[StageFigures],
    ranker: str,
    measure: str = "nDCG@10",
    notes: Sequence[str] = (),
) -> Table:
    """Show each first stage before and after a listwise ranker, by collection.

    It has a row for each first stage, such as ``BM25 | 0.5058 | 0.6512 | +0.1454``.
    """
    rows_by_collection: dict[str, list[Row]] = {}
    for stage in stages:
        rows_by_collection.setdefault(stage.collection, []).append(_first_stage_row(stage))
    sections = []
    records = []
    for collection, rows in rows_by_collection.items():
        sections.append(Section(collection, rows))
        # The file has the order of the table, by collection.
        for stage in stages:
            if stage.collection == collection:
                records += _first_stage_records(stage, measure)
    sentences = [f"Before: the first stage's ranking. After: that of {ranker}.", *notes]
    if any(stage.p is not None for stage in stages):
        sentences.append(
            "† after differs from before by Wilcoxon's signed-rank test over the queries, "
            f"p < {SIGNIFICANCE:g}, not corrected."
        )
    return Table(
        name="first_stages",
        title=f"{measure} by first stage",
        labels=("first stage",),
        groups=[Group("", ("before", "after", "change"))],
        sections=sections,
        notes=sentences,
        columns=STAGE_COLUMNS,
        records=records,
    )


def _first_stage_row(stage: StageFigures) -> Row:
    mark = "†" if stage.p is not None and stage.p < SIGNIFICANCE else ""
    cells = (
        Cell(number(stage.before.mean)),
        Cell(number(stage.after.mean), raised=mark),
        Cell(signed(stage.after.mean - stage.before.mean)),
    )
    return Row((stage.stage,), cells)


def _first_stage_records(stage: StageFigures, measure: str) -> list[tuple[Any, ...]]:
    about = (stage.collection, stage.stage, stage.queries, measure)
    before, after = stage.before, stage.after
    return [
        (*about, "before", before.mean, before.low, before.high, None),
        (*about, "after", after.mean, after.low, after.high, stage.p),
    ]


def _per_list(system: SystemPositions, total: float | None, decimals: int) -> str:
    """A cost divided by the lists; a dash where it was not counted."""
    if total is None or not system.ranked:
        return NONE
    return f"{total / system.ranked:,.{decimals}f}"


def _short(order: str) -> str:
    """``o``, ``r``, ``s1`` for original, reversed, shuffled 1."""
    kind, _, number = order.partition(" ")
    return kind[:1] + number
