"""The jobs of a Hydra multirun side by side: one table and one plot of what alpha does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.evaluation.results import Estimate, Report, RunInfo, SystemResult
from backpack_rank.evaluation.significance import SIGNIFICANCE, PairedTest
from backpack_rank.files import UNFINISHED, read_yaml, write_text
from backpack_rank.reporting.measure_files import MEASURE_COLUMNS, measure_lines, read_json, system_payload
from backpack_rank.reporting.report_tables import describe
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.tradeoff import tradeoff_plot
from backpack_rank.reporting.writers import csv_text, dump_json, finite

MEASURES_FILE = "measures.json"
FORMAT = "backpack_rank sweep 1"
BIAS = {
    "RaB(tf)@10": "RaB@10 TF",
    "ARaB(tf)@10": "ARaB@10 TF",
    "RaB(bool)@10": "RaB@10 Boolean",
    "ARaB(bool)@10": "ARaB@10 Boolean",
}
TITLES = {
    **{name: name for name in ("nDCG@10", "MRR@10")},
    **BIAS,
    "NFaiRR@10": "NFaiRR@10",
    "swap change/std (swapped)": "swap change/std",
    "swap tau (swapped)": "swap tau",
    **{name: name for name in ("|gap|/std", "prefers male", "prefers female")},
}
_ORDER = (
    "nDCG@10",
    "RaB(tf)@10",
    "ARaB(tf)@10",
    "swap change/std (swapped)",
    "MRR@10",
    "RaB(bool)@10",
    "ARaB(bool)@10",
)
TEST_COLUMNS = ("tested", "queries_tested", "p_randomisation", "p_holm", "p_wilcoxon", "d_z", "rank_biserial")
_ACROSS, _LABEL, _NUMBER, _CELL = 4, 15, 7, 15  # 15 + 4 * (1 + 15) characters
_CHANGE_NOTE = (
    "Changes are against alpha=1, for bias of the absolute value of the mean; in % where the interval at alpha=1 "
    "leaves out 0."
)
_TEST_NOTE = (
    "* marks significant changes: two-sided paired randomisation test against alpha=1 on the same queries, "
    f"Holm-corrected over the other alphas of the setting for each measure, p < {SIGNIFICANCE:g}."
)


@dataclass(frozen=True)
class SweepEntry:
    """One system of a sweep.

    Attributes:
        row: its measures.
        setting: overrides other than alpha that tell its job from others, such as ``data=dl19``; empty where
            alpha is all that varies, or for a reference that is the same in every setting.
        job: folder of the job below the sweep's; of the first one for a reference that several jobs measured.
        tests: of this system (first) against alpha=1 of its setting (second), where they were made.
    """

    row: SystemResult
    setting: str
    job: str
    tests: tuple[PairedTest, ...] = ()

    def test(self, measure: str) -> PairedTest | None:
        """The test of the change that the tables show: of the absolute mean for bias, else of the mean."""
        tests = [test for test in self.tests if test.measure == measure and test.average != "mean_absolute"]
        return max(tests, key=lambda test: test.average == "absolute_mean", default=None)


@dataclass(frozen=True)
class Sweep:
    """All systems of a multirun: by setting, references first, then from the largest alpha to the smallest.

    Attributes:
        entries: the systems.
        failed: folders of jobs that wrote no measures.
        about: how the figures came about; where jobs differ, all their words.
    """

    entries: tuple[SweepEntry, ...]
    failed: tuple[str, ...]
    about: RunInfo

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings of the systems with an alpha, in order."""
        return tuple(dict.fromkeys(entry.setting for entry in self.entries if entry.row.alpha is not None))

    def rows(self, setting: str) -> list[SystemResult]:
        """Systems of one setting, with the references that count for it."""
        return [
            entry.row
            for entry in self.entries
            if entry.setting == setting or (entry.row.alpha is None and entry.setting == "")
        ]

    def entry(self, setting: str, row: SystemResult) -> SweepEntry | None:
        """The entry of a system of a setting."""
        return next((one for one in self.entries if one.setting == setting and one.row is row), None)

    def base(self, setting: str) -> SweepEntry | None:
        """The ranker as it is: alpha=1 of a setting, or of another policy with otherwise equal overrides."""
        ones = [entry for entry in self.entries if entry.row.alpha == 1]
        own = [entry for entry in ones if entry.setting == setting]
        rest = Setting.of(setting).rest
        return next(iter([*own, *(entry for entry in ones if Setting.of(entry.setting).rest == rest)]), None)

    def is_repeated(self, entry: SweepEntry) -> bool:
        """Whether a system is the ranker as it is once more, which an earlier setting has measured already."""
        if entry.row.alpha != 1:
            return False
        rest = Setting.of(entry.setting).rest
        ones = [one for one in self.entries if one.row.alpha == 1 and Setting.of(one.setting).rest == rest]
        return entry is not ones[0] and _same(entry.row, ones[0].row)

    def change(self, entry: SweepEntry, measure: str) -> float | None:
        """Change in % against alpha=1 of the same setting, of the absolute value of the mean.

        None for references and where there is no alpha=1, no such measure, or 0 to compare with.
        """
        if entry.row.alpha is None:
            return None
        one = next((o for o in self.entries if o.setting == entry.setting and o.row.alpha == 1), None)
        own, base = entry.row.figure(measure), one.row.figure(measure) if one is not None else None
        if own is None or base is None or not base.absolute_mean:
            return None
        return finite(100 * (own.absolute_mean - base.absolute_mean) / base.absolute_mean)


