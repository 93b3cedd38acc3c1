"""The trade-off between effectiveness and bias along alpha: a chart for the page, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import SystemResult
from backpack_rank.reporting.tradeoff_chart import Position, frame, outside, tradeoff
from backpack_rank.reporting.vega import COLOURS, Spec, beside, save_chart
from backpack_rank.reporting.wording import (
    AS_IT_IS,
    figure_of,
    figure_text,
    interval,
)

BIAS = {
    "RaB(tf)": "RaB (TF)",
    "ARaB(tf)": "ARaB (TF)",
    "RaB(bool)": "RaB (Boolean)",
    "ARaB(bool)": "ARaB (Boolean)",
}


def tradeoff_plot(
    path: str | Path,
    rows: Sequence[SystemResult],
    measure: str = "nDCG@10",
    cutoff: int = 10,
    control: tuple[str, Sequence[SystemResult]] | None = None,
    name: str = "alpha",
) -> tuple[Path, Path]:
    """Draw what alpha does: ``measure`` against four bias measures, in four panels.

    They are RaB and ARaB at a cut-off, TF and Boolean.

    Args:
        path: name of the files; ``.png`` and ``.svg`` are added, or take the place of such an
            ending.
        rows: systems; those without the measures of a panel are an error, not a gap.
        measure: of effectiveness.
        cutoff: of the bias measures.
        control: name and systems of a policy that is drawn grey.
        name: of the other policy.

    Returns:
        Paths of the PNG and the SVG file; each is complete or absent.

    Raises:
        ValueError: no row, or a row lacks a measure (both are named).
    """
    if not rows:
        raise ValueError("there is no system to draw")
    panels = {}
    for kind, title in BIAS.items():
        bias = f"{kind}@{cutoff}"
        for row in rows:
            for needed in (measure, bias):
                if figure_of(row, needed) is None:
                    raise ValueError(f"the plot needs {needed}; {row.label} has no value of it")
        chart = tradeoff_of(rows, measure, bias, control=control, name=name)
        assert chart is not None
        panels[title], _ = chart
    stem = Path(path)
    if stem.suffix in (".png", ".svg"):
        stem = stem.with_suffix("")
    return save_chart(stem, beside(panels, columns=2))


def tradeoff_of(
    rows: Sequence[SystemResult],
    measure: str,
    bias: str,
    *,
    name: str = "alpha",
    control: tuple[str, Sequence[SystemResult]] | None = None,
    colour: str = COLOURS[0],
    beside: Sequence[SystemResult] = (),
) -> tuple[Spec, list[Position]] | None:
    """The trade-off of one setting and one measure of bias.

    Args:
        rows: its systems; those without alpha are references.
        measure, bias: axes.
        name: of the setting in the legend.
        control: name and systems of the setting that is drawn grey.
        colour: of the line.
        beside: systems of the charts beside it, which have the same axes.

    Returns:
        The chart, and the positions that lie outside its axes; None where it has no position.
    """
    dial = _dial(rows, measure, bias, name)
    references = []
    for row in rows:
        position = position_of(row, measure, bias, row.label)
        if row.alpha is None and position is not None:
            references.append(position)
    if not dial and not references:
        return None
    lines = {}
    if dial:
        lines[name] = dial
    grey: list[Position] = []
    if control is not None:
        control_name, control_rows = control
        grey = _dial(control_rows, measure, bias, control_name)
        if grey:
            lines[control_name] = grey
    unchanged = next((position for position in dial if position.alpha == 1), None)
    described = measure_of(bias)
    zero = described.best == 0
    to_show = [*(dial or references), *_dial(beside, measure, bias, name)]
    domains = frame(unchanged, to_show, grey, zero)
    chart = tradeoff(
        lines,
        references,
        described.axis,
        measure,
        control=control[0] if control else None,
        colour=colour,
        domains=domains,
        zero=zero,
    )
    drawn = [*references, *dial, *grey]
    return chart, [position for position in drawn if outside(position, domains)]


def position_of(row: SystemResult, measure: str, bias: str, label: str) -> Position | None:
    """Where a system stands in the chart; None where it lacks a measure."""
    x, y = figure_of(row, bias), figure_of(row, measure)
    if x is None or y is None:
        return None
    return Position(
        name=label,
        alpha=row.alpha,
        x=x.mean,
        y=y.mean,
        x_range=interval(x),
        y_range=interval(y),
        tooltip={bias: figure_text(x), measure: figure_text(y)},
    )


def _dial(rows: Sequence[SystemResult], measure: str, bias: str, name: str) -> list[Position]:
    """The systems that have an alpha, from the largest to the smallest."""
    with_alpha = [row for row in rows if row.alpha is not None]
    positions = []
    for row in sorted(with_alpha, key=lambda row: -(row.alpha or 0)):
        label = f"alpha {row.alpha:g}"
        if row.alpha == 1:
            label = AS_IT_IS
        elif name != "alpha":
            label = f"{name}, {label}"
        position = position_of(row, measure, bias, label)
        if position is not None:
            positions.append(position)
    return positions
