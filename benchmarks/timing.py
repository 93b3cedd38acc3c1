"""Times of several jobs, taken in turns so that the machine's other work hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from tqdm import tqdm


@dataclass(frozen=True)
class Times:
    """Seconds per job and round."""

    seconds: dict[str, list[float]]

    def median(self, job: str) -> float:
        """Median seconds of a job."""
        return median(self.seconds[job])

    def speedup(self, job: str, over: str) -> float:
        """How many times faster ``job`` is than ``over``: the median of the rounds' ratios."""
        return median(self.speedups(job, over))

    def speedups(self, job: str, over: str) -> list[float]:
        """The ratio of each round."""
        return [
            slow / fast for fast, slow in zip(self.seconds[job], self.seconds[over], strict=True)
        ]


def in_turns(
    jobs: Mapping[str, Callable[[], object]],
    rounds: int,
    title: str,
    device: str,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Run every job once per round, in an order that shifts by one each round.

    ``clock`` may be ``time.process_time``, into which other work on the machine enters less.
    """
    names = list(jobs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with tqdm(total=rounds * len(names), desc=title, unit="run", leave=False) as bar:
        for turn in range(rounds):
            for name in _rotated(names, turn):
                bar.set_postfix_str(name)
                seconds[name].append(_seconds(jobs[name], device, clock))
                bar.update()
    return Times(seconds)


def _rotated(names: Sequence[str], turn: int) -> Sequence[str]:
    start = turn % len(names)
    return [*names[start:], *names[:start]]


def _seconds(job: Callable[[], object], device: str, clock: Callable[[], float]) -> float:
    _wait(device)
    start = clock()
    job()
    _wait(device)
    return clock() - start


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
