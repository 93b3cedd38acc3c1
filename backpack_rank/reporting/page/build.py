"""The sections of a page that come from measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Report, RunInfo, SystemResult
from backpack_rank.reporting.page.data import Page
from backpack_rank.reporting.page.figures import cutoff_gallery, tradeoff_gallery
from backpack_rank.reporting.page.headline import headline_table
from backpack_rank.reporting.report_tables import describe
from backpack_rank.reporting.wording import figure_of

_HEADLINE = (
    "nDCG@10",
    "MRR@10",
    "RR@10",
    "AP",
    "ARaB(tf)@10",
    "RaB(tf)@10",
    "NFaiRR@10",
    "swap change/std (swapped)",
    "|gap|/std",
)
_WIDEST = 7
"""Measures that the table of main numbers has at most."""


def page_of_rows(
    title: str,
    settings: Mapping[str, Sequence[SystemResult]],
    about: RunInfo,
    measures: Sequence[str] | None = None,
    effectiveness: str = "nDCG@10",
    significant: Callable[[str, SystemResult, str], bool] = lambda setting, row, measure: False,
) -> Page:
    """Use this for a page with headline numbers, trade-off curves and bias per cut-off.

    The other sections are left to the caller, who adds them with ``dataclasses.replace``::

        page_of_rows("Evaluation", {"": report.rows}, report.about)
        page_of_rows("Sweep", {name: sweep.rows(name) for name in sweep.settings}, sweep.about)

    Args:
        title: of the page.
        settings: systems by the name of their setting; one setting may have an empty name.
        about: how the figures came about; ``about.alpha`` is the alpha that is marked.
        measures: of the headline; None for nDCG@10, MRR@10 and the bias measures at 10, as far as
            they are there.
        effectiveness: measure of the trade-off's vertical axis.
        significant: whether a measure of a system of a setting differs from the unchanged ranker.

    Raises:
        ValueError: no system, or none of ``measures`` was computed.
    """
    # Settings share references: each stands once in the notes.
    distinct: dict[tuple[str, str, float | None], SystemResult] = {}
    for setting, rows_of_setting in settings.items():
        for row in rows_of_setting:
            distinct[setting, row.label, row.alpha] = row
    if not distinct:
        raise ValueError("a report needs at least one system, there is none")
    rows = tuple(distinct.values())
    headline = headline_table(
        settings,
        _headline_measures(rows, measures),
        title=f"{_measured_on(about)}Means over queries with their 95% intervals.",
        alpha=about.alpha,
        policy=about.policy if len(settings) == 1 else "",
        significant=significant,
    )
    return Page(
        title=title,
        subtitle=_subtitle(about),
        sign=about.sign_in_words,
        headline=headline,
        tradeoff=tradeoff_gallery(settings, effectiveness),
        cutoffs=cutoff_gallery(settings, about.alpha),
        notes=tuple(describe(Report(rows, about))),
    )


def _headline_measures(
    rows: Sequence[SystemResult], wanted: Sequence[str] | None
) -> tuple[str, ...]:
    """Those of the wanted measures that any system has; else the first that there are."""
    names: dict[str, None] = {}
    for row in rows:
        for summary in row.blocks.values():
            names |= dict.fromkeys(summary.figures)
    # Behind those that stand first, main measures of families that have none there.
    first = {measure_of(name).family for name in _HEADLINE}
    others: list[str] = []
    for name in names:
        measure = measure_of(name)
        if measure.is_main and measure.explained and measure.family not in first:
            others.append(name)
    measured = []
    for measure in wanted or (*_HEADLINE, *others):
        if any(figure_of(row, measure) for row in rows):
            measured.append(measure)
    if wanted and not measured:
        raise ValueError(
            f"none of the measures {', '.join(wanted)} was computed; there are {', '.join(names)}"
        )
    return tuple(measured[:_WIDEST] or list(names)[: _WIDEST - 1])


def _subtitle(about: RunInfo) -> str:
    if about.alpha is None:
        return ""
    subtitle = f"alpha = {about.alpha:g}"
    return f"{subtitle}, policy {about.policy}" if about.policy else subtitle


def _measured_on(about: RunInfo) -> str:
    """On which queries, as a sentence with a space behind it."""
    sets = []
    if about.effectiveness_set:
        sets.append(f"effectiveness on {about.effectiveness_set}")
    if about.bias_set:
        sets.append(f"bias on {about.bias_set}")
    words = ", ".join(sets)
    return f"{words[:1].upper()}{words[1:]}. " if words else ""
