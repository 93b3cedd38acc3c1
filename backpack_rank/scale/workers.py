"""Processes that score the shards of a plan; each loads the ranker itself.

Nobody hands out work: a worker takes any shard that is open and that no other process holds. So a
worker may be killed, a second command may run beside the first, on this machine or on another one
with the same folder, and nothing is lost but the shards that were open.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import torch

from backpack_rank.commands import allow_function, allowed_functions
from backpack_rank.data.batching import start_worker
from backpack_rank.pipelines.errors import MISTAKES, sentence_of
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.progress import Progress
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.process import begin
from backpack_rank.scale.settings import RerankSettings
from backpack_rank.scale.shard_plan import Plan
from backpack_rank.scale.shards import read_shard, score_shard, scores_name, scores_path

log = logging.getLogger(__name__)
_POLL = 0.2
"""Seconds between two looks at the counts of workers, for the bar."""
_REPLACED = 3
"""Killed workers that are replaced; more of them have a reason, such as too little memory."""


def score_here(settings: RerankSettings, plan: Plan, sweep: AlphaSweep, numbers: list[int]) -> int:
    """Score shards in this process.

        score_here(settings, plan, settings.sweep(), open_shards(plan))

    Returns:
        How many it scored; the others are scored already, or another process is at them.
    """
    total = sum(plan.shards[number].pairs for number in numbers)
    scored = behind = 0
    with _threads(settings.threads), Progress(total=total, desc="scoring", unit="pair") as bar:
        for number in numbers:
            # ``behind`` is bound now: the loop counts on while the shard is scored.
            def show(pairs: int, behind: int = behind) -> None:
                bar.update(behind + pairs - bar.n)

            scored += score_and_put(settings, plan, number, sweep, show)
            behind += plan.shards[number].pairs
            bar.update(behind - bar.n)
    return scored


def score_and_put(
    settings: RerankSettings,
    plan: Plan,
    number: int,
    sweep: AlphaSweep,
    progress: Callable[[int], object] = lambda pairs: None,
) -> bool:
    """Score a shard where that is open, and bring its scores to the store.

        score_and_put(settings, plan, 0, settings.sweep())

    Returns:
        Whether it was scored here and now.
    """
    store = settings.store
    name = scores_name(number)
    if store is not None:
        store.get_pairs(plan, number)
        # A task that takes the place of a killed one begins with what that one has put.
        if read_shard(plan, number) is None:
            store.get(plan.folder, name)
    locks = settings.claim == "locks"
    is_scored = score_shard(plan, number, sweep, settings.collection, progress, locks)
    if store is not None and (is_scored or not store.has(name)):
        store.put(plan.folder, name)
    return is_scored


def score_by_processes(settings: RerankSettings, plan: Plan) -> None:
    """Score all open shards with ``settings.workers`` processes.

        score_by_processes(settings, Plan.read(settings.folder))

    Raises:
        ValueError: what a worker cannot score.
        RuntimeError: workers are killed again and again, or end with a defect.
    """
    numbers = settings.shards(plan)
    if not numbers:
        return
    pool = _Pool(settings, min(settings.workers, len(numbers)))
    total = sum(plan.shards[number].pairs for number in numbers)
    with Progress(total=total, desc="scoring", unit="pair") as bar:
        try:
            while pool.alive():
                pool.replace_killed()
                in_finished_shards = 0
                for number in numbers:
                    if scores_path(plan, number).is_file():
                        in_finished_shards += plan.shards[number].pairs
                # A shard that has just been saved may still be among the counts, and the count of
                # a killed worker goes back to 0; the bar does neither pass its end nor go back.
                scored = min(total, in_finished_shards + sum(pool.counts))
                bar.update(max(0, scored - bar.n))
                wait(pool.sentinels(), timeout=_POLL)
        finally:
            pool.stop()
    pool.check()


class _Pool:
    """The processes that score, also those that have ended.

    Attributes:
        counts: pairs of its open shard that each worker has scored. [workers]
    """

    def __init__(self, settings: RerankSettings, workers: int) -> None:
        self.context: SpawnContext = multiprocessing.get_context("spawn")
        self.counts: MutableSequence[int] = self.context.Array("q", workers, lock=False)
        self._reader, self._writer = self.context.Pipe(duplex=False)
        self._options = settings.options
        self._replaced = 0
        self._processes = [self._start_worker(place) for place in range(workers)]

    def alive(self) -> bool:
        """Whether a worker is at work."""
        return any(process.is_alive() for process in self._processes)

    def sentinels(self) -> list[int]:
        """Become ready when a worker ends."""
        return [process.sentinel for process in self._processes if process.is_alive()]

    def replace_killed(self) -> None:
        """Start another worker for one that a signal ended."""
        for place, process in enumerate(self._processes):
            # A negative exit code is the number of the signal that ended a process.
            code = process.exitcode
            if code is not None and code < 0 and self._replaced < _REPLACED:
                log.warning(
                    "worker %d was ended by signal %d; another one takes its place",
                    place,
                    -code,
                )
                self._replaced += 1
                self.counts[place] = 0
                self._processes[place] = self._start_worker(place)

    def stop(self) -> None:
        """End the workers that are still there."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

    def check(self) -> None:
        """Raise what ended a worker."""
        if self._reader.poll():
            raise ValueError(self._reader.recv())
        codes = [process.exitcode for process in self._processes]
        if any(codes):
            raise RuntimeError(
                f"workers ended with {', '.join(map(str, codes))} (negative: killed by that "
                "signal, often for want of memory: give fewer workers). What is scored is kept: "
                "give the same command again"
            )

    def _start_worker(self, place: int) -> SpawnProcess:
        function = f"{work.__module__}:{work.__name__}"
        process = self.context.Process(
            target=begin,
            args=(
                function,
                self._options,
                place,
                self.counts,
                self._writer,
                allowed_functions(),
            ),
            daemon=True,
            name=f"rerank-{place}",
        )
        with _ctrl_c_ignored():
            process.start()
        return process


