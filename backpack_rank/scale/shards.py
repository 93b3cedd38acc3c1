"""Shards of a plan, scored one by one and merged into TREC runs.

The file of a shard is complete or absent.

A file of scores is in the format of safetensors: ``scores`` [N, A], float32, in the order of the
plan's pairs, with a checksum over the shard and its scores. A process skips a shard whose file is
complete, and scores a shard with a damaged file again.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import compress, groupby, islice
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection
from backpack_rank.data.trec import write_rankings
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path
from backpack_rank.progress import Progress
from backpack_rank.reranking.rankings import check_threshold, log_below_threshold, reaches
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.shard_plan import LOCKS, Plan, room_for

log = logging.getLogger(__name__)
BLOCK = 1024
"""Pairs that are tokenised, sorted by length and scored together; another number changes scores in
their last bits.
"""
SCORES, RUNS = "scores", "runs"
RUN = "run.txt"


@dataclass(frozen=True)
class ScoredShard:
    """The scores of a shard and how they came about: :func:`read_shard` gives it.

    Attributes:
        scores: float32 [N, A]
        seconds: of scoring, without loading the ranker.
        processor_seconds: that the process had a core for.
        host: name of the machine.
    """

    scores: np.ndarray
    seconds: float
    processor_seconds: float
    host: str


def scores_name(number: int) -> str:
    """The same file's name within the folder of the plan, or within a store."""
    return f"{SCORES}/{number:05d}.safetensors"


def scores_path(plan: Plan, number: int) -> Path:
    """The file that the scores of a shard are in, or will be."""
    return plan.folder / scores_name(number)


def read_shard(plan: Plan, number: int) -> ScoredShard | None:
    """Read the scores of a shard.

        shard = read_shard(plan, 0)
        shard.scores  # [N, A]

    Returns:
        None where they are missing, damaged or of another shard.
    """
    path = scores_path(plan, number)
    if not path.is_file():
        return None
    try:
        with safe_open(path, "np") as file:
            scores = file.get_tensor(SCORES)
            about = file.metadata() or {}
        if about.get("checksum") != _checksum(plan, number, scores):
            return None
        return ScoredShard(
            scores=scores,
            seconds=float(about["seconds"]),
            processor_seconds=float(about["processor seconds"]),
            host=about["host"],
        )
    except (SafetensorError, OSError, KeyError, ValueError):
        return None


def open_shards(plan: Plan) -> list[int]:
    """Which shards are still to be scored: their file is missing or damaged.

    open_shards(plan)  # [3, 7, 8, 9]
    """
    return [number for number in range(len(plan)) if read_shard(plan, number) is None]


def score_shard(
    plan: Plan,
    number: int,
    sweep: AlphaSweep,
    collection: Collection,
    progress: Callable[[int], object] = lambda pairs: None,
    locks: bool = True,
) -> bool:
    """Score the pairs of a shard, unless that is done or another process is at it.

        for number in open_shards(plan):
            score_shard(plan, number, sweep, collection)

    Args:
        plan: which must be of this ranker and collection: see :meth:`Plan.check`.
        number: of the shard.
        sweep: the ranker at the plan's alphas.
        collection: texts.
        progress: called with the number of pairs scored after every block.
        locks: whether to hold a lock meanwhile; False where nobody else is given this shard.

    Returns:
        Whether it was scored here and now.

    Raises:
        ValueError: there is no such shard, its pairs are damaged, or a score is not finite.
        OSError: there is no room for its scores.
    """
    if not 0 <= number < len(plan):
        raise ValueError(
            f"shard={number}: {plan.folder} has {len(plan)} shards, 0 to {len(plan) - 1}"
        )
    with _claimed(plan, number) if locks else nullcontext(True) as is_claimed:
        if not is_claimed or read_shard(plan, number) is not None:
            return False
        if scores_path(plan, number).exists():
            log.warning(
                "%s is damaged: its %d pairs are scored again",
                scores_path(plan, number),
                plan.shards[number].pairs,
            )
        started = time.monotonic()
        processor_started = time.process_time()
        size = (plan.shards[number].pairs, len(sweep.alphas))
        scores = np.empty(size, dtype=np.float32)
        rows = plan.pairs(number)
        done = 0
        while block := list(islice(rows, BLOCK)):
            query_ids, doc_ids = zip(*block, strict=True)
            scores[done : done + len(block)] = sweep.scores(Pairs(collection, query_ids, doc_ids))
            done += len(block)
            progress(done)
        seconds = time.monotonic() - started
        processor_seconds = time.process_time() - processor_started
        _write(plan, number, scores, seconds, processor_seconds)
    return True


def is_held(plan: Plan, number: int) -> bool:
    """Whether another process is at a shard."""
    with _claimed(plan, number) as is_claimed:
        return not is_claimed


