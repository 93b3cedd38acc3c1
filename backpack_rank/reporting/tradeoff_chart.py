"""Effectiveness against bias along alpha: the chart of the dial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backpack_rank.reporting.vega import (
    COLOURS,
    GREY,
    INK,
    Spec,
    channel,
    layer,
    padded,
    vega_lite,
)

_SOLID = {"filled": True, "opacity": 1}
_RING = {"filled": False, "opacity": 1, "strokeWidth": 2, "clip": True}
_SIZES = (40, 240)
"""Of the rings of the smallest and of the largest alpha: in one place they lie in one another."""


@dataclass(frozen=True)
class Position:
    """The ranker at one alpha, or a system without one, in a chart of effectiveness against bias.

    Attributes:
        name: in the tooltip, such as ``paired_tokens, alpha 0.5``.
        alpha: None for a reference.
        x: bias.
        y: effectiveness.
        x_range, y_range: ends of their intervals, or None.
        tooltip: what stands below the name, by measure; all positions have the same measures.
    """

    name: str
    alpha: float | None
    x: float
    y: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    tooltip: Mapping[str, str] = field(default_factory=dict)


def tradeoff(
    lines: Mapping[str, Sequence[Position]],
    references: Sequence[Position],
    x: str,
    y: str,
    *,
    control: str | None = None,
    colour: str = COLOURS[0],
    domains: tuple[tuple[float, float], tuple[float, float]],
    zero: bool = True,
) -> Spec:
    """Draw effectiveness against bias: a line along alpha for each setting.

    Alpha 1 (the unchanged ranker) and the smallest alpha are labelled and have their intervals;
    everything else is in tooltips. Points are rings, the larger the alpha the larger: where a dial
    changes nothing, they lie in one another and can still be told apart.

    Args:
        lines: positions by name of the setting, in the order of alpha, largest first.
        references: systems without alpha, as diamonds.
        x: what bias is.
        y: what effectiveness is.
        control: name of the line that is drawn grey.
        colour: of the other line.
        domains: what the axes show; see :func:`frame`. Positions outside are cut off.
        zero: whether a line marks x = 0.
    """
    main: list[Position] = []
    for name, positions in lines.items():
        if name != control:
            main += positions
    # Without a dial every system is named, and has its intervals.
    is_of_runs = not main
    ends = list(references) if is_of_runs else _ends(main)
    horizontal, vertical = domains
    axes = {
        "x": channel("x:Q", title=x, scale=_scale(horizontal), axis={"tickCount": 5}),
        "y": channel("y:Q", title=y, scale=_scale(vertical), axis={"tickCount": 5}),
    }
    tooltip = _tooltip(lines, references)
    data: dict[str, list[dict[str, Any]]] = {
        "rows": _line_rows(lines, control),
        "base": [_row(position) for position in main if position.alpha == 1],
        "references": [_row(position) for position in references],
        "zero": [{"x": 0}] if zero else [],
    }

    every = [position for positions in lines.values() for position in positions]
    sizes = _ring_sizes(every)
    # What comes later lies above.
    layers = []
    if zero:
        layers.append(layer("zero", "rule", {"color": GREY, "strokeWidth": 1}, x=axes["x"]))
    for number, position in enumerate(ends):
        label = position.name if is_of_runs else f"alpha {position.alpha:g}"
        data[f"label{number}"] = [{**_row(position), "label": label}]
        colour_of_end = GREY if position.alpha in (None, 1) else colour
        rule = {"strokeWidth": 1.5, "opacity": 0.35, "clip": True, "color": colour_of_end}
        for axis, row in _interval_rows(position).items():
            data[f"{axis}{number}"] = [row]
            second_end = {f"{axis}2": channel(f"{axis}2")}
            layers.append(layer(f"{axis}{number}", "rule", rule, **axes, **second_end))
    if data["rows"]:
        layers += _line_layers(axes, _line_colours(lines, control, colour), sizes, tooltip)
    if data["base"]:
        size = {} if sizes is None else {"size": sizes}
        ring = {**_RING, "color": INK}
        layers.append(layer("base", "point", ring, **axes, **size, tooltip=tooltip))
    if references:
        diamond = {"shape": "diamond", "size": 110, **_SOLID, "color": GREY, "clip": True}
        layers.append(layer("references", "point", diamond, **axes, tooltip=tooltip))
    sides = [number % 2 == 0 for number in range(len(ends))] if is_of_runs else _sides(ends)
    for number, above in enumerate(sides):
        text = {"dy": -13 if above else 14, "fontSize": 12, "fontWeight": "bold", "color": INK}
        layers.append(layer(f"label{number}", "text", text, **axes, text=channel("label:N")))
    filled = {name: rows for name, rows in data.items() if rows}
    return vega_lite({"layer": layers, "height": 260}, filled)


def frame(
    base: Position | None,
    positions: Iterable[Position],
    control: Iterable[Position] = (),
    zero: bool = True,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """What the axes of a trade-off show: usable positions, and intervals of the ends.

    The interval of the base keeps differences that are small for it small to the eye. A position
    that has lost more than a quarter of the base's effectiveness, such as one whose scores are all
    equal, stretches no axis.

    Args:
        base: the unchanged ranker.
        positions: of the line and of those beside it.
        control: positions of the grey line.
        zero: whether x = 0 is shown.

    Returns:
        Ends of the horizontal and of the vertical axis.
    """
    positions = list(positions)
    floor = float("-inf")
    if base is not None and base.y > 0:
        floor = 0.75 * base.y
    kept = [position for position in (*positions, *control) if position.y >= floor] or positions
    alphas = [position.alpha for position in positions if position.alpha is not None]
    smallest_alpha = min(alphas, default=None)
    with_interval = [] if base is None else [base]
    for position in positions:
        # Of runs without a dial, None is the alpha of all.
        if position in kept and position.alpha == smallest_alpha:
            with_interval.append(position)
    across = [position.x for position in kept]
    upright = [position.y for position in kept]
    for position in with_interval:
        across += position.x_range or ()
        upright += position.y_range or ()
    if zero:
        across.append(0.0)
    return padded(across), padded(upright)


def outside(position: Position, domains: tuple[tuple[float, float], tuple[float, float]]) -> bool:
    """Whether a position lies outside what the axes show."""
    (left, right), (low, high) = domains
    return not (left <= position.x <= right and low <= position.y <= high)


def _scale(domain: tuple[float, float]) -> Spec:
    return {"domain": list(domain), "nice": False, "zero": False}


def _line_rows(
    lines: Mapping[str, Sequence[Position]], control: str | None
) -> list[dict[str, Any]]:
    """The control comes first, so that the policy is drawn above it."""
    rows = []
    for name, positions in sorted(lines.items(), key=lambda item: item[0] != control):
        for position in positions:
            rows.append({"line": name, **_row(position)})
    return rows


def _row(position: Position) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": position.name,
        "alpha": position.alpha,
        "x": position.x,
        "y": position.y,
    }
    for axis, interval in (("x", position.x_range), ("y", position.y_range)):
        if interval is not None:
            row[f"{axis}_low"], row[f"{axis}_high"] = interval
    for number, text in enumerate(position.tooltip.values()):
        row[f"told{number}"] = text
    return row


def _interval_rows(position: Position) -> dict[str, dict[str, float]]:
    """By axis, a line through the position from one end of its interval to the other."""
    rows = {}
    for axis, interval in (("x", position.x_range), ("y", position.y_range)):
        if interval is not None:
            row = {"x": position.x, "y": position.y}
            row[axis], row[f"{axis}2"] = interval
            rows[axis] = row
    return rows


def _tooltip(lines: Mapping[str, Sequence[Position]], references: Sequence[Position]) -> list[Spec]:
    """Channels of the tooltip; its measures are those of the first position that has any."""
    every = list(references)
    for positions in lines.values():
        every += positions
    measures: Iterable[str] = ()
    for position in every:
        if position.tooltip:
            measures = position.tooltip
            break
    tooltip = [channel("name:N", title=" ")]
    for number, measure in enumerate(measures):
        tooltip.append(channel(f"told{number}:N", title=measure))
    return tooltip


def _line_colours(
    lines: Mapping[str, Sequence[Position]], control: str | None, colour: str
) -> Spec:
    legend = None
    if len(lines) > 1:
        legend = {"symbolType": "stroke", "symbolStrokeWidth": 3}
    colours = [GREY if name == control else colour for name in lines]
    return channel("line:N", scale={"domain": list(lines), "range": colours}, legend=legend)


def _ring_sizes(positions: Sequence[Position]) -> Spec | None:
    """The channel of the size of rings: the larger alpha, the larger; None for a single alpha."""
    alphas = sorted({position.alpha for position in positions if position.alpha is not None})
    if len(alphas) < 2:
        return None
    shown = alphas if len(alphas) <= 5 else [alphas[0], alphas[len(alphas) // 2], alphas[-1]]
    return channel(
        "alpha:Q",
        scale={"domain": [alphas[0], alphas[-1]], "range": list(_SIZES)},
        legend={"title": "alpha", "values": shown, "format": ".2~f", "symbolFillColor": None},
    )


def _line_layers(
    axes: Mapping[str, Spec], colours: Spec, sizes: Spec | None, tooltip: Sequence[Spec]
) -> list[Spec]:
    size = {} if sizes is None else {"size": sizes}
    order = channel("alpha:Q", sort="descending")
    path = {"strokeWidth": 2, "clip": True}
    return [
        layer("rows", "line", path, **axes, color=colours, detail=channel("line:N"), order=order),
        layer("rows", "point", _RING, **axes, **size, color=colours, tooltip=list(tooltip)),
    ]


def _ends(positions: Sequence[Position]) -> list[Position]:
    """The first and the last position of a dial."""
    dial = [position for position in positions if position.alpha is not None]
    return [dial[0], dial[-1]] if len(dial) > 1 else dial


def _sides(ends: Sequence[Position]) -> list[bool]:
    """Whether each label stands above its mark.

    That of the upper mark does, and the other one stands below, so that two labels never meet.
    """
    if len(ends) < 2:
        return [True] * len(ends)
    first, last = ends
    return [first.y >= last.y, first.y < last.y]
