"""Charts: each is described once in Vega-Lite, for a page or for a PNG and an SVG file.

Functions return a dictionary without a width, which the page and the files choose.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.table import number as shown_number
from backpack_rank.reporting.vega import (
    COLOURS,
    GREY,
    GRID,
    INK,
    PALE,
    Spec,
    channel,
    cycle,
    layer,
    vega_lite,
)

_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3])
_SOLID = {"filled": True, "opacity": 1}


@dataclass(frozen=True)
class Line:
    """A value over something.

    Attributes:
        name: in the legend.
        x, y: of the points.
        low, high: ends of their intervals, where there are any.
        grey: drawn behind the others, such as a reference.
    """

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
    """Lines over a number, or over names at equal distances.

    They have their intervals and tooltips.

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
    grey = {line.name for line in series if line.grey}
    rows: list[dict[str, Any]] = []
    for line in series:
        rows += _line_rows(line)
    with_interval = []
    for row in rows:
        if row["low"] is not None and not (framed and row["series"] in grey):
            with_interval.append(row)

    # Bars of several lines would hide one another, so they stand side by side.
    side_by_side = len(series) > 1 and not band
    horizontal = _horizontal_axis(series, rows, x, ticks, side_by_side)
    scale: Spec = {"zero": zero}
    if framed:
        scale = {"domain": _frame(rows, grey, zero), "nice": False}
    vertical = channel("y:Q", title=y, scale=scale, axis={"tickCount": 5})
    colour, dash, shape = _channels_of_looks(series, dashed, legend)
    tooltip = [
        channel("series:N", title=" "),
        channel("x:N", title=x),
        channel("told:N", title=y),
    ]
    encoding = {**horizontal, "y": vertical, "color": colour, "tooltip": tooltip}

    # What comes later lies above: the line at 0, then intervals, lines and points.
    data = {"rows": rows}
    layers = []
    if zero:
        data["zero"] = [{"y": 0}]
        layers.append(layer("zero", "rule", {"color": GREY}, y=vertical))
    if with_interval:
        name = "rows"
        # Rows are written once where all of them have an interval.
        if len(with_interval) < len(rows):
            name = "ranged"
            data[name] = with_interval
        ends = {"y": channel("low:Q", title=y, scale=scale), "y2": channel("high")}
        mark = "rule"
        look: Spec = {"strokeWidth": 1.5, "opacity": 0.4}
        if band:
            mark = "area"
            look = {"opacity": 0.13}
        look["clip"] = framed
        layers.append(layer(name, mark, look, **horizontal, **ends, color=colour))
    path = {"strokeWidth": 2, "clip": framed}
    layers.append(layer("rows", "line", path, **encoding, strokeDash=dash))
    if points:
        dot = {"size": 45, **_SOLID, "clip": framed}
        layers.append(layer("rows", "point", dot, **encoding, shape=shape))
    filled = {name: part for name, part in data.items() if part}
    return vega_lite({"layer": layers, "height": height}, filled)


def shares(
    columns: Mapping[str, Sequence[float]], parts: Sequence[str], x: str, height: int = 180
) -> Spec:
    """Columns divided into parts, from the bottom up; the last part is pale."""
    rows: list[dict[str, Any]] = []
    for name, values in columns.items():
        for number, (part, value) in enumerate(zip(parts, values, strict=True)):
            rows.append({"x": name, "part": part, "share": value, "order": number})
    bars = layer(
        rows,
        "bar",
        {},
        x=channel("x:O", title=x, sort=list(columns), axis={"labelAngle": 0}),
        y=channel(
            "share:Q",
            title=None,
            scale={"domain": [0, 1]},
            axis={"format": "%", "values": [0, 0.5, 1]},
        ),
        color=_look_by_name("part:N", parts, [*COLOURS[: len(parts) - 1], PALE]),
        order=channel("order:Q"),
        tooltip=[
            channel("x:N", title=x),
            channel("part:N", title=" "),
            channel("share:Q", title="share", format=".1%"),
        ],
    )
    return vega_lite({**bars, "height": height})


