"""The jobs of a Hydra multirun side by side: every system with its setting and its tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import RunInfo, SystemResult
from backpack_rank.evaluation.significance import PairedTest
from backpack_rank.files import UNFINISHED, read_yaml
from backpack_rank.reporting.measure_files import read_json
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.writers import finite

MEASURES_FILE = "measures.json"


@dataclass(frozen=True)
class SweepEntry:
    """One system of a sweep.

    Attributes:
        row: its measures.
        setting: overrides other than alpha that distinguish its job from others, such as
            ``data=dl19``; empty where alpha is all that varies, or for a reference that is the same
            in every setting.
        job: folder of the job below the sweep's; of the first one for a reference that several jobs
            measured.
        tests: of this system (first) against alpha=1 of its setting (second), where they were made.
    """

    row: SystemResult
    setting: str
    job: str
    tests: tuple[PairedTest, ...] = ()

    def test(self, measure: str) -> PairedTest | None:
        """The test of the change that tables show: of the absolute mean for bias, else the mean."""
        of_mean = None
        for test in self.tests:
            if test.measure != measure:
                continue
            if test.average == "absolute_mean":
                return test
            if test.average == "mean" and of_mean is None:
                of_mean = test
        return of_mean


@dataclass(frozen=True)
class Sweep:
    """All systems of a multirun, as :func:`collect_sweep` reads them.

    They stand by setting, references first, then from the largest alpha to the smallest.

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
        with_alpha = [entry.setting for entry in self.entries if entry.row.alpha is not None]
        return tuple(dict.fromkeys(with_alpha))

    def rows(self, setting: str) -> list[SystemResult]:
        """Systems of one setting, with the references that count for it."""
        rows = []
        for entry in self.entries:
            is_common_reference = entry.row.alpha is None and entry.setting == ""
            if entry.setting == setting or is_common_reference:
                rows.append(entry.row)
        return rows

    def entry(self, setting: str, row: SystemResult) -> SweepEntry | None:
        """The entry of a system of a setting."""
        for entry in self.entries:
            if entry.setting == setting and entry.row is row:
                return entry
        return None

    def base(self, setting: str) -> SweepEntry | None:
        """The unchanged ranker: alpha=1 of a setting, or of another policy of the same ranker."""
        unchanged = self._unchanged_of(setting)
        if unchanged is not None:
            return unchanged
        return next(iter(self._unchanged(setting)), None)

    def is_repeated(self, entry: SweepEntry) -> bool:
        """Whether a system is the unchanged ranker that an earlier setting has measured already."""
        if entry.row.alpha != 1:
            return False
        first = self._unchanged(entry.setting)[0]
        return entry is not first and _have_same_means(entry.row, first.row)

    def _unchanged_of(self, setting: str) -> SweepEntry | None:
        """Alpha=1 of a setting."""
        for entry in self.entries:
            if entry.row.alpha == 1 and entry.setting == setting:
                return entry
        return None

    def _unchanged(self, setting: str) -> list[SweepEntry]:
        """Alpha=1 of all settings that differ from this one in their policy at most."""
        rest = Setting.of(setting).rest
        unchanged = []
        for entry in self.entries:
            if entry.row.alpha == 1 and Setting.of(entry.setting).rest == rest:
                unchanged.append(entry)
        return unchanged

    def change(self, entry: SweepEntry, measure: str) -> float | None:
        """Change in % against alpha=1 of the same setting, of bias of the absolute value.

        None for references and where there is no alpha=1, no such measure, or 0 to compare with.
        """
        unchanged = self._unchanged_of(entry.setting)
        if entry.row.alpha is None or unchanged is None:
            return None
        before = unchanged.row.figure(measure)
        after = entry.row.figure(measure)
        if before is None or after is None:
            return None
        return finite(measure_of(measure).percent(before.mean, after.mean))


