"""Tables about position bias in lists: remedies, robustness to input order, evenness of positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backpack_rank.evaluation.results import Estimate
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.position.lists.position_curves import PositionReport, SystemPositions
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table, extreme, number, signed

REMEDY_COLUMNS = ("system", "measure", "mean", "range", "variance", "worst_position", "ranked", "passes", "seconds")
ORDER_COLUMNS = ("system", "order", "other_order", "measure", "value", "low", "high")
EVENNESS_COLUMNS = ("system", "rankings", "total_variation", "chance", "reversed", "reversed_range", "wrong")
STAGE_COLUMNS = ("collection", "first_stage", "queries", "measure", "ranking", "value", "low", "high", "p_wilcoxon")


@dataclass(frozen=True)
class SystemOrders:
    """One system on the same lists in several input orders.

    Attributes:
        label: name of the system.
        figures: a measure of effectiveness by input order, ``original`` first; empty without judgements.
        taus: mean Kendall's tau between the outputs of two input orders, by both names.
    """

    label: str
    figures: Mapping[str, Estimate]
    taus: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class PositionBiasStats:
    """What input positions make out for one system, over shuffled lists.

    Attributes:
        label: name of the system.
        rankings: that were looked at.
        total_variation: of the transitions from even ones; 0 is no position bias.
        chance: what it is expected to be for random rankings, as many.
        reversed: share of the pairs of passages that come out in another order than they were read in; 1/2 without
            position bias.
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
    """One first stage on one collection.

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


def remedies_table(report: PositionReport, measure: str = "nDCG@10", notes: Sequence[str] = ()) -> Table:
    """What each remedy does to a measure and to its range over positions, and what it costs.

    Args:
        report: the first system is the one without remedy.
        measure: of the report.
        notes: further sentences.

    Raises:
        KeyError: the report does not have the measure.
    """
    base = report.systems[0].curve(measure)
    curves = [system.curve(measure) for system in report.systems]
    best_mean = extreme((curve.mean for curve in curves), smallest=False)
    best_range = extreme((curve.range for curve in curves), smallest=True)
    rows, records = [], []
    for system, curve in zip(report.systems, curves, strict=True):
        change = NONE if curve is base else signed(curve.range - base.range)
        cells = (
            Cell(f"{curve.mean:.4f}", round(curve.mean, 4) == best_mean),
            Cell(f"{curve.range:.4f}", round(curve.range, 4) == best_range),
            Cell(change),
            Cell(f"{curve.variance:.5f}"),
            Cell(_per_list(system, system.passes, 2)),
            Cell(_per_list(system, None if system.seconds is None else 1000 * system.seconds, 1)),
        )
        rows.append(Row((system.label,), cells))
        worst = min(range(len(curve.values)), key=curve.values.__getitem__) + 1
        summary = (curve.mean, curve.range, curve.variance, worst)
        records.append((system.label, measure, *summary, system.ranked, system.passes, system.seconds))
    sentences = (
        f"{report.collection}: {report.lists:,} lists, the relevant passage of each at every one of {report.positions} "
        "positions. Mean, range (best position minus worst) and variance are of the positions' means over the lists.",
        f"Change: of the range, against {report.systems[0].label}. Passes: forward passes for one list. ms: wall-clock "
        "time for one list.",
        *report.notes,
        *notes,
    )
    names = (Group("", ("mean", "range", "change", "variance")), Group("per list", ("passes", "ms")))
    title = f"{measure} over input positions of the relevant passage"
    return Table("remedies", title, ("system",), names, [Section("", rows)], sentences, REMEDY_COLUMNS, records)


def order_table(
    systems: Sequence[SystemOrders], collection: str, measure: str = "nDCG@10", notes: Sequence[str] = ()
) -> Table:
    """Each system on the lists as they are, reversed and shuffled.

    Raises:
        ValueError: no system, or systems with other input orders than the first.
    """
    if not systems:
        raise ValueError("a table of input orders needs a system")
    orders, pairs = tuple(systems[0].figures), tuple(systems[0].taus)
    rows, records = [], []
    for system in systems:
        if (tuple(system.figures), tuple(system.taus)) != (orders, pairs):
            raise ValueError(f"{system.label} has other input orders than {systems[0].label}")
        figures = [Cell(f"{system.figures[order].mean:.4f}") for order in orders]
        rows.append(Row((system.label,), (*figures, *(Cell(number(system.taus[pair], 3)) for pair in pairs))))
        records += [(system.label, o, "", measure, f.mean, f.low, f.high) for o, f in system.figures.items()]
        records += [(system.label, *pair, "kendall tau", tau, None, None) for pair, tau in system.taus.items()]
    headings = [Group(measure, orders)] if orders else []
    headings.append(Group("tau of", tuple(f"{_short(one)}-{_short(other)}" for one, other in pairs)))
    sentences = (
        f"{collection}: the same lists in several input orders. tau of: mean Kendall's tau between the outputs of two "
        "input orders; 1: the input order changes nothing. o: original, r: reversed, s: shuffled.",
        *notes,
    )
    title = "Robustness to the input order"
    return Table("input_orders", title, ("system",), headings, [Section("", rows)], sentences, ORDER_COLUMNS, records)


def evenness_table(systems: Sequence[PositionBiasStats], collection: str, notes: Sequence[str] = ()) -> Table:
    """How evenly each system treats input positions: transitions and reversals over shuffled lists."""
    with_wrong = any(system.wrong is not None for system in systems)
    rows, records = [], []
    for system in systems:
        shares = [system.total_variation, system.chance, system.reversed, system.reversed_range]
        if with_wrong:
            shares.append(math.nan if system.wrong is None else system.wrong)
        rows.append(Row((system.label,), (Cell(f"{system.rankings:,}"), *(Cell(number(share, 3)) for share in shares))))
        records.append((system.label, system.rankings, *shares[:4], system.wrong))
    pairs = ("reversed", "range", "wrong") if with_wrong else ("reversed", "range")
    sentences = (
        f"{collection}, lists shuffled. TV: total variation between transitions from input to output positions and "
        "even ones, 0 is no position bias; chance: what random rankings, as many, would have.",
        "Pairs: share that comes out in the opposite of the input order, 1/2 without position bias, and its range over "
        f"the pairs of input positions{'; share in the wrong order' if with_wrong else ''}.",
        *notes,
    )
    names = (Group("", ("rankings",)), Group("transitions", ("TV", "chance")), Group("pairs", pairs))
    title = "Evenness of input positions"
    return Table("evenness", title, ("system",), names, [Section("", rows)], sentences, EVENNESS_COLUMNS, records)


def first_stage_table(
    stages: Sequence[StageFigures], ranker: str, measure: str = "nDCG@10", notes: Sequence[str] = ()
) -> Table:
    """Each first stage before and after a listwise ranker; a section for each collection."""
    sections, records = [], []
    for collection in dict.fromkeys(stage.collection for stage in stages):
        rows = []
        for stage in (stage for stage in stages if stage.collection == collection):
            before, after = stage.before, stage.after
            mark = "†" if stage.p is not None and stage.p < SIGNIFICANCE else ""
            change = signed(after.mean - before.mean)
            cells = (Cell(number(before.mean)), Cell(number(after.mean), raised=mark), Cell(change))
            rows.append(Row((stage.stage,), cells))
            for ranking, figure, p in (("before", before, None), ("after", after, stage.p)):
                about = (collection, stage.stage, stage.queries, measure, ranking)
                records.append((*about, figure.mean, figure.low, figure.high, p))
        sections.append(Section(collection, rows))
    sentences = (f"Before: the first stage's ranking. After: that of {ranker}.", *notes)
    if any(stage.p is not None for stage in stages):
        tested = "after differs from before by Wilcoxon's signed-rank test over the queries"
        sentences = (*sentences, f"† {tested}, p < {SIGNIFICANCE:g}, not corrected.")
    title, groups = f"{measure} by first stage", [Group("", ("before", "after", "change"))]
    return Table("first_stages", title, ("first stage",), groups, sections, sentences, STAGE_COLUMNS, records)


def _per_list(system: SystemPositions, total: float | None, decimals: int) -> str:
    return NONE if total is None or not system.ranked else f"{total / system.ranked:,.{decimals}f}"


def _short(order: str) -> str:
    """``o``, ``r``, ``s1`` for original, reversed, shuffled 1."""
    return order[:1] + "".join(letter for letter in order if letter.isdigit())
