"""Charts: each is described once in Vega-Lite and becomes a part of a page, or a PNG and an SVG file.

Functions return a dictionary without a width, which the page and the files choose.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.vega import COLOURS, GREY, GRID, INK, PALE, Spec, channel, cycle, layer, vega_lite

_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3])
_SOLID = {"filled": True, "opacity": 1}


@dataclass(frozen=True)
class Line:
    """A value over something: points (x, y), and the lower and upper ends of their intervals where there are any."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    grey: bool = False


@dataclass(frozen=True)
class DotRow:
    """One row of dots.

    Attributes:
        label: of the row.
        figures: by name of the dot; intervals are drawn where there are any. Rows may lack dots.
    """

    label: str
    figures: Mapping[str, Estimate]


def lines(
    series: Sequence[Line],
    x: str,
    y: str,
    *,
    zero: bool = False,
    band: bool = False,
    ticks: Sequence[float] | None = None,
    height: int = 240,
    points: bool = True,
    dashed: bool = False,
    legend: Literal["bottom", "right"] = "bottom",
    framed: bool = False,
) -> Spec:
    """Lines over a number, or over names at equal distances, with their intervals and tooltips.

    Args:
        series: drawn in this order; grey ones do not use up colours.
        x, y: titles of the axes.
        zero: a line marks y = 0.
        band: intervals as a shade and not as bars.
        ticks: of the horizontal axis.
        height: in pixels.
        points: mark every value.
        dashed: lines that differ in their dashes too, since they may lie on one another.
        legend: where it stands.
        framed: grey lines have no intervals, stretch no axis and are cut off.
    """
    names, grey = [one.name for one in series], {one.name for one in series if one.grey}
    rows = [row for one in series for row in _line_rows(one)]
    whole = [row for row in rows if row["low"] is not None and not (framed and row["series"] in grey)]
    data = {"rows": rows, "zero": [{"y": 0}] if zero else [], "ranged": whole if len(whole) < len(rows) else []}
    keys = {"orient": legend, **({"columns": 1} if legend == "right" else {})} if len(series) > 1 else None
    colours, dashes, marks = ({"domain": names, "range": list(of)} for of in zip(*_looks(series, dashed), strict=True))
    tint = channel("series:N", scale=colours, sort=names, legend=keys)
    at: Spec = {}
    places = list(dict.fromkeys(row["x"] for row in rows))
    if any(isinstance(place, str) for place in places):
        narrow = {"paddingInner": 0.6, "paddingOuter": 0.3}
        at["x"] = channel("x:O", title=x, sort=places, axis={"labelAngle": 0}, scale=narrow)
        if len(series) > 1 and not band:
            at["xOffset"] = channel("series:N", sort=names)
    else:
        axis = {} if ticks is None else {"values": list(ticks), "format": "~g"}
        at["x"] = channel("x:Q", title=x, axis=axis, scale={"zero": False, "nice": False, "padding": 12})
    scale = {"domain": _frame(rows, grey, zero), "nice": False} if framed else {"zero": zero}
    upright = channel("y:Q", title=y, scale=scale, axis={"tickCount": 5})
    layers = [layer("zero", "rule", {"color": GREY}, y=upright)] if zero else []
    if whole:
        mark, look = ("area", {"opacity": 0.13}) if band else ("rule", {"strokeWidth": 1.5, "opacity": 0.4})
        ends = {"y": channel("low:Q", title=y, scale=scale), "y2": channel("high")}
        ranged = "ranged" if data["ranged"] else "rows"
        layers.append(layer(ranged, mark, {**look, "clip": framed}, **at, **ends, color=tint))
    dash = channel("series:N", sort=names, scale=dashes, legend=keys)
    shown = {**at, "y": upright, "color": tint}
    shown["tooltip"] = [channel("series:N", title=" "), channel("x:N", title=x), channel("told:N", title=y)]
    layers.append(layer("rows", "line", {"strokeWidth": 2, "clip": framed}, **shown, strokeDash=dash))
    if points:
        shape = channel("series:N", sort=names, scale=marks, legend=keys)
        layers.append(layer("rows", "point", {"size": 45, **_SOLID, "clip": framed}, **shown, shape=shape))
    return vega_lite({"layer": layers, "height": height}, {name: of for name, of in data.items() if of})


