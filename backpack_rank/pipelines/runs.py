"""Run files of anybody's systems as systems to measure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.collection import Run
from backpack_rank.data.formats import read_run
from backpack_rank.pipelines.common import candidates_of, load_split
from backpack_rank.pipelines.turned import System
from backpack_rank.pipelines.workload import Workload, bias_set, only
from backpack_rank.pipelines.yardstick import Yardstick
from backpack_rank.reporting.comparison import distinct_labels

log = logging.getLogger(__name__)


def run_workload(config: DictConfig, data: DictConfig, yardstick: Yardstick) -> Workload:
    """Queries to measure runs on; candidates only where NFaiRR needs them as its background."""
    test = load_split(data, "test")
    bias, separate = bias_set(config, data, test, yardstick.fairness.lexicon)
    if not yardstick.fairness.needs_background:
        return Workload(test, bias, separate, "", {}, {})
    stage, candidates = candidates_of(data, "bias" if separate else "test", bias if separate else test)
    return Workload(test, bias, separate, stage, candidates, only(candidates, bias))


def run_systems(paths: str | Sequence[str], work: Workload) -> list[System]:
    """One system for each file, labelled by the shortest end of its path that tells it from the others.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no file, a malformed one, the same file twice, or one without a query of the collection.
    """
    files = [Path(path).expanduser() for path in ([paths] if isinstance(paths, str) else paths)]
    if not files:
        raise ValueError("run=[] names no file: give run=a.trec, or run=[a.trec,b.trec] to compare several")
    for index, file in enumerate(files):
        if not file.is_file():
            raise FileNotFoundError(f"run={file}: there is no such file")
        if file.resolve() in [other.resolve() for other in files[:index]]:
            raise ValueError(f"run={file} is given twice; a system compared with itself shows nothing")
    labels = distinct_labels([file.resolve() for file in files])
    return [_system(file, label, work) for file, label in zip(files, labels, strict=True)]


def _system(path: Path, label: str, work: Workload) -> System:
    run = read_run(path)
    if not run:
        raise ValueError(f"{path} is empty: it ranks nothing")
    known = [query_id for query_id in run if query_id in work.test.queries or query_id in work.bias.queries]
    if not known:
        raise ValueError(
            f"{path}: none of its {len(run)} queries is in {work.test.name}, for example {list(run)[:3]}; "
            "is data= the collection that this run ranks?"
        )
    if len(known) < len(run):
        log.warning(
            "%s: left out, as not in %s: %d of %d queries", path, work.test.name, len(run) - len(known), len(run)
        )
    bias = only(run, work.bias)
    _check_documents(path, bias, work)
    return System(label, None, only(run, work.test), bias)


def _check_documents(path: Path, run: Run, work: Workload) -> None:
    for query_id, scores in run.items():
        unknown = [doc_id for doc_id in scores if doc_id not in work.bias.documents]
        if unknown:
            raise ValueError(
                f"{path}: document {unknown[0]!r} of query {query_id!r} is not in {work.bias.name} "
                f"({len(unknown)} of {len(scores)} documents of this query are not); "
                "is data= the collection that this run ranks?"
            )
