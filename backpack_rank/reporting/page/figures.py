"""The page's charts and its table of main numbers, made from measures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import TypeVar

from markupsafe import Markup

from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting import charts, tradeoff_chart, vega
from backpack_rank.reporting.charts import Line
from backpack_rank.reporting.page.data import Figure, Gallery, Panel, Policies, Table
from backpack_rank.reporting.report_tables import split_measure
from backpack_rank.reporting.setting import Setting, is_control
from backpack_rank.reporting.tradeoff_chart import Position

Settings = Mapping[str, Sequence[SystemResult]]
"""Systems by the name of their setting; with one setting the name may be empty."""
AS_IT_IS = "the ranker as it is"
_Named = TypeVar("_Named", Figure, Panel)
_FIRST = ("ARaB(tf)", "10")
_TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)
_UNBIASED_AT_ZERO = ("RaB", "ARaB")
_IN_WORDS = {
    "RaB": "rank bias",
    "ARaB": "average rank bias",
    "NFaiRR": "neutrality of the ranking",
    "|gap|/std": "score gap / spread",
    "swap change/std": "swap change / spread",
}


def tradeoff_gallery(settings: Settings, measure: str = "nDCG@10") -> Gallery | None:
    """``measure`` against every bias measure at every cut-off, one chart for each policy that is no control.

    Args:
        settings: systems by setting.
        measure: of effectiveness.

    Returns:
        None when no system has both the measure and a measure of bias.
    """
    panels = []
    for bias in _measures(row for rows in settings.values() for row in rows):
        figures = _tradeoffs(settings, measure, bias)
        if figures:
            name, cutoff = split_measure(bias)
            stem = vega.stem_of("tradeoff", bias)
            panels.append(Panel((name, cutoff or "all"), stem, f"{measure} against {bias}", tuple(figures)))
    if not panels:
        return None
    caption = (
        "Each point is one alpha, from alpha 1, the ranker as it is. Point at one for its numbers. Bars are 95% "
        "intervals over queries of the two ends; they are wide where differences on the same queries are significant."
    )
    first = next((number for number, panel in enumerate(panels) if panel.choice == _FIRST), 0)
    return Gallery("tradeoff", ("Measure of bias", "Cut-off"), _distinct_panels(panels), caption, first)


def tradeoff_of(
    rows: Sequence[SystemResult],
    measure: str,
    bias: str,
    *,
    name: str = "alpha",
    control: tuple[str, Sequence[SystemResult]] | None = None,
    colour: str = vega.COLOURS[0],
    beside: Sequence[SystemResult] = (),
) -> tuple[vega.Spec, list[Position]] | None:
    """The trade-off of one setting, and the positions that lie outside its axes; None where it has no position.

    Args:
        rows: its systems; those without alpha are references.
        measure, bias: axes.
        name: of the setting in the legend.
        control: name and systems of the setting that is drawn grey.
        colour: of the line.
        beside: systems of the charts beside it, which have the same axes.
    """
    dial = _dial(rows, measure, bias, name)
    references = [one for row in rows if row.alpha is None and (one := _position(row, measure, bias, row.label))]
    if not dial and not references:
        return None
    lines, grey = {name: dial} if dial else {}, []
    if control is not None:
        grey = _dial(control[1], measure, bias, control[0])
        lines |= {control[0]: grey} if grey else {}
    zero = bias.startswith(_UNBIASED_AT_ZERO)
    base = next((one for one in dial if one.alpha == 1), None)
    domains = tradeoff_chart.frame(base, [*(dial or references), *_dial(beside, measure, bias, name)], grey, zero)
    words, cutoff = split_measure(bias)
    spec = tradeoff_chart.tradeoff(
        lines,
        references,
        _axis_title(words, cutoff),
        measure,
        control=control[0] if control else None,
        colour=colour,
        domains=domains,
        zero=zero,
    )
    return spec, [one for one in [*references, *dial, *grey] if tradeoff_chart.outside(one, domains)]


def cutoff_gallery(settings: Settings, alpha: float | None) -> Gallery | None:
    """Every bias measure over its cut-offs, one line for each system; None without a measure at two cut-offs."""
    panels = []
    several = len(settings) > 1
    for name, rows in settings.items():
        setting = Setting.of(name)
        cutoffs: dict[str, list[str]] = {}
        for bias in _measures(rows):
            measure, cutoff = split_measure(bias)
            cutoffs.setdefault(measure, []).append(cutoff)
        for measure, found in cutoffs.items():
            if len(found) > 1:
                figure = _over_cutoffs(measure, found, rows, alpha, setting)
                choice = (measure, setting.title or "all") if several else (measure,)
                panels.append(Panel(choice, figure.name, figure.title, (figure,)))
    if not panels:
        return None
    selectors = ("Measure of bias", "Setting") if several else ("Measure of bias",)
    wanted = [number for number, panel in enumerate(panels) if panel.choice[0] == _FIRST[0]]
    first = next((n for n in wanted if not several or not is_control(panels[n].choice[1])), 0)
    caption = "Means over queries with their 95% intervals."
    return Gallery("cutoffs", selectors, _distinct_panels(panels), caption, first)


def policy_figures(policies: Policies) -> list[Figure]:
    """One chart over alpha for each measure of ``policies.drawn`` that any policy has."""
    found = []
    for measure in policies.drawn:
        series = []
        for policy in _names(policies):
            own = sorted((one for one in policies.results if one.policy == policy), key=lambda one: one.alpha)
            known = [(one.alpha, one.figures[measure]) for one in own if _finite(one.figures.get(measure))]
            if known:
                series.append(_line(policy, known, is_control(policy)))
        if series:
            zero = measure.startswith((*_UNBIASED_AT_ZERO, "|gap|", "gap", "swap change"))
            words = _in_words(measure)
            spec = charts.lines(series, "alpha", words, zero=zero, band=True, ticks=_TICKS, height=220, framed=True)
            title = f"{measure} over alpha"
            text = f"{title}, one line for each of {len(series)} policies"
            values = _values(title, "policy", series, "alpha")
            found.append(Figure(vega.stem_of("policies", measure), title, text, spec, values))
    return _distinct(found)


def share_figures(policies: Policies, groups: Sequence[str]) -> list[Figure]:
    """One chart of preferences for each policy that has them; columns from the smallest alpha to the largest."""
    found = []
    parts = (f"prefers {groups[0]}", f"prefers {groups[1]}", "neither")
    for policy in _names(policies):
        own = sorted((one for one in policies.results if one.policy == policy and one.shares), key=lambda r: r.alpha)
        columns = {f"{one.alpha:g}": astuple(one.shares) for one in own if one.shares}
        if columns:
            said = [f"alpha {at}: {a:.0%} {groups[0]}, {b:.0%} {groups[1]}" for at, (a, b, _) in columns.items()]
            text = f"Preferences of {policy} over alpha: {'; '.join(said)}"
            found.append(Figure(vega.stem_of("shares", policy), policy, text, charts.shares(columns, parts, "alpha")))
    return _distinct(found)


def headline_table(
    settings: Settings,
    measures: Sequence[str],
    caption: str,
    alpha: float | None = None,
    policy: str = "",
    significant: Callable[[str, SystemResult, str], bool] = lambda setting, row, measure: False,
) -> Table:
    """Systems by the main measures: references, the ranker as it is once, then each policy, alpha downwards.

    Args:
        settings: systems by setting.
        measures: columns.
        caption: of the table.
        alpha: of the rows that are marked.
        policy: what all systems with an alpha share, where settings name none.
        significant: whether a measure of a system of a setting differs from the ranker as it is.
    """
    lines: dict[tuple[str, ...], bool] = {}
    starred = False
    for name, rows in settings.items():
        setting = Setting.of(name)
        for row in sorted(rows, key=lambda row: (row.alpha is not None, -(row.alpha or 0))):
            position = "" if row.alpha is None else f"{row.alpha:g}"
            one = "" if row.alpha is None else AS_IT_IS if row.alpha == 1 else setting.policy or policy
            label = ", ".join(filter(None, (one or row.label, "" if row.alpha is None else setting.rest)))
            stars = [significant(name, row, measure) for measure in measures]
            starred = starred or any(stars)
            cells = (_cell(figure_of(row, measure), star) for measure, star in zip(measures, stars, strict=True))
            lines.setdefault((label, position, *cells), alpha is not None and row.alpha == alpha)
    marked = tuple(number for number, of_alpha in enumerate(lines.values()) if of_alpha)
    notes = ("* differs significantly from the ranker as it is (Holm-corrected over the alphas of a policy).",)
    header = ("system", "alpha", *(measure.replace(" (swapped)", "") for measure in measures))
    return Table(header, tuple(lines), caption, 2, notes if starred else (), marked)


def figure_text(figure: Estimate | None, digits: int = 4) -> str:
    """A mean with its interval; ``-`` without a number."""
    if figure is None or not _finite(figure):
        return "-"
    ends = interval(figure)
    text = f"{figure.mean:.{digits}f}"
    return f"{text} [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends else text


def interval(figure: Estimate) -> tuple[float, float] | None:
    """The ends of a figure's interval, or None without one."""
    if figure.low is None or figure.high is None or not math.isfinite(figure.low + figure.high):
        return None
    return figure.low, figure.high


