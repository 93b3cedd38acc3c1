"""The page's charts, made from measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting import charts
from backpack_rank.reporting.charts import Line
from backpack_rank.reporting.page.data import Figure, Gallery, Panel
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table
from backpack_rank.reporting.tradeoff import position_of, tradeoff_of
from backpack_rank.reporting.tradeoff_chart import Position
from backpack_rank.reporting.vega import COLOURS, stem_of
from backpack_rank.reporting.wording import (
    figure_of,
    figure_text,
    interval,
)
from backpack_rank.senses.policy_names import is_control

_CAPTION = (
    "Each ring is one alpha, the larger the ring the larger alpha; alpha 1 is the ranker as it is. "
    "Point at one for its numbers. Bars are 95% intervals over queries of the two ends; they are "
    "wide where differences on the same queries are significant."
)
Settings = Mapping[str, Sequence[SystemResult]]
"""Systems by the name of their setting; with one setting the name may be empty."""
_Named = TypeVar("_Named", Figure, Panel)
_FIRST_MEASURE = "ARaB(tf)"
_FIRST_CUTOFF = "10"
_ALPHAS = (0, 0.2, 0.4, 0.6, 0.8, 1)
_PREFERS = "prefers "


def tradeoff_gallery(settings: Settings, measure: str = "nDCG@10") -> Gallery | None:
    """``measure`` against every bias measure at every cut-off.

    There is one chart for each policy that is no control.

    Args:
        settings: systems by setting.
        measure: of effectiveness.

    Returns:
        None when no system has both the measure and a measure of bias.
    """
    every_row: list[SystemResult] = []
    for rows in settings.values():
        every_row += rows
    panels = []
    for bias in _bias_measures(every_row):
        figures = _tradeoff_figures(settings, measure, bias)
        if figures:
            described = measure_of(bias)
            panel = Panel(
                choice=(described.at_any_cutoff, described.cutoff or "all"),
                name=stem_of("tradeoff", bias),
                title=f"{measure} against {bias}",
                figures=tuple(figures),
            )
            panels.append(panel)
    if not panels:
        return None
    first = 0
    for number, panel in enumerate(panels):
        if panel.choice == (_FIRST_MEASURE, _FIRST_CUTOFF):
            first = number
            break
    caption = (
        "Each mark is a run, with its 95% intervals over queries. They are wide where differences "
        "on the same queries are significant."
    )
    if any(row.alpha is not None for row in every_row):
        caption = _CAPTION
    return Gallery(
        name="tradeoff",
        selectors=("Measure of bias", "Cut-off"),
        panels=_with_distinct_names(panels),
        caption=caption,
        first=first,
    )


def cutoff_gallery(settings: Settings, alpha: float | None) -> Gallery | None:
    """Every bias measure over its cut-offs, one line for each system.

    Args:
        settings: systems by setting.
        alpha: that this report is about; its line is named so.

    Returns:
        None without a measure at two cut-offs.
    """
    several = len(settings) > 1
    panels = []
    for name, rows in settings.items():
        setting = Setting.of(name)
        for measure, cutoffs in _cutoffs(rows).items():
            if len(cutoffs) < 2:
                continue
            figure = _over_cutoffs(measure, cutoffs, rows, alpha, setting)
            choice = (measure, setting.title or "all") if several else (measure,)
            panels.append(Panel(choice, figure.name, figure.title, (figure,)))
    if not panels:
        return None
    return Gallery(
        name="cutoffs",
        selectors=("Measure of bias", "Setting") if several else ("Measure of bias",),
        panels=_with_distinct_names(panels),
        caption="Means over queries with their 95% intervals.",
        first=_first_of_cutoffs(panels),
    )


def policy_figures(policies: Settings, measures: Sequence[str]) -> list[Figure]:
    """Policies over alpha: one chart for each measure that any of them has.

    Args:
        policies: systems by the name of their policy.
        measures: that get a chart.
    """
    figures = []
    for measure in measures:
        described = measure_of(measure)
        lines = []
        for policy, rows in policies.items():
            line = _over_alpha(policy, rows, measure)
            if line is not None:
                lines.append(line)
        if not lines:
            continue
        spec = charts.lines(
            lines,
            "alpha",
            described.in_words,
            zero=described.best == 0,
            band=True,
            ticks=_ALPHAS,
            height=220,
            framed=True,
            dashed=True,
        )
        title = f"{described.shown} over alpha"
        figure = Figure(
            name=stem_of("policies", measure),
            title=title,
            description=f"{title}, one line for each of {len(lines)} policies",
            spec=spec,
            values=_values_table(title, "policy", lines, "alpha"),
        )
        figures.append(figure)
    return _distinct(figures)


def preference_figures(policies: Settings) -> list[Figure]:
    """Which wording a ranker prefers: one chart for each policy that was asked.

    Columns go from the smallest alpha to the largest.

    Args:
        policies: systems by the name of their policy; preferences are the measures of wordings that
            are called ``prefers ...``.
    """
    figures = []
    for policy, rows in policies.items():
        shares_by_alpha: dict[str, list[float]] = {}
        names: list[str] = []
        for row in sorted(rows, key=_alpha):
            preferences = _preferences(row)
            if len(preferences) == 3:
                names = list(preferences)
                shares_by_alpha[f"{row.alpha:g}"] = list(preferences.values())
        if not shares_by_alpha:
            continue
        first, second, _ = names
        in_words = []
        for alpha, shares in shares_by_alpha.items():
            in_words.append(f"alpha {alpha}: {shares[0]:.0%} {first}, {shares[1]:.0%} {second}")
        parts = (_PREFERS + first, _PREFERS + second, "neither")
        figure = Figure(
            name=stem_of("shares", policy),
            title=policy,
            description=f"Preferences of {policy} over alpha: {'; '.join(in_words)}",
            spec=charts.shares(shares_by_alpha, parts, "alpha"),
        )
        figures.append(figure)
    return _distinct(figures)


def _tradeoff_figures(settings: Settings, measure: str, bias: str) -> list[Figure]:
    parsed = {name: Setting.of(name) for name in settings}
    controls = {}
    shown = []
    for name, setting in parsed.items():
        if setting.is_control:
            controls[setting.rest] = name
        else:
            shown.append(name)
    # Controls alone are shown as policies.
    shown = shown or list(settings)
    figures = []
    for number, name in enumerate(shown):
        setting = parsed[name]
        control = None
        control_name = controls.get(setting.rest)
        if control_name is not None and control_name != name:
            control = (parsed[control_name].policy, settings[control_name])
        beside: list[SystemResult] = []
        for other in shown:
            if other != name:
                beside += settings[other]
        chart = tradeoff_of(
            settings[name],
            measure,
            bias,
            name=setting.title or "alpha",
            control=control,
            colour=COLOURS[number % len(COLOURS)],
            beside=beside,
        )
        if chart is None:
            continue
        spec, left_out = chart
        title = setting.title or f"{measure} against {bias}"
        values = _tradeoff_values(title, settings[name], measure, bias, left_out)
        in_words = []
        for row in values.rows:
            x, y = row.cells
            in_words.append(f"{row.labels[0]} {bias} {x.text}, {measure} {y.text}")
        has_dial = any(row.alpha is not None for row in settings[name])
        what = (
            f"{measure} against {bias}, {setting.title or ('by alpha' if has_dial else 'by run')}"
        )
        figure = Figure(
            name=stem_of("tradeoff", f"{bias} {name}".strip()),
            title=title,
            description=f"{what}: {'; '.join(in_words)}",
            spec=spec,
            values=values,
        )
        figures.append(figure)
    return figures


def _tradeoff_values(
    title: str,
    rows: Sequence[SystemResult],
    measure: str,
    bias: str,
    left_out: Sequence[Position],
) -> Table:
    table_rows = []
    for row in rows:
        if position_of(row, measure, bias, row.label) is not None:
            cells = [Cell(figure_text(figure_of(row, name))) for name in (bias, measure)]
            table_rows.append(Row((row.label,), cells))
    outside = "; ".join(f"{position.name} ({measure} {position.y:.3f})" for position in left_out)
    return Table(
        name="",
        title=f"Values of the figure: {title}",
        labels=("system",),
        groups=[Group("", (bias, measure))],
        sections=[Section("", table_rows)],
        notes=[f"Outside the figure: {outside}."] if outside else [],
    )


def _cutoffs(rows: Sequence[SystemResult]) -> dict[str, list[str]]:
    """Cut-offs of each measure of bias."""
    cutoffs: dict[str, list[str]] = {}
    for bias in _bias_measures(rows):
        described = measure_of(bias)
        cutoffs.setdefault(described.at_any_cutoff, []).append(described.cutoff)
    return cutoffs


def _first_of_cutoffs(panels: Sequence[Panel]) -> int:
    """The panel that opens: the first measure's, of a setting that is no control."""
    for number, panel in enumerate(panels):
        measure, *setting = panel.choice
        if measure == _FIRST_MEASURE and not (setting and is_control(setting[0])):
            return number
    return 0


