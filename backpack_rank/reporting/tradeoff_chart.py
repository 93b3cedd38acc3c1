"""Effectiveness against bias along alpha: the chart of the dial."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backpack_rank.reporting.vega import COLOURS, GREY, INK, Spec, channel, layer, padded, vega_lite


@dataclass(frozen=True)
class Position:
    """One position of the dial, or a system without one, in a chart of effectiveness against bias.

    Attributes:
        name: said in the tooltip, such as ``paired_tokens, alpha 0.5``.
        alpha: None for a reference.
        x: bias.
        y: effectiveness.
        x_range, y_range: ends of their intervals, or None.
        told: what a tooltip says beside the name, by measure; every position has the same measures.
    """

    name: str
    alpha: float | None
    x: float
    y: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    told: Mapping[str, str] | None = None


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
    """Effectiveness against bias: a line for each setting along alpha, from alpha 1 (the ranker as it is).

    Alpha 1 and the smallest alpha are labelled and have their intervals; everything else is in tooltips.

    Args:
        lines: positions by name of the setting, in the order of alpha, largest first.
        references: systems without a dial, as diamonds.
        x: what bias is.
        y: what effectiveness is.
        control: name of the line that is drawn grey.
        colour: of the other line.
        domains: what the axes show; see :func:`frame`. Positions outside are cut off.
        zero: whether a line marks x = 0.
    """
    # What is drawn later lies above: the control, then the policy, then the ranker as it is.
    drawn = sorted(lines.items(), key=lambda item: item[0] != control)
    main = [one for name, positions in lines.items() if name != control for one in positions]
    ends = _ends(main)
    measures = next((one.told for one in (*references, *itertools.chain(*lines.values())) if one.told), {})
    data: dict[str, list[dict[str, Any]]] = {
        "rows": [{"line": name, **_row(one)} for name, positions in drawn for one in positions],
        "base": [_row(one) for one in main if one.alpha == 1],
        "references": [_row(one) for one in references],
        "zero": [{"x": 0}] if zero else [],
    }
    for number, one in enumerate(ends):
        data[f"label{number}"] = [{**_row(one), "label": f"alpha {one.alpha:g}"}]
        for across, low_high in (("x", one.x_range), ("y", one.y_range)):
            if low_high is not None:
                cross = {"x": one.x, "y": one.y, across: low_high[0], f"{across}2": low_high[1]}
                data[f"{across}{number}"] = [cross]
    data = {name: rows for name, rows in data.items() if rows}
    scales = [{"domain": list(of), "nice": False, "zero": False} for of in domains]
    shown = {
        "x": channel("x:Q", title=x, scale=scales[0], axis={"tickCount": 5}),
        "y": channel("y:Q", title=y, scale=scales[1], axis={"tickCount": 5}),
    }
    legend = {"symbolType": "stroke", "symbolStrokeWidth": 3} if len(lines) > 1 else None
    colours = {"domain": list(lines), "range": [GREY if name == control else colour for name in lines]}
    tint = channel("line:N", scale=colours, legend=legend)
    tips = [channel("name:N", title=" ")]
    tips += [channel(f"told{number}:N", title=measure) for number, measure in enumerate(measures)]
    layers = [layer("zero", "rule", {"color": GREY, "strokeWidth": 1}, x=shown["x"])] if zero else []
    for number, one in enumerate(ends):
        rule = {"strokeWidth": 1.5, "opacity": 0.35, "clip": True, "color": GREY if one.alpha == 1 else colour}
        for across in ("x", "y"):
            if f"{across}{number}" in data:
                end = {f"{across}2": channel(f"{across}2")}
                layers.append(layer(f"{across}{number}", "rule", rule, **shown, **end))
    solid = {"filled": True, "opacity": 1}
    if "rows" in data:
        order = channel("alpha:Q", sort="descending")
        path = {"strokeWidth": 2, "clip": True}
        layers.append(layer("rows", "line", path, **shown, color=tint, detail=channel("line:N"), order=order))
        layers.append(layer("rows", "point", {"size": 70, **solid, "clip": True}, **shown, color=tint, tooltip=tips))
    if "base" in data:
        layers.append(layer("base", "point", {"size": 80, **solid, "color": INK}, **shown, tooltip=tips))
    if "references" in data:
        diamond = {"shape": "diamond", "size": 110, **solid, "color": GREY, "clip": True}
        layers.append(layer("references", "point", diamond, **shown, tooltip=tips))
    for number, above in enumerate(_sides(ends)):
        text = {"dy": -13 if above else 14, "fontSize": 12, "fontWeight": "bold", "color": INK}
        layers.append(layer(f"label{number}", "text", text, **shown, text=channel("label:N")))
    return vega_lite({"layer": layers, "height": 260}, data)


def frame(
    base: Position | None, positions: Iterable[Position], control: Iterable[Position] = (), zero: bool = True
) -> tuple[tuple[float, float], tuple[float, float]]:
    """What the axes of a trade-off show: positions that are usable, and the interval of the ranker as it is.

    The interval of the base keeps differences that are small for it small to the eye. A position that has lost more
    than a quarter of the base's effectiveness, such as one whose scores are all equal, stretches no axis.
    """
    own, grey = list(positions), list(control)
    floor = 0.75 * base.y if base is not None and base.y > 0 else float("-inf")
    kept = [one for one in (*own, *grey) if one.y >= floor] or own
    last = min((one.alpha for one in own if one.alpha is not None), default=None)
    ranged = [*([base] if base is not None else []), *(one for one in own if one in kept and one.alpha == last)]
    across = [*(one.x for one in kept), *(end for one in ranged for end in one.x_range or ())]
    upright = [*(one.y for one in kept), *(end for one in ranged for end in one.y_range or ())]
    return padded([*across, *([0.0] if zero else [])]), padded(upright)


def outside(position: Position, domains: tuple[tuple[float, float], tuple[float, float]]) -> bool:
    """Whether a position lies outside what the axes show."""
    (left, right), (low, high) = domains
    return not (left <= position.x <= right and low <= position.y <= high)


def _row(one: Position) -> dict[str, Any]:
    row: dict[str, Any] = {"name": one.name, "alpha": one.alpha, "x": one.x, "y": one.y}
    for axis, ends in (("x", one.x_range), ("y", one.y_range)):
        if ends is not None:
            row |= {f"{axis}_low": ends[0], f"{axis}_high": ends[1]}
    return row | {f"told{number}": text for number, text in enumerate((one.told or {}).values())}


def _ends(positions: Sequence[Position]) -> list[Position]:
    """The first and the last position of a dial."""
    dial = [one for one in positions if one.alpha is not None]
    return [dial[0], dial[-1]] if len(dial) > 1 else list(dial)


def _sides(ends: Sequence[Position]) -> list[bool]:
    """Whether each label stands above its mark: that of the upper mark does, so that two labels never meet."""
    if len(ends) < 2:
        return [True] * len(ends)
    return [ends[0].y >= ends[1].y, ends[0].y < ends[1].y]
