"""What an evaluation prints first: measures by systems, on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, Report, Summary
from backpack_rank.evaluation.significance import Comparison
from backpack_rank.progress import printable
from backpack_rank.reporting.comparison import Letters
from backpack_rank.reporting.report_tables import describe, queries_in_words
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.wording import interval
from backpack_rank.reporting.writers import print_table

_CUTOFF = "10"


def print_overview(
    report: Report,
    comparisons: Sequence[Comparison] = (),
    console: Console | None = None,
    asked: Sequence[str] = (),
) -> None:
    """Print what was measured, as one table and the sentences that it needs.

    Args:
        report: systems and how they were measured.
        comparisons: tests of every pair of systems, for letters behind the figures.
        console: where to, default the terminal.
        asked: measures that are shown in every variant.
    """
    console = console or Console()
    print_table(overview_table(report, comparisons, asked), console)
    for line in describe(report):
        console.print(Text(printable(line)))


def overview_table(
    report: Report, comparisons: Sequence[Comparison] = (), asked: Sequence[str] = ()
) -> Table:
    """The measures of all systems; of measures of bias one cut-off, 10 where it is.

    A measure of bias that is not taken at that cut-off is shown at its own. Of those that differ in
    how words are counted, the first is shown.

    Args:
        report: systems and how they were measured.
        comparisons: tests of every pair of systems, for letters behind the figures.
        asked: measures that are shown in every variant.
    """
    letters = Letters(comparisons)
    sections = []
    has_intervals = False
    for kind in _kinds(report):
        summaries = [row.blocks.get(kind) for row in report.rows]
        rows = []
        for measure in _shown(kind, summaries, asked):
            cells = []
            for system, summary in zip(report.rows, summaries, strict=True):
                figure = None if summary is None else summary.figures.get(measure)
                mean = None if figure is None else figure.mean
                raised = letters.behind(measure, system.label)
                cells.append(Cell(number(mean), raised=raised, interval=_within(figure)))
                has_intervals = has_intervals or bool(cells[-1].interval)
            described = measure_of(measure)
            rows.append(Row((described.shown, described.direction.short), cells))
        sections.append(Section(_heading(kind, report, summaries), rows))
    headings = [letters.named(system.label) for system in report.rows]
    notes = letters.notes
    if has_intervals:
        notes.insert(0, "±: the farther end of the 95% interval over queries")
    if report.about.sign_in_words and report.about.bias_set:
        notes.append(f"RaB and ARaB: {report.about.sign_in_words}")
    return Table(
        name="overview",
        title=report.about.effectiveness_set or report.about.bias_set,
        labels=("", "better"),
        groups=[Group("", tuple(headings))],
        sections=sections,
        notes=notes,
    )


def overview_measures(report: Report, asked: Sequence[str] = ()) -> list[str]:
    """Measures that the overview shows."""
    measures: list[str] = []
    for kind in _kinds(report):
        measures += _shown(kind, [row.blocks.get(kind) for row in report.rows], asked)
    return measures


def _kinds(report: Report) -> list[str]:
    """What was measured of any system; effectiveness and bias come first."""
    measured: dict[str, None] = {}
    for row in report.rows:
        measured |= dict.fromkeys(row.blocks)
    # Stable: the others stay in their order behind these two.
    first = {"effectiveness": 0, "bias": 1}
    return sorted(measured, key=lambda kind: first.get(kind, 2))


def _within(figure: Estimate | None) -> str:
    """How far the interval of a mean reaches on its longer side; empty without one."""
    ends = None if figure is None else interval(figure)
    if figure is None or ends is None:
        return ""
    return f"±{number(max(figure.mean - ends[0], ends[1] - figure.mean), 3)}"


def _shown(kind: str, summaries: Iterable[Summary | None], asked: Sequence[str] = ()) -> list[str]:
    """Measures of a kind that any system has; of bias those of one cut-off, and of one variant."""
    measures: dict[str, None] = {}
    for summary in summaries:
        if summary is not None:
            measures |= dict.fromkeys(summary.figures)
    if kind != "bias":
        return list(measures)
    cutoffs = [measure_of(measure).cutoff for measure in measures]
    shown = _CUTOFF if _CUTOFF in cutoffs else cutoffs[0]
    kept: list[str] = []
    seen: set[str] = set()
    for measure in measures:
        described = measure_of(measure)
        # One that is only taken at other cut-offs (AWRF_JS@20), or without any, is shown as it is.
        at_shown = f"{described.at_any_cutoff}@{shown}"
        if described.cutoff != shown and at_shown in measures:
            continue
        if measure in asked or described.variants_of not in seen:
            kept.append(measure)
        seen.add(described.variants_of)
    return kept


def _heading(kind: str, report: Report, summaries: Iterable[Summary | None]) -> str:
    """The kind and its queries, such as ``bias (215 of 243 queries: gender-neutral ones)``."""
    counts = {summary.queries for summary in summaries if summary is not None}
    queries = queries_in_words(max(counts))
    if len(counts) > 1:
        return f"{kind}, every system on its own {min(counts)} to {queries}"
    # The set's name may say more than a number, such as "wikiqa/test: 215 neutral queries".
    if kind == "bias":
        _, _, queries_of_set = report.about.bias_set.partition(": ")
        queries = queries_of_set or queries
    return f"{kind}, {queries}"