def _over_cutoffs(
    measure: str,
    cutoffs: Sequence[str],
    rows: Sequence[SystemResult],
    alpha: float | None,
    setting: Setting,
) -> Figure:
    lines = []
    for row in rows:
        points: list[tuple[float | str, Estimate]] = []
        for cutoff in cutoffs:
            figure = figure_of(row, f"{measure}@{cutoff}")
            if figure is not None:
                points.append((cutoff, figure))
        label = row.label
        if alpha is not None and row.alpha == alpha:
            label += " (this report)"
        if points:
            lines.append(_line(label, points, grey=row.alpha is None))
    title = f"{measure} at every cut-off"
    if setting.title:
        title += f", {setting.title}"
    described = measure_of(measure)
    return Figure(
        name=stem_of("cutoffs", f"{measure} {setting.name}".strip()),
        title=title,
        description=(
            f"{title}, one line for each of {len(lines)} systems; "
            "the values are in the table below the figure"
        ),
        spec=charts.lines(lines, "cut-off", described.axis, zero=described.best == 0),
        values=_values_table(title, "system", lines, "cut-off"),
    )


def _over_alpha(policy: str, rows: Sequence[SystemResult], measure: str) -> Line | None:
    """The line of a policy; None where it lacks the measure."""
    points: list[tuple[float | str, Estimate]] = []
    for row in sorted(rows, key=_alpha):
        figure = figure_of(row, measure)
        if row.alpha is not None and figure is not None:
            points.append((row.alpha, figure))
    return _line(policy, points, grey=is_control(policy)) if points else None


