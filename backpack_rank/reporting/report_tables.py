"""A report in the terminal: tables, and the sentences that say how the figures came about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from backpack_rank.evaluation.results import Report, RunInfo, Summary
from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import print_table

_MAGNITUDE_TITLES = {"tf": "TF", "tf-paper": "TF eq.6", "bool": "Boolean", "tc": "count"}
_SHARES = "Mean over queries; NFaiRR and FaiRR: higher is better; the exposures of all groups and neutral sum to 1"
_KINDS = {
    "swap": "All candidates of the bias set, scored again with every word of the lexicon swapped; std: of the scores",
    "swapped documents": "Only documents that the swap changes, and the lists that hold any",
    "wordings": "Gap: score of the first wording minus that of the second; std: of the scores of ordinary candidates",
}


def print_report(report: Report, console: Console | None = None) -> None:
    """Print all tables and the sentences that say how the figures came about."""
    console = console or Console()
    for table in report_tables(report):
        print_table(table, console)
    for line in describe(report):
        console.print(Text(printable(line)))


def report_tables(report: Report) -> list[Table]:
    """Systems by measures of effectiveness, of bias and of each further kind; kinds that nobody measured are left out.

    Measures of bias are named ``<name>@<cut-off>`` and stand in one block of rows per cut-off. RaB and ARaB stand in
    one table; shares (NFaiRR, FaiRR, exposure), which are not better near 0, in another.
    """
    about = report.about
    blocks = [(row.label, row.blocks) for row in report.rows]
    tables = []
    for kind in dict.fromkeys(["effectiveness", "bias", *(kind for _, own in blocks for kind in own)]):
        summaries = [(label, own[kind]) for label, own in blocks if kind in own]
        if not summaries:
            continue
        if kind == "effectiveness":
            tables.append(_flat(_title("Effectiveness", about.effectiveness_set, summaries), summaries))
        elif kind == "bias":
            measures = _measures(summaries)
            for what, note, signs in (("Bias", _sign_note(about), True), ("Fairness", _SHARES, False)):
                names = [measure for measure in measures if _is_signed(measure) == signs]
                if names:
                    tables.append(_by_cutoff(_title(what, about.bias_set, summaries), names, summaries, note))
        else:
            tables.append(_flat(_title(kind.capitalize(), "", summaries), summaries, _KINDS.get(kind, "")))
    return tables


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


def _flat(title: str, summaries: Sequence[tuple[str, Summary]], note: str = "") -> Table:
    """Systems by measures."""
    measures = _measures(summaries)
    rows = [Row((label,), _means(summary, measures)) for label, summary in summaries]
    names = tuple(measure.replace(" (swapped)", "") for measure in measures)
    return Table("", title, ("system",), [Group("", names)], [Section("", rows)], [note] if note else ())


def _by_cutoff(title: str, measures: Sequence[str], summaries: Sequence[tuple[str, Summary]], note: str) -> Table:
    """Systems by measures, one block of rows per cut-off; a measure without one stands in a last block."""
    split = [split_measure(measure) for measure in measures]
    names = list(dict.fromkeys(name for name, _ in split))
    sections = []
    for cutoff in dict.fromkeys(cutoff for _, cutoff in split):
        at_cutoff = [f"{name}@{cutoff}" if cutoff else name for name in names]
        rows = [
            Row((cutoff if place == 0 else "", label), _means(summary, at_cutoff))
            for place, (label, summary) in enumerate(summaries)
        ]
        sections.append(Section("", rows))
    groups = (Group("", tuple(map(_heading, names))),)
    return Table("", title, ("cut-off", "system"), groups, sections, (note,))


def _is_signed(measure: str) -> bool:
    return re.match(r"A?RaB\b", measure) is not None


def _measures(summaries: Iterable[tuple[str, Summary]]) -> list[str]:
    return list(dict.fromkeys(measure for _, summary in summaries for measure in summary.figures))


def _means(summary: Summary, measures: Iterable[str]) -> list[Cell]:
    figures = [summary.figures.get(measure) for measure in measures]
    return [Cell(number(None if figure is None else figure.mean)) for figure in figures]


def split_measure(measure: str) -> tuple[str, str]:
    """``RaB(tf)@10`` as ``("RaB(tf)", "10")``; a measure without a cut-off has an empty one."""
    name, _, cutoff = measure.rpartition("@")
    return (name, cutoff) if name else (measure, "")


def _heading(name: str) -> str:
    """``RaB(tf)`` in words: measure and magnitude."""
    match = re.fullmatch(r"(\w+)\(([\w-]+)(?:,\s*([\w-]+))?\)", name)
    if match is None:
        return name
    return " ".join(filter(None, (match[1], _MAGNITUDE_TITLES.get(match[2], match[2]), match[3])))


def _title(what: str, where: str, summaries: Sequence[tuple[str, Summary]]) -> str:
    counts = {summary.queries for _, summary in summaries}
    number = queries_in_words(min(counts)) if len(counts) == 1 else f"{min(counts)} to {queries_in_words(max(counts))}"
    if len(counts) > 1:
        return f"{what} on {where} (every system on its own {number})" if where else f"{what} ({number})"
    if re.search(r": (\d+ of )?\d+ [\w-]*\s?quer(y|ies)$", where):
        return f"{what} on {where}"  # the number is said already
    return f"{what} on {where} ({number})" if where else f"{what} ({number})"


def _sign_note(about: RunInfo) -> str:
    sentence = "Mean over queries, closer to 0 is better"
    return f"{sentence}; {about.sign_in_words}" if about.sign_in_words else sentence


def _counted(numbers: dict[str, int], what: str) -> list[str]:
    """One sentence for all systems when they agree, else one for each system that is concerned."""
    if len(numbers) > 1 and len(set(numbers.values())) == 1:
        numbers = {"every system": next(iter(numbers.values()))}
    return [f"{label}: {queries_in_words(number)} {what}" for label, number in numbers.items() if number]


def queries_in_words(number: int) -> str:
    """``1 query``, ``2 queries``."""
    return "1 query" if number == 1 else f"{number} queries"


def _joined(*parts: tuple[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts if value not in (None, ""))
