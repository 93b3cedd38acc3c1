"""A report in the terminal: tables, and the sentences that say how the figures came about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from backpack_rank.evaluation.results import Report, RunInfo, Summary
from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import print_table

_MAGNITUDE_TITLES = {"tf": "TF", "tf-paper": "TF eq.6", "bool": "Boolean", "tc": "count"}
_SHARES = (
    "Mean over queries; NFaiRR and FaiRR: higher is better; "
    "the exposures of all groups and neutral sum to 1"
)
_GROUPS = (
    "Mean over queries; AWRF_JS and ratios of exposure: best is 1; EE-L and NDKL: best is 0; "
    "EE-D: lower is better; EE-R: higher is better"
)
_OF_GROUPS = re.compile(r"(AWRF_JS|EE-[LDR]|NDKL|ExposureRatio|ExposurePerRelevance)\b")
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
    """Use this to print all tables, and the sentences that say how the figures came about."""
    console = console or Console()
    for table in report_tables(report):
        print_table(table, console)
    for line in describe(report):
        console.print(Text(printable(line)))


def report_tables(report: Report) -> list[Table]:
    """Use this for systems by measures: a table of effectiveness, of bias, of each further kind.

    Kinds that nobody measured are left out. Measures of bias are named ``<name>@<cut-off>`` and
    stand in one block of rows per cut-off. RaB and ARaB stand in one table; shares (NFaiRR, FaiRR,
    exposure), which are not better near 0, in another, and those of the exposure of groups in a
    third.
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


def split_measure(measure: str) -> tuple[str, str]:
    """A measure and its cut-off, which is empty for a measure without one.

    >>> split_measure("RaB(tf)@10"), split_measure("AP")
    (('RaB(tf)', '10'), ('AP', ''))
    """
    name, _, cutoff = measure.rpartition("@")
    return (name, cutoff) if name else (measure, "")


def queries_in_words(number: int) -> str:
    """``1 query``, ``2 queries``."""
    return "1 query" if number == 1 else f"{number} queries"


def _systems_by_measures(
    title: str, summaries: Sequence[tuple[str, Summary]], note: str = ""
) -> Table:
    measures = _measures(summaries)
    headings = tuple(measure.replace(" (swapped)", "") for measure in measures)
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
    signed = []
    shares = []
    of_groups = []
    for measure in _measures(summaries):
        if re.match(r"A?RaB\b", measure):
            signed.append(measure)
        elif _OF_GROUPS.match(measure):
            of_groups.append(measure)
        else:
            shares.append(measure)
    tables = []
    if signed:
        note = "Mean over queries, closer to 0 is better"
        if about.sign_in_words:
            note += f"; {about.sign_in_words}"
        title = _title("Bias", about.bias_set, summaries)
        tables.append(_by_cutoff(title, signed, summaries, note))
    if shares:
        title = _title("Fairness", about.bias_set, summaries)
        tables.append(_by_cutoff(title, shares, summaries, _SHARES))
    if of_groups:
        title = _title("Exposure of groups", about.bias_set, summaries)
        tables.append(_by_cutoff(title, of_groups, summaries, _GROUPS))
    return tables


def _by_cutoff(
    title: str, measures: Sequence[str], summaries: Sequence[tuple[str, Summary]], note: str
) -> Table:
    """Systems by measures, one block of rows per cut-off; those without one in a last block."""
    split = [split_measure(measure) for measure in measures]
    names = list(dict.fromkeys(name for name, _ in split))
    sections = []
    for cutoff in dict.fromkeys(cutoff for _, cutoff in split):
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
        groups=[Group("", tuple(map(_heading, names)))],
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


def _heading(name: str) -> str:
    """``RaB(tf)`` in words: measure, magnitude, and group where there is one."""
    match = re.fullmatch(r"(\w+)\(([\w-]+)(?:,\s*([\w-]+))?\)", name)
    if match is None or _OF_GROUPS.match(name):
        return name
    measure, magnitude, group = match.groups()
    words = [measure, _MAGNITUDE_TITLES.get(magnitude, magnitude)]
    if group:
        words.append(group)
    return " ".join(words)


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
