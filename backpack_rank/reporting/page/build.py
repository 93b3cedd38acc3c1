"""The sections of a page that come from measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backpack_rank.evaluation.results import Report, RunInfo, SystemResult
from backpack_rank.evaluation.significance import Comparison
from backpack_rank.reporting.comparison import Letters
from backpack_rank.reporting.main_table import main_measures, main_table, measured_on
from backpack_rank.reporting.page.data import Page
from backpack_rank.reporting.page.figures import cutoff_gallery, tradeoff_gallery
from backpack_rank.reporting.report_tables import describe
from backpack_rank.reporting.sweep import Sweep, sweep_of

_WIDEST = 7
"""Measures that the table of main numbers has at most."""


def page_of_rows(
    title: str,
    settings: Mapping[str, Sequence[SystemResult]],
    about: RunInfo,
    measures: Sequence[str] | None = None,
    effectiveness: str = "nDCG@10",
    significant: Callable[[str, SystemResult, str], bool] = lambda setting, row, measure: False,
    comparisons: Sequence[Comparison] = (),
) -> Page:
    """A page with headline numbers, trade-off curves and bias per cut-off.

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
        comparisons: tests of every pair of systems, for letters in the table of main numbers.

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
    sweep = sweep_of(settings, about)
    sets = measured_on(about)
    headline = main_table(
        sweep,
        _headline_measures(sweep, measures),
        title=f"{sets}. Means over queries with their 95% intervals.".removeprefix(". "),
        significant=lambda entry, measure: significant(entry.setting, entry.row, measure),
        letters=Letters(comparisons),
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


def _headline_measures(sweep: Sweep, wanted: Sequence[str] | None) -> list[str]:
    """Those of the wanted measures that any system has; else the first that there are."""
    names: dict[str, None] = {}
    for entry in sweep.entries:
        for summary in entry.row.blocks.values():
            names |= dict.fromkeys(summary.figures)
    measured = [name for name in wanted or main_measures(sweep) if name in names]
    if wanted and not measured:
        raise ValueError(
            f"none of the measures {', '.join(wanted)} was computed; there are {', '.join(names)}"
        )
    return (measured or list(names))[:_WIDEST]


def _subtitle(about: RunInfo) -> str:
    if about.alpha is None:
        return ""
    subtitle = f"alpha = {about.alpha:g}"
    return f"{subtitle}, policy {about.policy}" if about.policy else subtitle