def figure_of(row: SystemResult, measure: str) -> Estimate | None:
    """A measure of a system, of any kind; None where it has none, or no number."""
    figure = row.figure(measure)
    return figure if figure is not None and math.isfinite(figure.mean) else None


def _tradeoffs(settings: Settings, measure: str, bias: str) -> list[Figure]:
    parts = {name: Setting.of(name) for name in settings}
    controls = {setting.rest: name for name, setting in parts.items() if setting.is_control}
    shown = [name for name, setting in parts.items() if not setting.is_control] or list(settings)
    figures = []
    for number, name in enumerate(shown):
        setting = parts[name]
        grey = controls.get(setting.rest)
        control = (parts[grey].policy, settings[grey]) if grey is not None and grey != name else None
        found = tradeoff_of(
            settings[name],
            measure,
            bias,
            name=setting.title or "alpha",
            control=control,
            colour=vega.COLOURS[number % len(vega.COLOURS)],
            beside=[row for other in shown if other != name for row in settings[other]],
        )
        if found is None:
            continue
        spec, left_out = found
        title = setting.title or f"{measure} against {bias}"
        stem = vega.stem_of("tradeoff", f"{bias} {name}".strip())
        rows = [row for row in settings[name] if _position(row, measure, bias, "")]
        cells = tuple((row.label, *(figure_text(figure_of(row, name)) for name in (bias, measure))) for row in rows)
        said = "; ".join(f"{label} {bias} {x}, {measure} {y}" for label, x, y in cells)
        text = f"{measure} against {bias}, {setting.title or 'by alpha'}: {said}"
        note = "; ".join(f"{one.name} ({measure} {one.y:.3f})" for one in left_out)
        notes = (f"Outside the figure: {note}.",) if note else ()
        values = Table(("system", bias, measure), cells, f"Values of the figure: {title}", notes=notes)
        figures.append(Figure(stem, title, text, spec, values))
    return figures