def work(
    options: Mapping[str, Any],
    place: int,
    counts: MutableSequence[int],
    errors: Any,
    functions: Sequence[str] = (),
) -> None:
    """The function of a worker: it scores open shards that nobody holds.

        begin("backpack_rank.scale.workers:work", options, 0, counts, errors, ["mywords:write"])

    Args:
        options: of the re-ranking, as plain values.
        place: number of the worker.
        counts: gets at that place how many pairs of its open shard are scored.
        errors: the end of a pipe that gets the sentence of a mistake.
        functions: that somebody typed on the command line; ``options`` may come from a file, and
            allow none.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    quiet_libraries()
    start_worker(place)
    for name in functions:
        allow_function(name)
    try:
        settings = RerankSettings.of(with_device_of_worker(options, place))
        torch.set_num_threads(settings.threads)
        plan = Plan.read(settings.folder)
        sweep = settings.sweep()
        # The data or the ranker may have changed since the plan was made.
        plan.check(sweep.fingerprint(settings.collection))

        def show(pairs: int) -> None:
            counts[place] = pairs

        for number in settings.shards(plan, place, len(counts)):
            try:
                score_and_put(settings, plan, number, sweep, show)
            finally:
                counts[place] = 0
    except MISTAKES as error:
        errors.send(sentence_of(error))
        raise SystemExit(1) from None


def with_device_of_worker(options: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    """The options of one worker: it gets a GPU where there are several.

        with_device_of_worker(options, 1)["scoring"]["device"]  # "cuda:1"

    A device that is named with its number stays.
    """
    gpus = torch.cuda.device_count()
    if options["scoring"]["device"] not in ("auto", "cuda") or gpus < 2:
        return options
    scoring = {**options["scoring"], "device": f"cuda:{place % gpus}"}
    return {**options, "scoring": scoring}


def _end_with_parent() -> None:
    """End this process when its parent does."""
    # A parent that is killed says nothing to its workers, so they watch it.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Processes that start here ignore Ctrl-C from the first moment: their parent ends them."""
    # Only the main thread may set signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """So many threads of torch within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
