"""Charts as inline SVG that fills the width of its box: positions are percentages, sizes of text and marks pixels.

So a chart is as readable in a window of 360 pixels as in a wide one, and takes its colours from the style sheet.
Lines and areas stand in an inner picture of 100 x 100 that is stretched; their strokes are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from backpack_rank.reporting.page.axes import share
from backpack_rank.reporting.page.charts import Axis, Chart, Point, ShareChart
from backpack_rank.reporting.page.labels import PLOT_HEIGHT, place_labels
from backpack_rank.reporting.page.styles import SHAPES, Style, styles
from backpack_rank.reporting.rows import Figure

_SHARE_HEIGHT = 150
_FAINT = 3  # with intervals of more series than this, intervals are drawn fainter


def chart_svg(chart: Chart) -> Markup:
    """A chart with its axes' ticks, without their titles and the legend, which are text of the page."""
    looks = styles(chart.series)
    css = "chart faint" if len(chart.series) > _FAINT else "chart"
    label = escape(chart.description)
    parts = [
        f'<div class="frame"><svg class="{css}" role="img" aria-label="{label}" width="100%" height="{PLOT_HEIGHT}">',
        *_grid(chart.x, chart.y),
    ]
    for one, look, shift in zip(chart.series, looks, _dodges(chart), strict=True):
        places = [_place(chart, point) for point in one.points]
        moved = f' transform="translate({shift:g} 0)"' if shift else ""
        parts.append(f'<g class="{look.css}"{moved}>{_line(places, look)}')
        for point in one.points:
            parts += [*_whiskers(chart, point)]
        parts += [_mark(place, point, look) for place, point in zip(places, one.points, strict=True)]
        parts.append("</g>")
    parts += _labels(chart, looks)
    parts.append("</svg></div>")
    return Markup("".join(parts))


def share_svg(chart: ShareChart) -> Markup:
    """Divided columns; part n has the class ``part-n``, the last part ``part-rest``."""
    width = 100 / max(1, len(chart.columns))
    axis = Axis("", 0.0, 1.0, ((0.0, "0%"), (0.5, "50%"), (1.0, "100%")))
    parts = [
        '<div class="frame"><svg class="chart shares" role="img" '
        f'aria-label="{escape(chart.description)}" width="100%" height="{_SHARE_HEIGHT}">',
        *_grid(Axis("", 0.0, 1.0, ()), axis),
    ]
    for number, (name, values) in enumerate(chart.columns):
        top = 100.0
        for part, value in enumerate(values):
            top -= 100 * value
            css = "part-rest" if part == len(values) - 1 else f"part-{part}"
            parts.append(
                f'<rect class="part {css}" x="{_per(width * (number + 0.12))}" y="{_per(max(0.0, top))}" '
                f'width="{_per(width * 0.76)}" height="{_per(100 * value)}"><title>'
                f"{escape(name)}: {escape(chart.parts[part])} {100 * value:.1f}%</title></rect>"
            )
        parts.append(f'<text class="tick" x="{_per(width * (number + 0.5))}" y="100%" dy="18">{escape(name)}</text>')
    return Markup("".join([*parts, "</svg></div>"]))


def swatch(look: Style) -> Markup:
    """The line and mark of a series for a legend."""
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    return Markup(
        f'<svg class="swatch {look.css}" width="30" height="14" aria-hidden="true"><line class="path" x1="0" x2="30" '
        f'y1="7" y2="7"{dash}/><path class="dot" transform="translate(15 7)" d="{SHAPES[look.number]}"/></svg>'
    )


def interval_strip(figure: Figure, axis: Axis) -> Markup:
    """A mean and its interval on the common axis of a column."""
    parts = ['<svg class="strip" width="100%" height="12" aria-hidden="true">']
    if axis.zero:
        parts.append(f'<line class="zero" x1="{_at(axis, 0)}" x2="{_at(axis, 0)}" y1="0" y2="12"/>')
    if figure.low is not None and figure.high is not None:
        parts.append(
            f'<line class="whisker" x1="{_at(axis, figure.low)}" x2="{_at(axis, figure.high)}" y1="6" y2="6"/>'
        )
    parts.append(f'<circle class="dot" cx="{_at(axis, figure.mean)}" cy="6" r="3.5"/></svg>')
    return Markup("".join(parts))


def bar(value: float, axis: Axis, css: str, text: str) -> Markup:
    """A bar from 0 to a value; to the left of 0 for a negative one."""
    low, high = sorted((share(axis, 0.0), share(axis, value)))
    return Markup(
        f'<svg class="bar {css}" role="img" aria-label="{escape(text)}" width="100%" height="10">'
        f'<rect x="{_per(100 * low)}" y="1" width="{_per(100 * (high - low))}" height="8"/>'
        f'<line class="zero" x1="{_at(axis, 0)}" x2="{_at(axis, 0)}" y1="0" y2="10"/></svg>'
    )