def dots(panels: Mapping[str, Sequence[DotRow]], measure: str) -> Spec:
    """Rows of dots on one scale, with their intervals.

    The dots of a row are joined by a line from the smallest to the largest.

    Args:
        panels: rows by heading, below each other; the heading of a single panel may be empty.
        measure: what the scale is.

    Raises:
        ValueError: no row, or a row without a dot; names it.
    """
    every_row: list[DotRow] = []
    for part in panels.values():
        every_row += part
    if not every_row:
        raise ValueError("there is no row of dots to draw")
    names: dict[str, None] = {}
    for row in every_row:
        if not row.figures:
            raise ValueError(f"row {row.label!r} has no dot")
        names |= dict.fromkeys(row.figures)
    colour = _look_by_name("dot:N", list(names), cycle(COLOURS, len(names)))
    shape = _look_by_name("dot:N", list(names), cycle(_SHAPES, len(names)))
    parts = []
    for heading, part in panels.items():
        layers = _dot_layers(part, measure, list(names), colour, shape)
        parts.append({"layer": layers, "height": {"step": 40}, "width": 480, **_headed(heading)})
    return vega_lite({"vconcat": parts, "resolve": {"scale": {"x": "shared"}}})


def heat_maps(
    panels: Mapping[str, Sequence[Sequence[float]]],
    x: str,
    y: str,
    value: str,
    centre: float | None,
    written: bool,
) -> Spec:
    """Matrices on one scale of colours: row 1 on top, cells without a value grey.

    Args:
        panels: by heading.
        x, y: what columns and rows are; they are counted from 1.
        value: what a cell is.
        centre: value that is drawn white, with the same distance to both ends; None for 0 at one
            end.
        written: write the values into the cells.
    """
    known = []
    for matrix in panels.values():
        for line in matrix:
            known += [cell for cell in line if cell == cell]  # NaN equals nothing, not even itself
    stops, colours = _colour_scale(known, centre)
    digits = 3 if max(map(abs, known)) < 0.1 else 2
    axes = {
        "x": channel("column:O", title=x, axis={"labelAngle": 0, "labelOverlap": True}),
        "y": channel("row:O", title=y, axis={"labelOverlap": True}),
    }
    key = {"orient": "right", "title": value, "gradientLength": 200}
    colour = channel("value:Q", title=value, scale={"domain": stops, "range": colours}, legend=key)
    tooltip = [channel(name) for name in ("row:O", "column:O", "value:Q")]
    black_or_white = {"domain": [False, True], "range": ["#000000", "#ffffff"]}
    parts = []
    for heading, matrix in panels.items():
        rows = _cell_rows(matrix, centre, (stops[0], stops[-1]), digits)
        with_value = [row for row in rows if row["value"] is not None]
        layers = [
            layer(rows, "rect", {"color": "#eeeeee"}, **axes),
            layer(with_value, "rect", {}, **axes, color=colour, tooltip=tooltip),
        ]
        if written:
            shade = channel("dark:N", scale=black_or_white, legend=None)
            text = channel("text:N")
            look = {"fontSize": 11}
            layers.append(layer(with_value, "text", look, **axes, text=text, color=shade))
        part = {
            "layer": layers,
            "resolve": {"scale": {"color": "independent"}},
            "width": 300,
            "height": 300,
            **_headed(heading),
        }
        parts.append(part)
    return _side_by_side(parts)