def shares(columns: Mapping[str, Sequence[float]], parts: Sequence[str], x: str, height: int = 180) -> Spec:
    """Columns divided into parts, from the bottom up; the last part is pale."""
    rows = [
        {"x": name, "part": part, "share": value, "order": number}
        for name, values in columns.items()
        for number, (part, value) in enumerate(zip(parts, values, strict=True))
    ]
    percents = {"format": "%", "values": [0, 0.5, 1]}
    tips = [channel("x:N", title=x), channel("part:N", title=" "), channel("share:Q", title="share", format=".1%")]
    bars = layer(
        rows,
        "bar",
        {},
        x=channel("x:O", title=x, sort=list(columns), axis={"labelAngle": 0}),
        y=channel("share:Q", title=None, scale={"domain": [0, 1]}, axis=percents),
        color=_one_each("part:N", parts, [*COLOURS[: len(parts) - 1], PALE]),
        order=channel("order:Q"),
        tooltip=tips,
    )
    return vega_lite({**bars, "height": height})


def dots(panels: Mapping[str, Sequence[DotRow]], measure: str) -> Spec:
    """Rows of dots on one scale, joined by a line from the smallest to the largest, with their intervals.

    Args:
        panels: rows by heading, below each other; the heading of a single panel may be empty.
        measure: what the scale is.

    Raises:
        ValueError: no row, or a row without a dot; names it.
    """
    every = [row for part in panels.values() for row in part]
    if not every:
        raise ValueError("there is no row of dots to draw")
    if empty := [row.label for row in every if not row.figures]:
        raise ValueError(f"row {empty[0]!r} has no dot")
    names = list(dict.fromkeys(name for row in every for name in row.figures))
    across = {"title": measure, "scale": {"zero": False}}
    tint, shape = (_one_each("dot:N", names, cycle(of, len(names))) for of in (COLOURS, _SHAPES))
    parts = []
    for heading, part in panels.items():
        rows = [
            {"row": row.label, "dot": name, "value": one.mean, "low": one.low, "high": one.high}
            for row in part
            for name, one in row.figures.items()
        ]
        means = {row.label: [one.mean for one in row.figures.values()] for row in part}
        spans = [{"row": label, "from": min(of), "to": max(of)} for label, of in means.items()]
        axis = {"labelLimit": 300, "labelExpr": "split(datum.label, '\\n')"}
        y = {"y": channel("row:N", title=None, sort=[row.label for row in part], axis=axis)}
        offset = {**y, "yOffset": channel("dot:N", sort=names, scale={"paddingOuter": 1}), "color": tint}
        ranged = [row for row in rows if row["low"] is not None and row["high"] is not None]
        tips = [channel(name) for name in ("row:N", "dot:N", "value:Q", "low:Q", "high:Q")]
        span = {"color": GRID, "strokeWidth": 4, "strokeCap": "round"}
        low, high, value = channel("low:Q", title=measure), channel("high"), channel("value:Q", **across)
        layers = [
            layer(spans, "rule", span, **y, x=channel("from:Q", **across), x2=channel("to")),
            layer(ranged, "rule", {"opacity": 0.5}, **offset, x=low, x2=high),
            layer(rows, "point", {"size": 70, **_SOLID}, **offset, x=value, shape=shape, tooltip=tips),
        ]
        parts.append({"layer": layers, "height": {"step": 40}, "width": 480, **_headed(heading)})
    return vega_lite({"vconcat": parts, "resolve": {"scale": {"x": "shared"}}})