def _dial(rows: Sequence[SystemResult], measure: str, bias: str, name: str) -> list[Position]:
    dial = sorted((row for row in rows if row.alpha is not None), key=lambda row: -(row.alpha or 0))
    of = "" if name == "alpha" else f"{name}, "
    named = [(row, AS_IT_IS if row.alpha == 1 else f"{of}alpha {row.alpha:g}") for row in dial]
    return [one for row, label in named if (one := _position(row, measure, bias, label)) is not None]


def _position(row: SystemResult, measure: str, bias: str, label: str) -> Position | None:
    x, y = figure_of(row, bias), figure_of(row, measure)
    if x is None or y is None:
        return None
    told = {bias: figure_text(x), measure: figure_text(y)}
    return Position(label, row.alpha, x.mean, y.mean, interval(x), interval(y), told)


def _over_cutoffs(
    name: str, cutoffs: Sequence[str], rows: Sequence[SystemResult], alpha: float | None, setting: Setting
) -> Figure:
    series = []
    for row in rows:
        found = [(cutoff, figure) for cutoff in cutoffs if (figure := figure_of(row, f"{name}@{cutoff}")) is not None]
        if found:
            now = " (this report)" if alpha is not None and row.alpha == alpha else ""
            series.append(_line(row.label + now, found, row.alpha is None))
    title = f"{name} at every cut-off" + (f", {setting.title}" if setting.title else "")
    text = f"{title}, one line for each of {len(series)} systems; the values are in the table below the figure"
    spec = charts.lines(series, "cut-off", _axis_title(name, ""), zero=name.startswith(_UNBIASED_AT_ZERO))
    stem = vega.stem_of("cutoffs", f"{name} {setting.name}".strip())
    return Figure(stem, title, text, spec, _values(title, "system", series, "cut-off"))


