"""Measured figures in the layout of the paper's tables, beside the published ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from backpack_rank.reporting import published
from backpack_rank.reporting.published import PublishedRow, PublishedTable
from backpack_rank.reporting.rows import Figure, SystemRow

Measured: TypeAlias = Mapping[str, Mapping[str, Figure | float]]
"""``{system: {measure: figure}}``; a bare number is a mean without an interval."""

_MAGNITUDES = {"tf": "TF", "bool": "Boolean"}
BELOW_ZERO = "*"
"""Mark of a figure whose absolute value hides a mean below 0."""


@dataclass(frozen=True)
class Cell:
    """One measure of one row.

    Attributes:
        measure: such as ``RaB(tf)@10``.
        published: the paper's figure, or None.
        measured: our figure with its sign, or None.
        absolute: whether the absolute value of the mean is shown, as in the paper's table of bias.
    """

    measure: str
    published: float | None
    measured: Figure | None
    absolute: bool

    @property
    def value(self) -> float | None:
        """The measured figure as it is shown; None when there is none or it is not finite."""
        if self.measured is None or not math.isfinite(self.measured.mean):
            return None
        return self.measured.absolute_mean if self.absolute else self.measured.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its confidence interval as it is shown."""
        if self.value is None or self.measured is None or self.measured.low is None or self.measured.high is None:
            return None
        return self.measured.absolute_mean_interval if self.absolute else (self.measured.low, self.measured.high)

    @property
    def turned(self) -> bool:
        """Whether the absolute value hides a mean below 0."""
        return self.absolute and self.value is not None and self.measured is not None and self.measured.mean < 0


@dataclass(frozen=True)
class Line:
    """One row: its name in the table, the system that was measured (None: published figures only), its cells."""

    label: str
    system: str | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Block:
    """Rows of one cut-off; ``cutoff`` is None where the table has no blocks."""

    cutoff: int | None
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper with its own and with measured figures.

    Attributes:
        name: ``table1``, ``table2`` or ``figure2``; name of its files.
        title: what it shows.
        first: heading of the first column.
        columns: headings as (group, name); groups are empty or stand above several columns.
        blocks: the rows.
        decimals: digits of the published figures; measured ones have four.
        notes: what the figures were measured on, the sign of bias, what the marks mean.
    """

    name: str
    title: str
    first: str
    columns: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]
    decimals: int
    notes: tuple[str, ...]

    @property
    def compared(self) -> bool:
        """Whether there is any published figure."""
        return any(cell.published is not None for cell in cells_of(self.blocks))


def measured_of(rows: Iterable[SystemRow]) -> dict[str, dict[str, Figure]]:
    """Figures of a report's systems by label; of systems with the same label, the last counts."""
    return {
        row.label: {
            measure: figure
            for summary in (row.effectiveness, row.bias)
            if summary is not None
            for measure, figure in summary.figures.items()
        }
        for row in rows
    }


def table1(measured: Measured, measured_on: str, names: Mapping[str, str] | None = None) -> PaperTable:
    """Table 1: backbones by MRR@10, nDCG@5 and nDCG@10.

    A system is recognised by the paper's row label or by a name of :mod:`backpack_rank.reporting.published`
    (``GPT2ForRanking``, ``alpha=0.5``); further systems that have a figure follow the paper's rows.

    Args:
        measured: our figures.
        measured_on: what they were measured on, such as ``msmarco_dev600 (600 queries)``.
        names: ``{the paper's row label: measured system}`` where the names differ.

    Raises:
        ValueError: ``names`` has a row that the paper does not have, or a system that was not measured.
    """
    table = published.TABLE1
    blocks = (_block(None, table, published.TABLE1_MEASURES, measured, names, absolute=False),)
    columns = tuple(("", measure) for measure in published.TABLE1_MEASURES)
    notes = _notes(f"{table.source}. {table.data}", measured_on, "", blocks)
    return PaperTable("table1", "Ranking performance of backbones (Table 1)", "Backbone", columns, blocks, 4, notes)


def table2(
    measured: Measured, measured_on: str, sign_in_words: str, names: Mapping[str, str] | None = None
) -> PaperTable:
    """Table 2: RaB and ARaB, TF and Boolean, at cut-offs 10, 20, 30 and 40, absolute values of the means.

    Args:
        measured, measured_on, names: as :func:`table1`.
        sign_in_words: of the measured means, as in :class:`~backpack_rank.reporting.rows.About`.

    Raises:
        ValueError: as :func:`table1`.
    """
    table = published.TABLE2
    blocks = tuple(
        _block(cutoff, table, [f"{name}@{cutoff}" for name in published.TABLE2_MEASURES], measured, names, True)
        for cutoff in published.TABLE2_CUTOFFS
    )
    sign = (
        "Absolute values of means over queries as in the paper, closer to 0 is better. "
        f"Before that the measured means are {sign_in_words.rstrip('.')}; the published ones are positive and lean "
        "towards male words"
    )
    notes = _notes(f"{table.source}. {table.data}", measured_on, sign, blocks)
    columns = tuple(map(_heading, published.TABLE2_MEASURES))
    return PaperTable("table2", "Gender bias of rankings (Table 2)", "Model", columns, blocks, 3, notes)


