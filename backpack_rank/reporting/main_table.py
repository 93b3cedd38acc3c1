"""The table of main numbers: the same in the terminal, in Markdown and on every page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, Report, RunInfo
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.reporting.comparison import Letters
from backpack_rank.reporting.report_tables import describe
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.sweep import Sweep, SweepEntry
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.wording import figure_of, interval, measures_explained

_CHANGE_NOTE = (
    "Changes are against alpha=1, for bias of the absolute value of the mean; in % where the "
    "interval at alpha=1 leaves out 0."
)
_TEST_NOTE = (
    "* marks significant changes: two-sided paired randomisation test against alpha=1 on the same "
    "queries, Holm-corrected over the other alphas of the setting for each measure, "
    f"p < {SIGNIFICANCE:g}."
)
_PAPER_NOTE = (
    "a: significantly better than the ranker as it is (row a), †: significantly worse; "
    "two-sided paired randomisation test on the same queries, Holm-corrected over the other alphas "
    f"of the setting for each measure, p < {SIGNIFICANCE:g}."
)


def is_significant(entry: SweepEntry, measure: str) -> bool:
    """Whether a system differs from the unchanged ranker in a measure."""
    test = entry.test(measure)
    return test is not None and test.p_holm < SIGNIFICANCE


def main_table(
    sweep: Sweep,
    measures: Sequence[str],
    title: str = "Sweep over alpha",
    significant: Callable[[SweepEntry, str], bool] = is_significant,
    letters: Letters | None = None,
) -> Table:
    """Systems by measures: references and the unchanged ranker, then each policy.

    Args:
        sweep: the systems.
        measures: columns, see :func:`main_measures`.
        title: of the table.
        significant: whether a measure of a system differs from the unchanged ranker.
        letters: of every pair of systems that was tested, as marks behind the figures.
    """
    letters = letters or Letters()
    sections = []
    marked = []
    place = 0
    starred = changed = False
    for heading, entries in _blocks(sweep):
        rows = []
        for label, entry in entries:
            cells = []
            for measure in measures:
                cell = _cell(sweep, entry, measure, significant)
                cells.append(replace(cell, raised=letters.behind(measure, entry.row.label)))
            starred = starred or any("*" in cell.change for cell in cells)
            changed = changed or any(cell.change for cell in cells)
            named = letters.named(entry.row.label, label)
            rows.append(Row((f"  {named}" if heading else named,), cells))
            if sweep.about.alpha is not None and entry.row.alpha == sweep.about.alpha:
                marked.append(place)
            place += 1
        sections.append(Section(heading, rows))
    notes = [_CHANGE_NOTE] * changed + [_TEST_NOTE] * starred
    notes += [*letters.notes, *filter(None, [measures_explained(measures)])]
    headings = tuple(measure_of(measure).title for measure in measures)
    return Table("main", title, ("",), [Group("", headings)], sections, notes, marked=marked)


def paper_table(sweep: Sweep, measures: Sequence[str]) -> Table:
    """The same figures as a paper prints them: a row for each alpha, with letters behind figures.

    The ranker as it is has the letter a. It stands behind figures that are significantly better
    than those of the ranker, a dagger behind those that are significantly worse.

    Args:
        sweep: the systems, with their tests.
        measures: columns.
    """
    sections = []
    for heading, entries in _blocks(sweep):
        rows = []
        for label, entry in entries:
            cells = []
            for measure in measures:
                cell = _cell(sweep, entry, measure, lambda entry, measure: False)
                raised = _better_or_worse(sweep, entry, measure)
                cells.append(Cell(cell.text, raised=raised))
            named = f"a {label}" if entry.row.alpha == 1 else label
            rows.append(Row((named,), cells))
        sections.append(Section(heading, rows))
    headings = tuple(measure_of(measure).title for measure in measures)
    title = f"{measured_on(sweep.about)}. Means over queries.".removeprefix(". ")
    notes = [_PAPER_NOTE] if any(entry.tests for entry in sweep.entries) else []
    notes += filter(None, [measures_explained(measures)])
    return Table("sweep", title, ("",), [Group("", headings)], sections, notes)


def _better_or_worse(sweep: Sweep, entry: SweepEntry, measure: str) -> str:
    base = sweep.base(entry.setting)
    figure = figure_of(entry.row, measure)
    before = None if base is None else figure_of(base.row, measure)
    if figure is None or before is None or not is_significant(entry, measure):
        return ""
    loss = measure_of(measure).direction.loss
    return "a" if loss(figure.mean) < loss(before.mean) else "†"


def main_measures(sweep: Sweep) -> list[str]:
    """Measures of summaries that any system has, those that a reader looks for first in front."""
    measures: dict[str, None] = {}
    for entry in sweep.entries:
        for summary in entry.row.blocks.values():
            measures |= dict.fromkeys(name for name in summary.figures if measure_of(name).is_main)
    return sorted(measures, key=lambda name: measure_of(name).place)


def describe_sweep(sweep: Sweep) -> list[str]:
    """Sentences on how the figures of a sweep came about."""
    rows = []
    for entry in sweep.entries:
        rows.append(replace(entry.row, label=f"{entry.setting} {entry.row.label}".strip()))
    notes = [*filter(None, [measured_on(sweep.about)]), *describe(Report(tuple(rows), sweep.about))]
    if sweep.failed:
        notes.append(f"Without measures (failed or not finished): {', '.join(sweep.failed)}")
    return notes


def measured_on(about: RunInfo) -> str:
    """On which queries; empty where nobody says."""
    sets = []
    if about.effectiveness_set:
        sets.append(f"effectiveness on {about.effectiveness_set}")
    if about.bias_set:
        sets.append(f"bias on {about.bias_set}")
    words = ", ".join(sets)
    return words[:1].upper() + words[1:]


def _blocks(sweep: Sweep) -> list[tuple[str, list[tuple[str, SweepEntry]]]]:
    """Headings, and entries with their labels; the first block holds what all settings share."""
    settings = [Setting.of(name) for name in sweep.settings]
    # Settings that differ in their policy alone have the unchanged ranker (alpha = 1) in common: it
    # stands in the first block, once.
    share_ranker = len({setting.rest for setting in settings}) == 1
    common = []
    for entry in sweep.entries:
        if entry.row.alpha is None and not entry.setting:
            common.append((entry.row.label, entry))
    blocks = []
    for setting in settings:
        block = []
        for entry in sweep.entries:
            is_common_reference = entry.row.alpha is None and not entry.setting
            if entry.setting != setting.name or sweep.is_repeated(entry) or is_common_reference:
                continue
            if share_ranker and entry.row.alpha == 1:
                common.append((_label(entry), entry))
            else:
                block.append((_label(entry), entry))
        heading = setting.title or sweep.about.policy
        blocks.append((heading if len(settings) > 1 else "", block))
    blocks.insert(0, ("", common))
    return [(heading, entries) for heading, entries in blocks if entries]


def _label(entry: SweepEntry) -> str:
    if entry.row.alpha is None:
        return entry.row.label
    return "alpha 1 (as is)" if entry.row.alpha == 1 else f"alpha {entry.row.alpha:g}"


def _cell(
    sweep: Sweep,
    entry: SweepEntry,
    measure: str,
    significant: Callable[[SweepEntry, str], bool],
) -> Cell:
    """The mean, of bias with its sign; its change with a star where it is significant."""
    figure = figure_of(entry.row, measure)
    star = "*" if significant(entry, measure) else ""
    if figure is None:
        return Cell(change=star)
    text = f"{figure.mean:+.4f}" if measure_of(measure).signed else f"{figure.mean:.4f}"
    ends = interval(figure)
    shown = f"[{number(ends[0], 3)}, {number(ends[1], 3)}]" if ends is not None else ""
    return Cell(text, interval=shown, change=_change(sweep, entry, measure, figure) + star)


def _change(sweep: Sweep, entry: SweepEntry, measure: str, figure: Estimate) -> str:
    """In % where the interval at alpha=1 leaves out 0: a percentage of what may be 0 says nothing.

    Empty where there is none.
    """
    change = sweep.change(entry, measure)
    if change is None or entry.row.alpha == 1:
        return ""
    base = sweep.base(entry.setting)
    before = None if base is None else base.row.figure(measure)
    ends = None if before is None else interval(before)
    if before is not None and ends is not None and ends[0] <= 0 <= ends[1]:
        return f"{measure_of(measure).change(before.mean, figure.mean):+.3f}"
    return f"{change:+.1f}%"