def _alpha(row: SystemResult) -> float:
    assert row.alpha is not None
    return row.alpha


def _preferences(row: SystemResult) -> dict[str, float]:
    """Share of queries for each wording that is preferred, and for ``neither``."""
    shares = {}
    if "wordings" in row.further:
        for measure, figure in row.further["wordings"].figures.items():
            if measure.startswith(_PREFERS):
                shares[measure.removeprefix(_PREFERS)] = figure.mean
    return shares


def _line(name: str, points: Sequence[tuple[float | str, Estimate]], grey: bool) -> Line:
    x = []
    means = []
    low: list[float | None] = []
    high: list[float | None] = []
    for place, figure in points:
        ends = interval(figure) or (None, None)
        x.append(place)
        means.append(figure.mean)
        low.append(ends[0])
        high.append(ends[1])
    return Line(name, x, means, low, high, grey)


def _values_table(title: str, label: str, lines: Sequence[Line], x: str) -> Table:
    """What a chart of lines shows: a row for each line, a column for each place on its axis."""
    places: dict[float | str, None] = {}
    for line in lines:
        places |= dict.fromkeys(line.x)
    rows = []
    for line in lines:
        texts = {}
        for place, y, low, high in zip(line.x, line.y, line.low, line.high, strict=True):
            texts[place] = figure_text(Estimate(y, abs(y), low, high))
        rows.append(Row((line.name,), [Cell(texts.get(place, NONE)) for place in places]))
    headings = []
    for place in places:
        headings.append(f"{x} {place}" if isinstance(place, str) else f"{x} {place:g}")
    return Table(
        name="",
        title=f"Values of the figure: {title}",
        labels=(label,),
        groups=[Group("", tuple(headings))],
        sections=[Section("", rows)],
    )


def _bias_measures(rows: Iterable[SystemResult]) -> list[str]:
    names: dict[str, None] = {}
    for row in rows:
        if row.bias is not None:
            names |= dict.fromkeys(row.bias.figures)
    return list(names)


def _with_distinct_names(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """Panels whose names differ, and whose figures' names differ over all of them."""
    every_figure: list[Figure] = []
    for panel in panels:
        every_figure += panel.figures
    renamed = iter(_distinct(every_figure))
    filled = []
    for panel in panels:
        figures = islice(renamed, len(panel.figures))
        filled.append(replace(panel, figures=tuple(figures)))
    return tuple(_distinct(filled))


def _distinct(named: Sequence[_Named]) -> list[_Named]:
    """Names that differ, so that neither files nor places on the page are shared."""
    distinct: list[_Named] = []
    taken: set[str] = set()
    for figure in named:
        name = figure.name
        number = 2
        # Lower case, because some file systems do not tell cases apart.
        while name.lower() in taken:
            name = f"{figure.name}-{number}"
            number += 1
        taken.add(name.lower())
        distinct.append(replace(figure, name=name))
    return distinct