def collect_sweep(folder: str | Path) -> Sweep:
    """Read ``measures.json`` of every job below the folder of a multirun.

    A job is a folder, at any depth, with Hydra's ``.hydra`` or with a ``measures.json``. One that
    is marked as unfinished counts as one without measures.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: there is no job, no job wrote measures (they are named), or a damaged file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of a multirun")
    jobs = _jobs_below(folder)
    done = []
    failed = []
    for job in jobs:
        if (job / MEASURES_FILE).is_file() and not (job / UNFINISHED).exists():
            done.append(job)
        else:
            failed.append(job.relative_to(folder).as_posix())
    if not done:
        names = f": {', '.join(failed)}" if failed else ""
        raise ValueError(
            f"none of the {len(jobs)} jobs below {folder} wrote {MEASURES_FILE}{names}"
        )
    settings = _settings(done)
    entries = []
    abouts = []
    for job in done:
        report = read_json(job / MEASURES_FILE)
        abouts.append(report.about)
        for row in report.rows:
            entries.append(SweepEntry(row, settings[job], job.relative_to(folder).as_posix()))
    entries = _merge_references(entries, set(settings.values()))
    entries.sort(key=_order)
    return Sweep(tuple(entries), tuple(failed), _merge_about(abouts))


def _jobs_below(folder: Path) -> list[Path]:
    jobs: set[Path] = set()
    for name in (".hydra", MEASURES_FILE):
        jobs.update(path.parent for path in folder.rglob(name))
    # The multirun has files of the same names.
    jobs.discard(folder)
    return sorted(jobs, key=lambda job: job.relative_to(folder).as_posix())


def sweep_of(settings: Mapping[str, Sequence[SystemResult]], about: RunInfo) -> Sweep:
    """Systems by the name of their setting, side by side; references that are equal stand once."""
    entries = [SweepEntry(row, name, "") for name, rows in settings.items() for row in rows]
    ordered = sorted(entries, key=lambda entry: _order(entry)[1:])
    return Sweep(tuple(_merge_references(ordered, set(settings))), (), about)


def _order(entry: SweepEntry) -> tuple[str, bool, float]:
    """By setting, references first, then from the largest alpha to the smallest."""
    return entry.setting, entry.row.alpha is not None, -(entry.row.alpha or 0)


def _settings(jobs: Sequence[Path]) -> dict[Path, str]:
    """Overrides of each job that are not alpha's and not common to all jobs."""
    overrides_by_job = {job: _overrides(job) for job in jobs}
    common = set.intersection(*map(set, overrides_by_job.values()))
    settings = {}
    for job, overrides in overrides_by_job.items():
        settings[job] = ",".join(override for override in overrides if override not in common)
    return settings


def _overrides(job: Path) -> list[str]:
    """What a job was given on its command line, beside alpha."""
    file = job / ".hydra" / "overrides.yaml"
    if not file.is_file():
        return []
    overrides = []
    for override in map(str, read_yaml(file) or ()):
        name, _, _ = override.lstrip("+").partition("=")
        if name != "alpha":
            overrides.append(override)
    return overrides


def _merge_references(entries: Sequence[SweepEntry], settings: set[str]) -> list[SweepEntry]:
    """Every job measures the references again: keep one of those that are equal."""
    merged = []
    references: list[SweepEntry] = []
    for entry in entries:
        if entry.row.alpha is not None:
            merged.append(entry)
        elif not any(_are_same(entry, reference) for reference in references):
            references.append(entry)
    for reference in references:
        equal = [other for other in references if other.row == reference.row]
        if {other.setting for other in equal} != settings:
            merged.append(reference)
        elif reference is equal[0]:
            # It is the same in every setting, so it belongs to none.
            merged.append(replace(reference, setting=""))
    return merged


def _are_same(entry: SweepEntry, other: SweepEntry) -> bool:
    return entry.setting == other.setting and entry.row == other.row


def _have_same_means(row: SystemResult, other: SystemResult) -> bool:
    """Whether two systems have the same means, to what a float can tell."""
    means, others = _means(row), _means(other)
    if means.keys() != others.keys():
        return False
    for key, mean in means.items():
        if not math.isnan(mean) and not math.isclose(mean, others[key], abs_tol=1e-6):
            return False
    return True


def _means(row: SystemResult) -> dict[tuple[str, str], float]:
    """By kind and measure."""
    means = {}
    for kind, summary in row.blocks.items():
        for measure, figure in summary.figures.items():
            means[kind, measure] = figure.mean
    return means


def _merge_about(abouts: Sequence[RunInfo]) -> RunInfo:
    """What the jobs say of themselves; where they differ, all of it."""
    words: dict[str, Any] = {}
    for field in fields(RunInfo):
        if field.name not in ("alpha", "notes"):
            distinct = dict.fromkeys(getattr(about, field.name) for about in abouts)
            words[field.name] = " / ".join(distinct)
    notes: dict[str, None] = {}
    for about in abouts:
        notes |= dict.fromkeys(about.notes)
    return RunInfo(**words, notes=tuple(notes))