def heat_maps(
    panels: Mapping[str, Sequence[Sequence[float]]], x: str, y: str, value: str, centre: float | None, written: bool
) -> Spec:
    """Matrices on one scale of colours: row 1 on top, cells without a value grey.

    Args:
        panels: by heading.
        x, y: what columns and rows are; they are counted from 1.
        value: what a cell is.
        centre: value that is drawn white, with the same distance to both ends; None for 0 at one end.
        written: write the values into the cells.
    """
    known = [cell for cells in panels.values() for row in cells for cell in row if cell == cell]
    low, high = min(known), max(known)
    if centre is None:
        low = min(low, 0.0)
        ends, colours = [low, high if high > low else low + 1], ["#ffffff", "#f2b38c", COLOURS[1], "#6b2f00"]
        stops = [ends[0] + part * (ends[1] - ends[0]) for part in (0, 1 / 3, 2 / 3, 1)]
    else:
        reach = max(high - centre, centre - low) or 1.0
        lowest = centre - reach if low < 0 else min(max(0.0, centre - reach), centre - 1e-9)
        stops, colours = [lowest, centre, centre + reach], [COLOURS[0], "#ffffff", COLOURS[1]]
        ends = [lowest, centre + reach]
    digits = 3 if max(map(abs, known)) < 0.1 else 2
    at = {
        "x": channel("column:O", title=x, axis={"labelAngle": 0, "labelOverlap": True}),
        "y": channel("row:O", title=y, axis={"labelOverlap": True}),
    }
    key = {"orient": "right", "title": value, "gradientLength": 200}
    tint = channel("value:Q", title=value, scale={"domain": stops, "range": colours}, legend=key)
    tips = [channel(name) for name in ("row:O", "column:O", "value:Q")]
    shade = channel("dark:N", scale={"domain": [False, True], "range": ["#000000", "#ffffff"]}, legend=None)
    parts = []
    for heading, cells in panels.items():
        rows = [
            {"row": r, "column": c, "value": cell if cell == cell else None, "text": f"{cell:.{digits}f}", "dark": dark}
            for r, line in enumerate(cells, 1)
            for c, cell in enumerate(line, 1)
            for dark in [cell == cell and _is_dark(cell, centre, ends)]
        ]
        whole = [row for row in rows if row["value"] is not None]
        layers = [
            layer(rows, "rect", {"color": "#eeeeee"}, **at),
            layer(whole, "rect", {}, **at, color=tint, tooltip=tips),
        ]
        if written:
            layers.append(layer(whole, "text", {"fontSize": 11}, **at, text=channel("text:N"), color=shade))
        resolve = {"scale": {"color": "independent"}}
        parts.append({"layer": layers, "resolve": resolve, "width": 300, "height": 300, **_headed(heading)})
    return _side_by_side(parts)


def histograms(panels: Mapping[str, Sequence[tuple[str, Sequence[float]]]], x: str, y: str, level: str) -> Spec:
    """Shares of equal parts from 0 to 1: the first as bars, others as steps, with the even share dashed.

    Args:
        panels: (name, shares) by heading.
        x, y: titles of the axes.
        level: name of the even share.
    """
    names = [*dict.fromkeys(name for part in panels.values() for name, _ in part), level]
    tint = _one_each("name:N", names, [*cycle(COLOURS, len(names) - 1), GREY])
    highest = max(share for part in panels.values() for _, shares in part for share in shares) or 1.0
    across = channel("from:Q", title=x, scale={"domain": [0, 1]})
    up = channel("share:Q", title=y, scale={"domain": [0, 1.05 * highest]})
    ends = {"x2": channel("to"), "y2": {"datum": 0}, "tooltip": [channel("name:N"), channel("share:Q")]}
    parts = []
    for heading, part in panels.items():
        layers = []
        for number, (name, shares) in enumerate(part):
            size = len(shares)
            rows = [{"name": name, "from": n / size, "to": (n + 1) / size, "share": s} for n, s in enumerate(shares)]
            if number:
                rows.append({**rows[-1], "from": 1.0})
                steps = {"interpolate": "step-after", "strokeWidth": 2}
                layers.append(layer(rows, "line", steps, x=across, y=up, color=tint))
            else:
                layers.append(layer(rows, "rect", {"opacity": 0.4}, x=across, y=up, color=tint, **ends))
        even = [{"name": level, "share": 1 / len(part[0][1])}]
        layers.append(layer(even, "rule", {"strokeDash": [5, 4]}, y=up, color=tint))
        parts.append({"layer": layers, "width": 320, "height": 210, "title": heading})
    return _side_by_side(parts)


