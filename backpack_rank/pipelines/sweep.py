"""What comes after the last job of ``python evaluate.py -m ...``."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from backpack_rank.evaluation.results import PerQuery, shared_measures
from backpack_rank.evaluation.significance import PairedTest, pairwise_against
from backpack_rank.pipelines.errors import friendly_errors
from backpack_rank.pipelines.objective import is_failure
from backpack_rank.pipelines.output_folder import link_latest, resumed_folder
from backpack_rank.pipelines.sweep_page import write_sweep_page
from backpack_rank.progress import printable
from backpack_rank.reporting.measure_files import read_per_query
from backpack_rank.reporting.sweep import (
    MEASURES_FILE,
    Sweep,
    SweepEntry,
    collect_sweep,
)
from backpack_rank.reporting.sweep_report import write_sweep_report

log = logging.getLogger(__name__)
PER_QUERY_FILE = "per_query.csv"


class SweepReport(Callback):
    """Reports over all jobs of a multirun: tables, plots and a page.

    Hydra calls it, as the callback that ``conf/evaluate.yaml`` names.
    """

    def __init__(self) -> None:
        self._jobs = self._failed = 0
        self._folders: set[Path] = set()

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **options: Any) -> None:
        """Called by Hydra after each job, which returns whether it went well, or its objective."""
        self._jobs += 1
        if is_failure(job_return.return_value):
            self._failed += 1
        else:
            self._folders.add(Path(config.hydra.runtime.output_dir).resolve())

    def on_multirun_end(self, config: DictConfig, **options: Any) -> None:
        """Called by Hydra when every job has ended.

        Ends the script with status 2 when a job failed.
        """
        folder = Path(config.hydra.sweep.dir)
        with friendly_errors():
            if next(folder.rglob(MEASURES_FILE), None) is not None:
                collected = collect_sweep(folder)
                if resumed_folder() is not None and self._folders:
                    check_jobs(collected, folder, self._folders)
                sweep = with_tests(collected, folder)
                write_sweep_report(folder, sweep=sweep)
                print(printable(f"Report: {write_sweep_page(folder, sweep)}"))
        if self._failed:
            log.error(
                "%d of %d jobs failed; what they said is above and in their folders",
                self._failed,
                self._jobs,
            )
            raise SystemExit(2)
        link_latest(config.output, "sweep", folder)


def check_jobs(sweep: Sweep, folder: Path, job_folders: Collection[Path]) -> None:
    """Refuse results in a resumed multirun that are of none of its jobs.

    They would be measured by what they name.

    Raises:
        ValueError: names the first of them.
    """
    for entry in sweep.entries:
        job = folder / entry.job
        if job.resolve() not in job_folders:
            raise ValueError(
                f"{job} is of no job of this multirun, but holds results: take it out of {folder}"
            )


def with_tests(sweep: Sweep, folder: str | Path) -> Sweep:
    """Add paired tests of every alpha against alpha=1 of its setting.

    They need ``per_query.csv`` of the jobs; where one is missing, a note says so.

    Args:
        sweep: as :func:`~backpack_rank.reporting.sweep.collect_sweep` read it.
        folder: of the multirun.

    Returns:
        The same sweep, with tests.

    Raises:
        ValueError: a damaged file of per-query values; names file and line.
    """
    # Entries are known by their number, because two jobs may give their systems the same label.
    tests: dict[int, tuple[PairedTest, ...]] = {}
    notes: list[str] = []
    for setting in sweep.settings:
        dial = {}
        unchanged = None
        for number, entry in enumerate(sweep.entries):
            if entry.setting == setting and entry.row.alpha is not None:
                dial[number] = entry
                if entry.row.alpha == 1 and unchanged is None:
                    unchanged = number
        if unchanged is None or len(dial) < 2:
            continue
        values = {}
        absent = []
        for number, entry in dial.items():
            values_by_kind = _per_query(Path(folder), entry)
            if values_by_kind is None:
                absent.append(str(Path(entry.job) / PER_QUERY_FILE))
            else:
                values[number] = values_by_kind
        if absent:
            notes.append(f"No tests without {', '.join(absent)}.")
        if unchanged in values:
            tests |= _against(unchanged, dial, values)
    entries = []
    for number, entry in enumerate(sweep.entries):
        entries.append(replace(entry, tests=tests.get(number, ())))
    about = replace(sweep.about, notes=(*sweep.about.notes, *notes))
    return replace(sweep, entries=tuple(entries), about=about)


def _per_query(folder: Path, entry: SweepEntry) -> dict[str, PerQuery] | None:
    """Values by kind, as far as the job has them; None without a file."""
    path = folder / entry.job / PER_QUERY_FILE
    if not path.is_file():
        return None
    values = read_per_query(path).get(entry.row.label, {})
    values_by_kind = {}
    for kind, summary in entry.row.blocks.items():
        absent = [measure for measure in summary.figures if measure not in values]
        if absent:
            raise ValueError(
                f"{path} has no values of {', '.join(absent[:5])}, but measures.json beside it does"
            )
        values_by_kind[kind] = PerQuery({measure: values[measure] for measure in summary.figures})
    return values_by_kind


def _against(
    unchanged: int,
    dial: Mapping[int, SweepEntry],
    values: Mapping[int, Mapping[str, PerQuery]],
) -> dict[int, tuple[PairedTest, ...]]:
    """Tests of every position of the dial, by the number of its entry."""
    # By number, because two jobs may give their systems the same label.
    tests: dict[int, tuple[PairedTest, ...]] = {}
    for kind, reference in values[unchanged].items():
        systems: dict[str, PerQuery] = {}
        for number, by_kind in values.items():
            if kind in by_kind:
                systems[str(number)] = by_kind[kind]
        # First the reference, whose order of measures is that of the tests.
        measures = shared_measures([reference, *systems.values()])
        for test in pairwise_against(str(unchanged), systems, measures):
            number = int(test.first)
            first, second = dial[number].row.label, dial[unchanged].row.label
            named = replace(test, first=first, second=second)
            tests[number] = (*tests.get(number, ()), named)
    return tests
