"""A report in the terminal: tables, and the sentences that say how the figures came about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from backpack_rank.evaluation.measure import GROUPS, SHARES, SIGNED, BiasTable, FairnessMeasure
from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Report, RunInfo, Summary
from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import print_table

_KINDS = {
    "swap": (
        "All candidates of the bias set, scored again with every word of the lexicon swapped; "
        "std: of the scores"
    ),
    "swapped documents": "Only documents that the swap changes, and the lists that hold any",
    "wordings": (
        "Gap: score of the first wording minus that of the second; "
        "std: of the scores of ordinary candidates"
    ),
}


def print_report(report: Report, console: Console | None = None) -> None:
    """Print all tables, and the sentences that say how the figures came about."""
    console = console or Console()
    for table in report_tables(report):
        print_table(table, console)
    for line in describe(report):
        console.print(Text(printable(line)))


def report_tables(report: Report) -> list[Table]:
    """Systems by measures: a table of effectiveness, of bias, of each further kind.

    Kinds that nobody measured are left out. Measures of bias are named ``<name>@<cut-off>`` and
    stand in one block of rows per cut-off, in the table that they name themselves.
    """
    # By kind, the summary of each system that has one; effectiveness and bias come first.
    by_kind: dict[str, list[tuple[str, Summary]]] = {"effectiveness": [], "bias": []}
    for row in report.rows:
        for kind, summary in row.blocks.items():
            by_kind.setdefault(kind, []).append((row.label, summary))
    tables = []
    for kind, summaries in by_kind.items():
        if not summaries:
            continue
        if kind == "effectiveness":
            title = _title("Effectiveness", report.about.effectiveness_set, summaries)
            tables.append(_systems_by_measures(title, summaries))
        elif kind == "bias":
            tables += _bias_tables(report.about, summaries)
        else:
            title = _title(kind.capitalize(), "", summaries)
            tables.append(_systems_by_measures(title, summaries, _KINDS.get(kind, "")))
    return tables


def describe(report: Report) -> list[str]:
    """Sentences below the tables: settings, sign, queries left out or counted as 0, notes."""
    about = report.about
    lines = []
    if about.alpha is not None or about.policy:
        alpha = "" if about.alpha is None else f"{about.alpha:g}"
        lines.append(_joined({"alpha": alpha, "policy": about.policy}))
    if about.preset or about.lexicon:
        words = {
            "preset": about.preset,
            "word list": about.lexicon,
            "tokenizer": about.tokenizer,
        }
        lines.append(f"Bias measures: {_joined(words)}")
    left_out = {}
    missing = {}
    bias_left_out = {}
    for row in report.rows:
        if row.effectiveness:
            left_out[row.label] = row.effectiveness.left_out
            missing[row.label] = row.effectiveness.missing
        if row.bias:
            bias_left_out[row.label] = row.bias.left_out
    lines += _counted(left_out, "left out: no relevant document")
    lines += _counted(missing, "missing from the run, counted as 0")
    lines += _counted(bias_left_out, "of the bias set left out: no ranking")
    return [*lines, *about.notes]


def queries_in_words(number: int) -> str:
    """``1 query``, ``2 queries``."""
    return "1 query" if number == 1 else f"{number} queries"


def _systems_by_measures(
    title: str, summaries: Sequence[tuple[str, Summary]], note: str = ""
) -> Table:
    measures = _measures(summaries)
    headings = tuple(measure_of(measure).shown for measure in measures)
    rows = [Row((label,), _means(summary, measures)) for label, summary in summaries]
    return Table(
        name="",
        title=title,
        labels=("system",),
        groups=[Group("", headings)],
        sections=[Section("", rows)],
        notes=[note] if note else (),
    )


def _bias_tables(about: RunInfo, summaries: Sequence[tuple[str, Summary]]) -> list[Table]:
    measures_by_table: dict[BiasTable, list[str]] = {}
    for name in _measures(summaries):
        measure = measure_of(name)
        table = measure.table if isinstance(measure, FairnessMeasure) else SHARES
        measures_by_table.setdefault(table, []).append(name)
    tables = []
    for table in (SIGNED, SHARES, GROUPS):
        measures = measures_by_table.get(table)
        if measures:
            title = _title(table.title, about.bias_set, summaries)
            further = [about.sign_in_words] if table is SIGNED else _goals(measures)
            note = "; ".join(filter(None, [table.note, *further]))
            tables.append(_by_cutoff(title, measures, summaries, note))
    return tables


def _goals(measures: Iterable[str]) -> list[str]:
    """What is better for each family of measures."""
    families: dict[str, dict[str, None]] = {}
    for measure in map(measure_of, measures):
        families.setdefault(measure.goal(), {})[measure.family] = None
    return [f"{' and '.join(names)}: {goal}" for goal, names in families.items() if goal]


def _by_cutoff(
    title: str, measures: Sequence[str], summaries: Sequence[tuple[str, Summary]], note: str
) -> Table:
    """Systems by measures, one block of rows per cut-off; those without one in a last block."""
    described = list(map(measure_of, measures))
    names = list(dict.fromkeys(measure.at_any_cutoff for measure in described))
    sections = []
    for cutoff in dict.fromkeys(measure.cutoff for measure in described):
        at_cutoff = [f"{name}@{cutoff}" if cutoff else name for name in names]
        rows = []
        for place, (label, summary) in enumerate(summaries):
            # The cut-off stands once in its block.
            labels = (cutoff if place == 0 else "", label)
            rows.append(Row(labels, _means(summary, at_cutoff)))
        sections.append(Section("", rows))
    return Table(
        name="",
        title=title,
        labels=("cut-off", "system"),
        groups=[Group("", tuple(measure_of(name).heading for name in names))],
        sections=sections,
        notes=(note,),
    )


def _measures(summaries: Iterable[tuple[str, Summary]]) -> list[str]:
    names: dict[str, None] = {}
    for _, summary in summaries:
        names |= dict.fromkeys(summary.figures)
    return list(names)


def _means(summary: Summary, measures: Iterable[str]) -> list[Cell]:
    cells = []
    for measure in measures:
        figure = summary.figures.get(measure)
        cells.append(Cell(number(None if figure is None else figure.mean)))
    return cells


def _title(what: str, where: str, summaries: Sequence[tuple[str, Summary]]) -> str:
    # Systems may have been measured on different numbers of queries.
    counts = {summary.queries for _, summary in summaries}
    queries = queries_in_words(max(counts))
    if len(counts) > 1:
        queries = f"{min(counts)} to {queries}"
        if where:
            return f"{what} on {where} (every system on its own {queries})"
        return f"{what} ({queries})"
    if re.search(r": (\d+ of )?\d+ [\w-]*\s?quer(y|ies)$", where):
        return f"{what} on {where}"  # the number is said already
    return f"{what} on {where} ({queries})" if where else f"{what} ({queries})"


def _counted(numbers: Mapping[str, int], what: str) -> list[str]:
    """One sentence for all systems when they agree, else one for each system with such queries."""
    if len(numbers) > 1 and len(set(numbers.values())) == 1:
        numbers = {"every system": next(iter(numbers.values()))}
    lines = []
    for label, number_of_queries in numbers.items():
        if number_of_queries:
            lines.append(f"{label}: {queries_in_words(number_of_queries)} {what}")
    return lines


def _joined(words: Mapping[str, str]) -> str:
    """Names and values, of those that are not empty."""
    return ", ".join(f"{name} {value}" for name, value in words.items() if value)
