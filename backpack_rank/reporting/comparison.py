"""Systems side by side with letters of significance: terminal, CSV, Markdown and LaTeX.

Every system has a letter (a, b, ..., z, aa, ab, ...). A letter behind a figure says that this
system is significantly better than the system of that letter; for measures of which neither high
nor low is better, that it differs from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console

from backpack_rank.evaluation.measure import Direction
from backpack_rank.evaluation.significance import ComparedMeasure, Comparison, PairedTest
from backpack_rank.files import write_text
from backpack_rank.reporting.report_tables import queries_in_words
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import csv_text, print_table, to_latex, to_markdown

SIGNIFICANCE_COLUMNS = ("where", *(field.name for field in fields(PairedTest)), "significant")
WIDTH = 6  # measures side by side on a page
_TIE = 1e-12
_BEST = "Best figures are bold."


class Letters:
    """Marks figures with letters of significance, the same in every table.

    ::

        letters = Letters(comparisons)
        letters.named("BM25"), letters.behind("nDCG@10", "GPT-2")  # "a BM25", "a"
    """

    def __init__(self, comparisons: Sequence[Comparison] = ()) -> None:
        """``comparisons``: tests of every pair of systems, one for each set of queries."""
        self._comparisons = comparisons
        self._of_system = system_letters(comparisons)
        self._behind: dict[tuple[str, str], str] = {}
        for comparison in comparisons:
            for compared in comparison.measures:
                for system, others in better_than(comparison, compared).items():
                    marks = joined_letters(others, self._of_system)
                    self._behind[compared.measure, system] = marks

    def named(self, system: str, label: str | None = None) -> str:
        """Its letter and its label, by default its name; the label alone where nobody tested it."""
        return f"{self._of_system.get(system, '')} {label or system}".strip()

    def behind(self, measure: str, system: str) -> str:
        """Letters of the systems that it is significantly better than."""
        return self._behind.get((measure, system), "")

    @property
    def notes(self) -> list[str]:
        """What letters mean, where there are any, and the queries that no system counts."""
        notes = queries_left_out(self._comparisons)
        if any(self._behind.values()):
            notes = [letters_in_words(self._comparisons), *notes]
        return notes


def print_comparison(comparisons: Sequence[Comparison], console: Console | None = None) -> None:
    """Print systems side by side, and the sentences that say how to read the tables.

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
    """Keep a comparison in a folder; returns the paths.

    - ``comparison.csv``: a line per system; per measure its mean with all digits and the letters
      beside it.
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
    """The tables: one for each set of queries, or for each cut-off of a wide one.

    The sentences that say how to read them stand below the last.

    Args:
        comparisons: one for each set of queries.
        width: most measures side by side.
    """
    letters = system_letters(comparisons)
    tables: list[Table] = []
    for comparison in comparisons:
        cells = {}
        for compared in comparison.measures:
            cells[compared.measure] = _cells(comparison, compared, letters)
        queries = queries_in_words(comparison.queries)
        if comparison.lacking:
            queries += " that every system has"
        for measures in _parts(list(cells), width):
            rows = []
            for system in comparison.systems:
                cells_of_system = [cells[measure][system] for measure in measures]
                rows.append(Row((letters[system], system), cells_of_system))
            table = Table(
                name=f"comparison-{len(tables) + 1}",
                title=f"{comparison.where or 'Comparison'} ({queries})",
                labels=("", "system"),
                groups=[Group("", tuple(measures))],
                sections=[Section("", rows)],
            )
            tables.append(table)
    if tables:
        tables[-1] = replace(tables[-1], notes=describe_comparison(comparisons))
    return tables


def describe_comparison(comparisons: Sequence[Comparison]) -> list[str]:
    """Sentences below the tables: what letters and bold figures mean, queries left out."""
    lines = []
    several = any(len(comparison.systems) > 1 for comparison in comparisons)
    if several:
        lines.append(letters_in_words(comparisons))
    measures_by_goal: dict[Direction, dict[str, None]] = {}
    for comparison in comparisons:
        for compared in comparison.measures:
            name = compared.measure.partition("@")[0]
            measures_by_goal.setdefault(compared.direction, {})[name] = None
    for goal in Direction:
        if goal in measures_by_goal:
            line = f"{goal.goal}: {', '.join(measures_by_goal[goal])}"
            if goal is Direction.NONE and several:
                line += "; a letter says that the systems differ"
            lines.append(f"{line}.")
    if several and set(measures_by_goal) - {Direction.NONE}:
        lines.append(_BEST)
    return lines + queries_left_out(comparisons)


def letters_in_words(comparisons: Iterable[Comparison]) -> str:
    """What a letter behind a figure means."""
    levels = dict.fromkeys(f"{comparison.level:g}" for comparison in comparisons)
    return (
        "A letter behind a figure: significantly better than the system of that letter "
        "(two-sided paired randomisation test, Holm-corrected over all pairs of systems, "
        f"p < {' and '.join(levels)})."
    )


def queries_left_out(comparisons: Iterable[Comparison]) -> list[str]:
    """A sentence for each system that lacks values of queries that others have."""
    lines = []
    for comparison in comparisons:
        for label, queries in comparison.lacking.items():
            shown = ", ".join(queries[:5])
            if len(queries) > 5:
                shown += ", ..."
            lines.append(
                f"{label} has no value of {queries_in_words(len(queries))}, "
                f"left out for every system: {shown}"
            )
    return lines


def better_than(comparison: Comparison, compared: ComparedMeasure) -> dict[str, tuple[str, ...]]:
    """For every system, those that it is significantly better than, in the order of the systems.

    Where neither high nor low is better, those that it differs from.
    """
    losses = {}
    for system, mean in zip(comparison.systems, compared.means, strict=True):
        losses[system] = compared.direction.loss(mean)
    worse: dict[str, set[str]] = {system: set() for system in comparison.systems}
    for test in compared.tests:
        if test.average != compared.average or not test.p_holm < comparison.level:
            continue
        for system, other in ((test.first, test.second), (test.second, test.first)):
            if compared.direction is Direction.NONE or losses[system] < losses[other]:
                worse[system].add(other)
    in_order = {}
    for system, others in worse.items():
        in_order[system] = tuple(other for other in comparison.systems if other in others)
    return in_order


def system_letters(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """a, b, ..., z, aa, ab, ... for all systems in order, the same in every table."""
    letters: dict[str, str] = {}
    for comparison in comparisons:
        for label in comparison.systems:
            if label not in letters:
                letters[label] = _letter(len(letters))
    return letters


def joined_letters(systems: Iterable[str], letters: Mapping[str, str]) -> str:
    """The letters of some systems, with commas where one of them has two characters.

    >>> joined_letters(["BM25", "GPT-2"], {"BM25": "a", "GPT-2": "b"})
    'ab'
    """
    marks = [letters[system] for system in systems]
    separator = "," if any(len(mark) > 1 for mark in marks) else ""
    return separator.join(marks)


def distinct_labels(names: Sequence[str | PurePath]) -> list[str]:
    """Labels of systems named by files.

    They are the file's name, with as many folders as distinguish it from others. Names that are
    equal get a number.

    >>> distinct_labels(["a/run.trec", "b/run.trec", "x.trec", "x.trec"])
    ['a/run.trec', 'b/run.trec', 'x.trec', 'x.trec (2)']
    """
    parts = [PurePath(name).parts or (str(name),) for name in names]
    depths = [1] * len(parts)
    while True:
        labels = []
        for path_parts, depth in zip(parts, depths, strict=True):
            # The root of an absolute path is a slash already.
            labels.append("/".join(path_parts[-depth:]).replace("//", "/"))
        deeper = list(depths)
        for place, label in enumerate(labels):
            if labels.count(label) > 1 and depths[place] < len(parts[place]):
                deeper[place] += 1
        if deeper == depths:
            return _numbered(labels)
        depths = deeper


def _numbered(labels: Sequence[str]) -> list[str]:
    """The labels, with a number behind each that stood before."""
    numbered: list[str] = []
    for label in labels:
        distinct = label
        count = 2
        # A label with a number may stand among the labels, too.
        while distinct in numbered or (distinct != label and distinct in labels):
            distinct = f"{label} ({count})"
            count += 1
        numbered.append(distinct)
    return numbered


def _letter(place: int) -> str:
    """0 is a, 25 is z, 26 is aa: counting in base 26 without a zero."""
    letters = ""
    while place >= 0:
        place, rest = divmod(place, 26)
        letters = chr(ord("a") + rest) + letters
        place -= 1
    return letters


def _cells(
    comparison: Comparison, compared: ComparedMeasure, letters: Mapping[str, str]
) -> dict[str, Cell]:
    """By system: its mean, bold where none is better, and the letters of those that it beats."""
    better = better_than(comparison, compared)
    losses = [compared.direction.loss(mean) for mean in compared.means]
    has_best = compared.direction is not Direction.NONE and len(losses) > 1
    cells = {}
    for system, mean, loss in zip(comparison.systems, compared.means, losses, strict=True):
        is_best = has_best and loss <= min(losses) + _TIE
        marks = joined_letters(better[system], letters)
        cells[system] = Cell(number(mean), bold=is_best, raised=marks)
    return cells


def _parts(measures: Sequence[str], width: int) -> list[list[str]]:
    """The measures of each table: all, or where they are too many, some of one cut-off."""
    if len(measures) <= width:
        return [list(measures)]
    by_cutoff: dict[str, list[str]] = {}
    for measure in measures:
        cutoff = measure.rpartition("@")[2] if "@" in measure else ""
        by_cutoff.setdefault(cutoff, []).append(measure)
    parts = []
    for of_cutoff in by_cutoff.values():
        for start in range(0, len(of_cutoff), width):
            parts.append(of_cutoff[start : start + width])
    return parts


def _csv(comparisons: Sequence[Comparison]) -> str:
    letters = system_letters(comparisons)
    # A measure of several sets of queries is named with its set.
    names: list[str] = []
    for comparison in comparisons:
        for compared in comparison.measures:
            names.append(compared.measure)
    header = ["letter", "system"]
    lines: dict[str, list[Any]] = {}
    for system, letter in letters.items():
        lines[system] = [letter, system]
    for comparison in comparisons:
        for compared in comparison.measures:
            name = compared.measure
            if names.count(name) > 1:
                name += f" on {comparison.where}"
            header += [name, f"{name} letters"]
            means = dict(zip(comparison.systems, compared.means, strict=True))
            cells = _cells(comparison, compared, letters)
            for system, line in lines.items():
                if system in means:
                    line += [means[system], cells[system].raised]
                else:
                    line += [None, ""]
    return csv_text(header, lines.values())


def _test_lines(comparisons: Iterable[Comparison]) -> list[tuple[Any, ...]]:
    """Lines of :data:`SIGNIFICANCE_COLUMNS`."""
    lines = []
    for comparison in comparisons:
        for compared in comparison.measures:
            for test in compared.tests:
                significant = test.p_holm < comparison.level
                lines.append((comparison.where, *astuple(test), significant))
    return lines