def histograms(
    panels: Mapping[str, Sequence[tuple[str, Sequence[float]]]], x: str, y: str, level: str
) -> Spec:
    """Shares of equal parts from 0 to 1, with the even share dashed.

    The first are bars, others steps.

    Args:
        panels: (name, shares) by heading.
        x, y: titles of the axes.
        level: name of the even share.
    """
    named: dict[str, None] = {}
    every_share: list[float] = []
    for part in panels.values():
        for name, of_name in part:
            named[name] = None
            every_share += of_name
    names = [*named, level]
    colour = _look_by_name("name:N", names, [*cycle(COLOURS, len(names) - 1), GREY])
    highest = max(every_share) or 1.0
    across = channel("from:Q", title=x, scale={"domain": [0, 1]})
    up = channel("share:Q", title=y, scale={"domain": [0, 1.05 * highest]})
    ends = {
        "x2": channel("to"),
        "y2": {"datum": 0},
        "tooltip": [channel("name:N"), channel("share:Q")],
    }
    bar = {"opacity": 0.4}
    steps = {"interpolate": "step-after", "strokeWidth": 2}
    parts = []
    for heading, part in panels.items():
        layers = []
        for number, (name, of_name) in enumerate(part):
            rows = _histogram_rows(name, of_name)
            if number == 0:
                layers.append(layer(rows, "rect", bar, x=across, y=up, color=colour, **ends))
            else:
                # Steps begin at a row: the last one needs its end.
                rows.append({**rows[-1], "from": 1.0})
                layers.append(layer(rows, "line", steps, x=across, y=up, color=colour))
        even = [{"name": level, "share": 1 / len(part[0][1])}]
        layers.append(layer(even, "rule", {"strokeDash": [5, 4]}, y=up, color=colour))
        parts.append({"layer": layers, "width": 320, "height": 210, "title": heading})
    return _side_by_side(parts)


def boxes(
    panels: Mapping[str, Sequence[tuple[str, Sequence[float], float]]],
    x: str,
    y: Mapping[str, str],
    names: tuple[str, str],
) -> Spec:
    """Box plots from the smallest to the largest value.

    Every value is a dot, and one further value is a diamond.

    Args:
        panels: (label below, values, the diamond's value) by heading.
        x: title of the horizontal axes.
        y: of the vertical ones, by heading.
        names: what the dots and what the diamond are.
    """
    name_of_dots, name_of_diamond = names
    colour = _look_by_name("kind:N", names, COLOURS[:2])
    spread = channel("run:O", scale={"paddingOuter": 1})
    tooltip = [channel("label:N"), channel("value:Q")]
    box = {"extent": "min-max", "size": 36, "color": "#d5e6f3", "median": {"color": INK}}
    dot = {"size": 26, "filled": True, "opacity": 0.6}
    diamond = {"shape": "diamond", "size": 130, **_SOLID}
    parts = []
    for heading, part in panels.items():
        labels = []
        singles: list[dict[str, Any]] = []
        further: list[dict[str, Any]] = []
        for label, values, value in part:
            labels.append(label)
            for number, single in enumerate(values, start=1):
                row = {"label": label, "kind": name_of_dots, "value": single, "run": number}
                singles.append(row)
            further.append({"label": label, "kind": name_of_diamond, "value": value})
        axes = {
            "x": channel("label:N", title=x, sort=labels, axis={"labelAngle": 0}),
            "y": channel("value:Q", title=y[heading], scale={"zero": False}),
        }
        layers = [
            layer(singles, "boxplot", box, **axes),
            # Spread out by the number of the run, or equal values would lie on one another.
            layer(singles, "point", dot, **axes, color=colour, xOffset=spread),
            layer(further, "point", diamond, **axes, color=colour, tooltip=tooltip),
        ]
        width = max(110, 64 * len(part))
        parts.append({"layer": layers, "width": width, "height": 240, "title": heading})
    return vega_lite({"concat": parts, "columns": 4})