def rank_svg(before: Sequence[str], after: Sequence[str], names: Sequence[str]) -> Markup:
    """Lines from the places of documents before to their places after; a document of one side alone ends in between."""
    rows = max(len(before), len(after))
    position = {doc_id: number for number, doc_id in enumerate(after)}
    height = 16 * rows + 4
    words = f"Places of the top {rows} documents, {names[0]} at the left and {names[1]} at the right"
    parts = [f'<svg class="ranks" role="img" aria-label="{escape(words)}" width="100%" height="{height}">']
    for number, doc_id in enumerate(before):
        there = position.pop(doc_id, None)
        y = 16 * number + 10
        if there is None:
            parts.append(f'<line class="gone" x1="22" x2="46%" y1="{y}" y2="{height}"/>')
        else:
            css = "same" if there == number else "up" if there < number else "down"
            parts.append(f'<line class="{css}" x1="22" x2="82%" y1="{y}" y2="{16 * there + 10}"/>')
    parts += [f'<line class="new" x1="54%" x2="82%" y1="{height}" y2="{16 * n + 10}"/>' for n in position.values()]
    for number in range(len(before)):
        parts.append(f'<text x="16" y="{16 * number + 14}" text-anchor="end">{number + 1}</text>')
    for number in range(len(after)):
        parts.append(f'<text x="86%" y="{16 * number + 14}">{number + 1}</text>')
    return Markup("".join([*parts, "</svg>"]))


def _grid(x: Axis, y: Axis) -> Iterable[str]:
    for value, text in y.ticks:
        at = _per(100 * (1 - share(y, value)))
        css = "zero" if y.zero and abs(value) < 1e-12 else "grid"
        yield f'<line class="{css}" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick" x="-7" y="{at}" dy="4" text-anchor="end">{escape(text)}</text>'
    for value, text in x.ticks:
        at = _at(x, value)
        css = "zero" if x.zero and abs(value) < 1e-12 else "grid"
        yield f'<line class="{css}" x1="{at}" x2="{at}" y1="0" y2="100%"/>'
        yield f'<text class="tick" x="{at}" y="100%" dy="18" text-anchor="middle">{escape(text)}</text>'


def _line(places: Sequence[tuple[float, float]], look: Style) -> str:
    if len(places) < 2:
        return ""
    corners = " ".join(f"{_number(x)},{_number(y)}" for x, y in places)
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    return (
        '<svg class="stretched" viewBox="0 0 100 100" preserveAspectRatio="none">'
        f'<polyline class="path" points="{corners}"{dash}/></svg>'
    )


def _whiskers(chart: Chart, point: Point) -> Iterable[str]:
    for (x1, y1), (x2, y2) in _interval_lines(chart, point):
        yield f'<line class="whisker" x1="{_per(x1)}" x2="{_per(x2)}" y1="{_per(y1)}" y2="{_per(y2)}"/>'


def _interval_lines(chart: Chart, point: Point) -> Iterable[list[tuple[float, float]]]:
    x, y = _place(chart, point)
    if point.x_range is not None:
        yield [(100 * share(chart.x, _clip(chart.x, end)), y) for end in point.x_range]
    if point.y_range is not None:
        yield [(x, 100 * (1 - share(chart.y, _clip(chart.y, end)))) for end in point.y_range]


def _mark(place: tuple[float, float], point: Point, look: Style) -> str:
    ring = '<circle class="ring" r="9.5"/>' if point.marked else ""
    title = f"<title>{escape(point.detail)}</title>" if point.detail else ""
    return (
        f'<svg class="mark" x="{_per(place[0])}" y="{_per(place[1])}">{ring}'
        f'<path class="dot" d="{SHAPES[look.number]}">{title}</path></svg>'
    )


def _labels(chart: Chart, looks: Sequence[Style]) -> Iterable[str]:
    points = [(point, look) for one, look in zip(chart.series, looks, strict=True) for point in one.points]
    positions = [_place(chart, point) for point, _ in points]
    lines = [[_place(chart, point) for point in one.points] for one in chart.series]
    lines += [line for point, _ in points for line in _interval_lines(chart, point)]
    if chart.x.zero:
        lines.append([(100 * share(chart.x, 0.0), end) for end in (0.0, 100.0)])
    lines = [[(x / 100, y / 100) for x, y in line] for line in lines]
    labelled = zip(points, positions, strict=True)
    spots = place_labels([(x / 100, y / 100, point.label) for (point, _), (x, y) in labelled], lines)
    for (point, look), (x, y), spot in zip(points, positions, spots, strict=True):
        if point.label:
            css = f"label {look.css}{' now' if point.marked else ''}"
            yield (
                f'<text class="{css}" x="{_per(x)}" y="{_per(y)}" dx="{spot.dx:g}" dy="{spot.dy + 4:g}" '
                f'text-anchor="{spot.anchor}">{escape(point.label)}</text>'
            )


def _dodges(chart: Chart) -> list[float]:
    """Pixels to the side for each series, where intervals of several stand at the same x."""
    shared = [one for one in chart.series if any(point.y_range and not point.x_range for point in one.points)]
    if len(shared) < 2:
        return [0.0] * len(chart.series)
    middle = (len(chart.series) - 1) / 2
    step = min(5.0, 22 / len(chart.series))
    return [round((number - middle) * step, 1) for number in range(len(chart.series))]


def _place(chart: Chart, point: Point) -> tuple[float, float]:
    return 100 * share(chart.x, point.x), 100 * (1 - share(chart.y, point.y))


def _clip(axis: Axis, value: float) -> float:
    return min(max(value, axis.low), axis.high)


def _at(axis: Axis, value: float) -> str:
    return _per(100 * share(axis, value))


def _per(value: float) -> str:
    return f"{_number(value)}%"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"a figure cannot show {value}")
    return f"{round(value, 2) + 0.0:g}"
