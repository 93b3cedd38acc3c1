"""Systems side by side with letters of significance: terminal, CSV, Markdown and LaTeX.

Every system has a letter (a, b, ..., z, aa, ab, ...). A letter behind a figure says that this system is significantly
better than the system of that letter; for measures of which neither high nor low is better, that it differs from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console

from backpack_rank.evaluation.significance import ComparedMeasure, Comparison, Direction, PairedTest
from backpack_rank.files import write_text
from backpack_rank.reporting.report_tables import queries_in_words
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import csv_text, print_table, to_latex, to_markdown

SIGNIFICANCE_COLUMNS = ("where", *(field.name for field in fields(PairedTest)), "significant")
WIDTH = 6  # measures side by side on a page
_TIE = 1e-12
_BEST = "Best figures are bold."
_GOALS: Mapping[Direction, str] = {
    "higher": "Higher is better",
    "lower": "Lower is better",
    "zero": "Closer to 0 is better (absolute value of the mean)",
    "none": "Neither high nor low is better",
}


def print_comparison(comparisons: Sequence[Comparison], console: Console | None = None) -> None:
    """Print the tables and the sentences that say how to read them.

    Args:
        comparisons: one for each set of queries, such as effectiveness and bias.
        console: where to, default the terminal.
    """
    console = console or Console()
    for table in comparison_tables(comparisons):
        # A pipe or a file shows nothing in bold.
        notes = [note for note in table.notes if console.is_terminal or note != _BEST]
        print_table(replace(table, notes=notes), console)


def write_comparison(folder: str | Path, comparisons: Sequence[Comparison]) -> list[Path]:
    """Write the comparison into a folder; returns the paths.

    - ``comparison.csv``: a line per system; per measure its mean with all digits and the letters beside it.
    - ``comparison.md``, ``comparison.tex`` (for the package booktabs): the tables as printed.
    - ``significance.csv``: a line per test, all digits, columns :data:`SIGNIFICANCE_COLUMNS`.

    Args:
        folder: is made where it is missing.
        comparisons: one for each set of queries, such as effectiveness and bias.
    """
    tables = comparison_tables(comparisons)
    texts = {
        "comparison.csv": _csv(comparisons),
        "comparison.md": "\n".join(map(to_markdown, tables)),
        "comparison.tex": "\n".join(map(to_latex, tables)),
        "significance.csv": csv_text(SIGNIFICANCE_COLUMNS, _test_lines(comparisons)),
    }
    for name, text in texts.items():
        write_text(Path(folder) / name, text)
    return [Path(folder) / name for name in texts]


def comparison_tables(comparisons: Sequence[Comparison], width: int = WIDTH) -> list[Table]:
    """The tables: one for each set of queries where it is narrow, else for each cut-off those that are needed.

    The sentences that say how to read them stand below the last.

    Args:
        comparisons: one for each set of queries.
        width: most measures side by side.
    """
    letters = system_letters(comparisons)
    tables: list[Table] = []
    for comparison in comparisons:
        cells = {compared.measure: _cells(comparison, compared, letters) for compared in comparison.measures}
        every = " that every system has" if comparison.lacking else ""
        title = f"{comparison.where or 'Comparison'} ({queries_in_words(comparison.queries)}{every})"
        for measures in _parts(list(cells), width):
            rows = [Row((letters[of], of), [cells[measure][of] for measure in measures]) for of in comparison.systems]
            groups, sections = [Group("", tuple(measures))], [Section("", rows)]
            tables.append(Table(f"comparison-{len(tables) + 1}", title, ("", "system"), groups, sections))
    return [*tables[:-1], *(replace(last, notes=describe_comparison(comparisons)) for last in tables[-1:])]


def describe_comparison(comparisons: Sequence[Comparison]) -> list[str]:
    """Sentences below the tables: what letters and bold figures mean, which queries are left out."""
    lines = []
    several = any(len(comparison.systems) > 1 for comparison in comparisons)
    if several:
        levels = " and ".join(dict.fromkeys(f"{comparison.level:g}" for comparison in comparisons))
        lines.append(
            "A letter behind a figure: significantly better than the system of that letter "
            f"(two-sided paired randomisation test, Holm-corrected over all pairs of systems, p < {levels})."
        )
    names: dict[Direction, dict[str, None]] = {}
    for comparison in comparisons:
        for compared in comparison.measures:
            names.setdefault(compared.direction, {})[compared.measure.partition("@")[0]] = None
    for direction, words in _GOALS.items():
        if direction in names:
            meaning = "; a letter says that the systems differ" if direction == "none" and several else ""
            lines.append(f"{words}: {', '.join(names[direction])}{meaning}.")
    if several and set(names) - {"none"}:
        lines.append(_BEST)
    for comparison in comparisons:
        for label, queries in comparison.lacking.items():
            shown = ", ".join(queries[:5]) + (", ..." if len(queries) > 5 else "")
            lines.append(
                f"{label} has no value of {queries_in_words(len(queries))}, left out for every system: {shown}"
            )
    return lines


def better_than(comparison: Comparison, compared: ComparedMeasure) -> dict[str, tuple[str, ...]]:
    """For every system, those that it is significantly better than; differs from, where neither is better."""
    means = dict(zip(comparison.systems, compared.means, strict=True))
    found: dict[str, list[str]] = {label: [] for label in comparison.systems}
    for test in compared.tests:
        if test.average != compared.average or not test.p_holm < comparison.level:
            continue
        for label, other in ((test.first, test.second), (test.second, test.first)):
            if compared.direction == "none" or _loss(means[label], compared.direction) < _loss(
                means[other], compared.direction
            ):
                found[label].append(other)
    order = {label: place for place, label in enumerate(comparison.systems)}
    return {label: tuple(sorted(others, key=order.__getitem__)) for label, others in found.items()}


def system_letters(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """a, b, ..., z, aa, ab, ... for all systems in order, the same in every table."""
    labels = dict.fromkeys(label for comparison in comparisons for label in comparison.systems)
    return {label: _letter(place) for place, label in enumerate(labels)}


def distinct_labels(names: Sequence[str | PurePath]) -> list[str]:
    """Labels for systems named by files: the file's name, with as many folders as tell it from others.

    Names that are wholly the same get a number: ``a.trec``, ``a.trec (2)``.
    """
    parts = [PurePath(name).parts or (str(name),) for name in names]
    depths = [1] * len(parts)
    while True:
        labels = ["/".join(own[-depth:]).replace("//", "/") for own, depth in zip(parts, depths, strict=True)]
        grown = [
            depth + 1 if depth < len(own) and labels.count(label) > 1 else depth
            for own, depth, label in zip(parts, depths, labels, strict=True)
        ]
        if grown == depths:
            return _numbered(labels)
        depths = grown


def _numbered(labels: Sequence[str]) -> list[str]:
    taken, found = set(labels), []
    seen: set[str] = set()
    for label in labels:
        new, number = label, 2
        while new in seen or (new != label and new in taken):
            new, number = f"{label} ({number})", number + 1
        seen.add(new)
        found.append(new)
    return found


def _letter(place: int) -> str:
    letters = ""
    while place >= 0:
        place, rest = divmod(place, 26)
        letters = chr(ord("a") + rest) + letters
        place -= 1
    return letters


def _loss(mean: float, direction: Direction) -> float:
    """A number that is smaller for the better mean."""
    return {"higher": -mean, "lower": mean, "zero": abs(mean), "none": 0.0}[direction]


def _cells(comparison: Comparison, compared: ComparedMeasure, letters: Mapping[str, str]) -> dict[str, Cell]:
    """By system: its mean, bold where no system is better, and the letters of those that it is better than."""
    better = better_than(comparison, compared)
    losses = [_loss(mean, compared.direction) for mean in compared.means]
    ranked = compared.direction != "none" and len(losses) > 1
    cells = {}
    for label, mean, loss in zip(comparison.systems, compared.means, losses, strict=True):
        own = [letters[other] for other in better[label]]
        separator = "," if any(len(letter) > 1 for letter in own) else ""
        cells[label] = Cell(number(mean), ranked and loss <= min(losses) + _TIE, separator.join(own))
    return cells


def _parts(measures: Sequence[str], width: int) -> list[list[str]]:
    if len(measures) <= width:
        return [list(measures)]
    by_cutoff: dict[str, list[str]] = {}
    for measure in measures:
        by_cutoff.setdefault(measure.rpartition("@")[2] if "@" in measure else "", []).append(measure)
    return [part[start : start + width] for part in by_cutoff.values() for start in range(0, len(part), width)]


def _csv(comparisons: Sequence[Comparison]) -> str:
    letters = system_letters(comparisons)
    measures = [compared.measure for comparison in comparisons for compared in comparison.measures]
    header = ["letter", "system"]
    lines: dict[str, list[Any]] = {label: [letter, label] for label, letter in letters.items()}
    for comparison in comparisons:
        for compared in comparison.measures:
            twice = measures.count(compared.measure) > 1
            name = f"{compared.measure} on {comparison.where}" if twice else compared.measure
            header += [name, f"{name} letters"]
            means = dict(zip(comparison.systems, compared.means, strict=True))
            cells = _cells(comparison, compared, letters)
            for label, line in lines.items():
                line += [means[label], cells[label].raised] if label in means else [None, ""]
    return csv_text(header, lines.values())


def _test_lines(comparisons: Iterable[Comparison]) -> list[tuple[Any, ...]]:
    return [
        (comparison.where, *astuple(test), test.p_holm < comparison.level)
        for comparison in comparisons
        for compared in comparison.measures
        for test in compared.tests
    ]
