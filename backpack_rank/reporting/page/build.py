"""The sections of a page that come from measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from backpack_rank.evaluation.results import Report, RunInfo, SystemResult
from backpack_rank.reporting.page.data import Page, Sense, SensePanel, Table
from backpack_rank.reporting.page.figures import cutoff_gallery, figure_of, headline_table, tradeoff_gallery
from backpack_rank.reporting.report_tables import describe
from backpack_rank.reporting.table import Cell
from backpack_rank.reporting.table import Table as ComparisonTable
from backpack_rank.senses.profiles import SenseProfile

_HEADLINE = ("nDCG@10", "MRR@10", "RR@10", "AP", "ARaB(tf)@10", "RaB(tf)@10", "NFaiRR@10")
_FURTHER = ("swap change/std (swapped)", "|gap|/std")


def page_of_rows(
    title: str,
    settings: Mapping[str, Sequence[SystemResult]],
    about: RunInfo,
    measures: Sequence[str] | None = None,
    effectiveness: str = "nDCG@10",
    significant: Callable[[str, SystemResult, str], bool] = lambda setting, row, measure: False,
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
        significant: whether a measure of a system of a setting differs from the ranker as it is.

    Raises:
        ValueError: no system, or none of ``measures`` was computed.
    """
    rows = {(setting, row.label, row.alpha): row for setting, own in settings.items() for row in own}
    if not rows:
        raise ValueError("a report needs at least one system, there is none")
    return Page(
        title=title,
        subtitle=_subtitle(about),
        sign=about.sign_in_words,
        headline=headline_table(
            settings,
            _headline_measures(tuple(rows.values()), measures),
            f"{_measured_on(about)}Means over queries with their 95% intervals.",
            about.alpha,
            about.policy if len(settings) == 1 else "",
            significant,
        ),
        tradeoff=tradeoff_gallery(settings, effectiveness),
        cutoffs=cutoff_gallery(settings, about.alpha),
        notes=tuple(describe(Report(tuple(rows.values()), about))),
    )


def comparison_table(table: ComparisonTable) -> Table:
    """A table of a comparison: the best figure of a column bold, letters of significance raised."""
    rows = tuple((" ".join(labels), *map(_compared, cells)) for labels, cells in table.rows)
    return Table(("system", *table.groups[0].columns), rows, table.title, notes=tuple(table.notes))


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
                profile.name,
                profile.sensitivity,
                None if weights is None else float(weights[number]),
                tuple(related.word for related in profile.typical_words[:words]),
                tuple(known.get(group, float("nan")) for group in groups) if known else (),
            )
        )
    return SensePanel(tuple(senses), groups, caption)


def _compared(cell: Cell) -> str:
    text = Markup("<b>{}</b>" if cell.bold else "{}").format(cell.text)
    return text + Markup("<sup>{}</sup>").format(cell.raised) if cell.raised else text


def _headline_measures(rows: Sequence[SystemResult], wanted: Sequence[str] | None) -> tuple[str, ...]:
    known = list(dict.fromkeys(name for row in rows for block in row.blocks.values() for name in block.figures))
    found = [name for name in (wanted or (*_HEADLINE, *_FURTHER)) if any(figure_of(row, name) for row in rows)]
    if wanted and not found:
        raise ValueError(f"none of the measures {', '.join(wanted)} was computed; there are {', '.join(known)}")
    return tuple(found[:7] or known[:6])


def _subtitle(about: RunInfo) -> str:
    if about.alpha is None:
        return ""
    return f"alpha = {about.alpha:g}" + (f", policy {about.policy}" if about.policy else "")


def _measured_on(about: RunInfo) -> str:
    sets = (("Effectiveness on", about.effectiveness_set), ("bias on", about.bias_set))
    words = ", ".join(f"{what} {where}" for what, where in sets if where)
    return f"{words[:1].upper()}{words[1:]}. " if words else ""
