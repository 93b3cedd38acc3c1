"""Tables of rankers by effectiveness and bias, such as those of Afzali et al.: measured beside
published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting.paper_layout import HERE, ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.published import Printed, PublishedTable, published
from backpack_rank.reporting.table import Table, number

FIGURE2 = "fair_retrieval_figure2"
BIAS = ("RaB(tf)", "ARaB(tf)", "RaB(bool)", "ARaB(bool)")
BELOW_ZERO = "*"
"""Mark of a figure whose absolute value hides a mean below 0."""

Measured: TypeAlias = Mapping[str, Mapping[str, Estimate | float]]
"""``{system: {measure: figure}}``; a bare number is a mean without an interval."""

_MAGNITUDES = {"tf": "TF", "bool": "Boolean"}


def measured_of(rows: Iterable[SystemResult]) -> dict[str, dict[str, Estimate]]:
    """Get the figures for :func:`paper_table` from the systems of a report.

    Of systems with the same label, the last counts.
    """
    measured = {}
    for row in rows:
        figures: dict[str, Estimate] = {}
        for summary in (row.effectiveness, row.bias):
            if summary is not None:
                figures |= summary.figures
        measured[row.label] = figures
    return measured


def is_bias(measure: str) -> bool:
    """Whether a measure has a sign, of which papers print the absolute value.

    >>> is_bias("ARaB(tf)@10"), is_bias("nDCG@10")
    (True, False)
    """
    return measure_of(measure).signed


def paper_table(
    table: PublishedTable,
    measured: Measured,
    measured_on: str,
    sign_in_words: str = "",
    names: Mapping[str, str] | None = None,
) -> Table:
    """Set your figures beside those of a paper that compares systems.

    >>> table = paper_table(
    ...     published("fair_retrieval_table1"), {"alpha=1": {"MRR@10": 0.3}}, "12 queries"
    ... )
    >>> [cell.text for cell in table.rows[-1].cells][:2]
    ['0.3343', '0.3000']

    The paper's rows come in its order, then further systems that have a figure. Rows of the
    published table are labelled by system, or by cut-off and system; then its columns are measures
    without ``@10``. A system is recognised by the row's label or by a name that it is known as.

    Args:
        table: the published figures.
        measured: our figures.
        measured_on: what they were measured on, such as ``msmarco_dev600 (600 queries)``.
        sign_in_words: of the measured means of bias, as in
            :class:`~backpack_rank.evaluation.results.RunInfo`.
        names: ``{row label: measured system}`` where the names differ.

    Raises:
        ValueError: rows of the published table have other labels; ``names`` has a row that the
            paper does not have, or a system that was not measured.
    """
    for labels in table.rows:
        if len(labels) > 2 or not all(label.isdigit() for label in labels[:-1]):
            raise ValueError(
                f"{table.name}: rows must be labelled 'system' or 'cut-off | system', not {labels}"
            )
    system_by_label = _system_by_label(table, measured, names or {})
    cutoffs: dict[str | None, None] = {}
    for labels in table.rows:
        cutoffs[labels[0] if len(labels) > 1 else None] = None
    rows: list[PaperRow] = []
    records: list[tuple[Any, ...]] = []
    for cutoff in cutoffs:
        for row, lines in _rows_of_cutoff(table, cutoff, measured, system_by_label):
            rows.append(row)
            records += lines
    has_bias = any(map(is_bias, table.columns))
    return lay_out(
        "fair_retrieval",
        rows,
        # The cut-off is the heading of a section, and no label of a row.
        replace(table, labels=table.labels[-1:]),
        facts=_facts(table, measured_on, sign_in_words if has_bias else "", rows),
        notes=table.notes,
        records=records,
    )


def figure2(
    measured: Measured,
    measured_on: str,
    sign_in_words: str,
    cutoff: int = 10,
    alphas: Mapping[str, float] | None = None,
) -> Table:
    """NDCG@10 against bias at every alpha (Figure 2), of which the paper prints no
    numbers.

    Args:
        measured, measured_on, sign_in_words: as :func:`paper_table`.
        cutoff: of the measures of bias.
        alphas: ``{system: alpha}``; None takes the systems called ``alpha=...``. Other systems are
            references and stand first; then alpha falls.

    Raises:
        ValueError: no system has an alpha, or one of ``alphas`` was not measured.
    """
    table = published(FIGURE2)
    alphas = _alphas(measured) if alphas is None else alphas
    unknown = sorted(set(alphas) - set(measured))
    if unknown:
        raise ValueError(f"alphas names {unknown}, but measured are {sorted(measured)}")
    if not alphas:
        raise ValueError(
            f"none of the systems {sorted(measured)} has an alpha: call them alpha=..., or give "
            "alphas"
        )
    columns: dict[str, ColumnKey] = {"nDCG@10": ("", "nDCG@10")}
    for name in BIAS:
        magnitude, heading = _heading(name)
        columns[f"{name}@{cutoff}"] = (f"{magnitude} @{cutoff}", heading)
    references = [system for system in measured if system not in alphas]
    dial = sorted(alphas, key=lambda system: -alphas[system])
    rows = []
    records = []
    for system in [*references, *dial]:
        label = f"alpha = {alphas[system]:g}" if system in alphas else system
        figures = {}
        for measure, column in columns.items():
            figure = _estimate(measured[system].get(measure))
            figures[column] = _measured_figure(measure, figure)
            key = (table.file_name, None, label, system)
            records.append(_record(key, measure, None, figure))
        rows.append(PaperRow((label,), figures))
    facts = _facts(table, measured_on, sign_in_words, rows)
    return lay_out("fair_retrieval", rows, table, facts=facts, notes=table.notes, records=records)


def _rows_of_cutoff(
    table: PublishedTable,
    cutoff: str | None,
    measured: Measured,
    system_by_label: Mapping[str, str],
) -> Iterator[tuple[PaperRow, list[tuple[Any, ...]]]]:
    """The paper's rows of a cut-off (None: it has none), then further systems that have a figure.

    Each comes with its lines of the CSV file.
    """
    measures = {}
    for name in table.columns:
        measures[name] = name if cutoff is None else f"{name}@{cutoff}"
    # By label: the measured system, if there is one, and what the paper prints.
    lines: dict[str, tuple[str | None, Mapping[str, Printed]]] = {}
    for labels, printed in table.rows.items():
        if cutoff is None or labels[0] == cutoff:
            label = labels[-1]
            lines[label] = (system_by_label.get(label), printed)
    for system, figures in measured.items():
        in_paper = system in system_by_label.values()
        if not in_paper and any(measure in figures for measure in measures.values()):
            lines[system] = (system, {})

    for label, (measured_system, printed) in lines.items():
        figures_here = {} if measured_system is None else measured[measured_system]
        key = (table.file_name, cutoff, label, measured_system)
        of_paper: dict[ColumnKey, Figure | None] = {}
        here: dict[ColumnKey, Figure | None] = {}
        records = []
        for name, measure in measures.items():
            figure = _estimate(figures_here.get(measure))
            if name in printed:
                of_paper[_heading(name)] = _published_figure(printed[name])
            here[_heading(name)] = _measured_figure(measure, figure)
            records.append(_record(key, measure, printed.get(name), figure))
        section = "" if cutoff is None else f"Cut-off: {cutoff}"
        yield PaperRow((label,), measured=here, published=of_paper, section=section), records


def _system_by_label(
    table: PublishedTable, measured: Measured, names: Mapping[str, str]
) -> dict[str, str]:
    """The measured system of each row of the paper, by its label; rows without one are left out."""
    labels = list(dict.fromkeys(labels[-1] for labels in table.rows))
    unknown = sorted(set(names) - set(labels))
    if unknown:
        raise ValueError(f"names has {unknown}, but the rows of the paper are {labels}")
    missing = sorted(set(names.values()) - set(measured))
    if missing:
        raise ValueError(f"names has the systems {missing}, but measured are {sorted(measured)}")
    systems = {}
    for label in labels:
        # A name that is given is the only one; else the first that was measured counts.
        candidates: tuple[str, ...] = (label, *table.known_as.get(label, ()))
        if label in names:
            candidates = (names[label],)
        for name in candidates:
            if name in measured:
                systems[label] = name
                break
    return systems


def _estimate(figure: Estimate | float | None) -> Estimate | None:
    """A measured figure with its sign; None where there is none or it is not finite."""
    if figure is None:
        return None
    if not isinstance(figure, Estimate):
        figure = Estimate(float(figure), abs(float(figure)))
    return figure if math.isfinite(figure.mean) else None


def _published_figure(printed: Printed) -> Figure:
    """A published figure with its decimals, but with the zero before the point."""
    decimals = len(printed.text.partition(".")[2])
    return Figure(printed.value, text=number(printed.value, decimals))


def _measured_figure(measure: str, figure: Estimate | None) -> Figure | None:
    if figure is None:
        return None
    low, high = figure.low, figure.high
    if is_bias(measure):
        low, high = figure.absolute_mean_interval or (None, None)
    interval = "" if low is None or high is None else f"[{low:.4f}, {high:.4f}]"
    mark = BELOW_ZERO if is_bias(measure) and figure.mean < 0 else ""
    return Figure(_as_shown(measure, figure), marks=mark, interval=interval)


def _as_shown(measure: str, figure: Estimate) -> float:
    return figure.absolute_mean if is_bias(measure) else figure.mean


def _record(
    key: tuple[Any, ...], measure: str, printed: Printed | None, figure: Estimate | None
) -> tuple[Any, ...]:
    """A line of the CSV file."""
    value = None if printed is None else printed.value
    if figure is None:
        return (*key, measure, value, None, None, None, None)
    shown = _as_shown(measure, figure)
    return (*key, measure, value, shown, figure.mean, figure.low, figure.high)


def _alphas(measured: Measured) -> dict[str, float]:
    """Alphas of the systems that are called ``alpha=...``."""
    alphas = {}
    for name in measured:
        match = re.fullmatch(r"alpha ?= ?(\d+(?:\.\d+)?(?:e-?\d+)?)", name)
        if match:
            alphas[name] = float(match[1])
    return alphas


def _facts(
    table: PublishedTable, measured_on: str, sign: str, rows: Sequence[PaperRow]
) -> dict[str, str | None]:
    """For the sentences below a table; None leaves one out."""
    below_zero = None
    for row in rows:
        for figure in row.figures(HERE).values():
            if figure.marks:
                below_zero = BELOW_ZERO
    comparable = ""
    if table.rows:
        comparable = (
            " They are comparable with the published ones only where data and queries are the same."
        )
    return {
        "about": ". ".join(filter(None, (table.source, table.data))),
        "measured_on": measured_on.rstrip("."),
        "comparable": comparable,
        "sign": sign.rstrip(".") or None,
        "below_zero": below_zero,
    }


def _heading(measure: str) -> tuple[str, str]:
    """``RaB(tf)`` as magnitude and name."""
    match = re.fullmatch(r"(\w+)\((\w+)\)", measure)
    if match is None:
        return "", measure
    name, magnitude = match.groups()
    return _MAGNITUDES.get(magnitude, magnitude), name