def collect_sweep(folder: str | Path) -> Sweep:
    """Read ``measures.json`` of every job below the folder of a multirun.

    A job is a folder, at any depth, with Hydra's ``.hydra`` or with a ``measures.json``. One that is marked as
    unfinished counts as one without measures.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: there is no job, no job wrote measures (they are named), or a damaged file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of a multirun")
    found = {path.parent for name in (".hydra", MEASURES_FILE) for path in folder.rglob(name)} - {folder}
    jobs = sorted(found, key=lambda job: job.relative_to(folder).as_posix())
    done = [job for job in jobs if (job / MEASURES_FILE).is_file() and not (job / UNFINISHED).exists()]
    failed = tuple(job.relative_to(folder).as_posix() for job in jobs if job not in done)
    if not done:
        names = f": {', '.join(failed)}" if failed else ""
        raise ValueError(f"none of the {len(jobs)} jobs below {folder} wrote {MEASURES_FILE}{names}")
    settings = _settings(done)
    reports = {job: read_json(job / MEASURES_FILE) for job in done}
    entries = [
        SweepEntry(row, settings[job], job.relative_to(folder).as_posix())
        for job, report in reports.items()
        for row in report.rows
    ]
    entries = _merge_references(entries, set(settings.values()))
    entries.sort(key=lambda entry: (entry.setting, entry.row.alpha is not None, -(entry.row.alpha or 0)))
    return Sweep(tuple(entries), failed, _merge_about([report.about for report in reports.values()]))


def write_sweep_report(folder: str | Path, console: Console | None = None, sweep: Sweep | None = None) -> list[Path]:
    """Write ``sweep.csv``, ``sweep.json``, ``sweep.md`` and the plots into the folder of a multirun, and print them.

    With several settings there is one plot for each. A plot that lacks a measure is replaced by a sentence that
    says so. Jobs without measures are named in every form.

    Args:
        folder: of the multirun.
        console: where to print, default the terminal.
        sweep: the systems with their tests; default those of :func:`collect_sweep`, without tests.

    Returns:
        Paths of the written files.

    Raises:
        FileNotFoundError, ValueError: as :func:`collect_sweep`.
    """
    folder, console = Path(folder), console or Console()
    sweep = collect_sweep(folder) if sweep is None else sweep
    plots, problems = _draw(folder, sweep)
    lines = [*_describe(sweep), *problems]
    texts = {
        "sweep.csv": _csv(sweep),
        "sweep.json": dump_json(_payload(sweep)),
        "sweep.md": _markdown(sweep, lines, plots),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    for table in sweep_tables(sweep):
        console.print(table)
        console.print()
    console.print(_sign(sweep))
    for line in lines:
        console.print(Text(line))
    for plot in plots:
        console.print(Text(f"plot: {plot}"), soft_wrap=True)
    return [*(folder / name for name in texts), *plots]


def sweep_tables(sweep: Sweep) -> list[Table]:
    """What is printed: the references and the ranker as it is once, then a block for each policy, alpha downwards.

    Four measures with their changes against alpha=1 fit 80 characters; further measures stand in further tables.
    """
    shown = sorted(_shown(sweep), key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    tables = []
    for start in range(0, len(shown), _ACROSS):
        measures = shown[start : start + _ACROSS]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
        table.add_column("", width=_LABEL, overflow="fold")
        for measure in measures:
            table.add_column(Text(TITLES[measure].rjust(_NUMBER)), width=_CELL, no_wrap=True)
        for heading, entries in _blocks(sweep):
            if heading:
                table.add_row(Text(heading, style="bold"))
            for label, entry in entries:
                name = Text(f"  {label}" if heading else label)
                table.add_row(name, *(_cell(sweep, entry, measure) for measure in measures))
            table.add_section()
        tables.append(table)
    return tables


def _blocks(sweep: Sweep) -> list[tuple[str, list[tuple[str, SweepEntry]]]]:
    """Headings, and entries with their labels; the first block holds what all settings share."""
    several = len(sweep.settings) > 1
    one_ranker = len({Setting.of(name).rest for name in sweep.settings}) == 1
    common = [(entry.row.label, entry) for entry in sweep.entries if entry.row.alpha is None and not entry.setting]
    blocks = []
    for name in sweep.settings:
        own = [entry for entry in sweep.entries if entry.setting == name and not sweep.is_repeated(entry)]
        labelled = [(_label(entry), entry) for entry in own if entry.setting or entry.row.alpha is not None]
        if one_ranker:
            common += [(label, entry) for label, entry in labelled if entry.row.alpha == 1]
            labelled = [(label, entry) for label, entry in labelled if entry.row.alpha != 1]
        blocks.append((Setting.of(name).title if several else "", labelled))
    return [(heading, entries) for heading, entries in [("", common), *blocks] if entries]


def _label(entry: SweepEntry) -> str:
    if entry.row.alpha is None:
        return entry.row.label
    return "alpha 1 (as is)" if entry.row.alpha == 1 else f"alpha {entry.row.alpha:g}"


def _cell(sweep: Sweep, entry: SweepEntry, measure: str) -> Text:
    number = _number(entry.row, measure)
    change = _change(sweep, entry, measure)
    return Text(number.rjust(_NUMBER) + (change if change.endswith("*") else f"{change} ").rjust(_CELL - _NUMBER))


def _same(one: SystemResult, other: SystemResult) -> bool:
    """Whether two systems have the same means, to what a float can tell."""
    own, others = (
        {(kind, name): figure.mean for kind, block in row.blocks.items() for name, figure in block.figures.items()}
        for row in (one, other)
    )
    if own.keys() != others.keys():
        return False
    return all(mean != mean or math.isclose(mean, others[key], abs_tol=1e-6) for key, mean in own.items())


def _settings(jobs: Sequence[Path]) -> dict[Path, str]:
    """Overrides of each job that are not alpha's and not common to all jobs."""
    overrides: dict[Path, list[str]] = {}
    for job in jobs:
        file = job / ".hydra" / "overrides.yaml"
        given = map(str, read_yaml(file) or ()) if file.is_file() else ()
        overrides[job] = [override for override in given if override.lstrip("+").partition("=")[0] != "alpha"]
    common = set.intersection(*(set(given) for given in overrides.values()))
    return {job: ",".join(word for word in given if word not in common) for job, given in overrides.items()}


