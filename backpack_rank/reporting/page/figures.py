"""The page's figures as charts, made from measures."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from backpack_rank.reporting.page.axes import dial_axis, ordered_axis, value_axis
from backpack_rank.reporting.page.charts import Chart, Gallery, Panel, Point, Series, ShareChart
from backpack_rank.reporting.page.data import Policies, Table
from backpack_rank.reporting.rows import Figure, SystemRow

_Named = TypeVar("_Named", Chart, ShareChart)
_FIRST_CUTOFF = "10"
_UNBIASED_AT_ZERO = ("RaB", "ARaB")
_IN_WORDS = {
    "RaB": "rank bias",
    "ARaB": "average rank bias",
    "NFaiRR": "neutrality of the ranking",
    "|gap|/std": "mean absolute score gap / standard deviation of scores",
}


def tradeoff_gallery(
    settings: Mapping[str, Sequence[SystemRow]], alpha: float | None, measure: str = "nDCG@10"
) -> Gallery | None:
    """``measure`` against every bias measure at every cut-off, one line for each setting of a sweep.

    Args:
        settings: systems by the name of their setting; with one setting the name may be empty.
        alpha: the position of the dial that is marked, None for none.
        measure: of effectiveness.

    Returns:
        None when no system has both the measure and a measure of bias.
    """
    rows = [row for one in settings.values() for row in one]
    panels = []
    for bias in _measures(rows):
        name, cutoff = split_measure(bias)
        series = _tradeoff_series(settings, alpha, measure, bias)
        if any(one.points for one in series):
            points = [point for one in series for point in one.points]
            zero = name.startswith(_UNBIASED_AT_ZERO)
            x = value_axis(_axis_title(name, cutoff), _spread(points, "x"), zero)
            y = value_axis(measure, _spread(points, "y"))
            title = f"{measure} against {bias}"
            text = f"{title}: {_told(series, measure, bias)}"
            chart = Chart(_stem("tradeoff", bias), title, text, x, y, tuple(series))
            panels.append(Panel((name, cutoff) if cutoff else (name, "all"), chart))
    if not panels:
        return None
    caption = (
        "Each point is one alpha, with its 95% intervals; numbers beside points are alpha. "
        "Higher is more effective. The ring marks the alpha of this report."
    )
    first = next((number for number, panel in enumerate(panels) if panel.choice[1] == _FIRST_CUTOFF), 0)
    return Gallery("tradeoff", ("Measure of bias", "Cut-off"), _distinct_panels(panels), caption, first)


def cutoff_gallery(settings: Mapping[str, Sequence[SystemRow]], alpha: float | None) -> Gallery | None:
    """Every bias measure over its cut-offs, one line for each system; None without a measure at two cut-offs."""
    panels = []
    several = len(settings) > 1
    for setting, rows in settings.items():
        cutoffs: dict[str, list[str]] = {}
        for bias in _measures(rows):
            name, cutoff = split_measure(bias)
            cutoffs.setdefault(name, []).append(cutoff)
        for name, found in cutoffs.items():
            if len(found) > 1:
                chart = _over_cutoffs(name, found, rows, alpha, setting)
                panels.append(Panel((name, setting) if several else (name,), chart))
    if not panels:
        return None
    selectors = ("Measure of bias", "Setting") if several else ("Measure of bias",)
    return Gallery("cutoffs", selectors, _distinct_panels(panels), "Means over queries with their 95% intervals.")


def policy_charts(policies: Policies) -> list[Chart]:
    """One chart over alpha for each measure of ``policies.drawn`` that any policy has."""
    charts = []
    for measure in policies.drawn:
        series = []
        for policy in _names(policies):
            own = sorted((result for result in policies.results if result.policy == policy), key=lambda r: r.alpha)
            found = [_over_alpha(result.alpha, result.figures.get(measure), policy, measure) for result in own]
            series.append(Series(policy, tuple(point for point in found if point is not None)))
        series = [one for one in series if one.points]
        if not series:
            continue
        points = [point for one in series for point in one.points]
        zero = measure.startswith((*_UNBIASED_AT_ZERO, "|gap|", "gap"))
        x, y = dial_axis(point.x for point in points), value_axis(_in_words(measure), _spread(points, "y"), zero)
        title = f"{measure} over alpha"
        text = f"{title}, one line for each of {len(series)} policies; the values are in the table of policies"
        charts.append(Chart(_stem("policies", measure), title, text, x, y, tuple(series)))
    return _distinct(charts)


def share_charts(policies: Policies, groups: Sequence[str]) -> list[ShareChart]:
    """One chart of preferences for each policy that has them; columns from the smallest alpha to the largest."""
    charts = []
    for policy in _names(policies):
        own = sorted((one for one in policies.results if one.policy == policy and one.shares), key=lambda r: r.alpha)
        columns = tuple(
            (f"{one.alpha:g}", (one.shares.first, one.shares.second, one.shares.neither)) for one in own if one.shares
        )
        if columns:
            parts = (f"prefers {groups[0]}", f"prefers {groups[1]}", "neither")
            text = f"Preferences of {policy} over alpha: " + "; ".join(
                f"alpha {name}: {values[0]:.0%} {groups[0]}, {values[1]:.0%} {groups[1]}" for name, values in columns
            )
            charts.append(ShareChart(_stem("shares", policy), policy, text, parts, columns))
    return _distinct(charts)


def policy_table(policies: Policies, groups: Sequence[str]) -> Table:
    """Every measure of every policy and alpha, with intervals, and the shares of preferences."""
    measures = list(dict.fromkeys(name for result in policies.results for name in result.figures))
    shares = any(result.shares for result in policies.results)
    header = ("policy", "alpha", *measures, *((f"prefers {groups[0]}", f"{groups[1]}", "neither") if shares else ()))
    rows = []
    for one in policies.results:
        cells = [one.policy, f"{one.alpha:g}", *(figure_text(one.figures.get(name)) for name in measures)]
        if shares:
            own = (one.shares.first, one.shares.second, one.shares.neither) if one.shares else (math.nan,) * 3
            cells += [f"{value:.3f}" if math.isfinite(value) else "-" for value in own]
        rows.append(tuple(cells))
    return Table(header, tuple(rows), policies.caption or "Policies over alpha", left=1)


def values_table(chart: Chart) -> Table:
    """The values of a chart, for readers who do not see it: one row for each series, or for each labelled point."""
    title = f"Values of the figure: {chart.title}"
    points = [(one.label, point) for one in chart.series for point in one.points]
    if any(point.label for _, point in points):
        cells = [(name, p.label, _ranged(p.x, p.x_range), _ranged(p.y, p.y_range)) for name, p in points]
        return Table(("series", "label", chart.x.title, chart.y.title), tuple(cells), title, left=2)
    columns = sorted({point.x for _, point in points})
    texts = dict(chart.x.ticks)
    rows = []
    for one in chart.series:
        values = {point.x: _ranged(point.y, point.y_range) for point in one.points}
        rows.append((one.label, *(values.get(x, "-") for x in columns)))
    return Table((chart.x.title, *(texts.get(x, f"{x:g}") for x in columns)), tuple(rows), title)


def figure_text(figure: Figure | None) -> str:
    """A mean with its interval, 4 decimals; ``-`` without a number."""
    if figure is None or not math.isfinite(figure.mean):
        return "-"
    return _ranged(figure.mean, interval(figure))


def interval(figure: Figure) -> tuple[float, float] | None:
    """The ends of a figure's interval, or None without one."""
    if figure.low is None or figure.high is None or not math.isfinite(figure.low + figure.high):
        return None
    return figure.low, figure.high


