"""Charts: each is described once with Vega-Altair and becomes a part of a page, or a PNG and an SVG file.

Functions return Vega-Lite as a dictionary without a width, which the page and the files choose. Altair and vl-convert
are imported where they are needed, since most runs draw nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.vega import COLOURS, GREY, GRID, INK, PALE, Spec, cycle, filled, inline, vega_lite

_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3])


@dataclass(frozen=True)
class Line:
    """A value over something: points (x, y), and the lower and upper ends of their intervals where there are any."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    grey: bool = False


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
    rows = [row for one in series for row in _line_rows(one)]
    grey = {one.name for one in series if one.grey}
    whole = [row for row in rows if row["low"] is not None and not (framed and row["series"] in grey)]
    data = {"rows": rows, "zero": [{"y": 0}] if zero else [], "ranged": whole if len(whole) < len(rows) else []}
    names = list(dict.fromkeys(row["x"] for row in rows))
    coloured = [row for row in rows if row["series"] not in grey] if framed else []
    ends = [row[end] for row in coloured or rows for end in ("y", "low", "high") if row[end] is not None]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    shape = _lines_shape(
        tuple(one.name for one in series),
        tuple((colour, tuple(dash), mark) for colour, dash, mark in _looks(series, dashed)),
        tuple(names) if any(isinstance(name, str) for name in names) else None,
        (bool(whole), len(whole) < len(rows)),
        zero,
        band,
        None if ticks is None else tuple(ticks),
        height,
        points,
        legend,
        framed,
    )
    margin = 0.05 * (high - low) or 0.1
    bottom = min(low, 0.0) if zero else low - margin
    return filled(
        shape, {"@x": x, "@y": y, "@low": bottom, "@high": high + margin}, {name: of for name, of in data.items() if of}
    )


@cache
def _lines_shape(
    names: tuple[str, ...],
    looks: tuple[tuple[str, tuple[int, ...], str], ...],
    order: tuple[str, ...] | None,
    intervals: tuple[bool, bool],
    zero: bool,
    band: bool,
    ticks: tuple[float, ...] | None,
    height: int,
    points: bool,
    legend: Literal["bottom", "right"],
    framed: bool,
) -> Spec:
    """Lines without their numbers and titles, which many charts share."""
    import altair as alt

    columns = 1 if legend == "right" else alt.Undefined
    keys = alt.Legend(orient=legend, columns=columns) if len(names) > 1 else None
    colours, dashes, marks = (
        alt.Scale(domain=list(names), range=[list(one) if isinstance(one, tuple) else one for one in of])
        for of in zip(*looks, strict=True)
    )
    tint = alt.Color("series:N", scale=colours, sort=list(names), legend=keys)
    at: dict[str, Any] = {}
    if order is None:
        axis = alt.Axis(values=list(ticks), format="~g") if ticks is not None else alt.Axis()
        at["x"] = alt.X("x:Q", title="@x", axis=axis, scale=alt.Scale(zero=False, nice=False, padding=12))
    else:
        narrow = alt.Scale(paddingInner=0.6, paddingOuter=0.3)
        at["x"] = alt.X("x:O", title="@x", sort=list(order), axis=alt.Axis(labelAngle=0), scale=narrow)
        if len(names) > 1 and not band:
            at["xOffset"] = alt.XOffset("series:N", sort=list(names))
    scale = alt.Scale(domain=["@low", "@high"], nice=False) if framed else alt.Scale(zero=zero)
    upright = alt.Y("y:Q", title="@y", scale=scale, axis=alt.Axis(tickCount=5))
    layers: list[Any] = []
    if zero:
        layers.append(alt.Chart(alt.NamedData("zero")).mark_rule(color=GREY).encode(y=upright))
    if intervals[0]:
        ranged = alt.Chart(alt.NamedData("ranged" if intervals[1] else "rows"))
        mark = (
            ranged.mark_area(opacity=0.13, clip=framed)
            if band
            else ranged.mark_rule(strokeWidth=1.5, opacity=0.4, clip=framed)
        )
        layers.append(mark.encode(**at, y=alt.Y("low:Q", title="@y", scale=scale), y2="high:Q", color=tint))
    dash = alt.StrokeDash("series:N", sort=list(names), scale=dashes, legend=keys)
    told = [alt.Tooltip("series:N", title=" "), alt.Tooltip("x:N", title="@x"), alt.Tooltip("told:N", title="@y")]
    path = alt.Chart(alt.NamedData("rows")).mark_line(strokeWidth=2, clip=framed)
    layers.append(path.encode(**at, y=upright, color=tint, strokeDash=dash, tooltip=told))
    if points:
        shape = alt.Shape("series:N", sort=list(names), scale=marks, legend=keys)
        dots = alt.Chart(alt.NamedData("rows")).mark_point(size=45, filled=True, opacity=1, clip=framed)
        layers.append(dots.encode(**at, y=upright, color=tint, shape=shape, tooltip=told))
    return vega_lite(alt.layer(*layers).properties(height=height))


