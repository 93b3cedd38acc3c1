"""Measure finished runs: ``python evaluate.py run=[a.trec,b.trec] data=...``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
from backpack_rank.pipelines.evaluation_files import Ranked
from backpack_rank.pipelines.metrics import MetricSuite, check_known, rank_all
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.comparison import distinct_labels
from backpack_rank.reranking.rerankers import SavedRun


def rank_run_files(settings: EvaluationSettings, paths: Sequence[str]) -> Ranked:
    """Anybody's runs side by side."""
    data, metrics, runs = read_run_files(settings, paths)
    return Ranked(data, metrics, [rank_all(run, data) for run in runs])


def read_run_files(
    settings: EvaluationSettings, paths: Sequence[str]
) -> tuple[EvaluationData, MetricSuite, list[SavedRun]]:
    """The collection of ``data=``, the measures to take on it, and the runs.

    Raises:
        ValueError: no collection is given; or as of :func:`read_runs`.
    """
    if settings.chosen_dataset is None:
        raise ValueError("run=FILE needs the collection it ranks: add data=..., one of conf/data")
    metrics = settings.metrics(settings.chosen_dataset)
    data = load_evaluation_data(
        settings.chosen_dataset,
        settings.attribute,
        metrics.fairness.lexicon,
        swap=False,
        # Candidates are only the background of NFaiRR.
        needs_candidates=metrics.fairness.needs_background,
    )
    return data, metrics, read_runs(paths, data, settings.ties)


def read_runs(paths: Sequence[str], data: EvaluationData, ties: str) -> list[SavedRun]:
    """One system for each file, labelled by the shortest end of its path that tells it from the others.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no file, a malformed one, the same file twice, or one without a query of the collection.
    """
    files = [Path(path).expanduser() for path in paths]
    if not files:
        raise ValueError("run=[] names no file: give run=a.trec, or run=[a.trec,b.trec] to compare several")
    for index, file in enumerate(files):
        if file.resolve() in [other.resolve() for other in files[:index]]:
            raise ValueError(f"run={file} is given twice; a system compared with itself shows nothing")
    labels = distinct_labels([file.resolve() for file in files])
    runs = [SavedRun.read(file, label, ties) for file, label in zip(files, labels, strict=True)]
    for file, run in zip(files, runs, strict=True):
        check_known(run.run, data, str(file))
    return runs