def _merge_references(entries: Sequence[SweepEntry], settings: set[str]) -> list[SweepEntry]:
    """Every job measures the references again: keep one of those that are equal."""
    merged = [entry for entry in entries if entry.row.alpha is not None]
    kept: list[SweepEntry] = []
    for entry in entries:
        if entry.row.alpha is None and not any(entry.row == k.row and entry.setting == k.setting for k in kept):
            kept.append(entry)
    for entry in kept:
        same = [other for other in kept if other.row == entry.row]
        if {other.setting for other in same} != settings:
            merged.append(entry)
        elif entry is same[0]:
            merged.append(replace(entry, setting=""))
    return merged


def _merge_about(abouts: Sequence[RunInfo]) -> RunInfo:
    words: dict[str, Any] = {
        field.name: " / ".join(dict.fromkeys(getattr(about, field.name) for about in abouts))
        for field in fields(RunInfo)
        if field.name not in ("alpha", "notes")
    }
    return RunInfo(**words, notes=tuple(dict.fromkeys(note for about in abouts for note in about.notes)))


def _draw(folder: Path, sweep: Sweep) -> tuple[list[Path], list[str]]:
    plots: list[Path] = []
    problems: list[str] = []
    for setting in sweep.settings:
        name = "tradeoff" + (f"-{re.sub(r'[^A-Za-z0-9.=_-]+', '_', setting)}" if setting else "")
        try:
            plots += tradeoff_plot(
                folder / f"{name}.png",
                sweep.rows(setting),
                control=_control(sweep, setting),
                name=Setting.of(setting).policy or "alpha",
            )
        except ValueError as error:
            problems.append(f"No plot{f' of {setting}' if setting else ''}: {error}.")
    return plots, problems


