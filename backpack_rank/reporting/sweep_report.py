"""What a sweep over alpha prints and writes: its tables, its plots, all its figures as files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, Report, RunInfo, SystemResult
from backpack_rank.evaluation.significance import SIGNIFICANCE, PairedTest
from backpack_rank.files import write_text
from backpack_rank.reporting.measure_files import MEASURE_COLUMNS, measure_lines, system_payload
from backpack_rank.reporting.report_tables import describe
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.sweep import Sweep, SweepEntry, collect_sweep
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table
from backpack_rank.reporting.terminal import fixed_columns
from backpack_rank.reporting.tradeoff import tradeoff_plot
from backpack_rank.reporting.writers import csv_text, dump_json, finite, markdown_rows

FORMAT = "backpack_rank sweep 1"
_FIRST_IN_TERMINAL = (
    "nDCG@10",
    "RaB(tf)@10",
    "ARaB(tf)@10",
    "swap change/std (swapped)",
    "MRR@10",
    "RaB(bool)@10",
    "ARaB(bool)@10",
)
"""Measures that stand first in the terminal, in this order."""
TEST_COLUMNS = (
    "tested",
    "queries_tested",
    "p_randomisation",
    "p_holm",
    "p_wilcoxon",
    "d_z",
    "rank_biserial",
)
# Label and four measures take 15 + 4 * (1 + 15) characters, which fit a terminal of 80.
_MEASURES_SIDE_BY_SIDE = 4
_LABEL_WIDTH = 15
_NUMBER_WIDTH = 7
_CHANGE_WIDTH = 8
_CHANGE_NOTE = (
    "Changes are against alpha=1, for bias of the absolute value of the mean; in % where the "
    "interval at alpha=1 leaves out 0."
)
_TEST_NOTE = (
    "* marks significant changes: two-sided paired randomisation test against alpha=1 on the same "
    "queries, Holm-corrected over the other alphas of the setting for each measure, "
    f"p < {SIGNIFICANCE:g}."
)


def write_sweep_report(
    folder: str | Path, console: Console | None = None, sweep: Sweep | None = None
) -> list[Path]:
    """Use this when all jobs of a multirun have ended: it prints them and writes files beside them.

    The files are ``sweep.csv``, ``sweep.json``, ``sweep.md`` and the plots. With several settings
    there is one plot for each. A plot that lacks a measure is replaced by a sentence that says so.
    Jobs without measures are named in every form.

    Args:
        folder: of the multirun.
        console: where to print, default the terminal.
        sweep: the systems with their tests; default those of
            :func:`~backpack_rank.reporting.sweep.collect_sweep`, without tests.

    Returns:
        Paths of the written files.

    Raises:
        FileNotFoundError, ValueError: as :func:`~backpack_rank.reporting.sweep.collect_sweep`.
    """
    folder = Path(folder)
    if console is None:
        console = Console()
    if sweep is None:
        sweep = collect_sweep(folder)
    plots, problems = _draw(folder, sweep)
    table = sweep_table(sweep)
    notes = [*table.notes, *problems]
    texts = {
        "csv": csv_text(table.columns, table.records),
        "json": dump_json(_payload(sweep)),
        "md": _markdown(table, notes, _sign(sweep.about), plots),
    }
    paths = []
    for ending, text in texts.items():
        path = folder / f"sweep.{ending}"
        write_text(path, text)
        paths.append(path)

    for part in terminal_tables(sweep):
        console.print(fixed_columns(part, _LABEL_WIDTH, _NUMBER_WIDTH + _CHANGE_WIDTH))
        console.print()
    for line in (_sign(sweep.about), *notes):
        console.print(Text(line))
    for plot in plots:
        console.print(Text(f"plot: {plot}"), soft_wrap=True)
    return [*paths, *plots]


def sweep_table(sweep: Sweep) -> Table:
    """Every system by every measure of the tables; bias with its sign and as an absolute value.

    The lines of the CSV file have all measures that there are.
    """
    measures = _measures(sweep)
    with_settings = any(entry.setting for entry in sweep.entries)
    rows = []
    records = []
    for entry in sweep.entries:
        if not sweep.is_repeated(entry):
            labels = (entry.setting, entry.row.label) if with_settings else (entry.row.label,)
            rows.append(Row(labels, _cells(sweep, entry, measures)))
        records += _records(sweep, entry)
    headings = []
    for measure in map(measure_of, measures):
        headings.append(measure.title)
        if measure.signed:
            headings.append(f"{measure.title}, absolute")
    return Table(
        name="sweep",
        title="Sweep over alpha",
        labels=("setting", "system") if with_settings else ("system",),
        groups=[Group("", tuple(headings))],
        sections=[Section("", rows)],
        notes=_notes(sweep),
        columns=("setting", "job", *MEASURE_COLUMNS, "change_percent", *TEST_COLUMNS),
        records=records,
    )


def terminal_tables(sweep: Sweep) -> list[Table]:
    """What is printed: references and unchanged ranker once, then a block for each policy.

    Blocks have alpha downwards. Four measures with their changes against alpha=1 fit 80 characters;
    further measures stand in further tables. Cells are padded, so that numbers, changes and stars
    stand below each other.
    """
    measures = sorted(_measures(sweep), key=_place_in_terminal)
    blocks = _blocks(sweep)
    tables = []
    for start in range(0, len(measures), _MEASURES_SIDE_BY_SIDE):
        part = measures[start : start + _MEASURES_SIDE_BY_SIDE]
        sections = []
        for heading, entries in blocks:
            rows = []
            for label, entry in entries:
                cells = [_padded_cell(sweep, entry, measure) for measure in part]
                rows.append(Row((f"  {label}" if heading else label,), cells))
            sections.append(Section(heading, rows))
        headings = tuple(measure_of(measure).title.rjust(_NUMBER_WIDTH) for measure in part)
        tables.append(Table("", "", ("",), [Group("", headings)], sections))
    return tables


def _measures(sweep: Sweep) -> list[str]:
    """The main measures that any system has: effectiveness first, then bias, then further kinds."""
    kinds: dict[str, dict[str, None]] = {"effectiveness": {}, "bias": {}}
    for entry in sweep.entries:
        for kind, summary in entry.row.blocks.items():
            main = [measure for measure in summary.figures if measure_of(measure).is_main]
            kinds.setdefault(kind, {}).update(dict.fromkeys(main))
    return [measure for measures in kinds.values() for measure in measures]


def _place_in_terminal(measure: str) -> int:
    if measure not in _FIRST_IN_TERMINAL:
        return len(_FIRST_IN_TERMINAL)
    return _FIRST_IN_TERMINAL.index(measure)


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
        blocks.append((setting.title if len(settings) > 1 else "", block))
    blocks.insert(0, ("", common))
    return [(heading, entries) for heading, entries in blocks if entries]


def _label(entry: SweepEntry) -> str:
    if entry.row.alpha is None:
        return entry.row.label
    return "alpha 1 (as is)" if entry.row.alpha == 1 else f"alpha {entry.row.alpha:g}"


def _padded_cell(sweep: Sweep, entry: SweepEntry, measure: str) -> Cell:
    change = _change(sweep, entry, measure)
    # Percentages stand below each other, stars behind them.
    if not change.endswith("*"):
        change += " "
    number = _number(entry.row, measure)
    return Cell(number.rjust(_NUMBER_WIDTH) + change.rjust(_CHANGE_WIDTH))


def _cells(sweep: Sweep, entry: SweepEntry, measures: Sequence[str]) -> list[Cell]:
    """Means with their changes in brackets, which for bias are of the absolute value."""
    cells = []
    for measure in measures:
        text = _number(entry.row, measure)
        if measure_of(measure).signed:
            cells.append(Cell(text))
            # The absolute value. A missing figure is "-", of which nothing would be left.
            text = text.lstrip("+-") or NONE
        change = _change(sweep, entry, measure)
        cells.append(Cell(f"{text} ({change})" if change else text))
    return cells


def _number(row: SystemResult, measure: str) -> str:
    """The mean, of bias with its sign."""
    figure = row.figure(measure)
    if figure is None or finite(figure.mean) is None:
        return NONE
    return f"{figure.mean:+.4f}" if measure_of(measure).signed else f"{figure.mean:.4f}"


def _change(sweep: Sweep, entry: SweepEntry, measure: str) -> str:
    """The change, with a star where it is significant; empty where there is none.

    It is in % where the interval at alpha=1 leaves out 0: a percentage of what may be 0 says
    nothing.
    """
    test = entry.test(measure)
    star = "*" if test is not None and test.p_holm < SIGNIFICANCE else ""
    change = sweep.change(entry, measure)
    if change is None or entry.row.alpha == 1:
        return star
    base = sweep.base(entry.setting)
    before = None if base is None else base.row.figure(measure)
    after = entry.row.figure(measure)
    if before is not None and after is not None and _may_be_zero(before):
        return f"{after.absolute_mean - before.absolute_mean:+.3f}{star}"
    return f"{change:+.1f}%{star}"


def _may_be_zero(figure: Estimate) -> bool:
    return figure.low is not None and figure.high is not None and figure.low <= 0 <= figure.high


def _sign(about: RunInfo) -> str:
    sentence = "Means over queries; bias closer to 0 is better"
    return f"{sentence}; bias is {about.sign_in_words}" if about.sign_in_words else sentence


def _notes(sweep: Sweep) -> list[str]:
    """Sentences below the tables."""
    about = sweep.about
    sets = []
    if about.effectiveness_set:
        sets.append(f"Effectiveness on {about.effectiveness_set}")
    if about.bias_set:
        sets.append(f"bias on {about.bias_set}")
    notes = [", ".join(sets)] if sets else []
    rows = []
    for entry in sweep.entries:
        label = f"{entry.setting} {entry.row.label}".strip()
        rows.append(replace(entry.row, label=label))
    notes += describe(Report(tuple(rows), about))
    if any(entry.row.alpha == 1 for entry in sweep.entries):
        notes.append(_CHANGE_NOTE)
    if any(entry.tests for entry in sweep.entries):
        notes.append(_TEST_NOTE)
    if sweep.failed:
        notes.append(f"Without measures (failed or not finished): {', '.join(sweep.failed)}")
    return notes


def _draw(folder: Path, sweep: Sweep) -> tuple[list[Path], list[str]]:
    """Paths of the plots, and sentences on those that cannot be drawn."""
    plots: list[Path] = []
    problems = []
    for name in sweep.settings:
        stem = "tradeoff"
        if name:
            stem += "-" + re.sub(r"[^A-Za-z0-9.=_-]+", "_", name)
        try:
            plots += tradeoff_plot(
                folder / f"{stem}.png",
                sweep.rows(name),
                control=_control(sweep, name),
                name=Setting.of(name).policy or "alpha",
            )
        except ValueError as error:
            where = f" of {name}" if name else ""
            problems.append(f"No plot{where}: {error}.")
    return plots, problems


def _control(sweep: Sweep, name: str) -> tuple[str, list[SystemResult]] | None:
    """The control that belongs to a setting: its policy and its systems."""
    setting = Setting.of(name)
    if setting.is_control:
        return None
    for other in map(Setting.of, sweep.settings):
        if other.is_control and other.rest == setting.rest:
            return other.policy, sweep.rows(other.name)
    return None


def _records(sweep: Sweep, entry: SweepEntry) -> list[tuple[Any, ...]]:
    """The lines of a system in the CSV file."""
    records = []
    for line in measure_lines(entry.row):
        measure = line[MEASURE_COLUMNS.index("measure")]
        change, test = sweep.change(entry, measure), entry.test(measure)
        records.append((entry.setting, entry.job, *line, change, *_test_cells(test)))
    return records


def _test_cells(test: PairedTest | None) -> tuple[Any, ...]:
    """Cells of :data:`TEST_COLUMNS`."""
    if test is None:
        return (None,) * len(TEST_COLUMNS)
    return (
        test.average,
        test.queries,
        test.p_randomisation,
        test.p_holm,
        test.p_wilcoxon,
        test.d_z,
        test.rank_biserial,
    )


def _payload(sweep: Sweep) -> dict[str, Any]:
    """``{"format", "about", "failed", "systems"}``.

    A system is as in ``measures.json``, with ``setting``, ``job``, ``change_percent`` by measure,
    and ``tests``, a list of every test of all averages with the names of
    :class:`~backpack_rank.evaluation.significance.PairedTest`.
    """
    systems = []
    for entry in sweep.entries:
        system = system_payload(entry.row)
        system["setting"] = entry.setting
        system["job"] = entry.job
        system["change_percent"] = {}
        for summary in entry.row.blocks.values():
            for measure in summary.figures:
                system["change_percent"][measure] = sweep.change(entry, measure)
        system["tests"] = [_test_payload(test) for test in entry.tests]
        systems.append(system)
    about = {}
    for field in fields(RunInfo):
        about[field.name] = getattr(sweep.about, field.name)
    return {"format": FORMAT, "about": about, "failed": list(sweep.failed), "systems": systems}


def _test_payload(test: PairedTest) -> dict[str, Any]:
    payload = asdict(test)
    for name, value in payload.items():
        if isinstance(value, float):
            payload[name] = finite(value)
    return payload


def _markdown(table: Table, notes: Sequence[str], sign: str, plots: Iterable[Path]) -> str:
    lines = [f"# {table.title}", "", *markdown_rows(table, _escape), "", f"{sign}."]
    for note in notes:
        lines += ["", note.replace("*", "\\*")]
    for plot in plots:
        if plot.suffix == ".png":
            lines += ["", f"![{plot.stem}]({plot.name})"]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """Names of policies keep their underscores, so that a search of the file finds them."""
    return re.sub(r"([|*])", r"\\\1", text)
