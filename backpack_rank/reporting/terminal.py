"""A report in the terminal: tables, and the sentences that say how the figures came about."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.reporting.rows import About, Report, Summary

_MAGNITUDE_TITLES = {"tf": "TF", "tf-paper": "TF eq.6", "bool": "Boolean", "tc": "count"}
_NO_VALUE = "-"
_WIDTH = 6
_SHARES = "Mean over queries; NFaiRR and FaiRR: higher is better; the exposures of all groups and neutral sum to 1"
_KINDS = {
    "swap": "All candidates of the bias set, scored again with every word of the lexicon swapped; std: of the scores",
    "swapped documents": "Only documents that the swap changes, and the lists that hold any",
    "wordings": "Gap: score of the first wording minus that of the second; std: of the scores of ordinary candidates",
}


def effectiveness_table(report: Report) -> Table | None:
    """Systems by measures of effectiveness, 4 decimals; None when no system has any."""
    summaries = [(row.label, row.effectiveness) for row in report.rows if row.effectiveness]
    if not summaries:
        return None
    counts = [summary.queries for _, summary in summaries]
    return _flat(Table(title=_title("Effectiveness", report.about.effectiveness_set, counts)), summaries)


def bias_tables(report: Report) -> list[Table]:
    """Systems by measures of bias, one block of rows per cut-off; signed means with 4 decimals.

    RaB and ARaB stand in one table; shares (NFaiRR, FaiRR, exposure), which are not better near 0, in another.
    Measures are named ``<name>@<cut-off>``; a measure without a cut-off stands in a last block.
    """
    summaries = [(row.label, row.bias) for row in report.rows if row.bias]
    measures = _measures(summary for _, summary in summaries)
    signed = [measure for measure in measures if _is_signed(measure)]
    shares = [measure for measure in measures if not _is_signed(measure)]
    counts = [summary.queries for _, summary in summaries]
    tables = []
    for what, names, caption in (("Bias", signed, _sign_caption(report.about)), ("Fairness", shares, _SHARES)):
        for part in _parts(names):
            title = _title(what, report.about.bias_set, counts)
            tables.append(_by_cutoff(Table(title=title, caption=caption, caption_justify="left"), part, summaries))
    return tables


def further_tables(report: Report) -> list[Table]:
    """One table for each further kind of measures: swapped documents, wordings."""
    tables = []
    for kind in dict.fromkeys(kind for row in report.rows for kind in row.further):
        summaries = [(row.label, row.further[kind]) for row in report.rows if kind in row.further]
        counts = [summary.queries for _, summary in summaries]
        table = Table(title=_title(kind.capitalize(), "", counts), caption=_KINDS.get(kind), caption_justify="left")
        tables.append(_flat(table, summaries))
    return tables


def print_report(report: Report, console: Console | None = None) -> None:
    """Print all tables and the sentences that say how the figures came about."""
    console = console or Console()
    first = effectiveness_table(report)
    for table in ([first] if first is not None else []) + bias_tables(report) + further_tables(report):
        console.print(table)
    for line in describe(report):
        console.print(Text(line))


def describe(report: Report) -> list[str]:
    """Sentences below the tables: settings, sign, queries that are left out or count 0, notes."""
    about = report.about
    lines = []
    if about.alpha is not None or about.policy:
        lines.append(_joined(("alpha", None if about.alpha is None else f"{about.alpha:g}"), ("policy", about.policy)))
    if about.preset or about.lexicon:
        lines.append(
            "Bias measures: "
            + _joined(("preset", about.preset), ("word list", about.lexicon), ("tokenizer", about.tokenizer))
        )
    effectiveness = {row.label: row.effectiveness for row in report.rows if row.effectiveness}
    bias = {row.label: row.bias for row in report.rows if row.bias}
    lines += _counted(
        {label: block.left_out for label, block in effectiveness.items()}, "left out: no relevant document"
    )
    lines += _counted(
        {label: block.missing for label, block in effectiveness.items()}, "missing from the run, counted as 0"
    )
    lines += _counted({label: block.left_out for label, block in bias.items()}, "of the bias set left out: no ranking")
    return [*lines, *about.notes]


def _flat(table: Table, summaries: Sequence[tuple[str, Summary]]) -> Table:
    """Systems by measures, 4 decimals."""
    measures = _measures(summary for _, summary in summaries)
    table.add_column("system", overflow="fold", min_width=min(12, max(len(label) for label, _ in summaries)))
    for measure in measures:
        table.add_column(measure.replace(" (swapped)", "").replace(" ", "\n", 1), justify="right")
    for label, summary in summaries:
        table.add_row(Text(label), *_means(summary, measures))
    return table


def _by_cutoff(table: Table, measures: Sequence[str], summaries: Sequence[tuple[str, Summary]]) -> Table:
    """Systems by measures, one block of rows per cut-off."""
    split = {measure: _split(measure) for measure in measures}
    names = list(dict.fromkeys(name for name, _ in split.values()))
    table.collapse_padding = True  # six columns of numbers fit 80 characters
    table.add_column("cut-off", justify="right")
    table.add_column("system", overflow="fold", min_width=min(12, max(len(label) for label, _ in summaries)))
    for name in names:
        table.add_column(_heading(name), justify="right", no_wrap=True)
    for cutoff in dict.fromkeys(cutoff for _, cutoff in split.values()):
        at_cutoff = [f"{name}@{cutoff}" if cutoff else name for name in names]
        for index, (label, summary) in enumerate(summaries):
            table.add_row(cutoff if index == 0 else "", Text(label), *_means(summary, at_cutoff))
        table.add_section()
    return table


def _parts(measures: Sequence[str]) -> list[list[str]]:
    """Measures of at most six names together, so that a table fits 80 characters."""
    names = list(dict.fromkeys(_split(measure)[0] for measure in measures))
    chunks = [set(names[start : start + _WIDTH]) for start in range(0, len(names), _WIDTH)]
    return [[measure for measure in measures if _split(measure)[0] in chunk] for chunk in chunks]


def _is_signed(measure: str) -> bool:
    return re.match(r"A?RaB\b", measure) is not None


def _measures(summaries: Iterable[Summary]) -> list[str]:
    return list(dict.fromkeys(measure for summary in summaries for measure in summary.figures))


def _means(summary: Summary, measures: Iterable[str]) -> list[str]:
    means = [summary.figures[measure].mean if measure in summary.figures else math.nan for measure in measures]
    return [f"{mean:.4f}" if math.isfinite(mean) else _NO_VALUE for mean in means]


def _split(measure: str) -> tuple[str, str]:
    name, _, cutoff = measure.rpartition("@")
    return (name, cutoff) if name else (measure, "")


def _heading(name: str) -> str:
    """``RaB(tf)`` as two lines, measure and magnitude."""
    match = re.fullmatch(r"(\w+)\(([\w-]+)(?:,\s*([\w-]+))?\)", name)
    if match is None:
        return name
    parts = (match[1], _MAGNITUDE_TITLES.get(match[2], match[2]), match[3])
    return "\n".join(part for part in parts if part)


def _title(what: str, where: str, queries: Sequence[int]) -> Text:
    number = _queries(min(queries)) if len(set(queries)) == 1 else f"{min(queries)} to {_queries(max(queries))}"
    if re.search(r": \d+ [\w-]*\s?quer(y|ies)$", where):
        return Text(f"{what} on {where}")  # the number is said already
    return Text(f"{what} on {where} ({number})" if where else f"{what} ({number})")


def _sign_caption(about: About) -> Text:
    sentence = "Mean over queries, closer to 0 is better"
    return Text(f"{sentence}; {about.sign_in_words}" if about.sign_in_words else sentence)


def _counted(numbers: dict[str, int], what: str) -> list[str]:
    """One sentence for all systems when they agree, else one for each system that is concerned."""
    if len(numbers) > 1 and len(set(numbers.values())) == 1:
        numbers = {"every system": next(iter(numbers.values()))}
    return [f"{label}: {_queries(number)} {what}" for label, number in numbers.items() if number]


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{number} queries"


def _joined(*parts: tuple[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts if value not in (None, ""))