def merge(
    plan: Plan,
    describe: Callable[[Path, int], object] = lambda path, below: None,
    score_threshold: float | None = None,
) -> list[Path]:
    """Make one TREC run of each alpha from the scores: ``runs/LABEL/run.txt``.

        for path in merge(Plan.read(folder)):
            print(path)

    Memory holds the scores of one shard and the documents of one query.

    Args:
        plan: all of whose shards are scored.
        describe: called with the path of each run, and how many documents are left out of it, to
            write what is known of it beside it.
        score_threshold: documents with lower scores are left out; None: none.

    Raises:
        ValueError: shards are missing, and named, or the threshold is no number.
    """
    check_threshold(score_threshold)
    missing = open_shards(plan)
    if missing:
        raise ValueError(
            f"{plan.folder}: {len(missing)} of {len(plan)} shards have no scores yet: "
            f"{ranges(missing)}. Score them with action=score (or action=all) and the options of "
            "the plan"
        )
    paths = [plan.folder / RUNS / label / RUN for label in plan.labels]
    total = len(paths) * sum(shard.queries for shard in plan.shards)
    (plan.folder / LOCKS).mkdir(exist_ok=True)
    with (
        FileLock(plan.folder / LOCKS / "merge.lock"),
        Progress(total=total, desc="merging", unit="query") as bar,
    ):
        # Hidden files and folders are of processes that were killed while they wrote.
        folders = [plan.folder / SCORES]
        for path in paths:
            folders.append(path.parent)
        for folder in folders:
            for leftover in folder.glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)
        for column, path in enumerate(paths):
            with room_for(path, "the run"):
                rankings = _rankings(plan, column, partial(bar.update, 1))
                ranked = _AboveThreshold(rankings, score_threshold)
                write_rankings(path, ranked, plan.labels[column])
                describe(path, ranked.below)
            log_below_threshold(ranked.below, ranked.documents, score_threshold)
    return paths


def ranges(numbers: list[int]) -> str:
    """Write ascending numbers as text.

    >>> ranges([3, 7, 8, 9])
    '3, 7-9'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = []
    for run in runs:
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(parts)


def _rankings(
    plan: Plan, column: int, step: Callable[[], object]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Scores at one alpha, query by query."""
    for number in range(len(plan)):
        shard = read_shard(plan, number)
        if shard is None:
            raise ValueError(
                f"{scores_path(plan, number)} went away while it was merged: score it again"
            )
        # ((query id, document id), score) of each pair.
        rows = zip(plan.pairs(number), shard.scores[:, column].tolist(), strict=True)
        # A query's pairs follow each other, all of them in one shard.
        for query_id, rows_of_query in groupby(rows, key=lambda row: row[0][0]):
            yield query_id, {doc_id: score for (_, doc_id), score in rows_of_query}
            step()


class _AboveThreshold:
    """Rankings without documents below a threshold, which are counted as they come.

    Attributes:
        documents: how many came.
        below: how many of them are left out.
    """

    def __init__(
        self, rankings: Iterator[tuple[str, dict[str, float]]], score_threshold: float | None
    ) -> None:
        self._rankings = rankings
        self._score_threshold = score_threshold
        self.documents = 0
        self.below = 0

    def __iter__(self) -> Iterator[tuple[str, dict[str, float]]]:
        for query_id, scores in self._rankings:
            is_kept = reaches(np.array([*scores.values()]), self._score_threshold).tolist()
            self.documents += len(scores)
            self.below += is_kept.count(False)
            yield query_id, dict(compress(scores.items(), is_kept))


@contextmanager
def _claimed(plan: Plan, number: int) -> Iterator[bool]:
    """Whether this process holds the shard while the block runs.

    The lock ends with its process, however that ends.
    """
    lock = FileLock(plan.folder / LOCKS / f"{number:05d}.lock")
    (plan.folder / LOCKS).mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    except NotImplementedError:
        # A file system without locks: at worst a shard is scored twice, with the same scores.
        yield True
        return
    try:
        for leftover in (plan.folder / SCORES).glob(f".{scores_path(plan, number).name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield True
    finally:
        lock.release()


def _write(
    plan: Plan, number: int, scores: np.ndarray, seconds: float, processor_seconds: float
) -> None:
    about = {
        "checksum": _checksum(plan, number, scores),
        "shard": str(number),
        "tokens": str(plan.shards[number].tokens),
        "seconds": f"{seconds:.3f}",
        "processor seconds": f"{processor_seconds:.3f}",
        "host": socket.gethostname(),
        "process": str(os.getpid()),
        "threads": str(torch.get_num_threads()),
    }
    with (
        room_for(scores_path(plan, number), f"shard {number}"),
        atomic_path(scores_path(plan, number)) as temporary,
    ):
        temporary.write_bytes(save({SCORES: scores}, metadata=about))


def _checksum(plan: Plan, number: int, scores: np.ndarray) -> str:
    """A digest of the scores, the plan's fingerprint and the shard's pairs."""
    shard = json.dumps([plan.fingerprint, plan.shards[number].digest])
    return digest([shard, f"{scores.dtype} {scores.shape}", np.ascontiguousarray(scores)])
