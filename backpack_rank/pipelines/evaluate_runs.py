"""Measure finished runs: ``python evaluate.py run=[a.trec,b.trec] data=...``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.stored_run import MEMORY_LIMIT
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
from backpack_rank.pipelines.evaluation_files import Ranked, write_results
from backpack_rank.pipelines.given import FIRST_STAGE
from backpack_rank.pipelines.metrics import (
    MetricSuite,
    SystemRuns,
    check_known,
    metrics_of,
    rank_all,
)
from backpack_rank.pipelines.nodes import several
from backpack_rank.pipelines.tasks import EvaluationTask, SavedOptions
from backpack_rank.reporting.comparison import distinct_labels
from backpack_rank.reranking.rerankers import SavedRun


class MeasureRuns(EvaluationTask):
    """Measures anybody's finished runs, side by side."""

    chosen_by: ClassVar[str] = "run=..."
    # A finished run scores no swapped texts, so swap=false asks for nothing else.
    without: ClassVar[Mapping[str, Any]] = {"swap": False}

    def __init__(
        self,
        *,
        saved: SavedOptions,
        run: str | Sequence[str],
        data: Mapping[str, Any] | None = None,
        first_stage: Mapping[str, Any] | None = None,
        attribute: Attribute,
        bias: FairnessMeasures,
        ties: str = "trec_eval",
        run_memory: float = MEMORY_LIMIT / 2**20,
        measures: str | Sequence[str] | None = None,
        system: str | Sequence[str] | None = None,
    ) -> None:
        """Every argument is an option of ``conf/evaluate.yaml``, which describes it.

        Raises:
            ValueError: ``system`` has another number of names than there are runs.
        """
        run = several(run)
        if isinstance(system, str):
            system = [system] * len(run)
        if system is not None and len(system) != len(run):
            names = "1 system" if len(system) == 1 else f"{len(system)} systems"
            runs = "1 run" if len(run) == 1 else f"{len(run)} runs"
            raise ValueError(
                f"system={list(system)} names {names} for {runs}: give one "
                "name for all runs, or a name for each"
            )
        self.system = system
        self.saved = saved
        self.runs = run
        self.data = ChosenData(data, first_stage)
        self.attribute = attribute
        self.bias = bias
        self.ties = ties
        self.memory_limit = int(run_memory * 2**20)
        self.measures = measures

    def run(self, folder: Path, quiet: bool = False) -> Report:
        """Read the runs, measure, and write everything to the folder."""
        data, metrics, runs = self.read()
        systems = [rank_all(run, data) for run in runs]
        if self.system is not None:
            systems = grouped(systems, self.system)
        ranked = Ranked(data, metrics, systems, finished_runs=True)
        return write_results(self.saved, folder, ranked, quiet)

    def read(self) -> tuple[EvaluationData, MetricSuite, list[SavedRun]]:
        """The collection, the measures to take on it, and the runs.

        Raises:
            ValueError: no collection is given; or as of :func:`read_runs`.
        """
        dataset = self.data.dataset
        if dataset is None:
            raise ValueError(
                "run=FILE needs the collection it ranks: add data=..., one of conf/data"
            )
        metrics = metrics_of(self.measures, self.bias, self.attribute, dataset)
        data = load_evaluation_data(
            dataset,
            self.attribute,
            metrics.fairness.lexicon,
            swap=False,
            # Candidates are the background of NFaiRR, and a run of their own.
            needs_candidates=metrics.fairness.needs_background or FIRST_STAGE in self.runs,
        )
        metrics.check(data)
        files = [path for path in self.runs if path != FIRST_STAGE]
        runs: list[SavedRun] = []
        if files or not self.runs:
            runs = read_runs(files, data, self.ties, self.memory_limit)
        if FIRST_STAGE in self.runs:
            # The bias set may be of another collection, and has candidates of its own then.
            given = SavedRun(data.stage, {**data.bias_candidates, **data.candidates})
            runs.insert(self.runs.index(FIRST_STAGE), given)
        return data, metrics, runs


def grouped(rankings: Sequence[SystemRuns], names: Sequence[str]) -> list[SystemRuns]:
    """Rankings of one name as one system; a name that one ranking has is that ranking's.

    Args:
        rankings: of finished runs.
        names: the system of each.
    """
    members: dict[str, list[SystemRuns]] = {}
    for ranking, name in zip(rankings, names, strict=True):
        members.setdefault(name, []).append(ranking)
    systems: list[SystemRuns] = []
    for name, of_system in members.items():
        several = tuple(of_system) if len(of_system) > 1 else ()
        systems.append(replace(of_system[0], label=name, rankings=several))
    return systems


def read_runs(
    paths: Sequence[str], data: EvaluationData, ties: str, memory_limit: int = MEMORY_LIMIT
) -> list[SavedRun]:
    """One system for each run file.

    A label is the shortest end of the file's path that tells it from the others.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no file, a malformed one, the same file twice, or one without a query of the
            collection.
    """
    if not paths:
        raise ValueError(
            "run=[] names no file: give run=a.trec, or run=[a.trec,b.trec] to compare several"
        )
    runs = read_files(paths, ties, memory_limit)
    for path, run in zip(paths, runs, strict=True):
        check_known(run.run, data, str(Path(path).expanduser()))
    return runs


def read_files(paths: Sequence[str], ties: str, memory_limit: int = MEMORY_LIMIT) -> list[SavedRun]:
    """The same for any number of files, which may rank any collection.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a malformed file, or the same twice.
    """
    files = [Path(path).expanduser() for path in paths]
    for index, file in enumerate(files):
        if file.resolve() in [other.resolve() for other in files[:index]]:
            raise ValueError(
                f"run={file} is given twice; a system compared with itself shows nothing"
            )
    labels = distinct_labels([file.resolve() for file in files])
    return [
        SavedRun.read(file, label, ties, memory_limit)
        for file, label in zip(files, labels, strict=True)
    ]