def _line_rows(line: Line) -> list[dict[str, Any]]:
    rows = []
    for number, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
        low = line.low[number] if line.low else None
        high = line.high[number] if line.high else None
        text = shown_number(y)
        # A bound that is NaN is none.
        if low is None or high is None or low != low or high != high:
            low, high = None, None
        else:
            text += f" [{shown_number(low)}, {shown_number(high)}]"
        row = {
            "series": line.name,
            "x": x,
            "y": y if y == y else None,
            "low": low,
            "high": high,
            "told": text,
        }
        rows.append(row)
    return rows


def _horizontal_axis(
    series: Sequence[Line],
    rows: Sequence[Mapping[str, Any]],
    x: str,
    ticks: Sequence[float] | None,
    side_by_side: bool,
) -> Spec:
    """Names at equal distances, where lines may stand side by side; or numbers."""
    places = list(dict.fromkeys(row["x"] for row in rows))
    if not any(isinstance(place, str) for place in places):
        axis = {} if ticks is None else {"values": list(ticks), "format": "~g"}
        scale = {"zero": False, "nice": False, "padding": 12}
        return {"x": channel("x:Q", title=x, axis=axis, scale=scale)}
    narrow = {"paddingInner": 0.6, "paddingOuter": 0.3}
    horizontal = {"x": channel("x:O", title=x, sort=places, axis={"labelAngle": 0}, scale=narrow)}
    if side_by_side:
        horizontal["xOffset"] = channel("series:N", sort=[line.name for line in series])
    return horizontal


def _frame(rows: Sequence[Mapping[str, Any]], grey: Container[str], zero: bool) -> list[float]:
    """Ends of the vertical axis; grey lines stretch it only where there are no others."""
    coloured = [row for row in rows if row["series"] not in grey]
    values = []
    for row in coloured or rows:
        for name in ("y", "low", "high"):
            if row[name] is not None:
                values.append(row[name])
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    # Where all values are equal, an axis of length 0 would show nothing.
    margin = 0.05 * (high - low) or 0.1
    return [min(low, 0.0) if zero else low - margin, high + margin]


def _channels_of_looks(
    series: Sequence[Line], dashed: bool, legend: Literal["bottom", "right"]
) -> tuple[Spec, Spec, Spec]:
    """Channels of colour, dashes and shape.

    Grey lines are dashed; further rounds of colours get other dashes and shapes.
    """
    names = [line.name for line in series]
    colours = []
    dashes = []
    shapes = []
    grey_lines = 0
    coloured_lines = 0
    for line in series:
        if line.grey:
            # Never the first dashes, which are a solid line; shapes from the other end, which
            # coloured lines come to last.
            colours.append(GREY)
            dashes.append(_DASHES[1 + grey_lines % 3])
            shapes.append(_SHAPES[-1 - grey_lines % len(_SHAPES)])
            grey_lines += 1
        else:
            round_of_colours, place = divmod(coloured_lines, len(COLOURS))
            colours.append(COLOURS[place])
            dashes.append(_DASHES[(coloured_lines if dashed else round_of_colours) % 4])
            shapes.append(_SHAPES[(place + round_of_colours) % len(_SHAPES)])
            coloured_lines += 1
    key: Spec | None = None
    if len(series) > 1:
        key = {"orient": legend}
        if legend == "right":
            key["columns"] = 1
    scales: list[Spec] = []
    for looks in (colours, dashes, shapes):
        scales.append({"domain": names, "range": looks})
    return (
        channel("series:N", scale=scales[0], sort=names, legend=key),
        channel("series:N", sort=names, scale=scales[1], legend=key),
        channel("series:N", sort=names, scale=scales[2], legend=key),
    )


