"""What a sweep over alpha prints and writes: its tables, its plots, all its figures as files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from backpack_rank.evaluation.results import RunInfo, SystemResult
from backpack_rank.evaluation.significance import PairedTest
from backpack_rank.files import write_text
from backpack_rank.reporting.main_table import (
    describe_sweep,
    main_measures,
    main_table,
    paper_table,
)
from backpack_rank.reporting.measure_files import MEASURE_COLUMNS, measure_lines, system_payload
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.sweep import Sweep, SweepEntry, collect_sweep
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.terminal import fixed_columns
from backpack_rank.reporting.tradeoff import tradeoff_plot
from backpack_rank.reporting.writers import csv_text, dump_json, finite, markdown_rows, to_latex

FORMAT = "backpack_rank sweep 1"
TEST_COLUMNS = (
    "tested",
    "queries_tested",
    "p_randomisation",
    "p_holm",
    "p_wilcoxon",
    "d_z",
    "rank_biserial",
)
COLUMNS = ("setting", "job", *MEASURE_COLUMNS, "change_percent", *TEST_COLUMNS)


def write_sweep_report(
    folder: str | Path, console: Console | None = None, sweep: Sweep | None = None
) -> list[Path]:
    """When all jobs of a multirun have ended: it prints them and writes files beside them.

    The files are ``sweep.csv``, ``sweep.json``, ``sweep.md``, ``sweep.tex`` (for a paper) and the
    plots. With several settings there is one plot for each. A plot that lacks a measure is replaced
    by a sentence that says so. Jobs without measures are named in every form.

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
    table = main_table(sweep, main_measures(sweep))
    notes = [*describe_sweep(sweep), *table.notes, *problems]
    records: list[tuple[Any, ...]] = []
    for entry in sweep.entries:
        records += _records(sweep, entry)
    texts = {
        "csv": csv_text(COLUMNS, records),
        "json": dump_json(_payload(sweep)),
        "md": _markdown(table, notes, _sign(sweep.about), plots),
        "tex": to_latex(paper_table(sweep, main_measures(sweep))),
    }
    paths = []
    for ending, text in texts.items():
        path = folder / f"sweep.{ending}"
        write_text(path, text)
        paths.append(path)

    # Label and four measures take 15 + 4 * (1 + 15) characters, which fit a terminal of 80.
    for part in fixed_columns(table, 4, label_width=15, number_width=7, change_width=8):
        console.print(part)
        console.print()
    for line in (_sign(sweep.about), *notes):
        console.print(Text(line))
    for plot in plots:
        console.print(Text(f"plot: {plot}"), soft_wrap=True)
    return [*paths, *plots]


def _sign(about: RunInfo) -> str:
    sentence = "Means over queries; bias closer to 0 is better"
    return f"{sentence}; bias is {about.sign_in_words}" if about.sign_in_words else sentence


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