def split_measure(measure: str) -> tuple[str, str]:
    """``RaB(tf)@10`` as ``("RaB(tf)", "10")``; a measure without a cut-off has an empty one."""
    name, _, cutoff = measure.rpartition("@")
    return (name, cutoff) if name else (measure, "")


def _tradeoff_series(
    settings: Mapping[str, Sequence[SystemRow]], alpha: float | None, measure: str, bias: str
) -> list[Series]:
    series = []
    references: dict[tuple[str, float, float], Series] = {}
    for setting, rows in settings.items():
        dial = sorted((row for row in rows if row.alpha is not None), key=lambda row: -(row.alpha or 0))
        points = [_against(row, measure, bias, f"{row.alpha:g}", row.alpha == alpha) for row in dial]
        series.append(Series(setting or "dial, by alpha", tuple(point for point in points if point is not None)))
        for row in rows:
            point = _against(row, measure, bias, row.label, False) if row.alpha is None else None
            if point is not None:
                references[row.label, point.x, point.y] = Series(row.label, (point,), reference=True)
    return [one for one in [*series, *references.values()] if one.points]


def _against(row: SystemRow, measure: str, bias: str, label: str, marked: bool) -> Point | None:
    x, y = _figure(row, bias), _figure(row, measure)
    if x is None or y is None:
        return None
    detail = f"{row.label}: {bias} {figure_text(x)}, {measure} {figure_text(y)}"
    return Point(x.mean, y.mean, label, detail, interval(x), interval(y), marked)