def _control(sweep: Sweep, name: str) -> tuple[str, list[SystemResult]] | None:
    """The control that belongs to a setting: its policy and its systems."""
    setting = Setting.of(name)
    others = [Setting.of(other) for other in sweep.settings]
    own = [other for other in others if other.is_control and other.rest == setting.rest and not setting.is_control]
    return (own[0].policy, sweep.rows(own[0].name)) if own else None


def _describe(sweep: Sweep) -> list[str]:
    about = sweep.about
    sets = (("Effectiveness on", about.effectiveness_set), ("bias on", about.bias_set))
    lines = [", ".join(f"{what} {where}" for what, where in sets if where)] if any(where for _, where in sets) else []
    rows = (replace(entry.row, label=f"{entry.setting} {entry.row.label}".strip()) for entry in sweep.entries)
    lines += describe(Report(tuple(rows), about))
    if any(entry.row.alpha == 1 for entry in sweep.entries):
        lines.append(_CHANGE_NOTE)
    if any(entry.tests for entry in sweep.entries):
        lines.append(_TEST_NOTE)
    if sweep.failed:
        lines.append(f"Without measures (failed or not finished): {', '.join(sweep.failed)}")
    return lines


def _csv(sweep: Sweep) -> str:
    header = ("setting", "job", *MEASURE_COLUMNS, "change_percent", *TEST_COLUMNS)
    at = MEASURE_COLUMNS.index("measure")
    lines = (
        (entry.setting, entry.job, *line, sweep.change(entry, line[at]), *_test_cells(entry.test(line[at])))
        for entry in sweep.entries
        for line in measure_lines(entry.row)
    )
    return csv_text(header, lines)


def _test_cells(test: PairedTest | None) -> tuple[Any, ...]:
    if test is None:
        return (None,) * len(TEST_COLUMNS)
    p_values = (test.p_randomisation, test.p_holm, test.p_wilcoxon)
    return (test.average, test.queries, *p_values, test.d_z, test.rank_biserial)


