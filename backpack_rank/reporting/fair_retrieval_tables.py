"""Tables of rankers by effectiveness and bias, such as those of Afzali et al.: measured beside published."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting.published import Printed, PublishedTable, published
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Table, number

COLUMNS = ("table", "cutoff", "row", "system", "measure", "published", "measured", "mean", "low", "high")
"""Of the CSV files: ``measured`` is as shown (absolute for bias); ``mean``, ``low`` and ``high`` have their signs."""
FIGURE2 = "fair_retrieval_figure2"
BIAS = ("RaB(tf)", "ARaB(tf)", "RaB(bool)", "ARaB(bool)")
BELOW_ZERO = "*"
"""Mark of a figure whose absolute value hides a mean below 0."""

Measured: TypeAlias = Mapping[str, Mapping[str, Estimate | float]]
"""``{system: {measure: figure}}``; a bare number is a mean without an interval."""

_MAGNITUDES = {"tf": "TF", "bool": "Boolean"}
_PAIR = ("(paper)", "(here)")


def measured_of(rows: Iterable[SystemResult]) -> dict[str, dict[str, Estimate]]:
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


def is_bias(measure: str) -> bool:
    """Whether a measure has a sign, of which papers print the absolute value."""
    return re.match(r"A?RaB\(", measure) is not None


def paper_table(
    table: PublishedTable,
    measured: Measured,
    measured_on: str,
    sign_in_words: str = "",
    names: Mapping[str, str] | None = None,
) -> Table:
    """The paper's rows in its order, then further systems that have a figure.

    Rows of the published table are labelled by system, or by cut-off and system; then its columns are measures without
    ``@10``. A system is recognised by the row's label or by a name that it is known as.

    Args:
        table: the published figures.
        measured: our figures.
        measured_on: what they were measured on, such as ``msmarco_dev600 (600 queries)``.
        sign_in_words: of the measured means of bias, as in :class:`~backpack_rank.evaluation.results.RunInfo`.
        names: ``{row label: measured system}`` where the names differ.

    Raises:
        ValueError: rows of the published table have other labels; ``names`` has a row that the paper does not have, or
            a system that was not measured.
    """
    for labels in table.rows:
        if len(labels) > 2 or not all(label.isdigit() for label in labels[:-1]):
            raise ValueError(f"{table.name}: rows must be labelled 'system' or 'cut-off | system', not {labels}")
    systems = _recognised(table, measured, names or {})
    sections: dict[str, list[Row]] = {}
    records = []
    for cutoff in dict.fromkeys(labels[0] if len(labels) > 1 else None for labels in table.rows):
        measures = {column: column if cutoff is None else f"{column}@{cutoff}" for column in table.columns}
        lines: dict[str, tuple[str | None, Mapping[str, Printed]]] = {
            labels[-1]: (systems.get(labels[-1]), printed)
            for labels, printed in table.rows.items()
            if cutoff is None or labels[0] == cutoff
        }
        for system in measured:
            if system not in systems.values() and any(measure in measured[system] for measure in measures.values()):
                lines[system] = (system, {})
        rows = sections.setdefault("" if cutoff is None else f"Cut-off: {cutoff}", [])
        for label, (of, printed) in lines.items():
            own = {} if of is None else measured[of]
            figures = [(name, printed.get(column), _estimate(own.get(name))) for column, name in measures.items()]
            rows.append(Row((label,), [cell for n, p, mean in figures for cell in (_printed(p), _shown(n, mean))]))
            records += [_record((table.file_name, cutoff, label, of), *figure) for figure in figures]
    signs = any(map(is_bias, table.columns))
    notes = _notes(table, measured_on, sign_in_words if signs else "", sections)
    groups = [Group(" ".join(_heading(column)).strip(), _PAIR) for column in table.columns]
    table = replace(table, labels=table.labels[-1:])
    return table.table_of(groups, sections, notes, COLUMNS, records, ("System",))


def figure2(
    measured: Measured,
    measured_on: str,
    sign_in_words: str,
    cutoff: int = 10,
    alphas: Mapping[str, float] | None = None,
) -> Table:
    """Figure 2: nDCG@10 against bias for every alpha, from the largest to the smallest; the paper prints no numbers.

    Args:
        measured, measured_on, sign_in_words: as :func:`paper_table`.
        cutoff: of the measures of bias.
        alphas: ``{system: alpha}``; None takes the systems called ``alpha=...``. Other systems are references and
            stand first.

    Raises:
        ValueError: no system has an alpha, or one of ``alphas`` was not measured.
    """
    table = published(FIGURE2)
    alphas = _alphas(measured) if alphas is None else alphas
    if unknown := sorted(set(alphas) - set(measured)):
        raise ValueError(f"alphas names {unknown}, but measured are {sorted(measured)}")
    if not alphas:
        raise ValueError(f"none of the systems {sorted(measured)} has an alpha: call them alpha=..., or give alphas")
    measures = ["nDCG@10", *(f"{name}@{cutoff}" for name in BIAS)]
    rows, records = [], []
    for system in [name for name in measured if name not in alphas] + sorted(alphas, key=lambda name: -alphas[name]):
        label = f"alpha = {alphas[system]:g}" if system in alphas else system
        figures = {name: _estimate(measured[system].get(name)) for name in measures}
        rows.append(Row((label,), [_shown(name, figure) for name, figure in figures.items()]))
        records += [_record((table.file_name, None, label, system), name, None, own) for name, own in figures.items()]
    biases = [Group(f"{_MAGNITUDES[kind]} @{cutoff}", ("RaB", "ARaB")) for kind in ("tf", "bool")]
    groups, sections = [Group("", ("nDCG@10",)), *biases], {"": rows}
    return table.table_of(groups, sections, _notes(table, measured_on, sign_in_words, sections), COLUMNS, records)


def _recognised(table: PublishedTable, measured: Measured, names: Mapping[str, str]) -> dict[str, str]:
    """``{row label: measured system}``."""
    labels = list(dict.fromkeys(labels[-1] for labels in table.rows))
    if unknown := sorted(set(names) - set(labels)):
        raise ValueError(f"names has {unknown}, but the rows of the paper are {labels}")
    if missing := sorted(set(names.values()) - set(measured)):
        raise ValueError(f"names has the systems {missing}, but measured are {sorted(measured)}")
    found = {}
    for label in labels:
        candidates = (names[label],) if label in names else (label, *table.known_as.get(label, ()))
        if known := [name for name in candidates if name in measured]:
            found[label] = known[0]
    return found


def _estimate(figure: Estimate | float | None) -> Estimate | None:
    """A measured figure with its sign; None where there is none or it is not finite."""
    if figure is not None and not isinstance(figure, Estimate):
        figure = Estimate(float(figure), abs(float(figure)))
    return None if figure is None or not math.isfinite(figure.mean) else figure


def _value(measure: str, own: Estimate | None) -> float | None:
    """The figure as it is shown."""
    return None if own is None else own.absolute_mean if is_bias(measure) else own.mean


def _printed(figure: Printed | None) -> Cell:
    return Cell(NONE if figure is None else number(figure.value, len(figure.text.partition(".")[2])))


def _shown(measure: str, own: Estimate | None) -> Cell:
    if own is None:
        return Cell()
    low, high = (own.absolute_mean_interval or (None, None)) if is_bias(measure) else (own.low, own.high)
    interval = "" if low is None or high is None else f"[{low:.4f}, {high:.4f}]"
    mark = BELOW_ZERO if is_bias(measure) and own.mean < 0 else ""
    return Cell(number(_value(measure, own)), raised=mark, interval=interval)


def _record(key: tuple[Any, ...], measure: str, printed: Printed | None, own: Estimate | None) -> tuple[Any, ...]:
    signed = (None, None, None) if own is None else (own.mean, own.low, own.high)
    return (*key, measure, None if printed is None else printed.value, _value(measure, own), *signed)


def _alphas(measured: Measured) -> dict[str, float]:
    found = {name: re.fullmatch(r"alpha ?= ?(\d+(?:\.\d+)?(?:e-?\d+)?)", name) for name in measured}
    return {name: float(match[1]) for name, match in found.items() if match}


def _notes(table: PublishedTable, measured_on: str, sign: str, sections: Mapping[str, Sequence[Row]]) -> list[str]:
    cells = [cell for rows in sections.values() for row in rows for cell in row.cells]
    notes = [". ".join(filter(None, (table.source, table.data))) + ".", f"Measured figures: {measured_on.rstrip('.')}."]
    if table.rows:
        notes[-1] += " They are comparable with the published ones only where data and queries are the same."
    if sign:
        notes.append(
            "Bias: absolute values of means over queries, closer to 0 is better. "
            f"Before that the measured means are {sign.rstrip('.')}."
        )
    notes += [table.note] if table.note else []
    if any(cell.raised for cell in cells):
        notes.append(f"{BELOW_ZERO} The mean is below 0: its absolute value hides that it leans the other way.")
    return notes


def _heading(measure: str) -> tuple[str, str]:
    """``RaB(tf)`` as magnitude and name."""
    match = re.fullmatch(r"(\w+)\((\w+)\)", measure)
    return (_MAGNITUDES.get(match[2], match[2]), match[1]) if match else ("", measure)