def _line(name: str, figures: Sequence[tuple[float | str, Estimate]], grey: bool) -> Line:
    ends = [interval(figure) or (None, None) for _, figure in figures]
    means = [figure.mean for _, figure in figures]
    return Line(name, [x for x, _ in figures], means, [low for low, _ in ends], [high for _, high in ends], grey)


def _values(title: str, first: str, series: Sequence[Line], x: str) -> Table:
    columns = list(dict.fromkeys(at for one in series for at in one.x))
    rows = []
    for one in series:
        known = {
            at: figure_text(Estimate(y, abs(y), low, high))
            for at, y, low, high in zip(one.x, one.y, one.low, one.high, strict=True)
        }
        rows.append((one.name, *(known.get(at, "-") for at in columns)))
    header = (first, *(f"{x} {at:g}" if isinstance(at, float | int) else f"{x} {at}" for at in columns))
    return Table(header, tuple(rows), f"Values of the figure: {title}")


def _cell(figure: Estimate | None, star: bool) -> str:
    if figure is None:
        return "-"
    ends = interval(figure)
    low_high = Markup("<small>[{:.3f}, {:.3f}]</small>").format(*ends) if ends else Markup("")
    return Markup("{:.4f}{}{}").format(figure.mean, "*" if star else "", low_high)


def _finite(figure: Estimate | None) -> bool:
    return figure is not None and math.isfinite(figure.mean)


def _measures(rows: Iterable[SystemResult]) -> list[str]:
    return list(dict.fromkeys(name for row in rows if row.bias for name in row.bias.figures))


def _names(policies: Policies) -> list[str]:
    return list(dict.fromkeys(result.policy for result in policies.results))


def _axis_title(name: str, cutoff: str) -> str:
    title = f"{name}@{cutoff}" if cutoff else name
    words = _words_of(name)
    title += f", {words}" if words else ""
    return f"{title} (0 is unbiased)" if name.startswith(_UNBIASED_AT_ZERO) else title


def _in_words(name: str) -> str:
    return _words_of(name.replace(" (swapped)", "")) or name


def _words_of(name: str) -> str | None:
    return _IN_WORDS.get(name) or _IN_WORDS.get(name.partition("(")[0].partition("@")[0])


def _distinct(named: Sequence[_Named]) -> list[_Named]:
    """Figures with names that differ, so that neither files nor places on the page are shared."""
    found: list[_Named] = []
    taken: set[str] = set()
    for one in named:
        # Lower case, because some file systems do not tell cases apart.
        names = itertools.chain([one.name], (f"{one.name}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        found.append(replace(one, name=name))
    return found


def _distinct_panels(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    figures = iter(_distinct([figure for panel in panels for figure in panel.figures]))
    own = [replace(panel, figures=tuple(next(figures) for _ in panel.figures)) for panel in panels]
    return tuple(_distinct(own))