def _dot_layers(
    part: Sequence[DotRow], measure: str, names: Sequence[str], colour: Spec, shape: Spec
) -> list[Spec]:
    dots: list[dict[str, Any]] = []
    spans: list[dict[str, Any]] = []
    for row in part:
        means = []
        for name, figure in row.figures.items():
            means.append(figure.mean)
            dot = {"row": row.label, "dot": name, "value": figure.mean}
            dots.append({**dot, "low": figure.low, "high": figure.high})
        spans.append({"row": row.label, "from": min(means), "to": max(means)})
    with_interval = []
    for values in dots:
        if values["low"] is not None and values["high"] is not None:
            with_interval.append(values)
    labels = [row.label for row in part]
    axis = {"labelLimit": 300, "labelExpr": "split(datum.label, '\\n')"}
    rows = {"y": channel("row:N", title=None, sort=labels, axis=axis)}
    # The dots of a row stand below each other.
    offset = channel("dot:N", sort=list(names), scale={"paddingOuter": 1})
    dodged = {**rows, "yOffset": offset, "color": colour}
    across = {"title": measure, "scale": {"zero": False}}
    span = {"color": GRID, "strokeWidth": 4, "strokeCap": "round"}
    tooltip = [channel(name) for name in ("row:N", "dot:N", "value:Q", "low:Q", "high:Q")]
    low, high = channel("low:Q", title=measure), channel("high")
    value = channel("value:Q", **across)
    point = {"size": 70, **_SOLID}
    return [
        layer(spans, "rule", span, **rows, x=channel("from:Q", **across), x2=channel("to")),
        layer(with_interval, "rule", {"opacity": 0.5}, **dodged, x=low, x2=high),
        layer(dots, "point", point, **dodged, x=value, shape=shape, tooltip=tooltip),
    ]


def _colour_scale(known: Sequence[float], centre: float | None) -> tuple[list[float], list[str]]:
    """Values, and the colours that stand for them; in between colours are mixed."""
    low, high = min(known), max(known)
    if centre is None:
        first = min(low, 0.0)
        last = high if high > first else first + 1
        stops = [first + part * (last - first) for part in (0, 1 / 3, 2 / 3, 1)]
        return stops, ["#ffffff", "#f2b38c", COLOURS[1], "#6b2f00"]
    reach = max(high - centre, centre - low) or 1.0
    first = centre - reach
    # Where no value is below 0, neither is the scale; but stops have to rise.
    if low >= 0:
        first = min(max(0.0, first), centre - 1e-9)
    return [first, centre, centre + reach], [COLOURS[0], "#ffffff", COLOURS[1]]


def _cell_rows(
    matrix: Sequence[Sequence[float]],
    centre: float | None,
    ends: tuple[float, float],
    digits: int,
) -> list[dict[str, Any]]:
    rows = []
    for row_number, line in enumerate(matrix, start=1):
        for column_number, cell in enumerate(line, start=1):
            is_known = cell == cell  # False for NaN
            row = {
                "row": row_number,
                "column": column_number,
                "value": cell if is_known else None,
                "text": f"{cell:.{digits}f}",
                "dark": is_known and _is_dark(cell, centre, ends),
            }
            rows.append(row)
    return rows


def _is_dark(cell: float, centre: float | None, ends: tuple[float, float]) -> bool:
    """Whether white figures are easier to read on a cell's colour than black ones."""
    first, last = ends
    if centre is None:
        return cell > first + 0.6 * (last - first)
    return abs(cell - centre) > 0.6 * (last - centre)


def _histogram_rows(name: str, shares: Sequence[float]) -> list[dict[str, Any]]:
    rows = []
    size = len(shares)
    for number, share in enumerate(shares):
        rows.append(
            {"name": name, "from": number / size, "to": (number + 1) / size, "share": share}
        )
    return rows


def _look_by_name(shorthand: str, names: Sequence[str], looks: Sequence[str]) -> Spec:
    """A channel with a colour or shape of its own for each name, and a legend."""
    return channel(shorthand, scale={"domain": list(names), "range": list(looks)}, legend={})


def _headed(heading: str) -> Spec:
    return {"title": heading} if heading else {}


def _side_by_side(parts: Sequence[Spec]) -> Spec:
    columns = 2 if len(parts) == 4 else min(3, len(parts))
    return vega_lite({"concat": list(parts), "columns": columns})