def boxes(
    panels: Mapping[str, Sequence[tuple[str, Sequence[float], float]]],
    x: str,
    y: Mapping[str, str],
    names: tuple[str, str],
) -> Spec:
    """Box plots from the smallest to the largest value with every value as a dot, and one value as a diamond.

    Args:
        panels: (label below, values, the diamond's value) by heading.
        x: title of the horizontal axes.
        y: of the vertical ones, by heading.
        names: what the dots and what the diamond are.
    """
    tint = _one_each("kind:N", names, COLOURS[:2])
    spread = channel("run:O", scale={"paddingOuter": 1})
    tips = [channel("label:N"), channel("value:Q")]
    parts = []
    for heading, part in panels.items():
        labels = [label for label, _, _ in part]
        at = {
            "x": channel("label:N", title=x, sort=labels, axis={"labelAngle": 0}),
            "y": channel("value:Q", title=y[heading], scale={"zero": False}),
        }
        singles = [
            {"label": label, "kind": names[0], "value": value, "run": number}
            for label, values, _ in part
            for number, value in enumerate(values, 1)
        ]
        whole = [{"label": label, "kind": names[1], "value": value} for label, _, value in part]
        box = {"extent": "min-max", "size": 36, "color": "#d5e6f3", "median": {"color": INK}}
        diamond = {"shape": "diamond", "size": 130, **_SOLID}
        layers = [
            layer(singles, "boxplot", box, **at),
            layer(singles, "point", {"size": 26, "filled": True, "opacity": 0.6}, **at, color=tint, xOffset=spread),
            layer(whole, "point", diamond, **at, color=tint, tooltip=tips),
        ]
        parts.append({"layer": layers, "width": max(110, 64 * len(part)), "height": 240, "title": heading})
    return vega_lite({"concat": parts, "columns": 4})


def _one_each(shorthand: str, names: Sequence[str], looks: Sequence[str]) -> Spec:
    """A channel with a colour or shape of its own for each name, and a legend."""
    return channel(shorthand, scale={"domain": list(names), "range": list(looks)}, legend={})


def _headed(heading: str) -> Spec:
    return {"title": heading} if heading else {}


def _side_by_side(parts: Sequence[Spec]) -> Spec:
    return vega_lite({"concat": list(parts), "columns": 2 if len(parts) == 4 else min(3, len(parts))})


def _frame(rows: Sequence[Mapping[str, Any]], grey: Container[str], zero: bool) -> list[float]:
    """Ends of the vertical axis; grey lines stretch it only where there are no others."""
    coloured = [row for row in rows if row["series"] not in grey]
    ends = [row[end] for row in coloured or rows for end in ("y", "low", "high") if row[end] is not None]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = 0.05 * (high - low) or 0.1
    return [min(low, 0.0) if zero else low - margin, high + margin]


def _is_dark(cell: float, centre: float | None, ends: Sequence[float]) -> bool:
    """Whether white figures are easier to read on a cell's colour than black ones."""
    if centre is None:
        return cell > ends[0] + 0.6 * (ends[1] - ends[0])
    return abs(cell - centre) > 0.6 * (ends[1] - centre)


def _line_rows(one: Line) -> Iterable[dict[str, Any]]:
    for number, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
        low, high = (ends[number] if ends else None for ends in (one.low, one.high))
        whole = low is not None and high is not None and low == low and high == high
        told = f"{y:.4f}" + (f" [{low:.4f}, {high:.4f}]" if whole else "")
        yield {
            "series": one.name,
            "x": x,
            "y": y if y == y else None,
            "low": low if whole else None,
            "high": high if whole else None,
            "told": told,
        }


def _looks(series: Sequence[Line], dashed: bool) -> list[tuple[str, list[int], str]]:
    """Colour, dashes and shape of each line; grey ones are dashed, further rounds of colours get other dashes."""
    found: list[tuple[str, list[int], str]] = []
    counts = [0, 0]
    for one in series:
        number = counts[one.grey]
        counts[one.grey] += 1
        turn, place = divmod(number, len(COLOURS))
        if one.grey:
            found.append((GREY, _DASHES[1 + number % 3], _SHAPES[-1 - number % len(_SHAPES)]))
        else:
            found.append(
                (COLOURS[place], _DASHES[(number if dashed else turn) % 4], _SHAPES[(place + turn) % len(_SHAPES)])
            )
    return found
