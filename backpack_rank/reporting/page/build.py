"""The sections of a page that come from measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from backpack_rank.reporting.explanation import SenseProfile
from backpack_rank.reporting.page.data import Headline, Page, Sense, SensePanel, System, Table
from backpack_rank.reporting.page.figures import cutoff_gallery, tradeoff_gallery
from backpack_rank.reporting.rows import About, Cell, Figure, Grid, Report, SystemRow
from backpack_rank.reporting.terminal import describe

_EFFECTIVENESS = ("nDCG@10", "MRR@10", "RR@10", "AP")
_BIAS = ("RaB(tf)@10", "ARaB(tf)@10", "RaB(bool)@10", "ARaB(bool)@10", "NFaiRR@10")


def page_of_rows(
    title: str,
    settings: Mapping[str, Sequence[SystemRow]],
    about: About,
    measures: Sequence[str] | None = None,
    effectiveness: str = "nDCG@10",
) -> Page:
    """A page with headline numbers, trade-off curves and bias per cut-off; the other sections are left to the caller.

    ::

        page_of_rows("Evaluation", {"": report.rows}, report.about)
        page_of_rows("Sweep over alpha", {one: sweep.rows(one) for one in sweep.settings or ("",)}, sweep.about)

    Args:
        title: of the page.
        settings: systems by the name of their setting; one setting may have an empty name.
        about: how the figures came about; ``about.alpha`` is the alpha that is marked.
        measures: of the headline; None for nDCG@10, MRR@10 and the bias measures at 10, as far as they are there.
        effectiveness: measure of the trade-off's vertical axis.

    Raises:
        ValueError: no system, or none of ``measures`` was computed.
    """
    rows = {(setting, row.label, row.alpha): row for setting, own in settings.items() for row in own}
    if not rows:
        raise ValueError("a report needs at least one system, there is none")
    several = len(settings) > 1
    systems: list[System] = []
    for (setting, label, alpha), row in rows.items():
        name = f"{setting} {label}".strip() if several and alpha is not None else label
        system = System(name, _all_figures(row), alpha, about.alpha is not None and alpha == about.alpha)
        systems += [system] if system not in systems else []
    shown = _headline_measures(systems, measures)
    return Page(
        title=title,
        subtitle=_subtitle(about),
        sign=about.sign_in_words,
        headline=Headline(shown, tuple(_chosen(systems, about.alpha)), _measured_on(about)),
        tradeoff=tradeoff_gallery(settings, about.alpha, effectiveness),
        cutoffs=cutoff_gallery(settings, about.alpha),
        notes=tuple(describe(Report(tuple(rows.values()), about))),
    )


def comparison_table(grid: Grid, notes: Sequence[str] = ()) -> Table:
    """A table of a comparison: the best figure of a column bold, letters of significance raised."""
    rows = tuple((f"{letter} {system}", *map(_compared, cells)) for letter, system, cells in grid.lines)
    return Table(("system", *grid.measures), rows, grid.title, notes=tuple(notes))


def sense_panel(
    profiles: Sequence[SenseProfile], weights: Sequence[float] | None, caption: str = "", words: int = 6
) -> SensePanel:
    """The sense panel from profiles of senses.

    Args:
        profiles: of all senses.
        weights: one for each profile, or None when no policy acts on senses.
        caption: what the numbers were measured on.
        words: typical words shown for each sense.

    Raises:
        ValueError: weights and profiles differ in number.
    """
    if weights is not None and len(weights) != len(profiles):
        raise ValueError(f"{len(weights)} weights for {len(profiles)} profiles of senses")
    groups = tuple(dict.fromkeys(group for profile in profiles for group in profile.mean_contribution))
    senses = []
    for number, profile in enumerate(profiles):
        known = profile.mean_contribution
        senses.append(
            Sense(
                profile.index,
                profile.sensitivity,
                None if weights is None else float(weights[number]),
                tuple(related.word for related in profile.typical_words[:words]),
                tuple(known.get(group, float("nan")) for group in groups) if known else (),
            )
        )
    return SensePanel(tuple(senses), groups, caption)


def _compared(cell: Cell) -> str:
    text = Markup("<b>{}</b>").format(cell.figure) if cell.best else Markup("{}").format(cell.figure)
    return text + Markup("<sup>{}</sup>").format(cell.raised) if cell.letters else text


def _chosen(systems: Sequence[System], alpha: float | None) -> list[System]:
    """References, alpha = 1 and this alpha; without one alpha that the report is about, every system."""
    if alpha is None:
        return list(systems)
    return [system for system in systems if system.alpha in (None, 1, alpha)]


def _headline_measures(systems: Sequence[System], wanted: Sequence[str] | None) -> tuple[str, ...]:
    known = list(dict.fromkeys(name for system in systems for name in system.figures))
    found = [name for name in (wanted or (*_EFFECTIVENESS, *_BIAS)) if name in known]
    if wanted and not found:
        raise ValueError(f"none of the measures {', '.join(wanted)} was computed; there are {', '.join(known)}")
    return tuple(found or known[:6])


def _all_figures(row: SystemRow) -> dict[str, Figure]:
    return {name: figure for block in (row.effectiveness, row.bias) if block for name, figure in block.figures.items()}


def _subtitle(about: About) -> str:
    if about.alpha is None:
        return ""
    return f"alpha = {about.alpha:g}" + (f", policy {about.policy}" if about.policy else "")


def _measured_on(about: About) -> str:
    sets = (("Effectiveness on", about.effectiveness_set), ("bias on", about.bias_set))
    words = ", ".join(f"{what} {where}" for what, where in sets if where)
    return f"{words[:1].upper()}{words[1:]}. " if words else ""