def _payload(sweep: Sweep) -> dict[str, Any]:
    """``{"format", "about", "failed", "systems"}``.

    A system is as in ``measures.json``, with ``setting``, ``job``, ``change_percent`` by measure, and ``tests``, a
    list of every test of all averages with the names of :class:`PairedTest`.
    """
    systems = []
    for entry in sweep.entries:
        measures = [measure for block in entry.row.blocks.values() for measure in block.figures]
        changes = {measure: sweep.change(entry, measure) for measure in measures}
        tests = [
            {name: finite(value) if isinstance(value, float) else value for name, value in asdict(test).items()}
            for test in entry.tests
        ]
        own = {"setting": entry.setting, "job": entry.job, "change_percent": changes, "tests": tests}
        systems.append({**system_payload(entry.row), **own})
    about = {field.name: getattr(sweep.about, field.name) for field in fields(RunInfo)}
    return {"format": FORMAT, "about": about, "failed": list(sweep.failed), "systems": systems}


def _markdown(sweep: Sweep, lines: Sequence[str], plots: Iterable[Path]) -> str:
    shown = _shown(sweep)
    header = ["setting"] if any(entry.setting for entry in sweep.entries) else []
    left = len(header) + 1
    header.append("system")
    for name in shown:
        header += [TITLES[name], f"{TITLES[name]}, absolute"] if name in BIAS else [TITLES[name]]
    # A bar in a heading, as in |gap|/std, would begin a column.
    table = [[name.replace("|", "\\|") for name in header], ["---"] * left + ["---:"] * (len(header) - left)]
    for entry in sweep.entries:
        if sweep.is_repeated(entry):
            continue
        cells = [entry.setting, entry.row.label][2 - left :]
        for name in shown:
            number, change = _number(entry.row, name), _change(sweep, entry, name)
            last = (number.lstrip("+-") or "-" if name in BIAS else number) + (change and f" ({change})")
            cells += [number, last] if name in BIAS else [last]
        table.append([re.sub(r"([|*])", r"\\\1", cell) for cell in cells])
    text = ["# Sweep over alpha", "", *(f"| {' | '.join(cells)} |" for cells in table), "", _sign(sweep).plain + "."]
    text += ["\n" + line.replace("*", "\\*") for line in lines]
    text += [f"\n![{plot.stem}]({plot.name})" for plot in plots if plot.suffix == ".png"]
    return "\n".join(text) + "\n"


def _change(sweep: Sweep, entry: SweepEntry, measure: str) -> str:
    """The change with a star where it is significant, in % where the base's interval leaves out 0; else empty."""
    change, test = sweep.change(entry, measure), entry.test(measure)
    star = "*" if test is not None and test.p_holm < SIGNIFICANCE else ""
    if change is None or entry.row.alpha == 1:
        return star
    base = sweep.base(entry.setting)
    before, after = (one.row.figure(measure) if one is not None else None for one in (base, entry))
    if before is not None and after is not None and _holds_zero(before):
        return f"{after.absolute_mean - before.absolute_mean:+.3f}{star}"
    return f"{change:+.1f}%{star}"


def _holds_zero(figure: Estimate) -> bool:
    return figure.low is not None and figure.high is not None and figure.low <= 0 <= figure.high


def _shown(sweep: Sweep) -> list[str]:
    return [name for name in TITLES if any(entry.row.figure(name) for entry in sweep.entries)]


def _sign(sweep: Sweep) -> Text:
    words = f"; bias is {sweep.about.sign_in_words}" if sweep.about.sign_in_words else ""
    return Text(f"Means over queries; bias closer to 0 is better{words}")


def _number(row: SystemResult, measure: str) -> str:
    """The mean, of bias with its sign."""
    figure = row.figure(measure)
    if figure is None or finite(figure.mean) is None:
        return "-"
    return f"{figure.mean:+.4f}" if measure in BIAS else f"{figure.mean:.4f}"