def shares(columns: Mapping[str, Sequence[float]], parts: Sequence[str], x: str, height: int = 180) -> Spec:
    """Columns divided into parts, from the bottom up; the last part is pale."""
    import altair as alt

    rows = [
        {"x": name, "part": part, "share": value, "order": number}
        for name, values in columns.items()
        for number, (part, value) in enumerate(zip(parts, values, strict=True))
    ]
    colours = [*COLOURS[: len(parts) - 1], PALE]
    chart = (
        alt.Chart(inline(rows))
        .mark_bar()
        .encode(
            x=alt.X("x:O", title=x, sort=list(columns), axis=alt.Axis(labelAngle=0)),
            y=alt.Y(
                "share:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", values=[0, 0.5, 1])
            ),
            color=alt.Color("part:N", scale=alt.Scale(domain=list(parts), range=colours), legend=alt.Legend()),
            order="order:Q",
            tooltip=[
                alt.Tooltip("x:N", title=x),
                alt.Tooltip("part:N", title=" "),
                alt.Tooltip("share:Q", title="share", format=".1%"),
            ],
        )
    )
    return vega_lite(chart.properties(height=height))


def dots(panels: Mapping[str, Sequence[tuple[str, Mapping[str, Estimate]]]], measure: str) -> Spec:
    """Rows of dots on one scale, joined by a line from the smallest to the largest, with their intervals.

    Args:
        panels: rows (label, figures by name of the dot) by heading, below each other.
        measure: what the scale is.
    """
    import altair as alt

    names = list(dict.fromkeys(name for part in panels.values() for _, figures in part for name in figures))
    parts = []
    for heading, part in panels.items():
        labels = [label for label, _ in part]
        rows = [
            {"row": label, "dot": name, "value": one.mean, "low": one.low, "high": one.high}
            for label, figures in part
            for name, one in figures.items()
        ]
        spans = [
            {
                "row": label,
                "from": min(one.mean for one in figures.values()),
                "to": max(one.mean for one in figures.values()),
            }
            for label, figures in part
        ]
        y = alt.Y(
            "row:N", title=None, sort=labels, axis=alt.Axis(labelLimit=300, labelExpr="split(datum.label, '\\n')")
        )
        offset = alt.YOffset("dot:N", sort=names, scale=alt.Scale(paddingOuter=1))
        x = alt.X("value:Q", title=measure, scale=alt.Scale(zero=False))
        tint = alt.Color("dot:N", scale=alt.Scale(domain=names, range=cycle(COLOURS, len(names))), legend=alt.Legend())
        shape = alt.Shape("dot:N", scale=alt.Scale(domain=names, range=cycle(_SHAPES, len(names))), legend=alt.Legend())
        span = alt.Chart(inline(spans)).mark_rule(color=GRID, strokeWidth=4, strokeCap="round")
        bars = alt.Chart(inline([row for row in rows if row["low"] is not None and row["high"] is not None]))
        layers = [
            span.encode(y=y, x=alt.X("from:Q", title=measure, scale=alt.Scale(zero=False)), x2="to:Q"),
            bars.mark_rule(opacity=0.5).encode(
                y=y, yOffset=offset, x=alt.X("low:Q", title=measure), x2="high:Q", color=tint
            ),
            alt.Chart(inline(rows))
            .mark_point(size=70, filled=True, opacity=1)
            .encode(
                y=y,
                yOffset=offset,
                x=x,
                color=tint,
                shape=shape,
                tooltip=["row:N", "dot:N", "value:Q", "low:Q", "high:Q"],
            ),
        ]
        chart = alt.layer(*layers).properties(height={"step": 40}, width=480)
        parts.append(chart.properties(title=heading) if heading else chart)
    return vega_lite(alt.vconcat(*parts).resolve_scale(x="shared"))


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
    import altair as alt

    found = [cell for cells in panels.values() for row in cells for cell in row if cell == cell]
    low, high = min(found), max(found)
    if centre is None:
        low = min(low, 0.0)
        ends, colours = [low, high if high > low else low + 1], ["#ffffff", "#f2b38c", COLOURS[1], "#6b2f00"]
        stops = [ends[0] + part * (ends[1] - ends[0]) for part in (0, 1 / 3, 2 / 3, 1)]
    else:
        reach = max(high - centre, centre - low) or 1.0
        lowest = centre - reach if low < 0 else min(max(0.0, centre - reach), centre - 1e-9)
        stops, colours = [lowest, centre, centre + reach], [COLOURS[0], "#ffffff", COLOURS[1]]
        ends = [lowest, centre + reach]
    digits = 3 if max(map(abs, found)) < 0.1 else 2
    across = 2 if len(panels) == 4 else min(3, len(panels))
    parts = []
    for heading, cells in panels.items():
        rows = [
            {"row": r, "column": c, "value": cell if cell == cell else None, "text": f"{cell:.{digits}f}", "dark": dark}
            for r, line in enumerate(cells, 1)
            for c, cell in enumerate(line, 1)
            for dark in [cell == cell and _is_dark(cell, centre, ends)]
        ]
        at = {
            "x": alt.X("column:O", title=x, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            "y": alt.Y("row:O", title=y, axis=alt.Axis(labelOverlap=True)),
        }
        tint = alt.Color("value:Q", title=value, scale=alt.Scale(domain=stops, range=colours),
                         legend=alt.Legend(orient="right", title=value, gradientLength=200))  # fmt: skip
        whole = [row for row in rows if row["value"] is not None]
        layers = [
            alt.Chart(inline(rows)).mark_rect(color="#eeeeee").encode(**at),
            alt.Chart(inline(whole)).mark_rect().encode(**at, color=tint, tooltip=["row:O", "column:O", "value:Q"]),
        ]
        if written:
            shade = alt.Color(
                "dark:N", scale=alt.Scale(domain=[False, True], range=["#000000", "#ffffff"]), legend=None
            )
            layers.append(alt.Chart(inline(whole)).mark_text(fontSize=11).encode(**at, text="text:N", color=shade))
        chart = alt.layer(*layers).resolve_scale(color="independent").properties(width=300, height=300)
        parts.append(chart.properties(title=heading) if heading else chart)
    return vega_lite(alt.concat(*parts, columns=across))


def histograms(panels: Mapping[str, Sequence[tuple[str, Sequence[float]]]], x: str, y: str, level: str) -> Spec:
    """Shares of equal parts from 0 to 1: the first as bars, others as steps, with the even share dashed.

    Args:
        panels: (name, shares) by heading.
        x, y: titles of the axes.
        level: name of the even share.
    """
    import altair as alt

    names = [*dict.fromkeys(name for part in panels.values() for name, _ in part), level]
    tint = alt.Color("name:N", scale=alt.Scale(domain=names, range=[*cycle(COLOURS, len(names) - 1), GREY]),
                     legend=alt.Legend())  # fmt: skip
    highest = max(share for part in panels.values() for _, shares in part for share in shares) or 1.0
    up = alt.Y("share:Q", title=y, scale=alt.Scale(domain=[0, 1.05 * highest]))
    parts = []
    for heading, part in panels.items():
        layers = []
        for number, (name, shares) in enumerate(part):
            size = len(shares)
            rows = [{"name": name, "from": n / size, "to": (n + 1) / size, "share": s} for n, s in enumerate(shares)]
            across = alt.X("from:Q", title=x, scale=alt.Scale(domain=[0, 1]))
            if number:
                rows.append({**rows[-1], "from": 1.0})
                mark = alt.Chart(inline(rows)).mark_line(interpolate="step-after", strokeWidth=2)
                layers.append(mark.encode(x=across, y=up, color=tint))
            else:
                bars = alt.Chart(inline(rows)).mark_rect(opacity=0.4)
                layers.append(
                    bars.encode(x=across, x2="to:Q", y=up, y2=alt.datum(0), color=tint, tooltip=["name:N", "share:Q"])
                )
        even = alt.Chart(inline([{"name": level, "share": 1 / len(part[0][1])}])).mark_rule(strokeDash=[5, 4])
        layers.append(even.encode(y=up, color=tint))
        parts.append(alt.layer(*layers).properties(width=320, height=210, title=heading))
    return vega_lite(alt.concat(*parts, columns=2 if len(parts) == 4 else min(3, len(parts))))


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
    import altair as alt

    tint = alt.Color("kind:N", scale=alt.Scale(domain=list(names), range=list(COLOURS[:2])), legend=alt.Legend())
    parts = []
    for heading, part in panels.items():
        labels = [label for label, _, _ in part]
        across = alt.X("label:N", title=x, sort=labels, axis=alt.Axis(labelAngle=0))
        up = alt.Y("value:Q", title=y[heading], scale=alt.Scale(zero=False))
        singles = [
            {"label": label, "kind": names[0], "value": value, "run": number}
            for label, values, _ in part
            for number, value in enumerate(values, 1)
        ]
        whole = [{"label": label, "kind": names[1], "value": value} for label, _, value in part]
        box = alt.Chart(inline(singles)).mark_boxplot(extent="min-max", size=36, color="#d5e6f3", median={"color": INK})
        dot = alt.Chart(inline(singles)).mark_point(size=26, filled=True, opacity=0.6)
        diamond = alt.Chart(inline(whole)).mark_point(shape="diamond", size=130, filled=True, opacity=1)
        layers = [
            box.encode(x=across, y=up),
            dot.encode(x=across, y=up, color=tint, xOffset=alt.XOffset("run:O", scale=alt.Scale(paddingOuter=1))),
            diamond.encode(x=across, y=up, color=tint, tooltip=["label:N", "value:Q"]),
        ]
        parts.append(alt.layer(*layers).properties(width=max(110, 64 * len(part)), height=240, title=heading))
    return vega_lite(alt.concat(*parts, columns=4))


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