def figure2(
    measured: Measured,
    measured_on: str,
    sign_in_words: str,
    cutoff: int = 10,
    alphas: Mapping[str, float] | None = None,
) -> PaperTable:
    """Figure 2: nDCG@10 against bias for every alpha, from the largest to the smallest; the paper prints no numbers.

    Args:
        measured, measured_on: as :func:`table1`.
        sign_in_words: as :func:`table2`.
        cutoff: of the measures of bias.
        alphas: ``{system: alpha}``; None takes the systems called ``alpha=...``. Other systems are references and
            stand first.

    Raises:
        ValueError: no system has an alpha, or one of ``alphas`` was not measured.
    """
    alphas = _alphas(measured) if alphas is None else alphas
    if unknown := sorted(set(alphas) - set(measured)):
        raise ValueError(f"alphas names {unknown}, but measured are {sorted(measured)}")
    if not alphas:
        raise ValueError(f"none of the systems {sorted(measured)} has an alpha: call them alpha=..., or give alphas")
    bias = [f"{name}@{cutoff}" for name in published.TABLE2_MEASURES]
    ordered = [name for name in measured if name not in alphas] + sorted(alphas, key=lambda name: -alphas[name])
    lines = tuple(
        Line(
            f"alpha = {alphas[system]:g}" if system in alphas else system,
            system,
            (
                _cell("nDCG@10", {}, measured[system], False),
                *(_cell(name, {}, measured[system], True) for name in bias),
            ),
        )
        for system in ordered
    )
    blocks = (Block(None, lines),)
    sign = (
        "Bias: absolute values of means over queries, closer to 0 is better. "
        f"Before that the means are {sign_in_words.rstrip('.')}"
    )
    notes = _notes(f"{published.FIGURE2_SOURCE}. {published.FIGURE2_DATA}", measured_on, sign, blocks)
    columns = (("", "nDCG@10"), *((f"{group} @{cutoff}", name) for group, name in map(_heading, bias)))
    title = "Trade-off of ranking performance and bias over alpha (Figure 2)"
    return PaperTable("figure2", title, "System", columns, blocks, 4, notes)


def cells_of(blocks: Iterable[Block]) -> Iterable[Cell]:
    """All cells of some blocks."""
    return (cell for block in blocks for line in block.lines for cell in line.cells)


def _block(
    cutoff: int | None,
    table: PublishedTable,
    measures: Sequence[str],
    measured: Measured,
    names: Mapping[str, str] | None,
    absolute: bool,
) -> Block:
    """The paper's rows, then other systems that have one of the measures."""
    systems = _recognised(table.rows, measured, names or {})
    lines = []
    for row in table.rows:
        system = systems.get(row.label)
        own = measured[system] if system is not None else {}
        lines.append(Line(row.label, system, tuple(_cell(name, row.values, own, absolute) for name in measures)))
    for system in measured:
        if system not in systems.values() and any(name in measured[system] for name in measures):
            cells = tuple(_cell(name, {}, measured[system], absolute) for name in measures)
            lines.append(Line(system, system, cells))
    return Block(cutoff, tuple(lines))


def _recognised(rows: Sequence[PublishedRow], measured: Measured, names: Mapping[str, str]) -> dict[str, str]:
    """``{the paper's row label: measured system}``."""
    labels = [row.label for row in rows]
    if unknown := sorted(set(names) - set(labels)):
        raise ValueError(f"names has {unknown}, but the rows of the paper are {labels}")
    if missing := sorted(set(names.values()) - set(measured)):
        raise ValueError(f"names has the systems {missing}, but measured are {sorted(measured)}")
    found = {}
    for row in rows:
        candidates = (names[row.label],) if row.label in names else (row.label, *row.known_as)
        known = [name for name in candidates if name in measured]
        if known:
            found[row.label] = known[0]
    return found


def _cell(measure: str, printed: Mapping[str, float], own: Mapping[str, Figure | float], absolute: bool) -> Cell:
    figure = own.get(measure)
    if figure is not None and not isinstance(figure, Figure):
        figure = Figure(float(figure), abs(float(figure)))
    return Cell(measure, printed.get(measure), figure, absolute)


def _alphas(measured: Measured) -> dict[str, float]:
    found = {name: re.fullmatch(r"alpha ?= ?(\d+(?:\.\d+)?(?:e-?\d+)?)", name) for name in measured}
    return {name: float(match[1]) for name, match in found.items() if match}


def _notes(paper: str, measured_on: str, sign: str, blocks: Sequence[Block]) -> tuple[str, ...]:
    notes = [f"{paper}.", f"Measured figures: {measured_on.rstrip('.')}."]
    if any(cell.published is not None for cell in cells_of(blocks)):
        notes[-1] += " They are comparable with the published ones only where data and queries are the same."
    if sign:
        notes.append(f"{sign}.")
    if any(cell.turned for cell in cells_of(blocks)):
        notes.append(f"{BELOW_ZERO} The mean is below 0: its absolute value hides that it leans the other way.")
    return tuple(notes)


def _heading(measure: str) -> tuple[str, str]:
    """``RaB(tf)`` as group and name."""
    match = re.fullmatch(r"(\w+)\((\w+)\)(?:@\d+)?", measure)
    return (_MAGNITUDES[match[2]], match[1]) if match else ("", measure)