def _over_cutoffs(
    name: str, cutoffs: Sequence[str], rows: Sequence[SystemRow], alpha: float | None, setting: str
) -> Chart:
    series = []
    for row in rows:
        points = []
        for number, cutoff in enumerate(cutoffs):
            figure = _figure(row, f"{name}@{cutoff}")
            if figure is not None:
                detail = f"{row.label}, cut-off {cutoff}: {figure_text(figure)}"
                points.append(Point(float(number), figure.mean, "", detail, None, interval(figure)))
        if points:
            now = " (this report)" if alpha is not None and row.alpha == alpha else ""
            series.append(Series(row.label + now, tuple(points), row.alpha is None))
    every = [point for one in series for point in one.points]
    zero = name.startswith(_UNBIASED_AT_ZERO)
    title = f"{name} at every cut-off" + (f", {setting}" if setting else "")
    text = f"{title}, one line for each of {len(series)} systems; the values are in the table below the figure"
    axis = value_axis(_axis_title(name, ""), _spread(every, "y"), zero)
    return Chart(
        _stem("cutoffs", f"{name} {setting}".strip()),
        title,
        text,
        ordered_axis("cut-off", cutoffs),
        axis,
        tuple(series),
    )


def _over_alpha(alpha: float, figure: Figure | None, policy: str, measure: str) -> Point | None:
    if figure is None or not math.isfinite(figure.mean):
        return None
    return Point(
        alpha, figure.mean, "", f"{policy}, alpha {alpha:g}: {measure} {figure_text(figure)}", None, interval(figure)
    )


def _told(series: Iterable[Series], measure: str, bias: str) -> str:
    return "; ".join(
        f"{one.label} {point.label if not one.reference else ''} {bias} {point.x:.4f}, {measure} {point.y:.4f}"
        for one in series
        for point in one.points
    )


def _measures(rows: Iterable[SystemRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows if row.bias for name in row.bias.figures))


def _figure(row: SystemRow, measure: str) -> Figure | None:
    for block in (row.effectiveness, row.bias):
        if block is not None and measure in block.figures and math.isfinite(block.figures[measure].mean):
            return block.figures[measure]
    return None


def _spread(points: Iterable[Point], of: str) -> list[float]:
    values = []
    for point in points:
        value, ends = (point.x, point.x_range) if of == "x" else (point.y, point.y_range)
        values += [value, *(ends or ())]
    return values


def _names(policies: Policies) -> list[str]:
    return list(dict.fromkeys(result.policy for result in policies.results))


def _axis_title(name: str, cutoff: str) -> str:
    title = _in_words(name) + (f" at {cutoff}" if cutoff else "")
    return f"{title}, 0 is unbiased" if name.startswith(_UNBIASED_AT_ZERO) else title


def _in_words(name: str) -> str:
    words = _IN_WORDS.get(name) or _IN_WORDS.get(name.partition("(")[0].partition("@")[0])
    return f"{name}: {words}" if words else name


def _ranged(mean: float, ends: tuple[float, float] | None) -> str:
    text = f"{mean:.4f}"
    return f"{text} [{ends[0]:.4f}, {ends[1]:.4f}]" if ends else text


def _stem(kind: str, what: str) -> str:
    words = re.sub(r"\|([^|]*)\|", r"abs-\1", what)
    return f"{kind}-{re.sub(r'[^A-Za-z0-9._=]+', '-', words).strip('-')}"


def _distinct(charts: Sequence[_Named]) -> list[_Named]:
    """Charts with names that differ, so that neither files nor places on the page are shared."""
    found: list[_Named] = []
    taken: set[str] = set()
    for chart in charts:
        # Lower case, because some file systems do not tell cases apart.
        names = itertools.chain([chart.name], (f"{chart.name}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        found.append(replace(chart, name=name))
    return found


def _distinct_panels(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    charts = _distinct([panel.chart for panel in panels])
    return tuple(replace(panel, chart=chart) for panel, chart in zip(panels, charts, strict=True))
