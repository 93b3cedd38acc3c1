"""Peak memory of one job, measured in a process of its own: ``python -m benchmarks.memory`` runs
one job.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch

from benchmarks.training import prepared_optimizer, training_step
from benchmarks.variants import LABELS, Workbench, new_ranker, scoring
from benchmarks.workload import SIZES, token_sequences

MIB = 1024**2


@dataclass(frozen=True)
class MemoryJob:
    """What to measure: ``kind`` is ``scoring`` (``texts`` documents) or ``training`` (a list of
    ``texts``).
    """

    kind: str
    variant: str
    dtype: str
    size: str
    device: str
    threads: int
    texts: int
    batch_size: int


@dataclass(frozen=True)
class Memory:
    """MiB before the job (weights, optimiser state, libraries) and its peak above that; how it was
    read.
    """

    before: float
    above: float
    source: str


def measure(job: MemoryJob) -> Memory:
    """Run the job in a new process. Raises ``RuntimeError`` with its last lines when it fails."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(job).items()]
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    root = Path(__file__).resolve().parent.parent
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode:
        tail = " | ".join(result.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"{' '.join(command[2:])} ended with {result.returncode}: {tail}")
    return Memory(**json.loads(result.stdout.strip().splitlines()[-1]))


def main() -> None:
    """Measure the job of the command line in this process and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("scoring", "training"), required=True)
    parser.add_argument("--variant", choices=tuple(LABELS), required=True)
    parser.add_argument("--size", choices=tuple(SIZES), required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--device", required=True)
    for name in ("threads", "texts", "batch-size"):
        parser.add_argument(f"--{name}", type=int, required=True)
    print(json.dumps(asdict(_measure_here(MemoryJob(**vars(parser.parse_args()))))))


def _measure_here(job: MemoryJob) -> Memory:
    torch.set_num_threads(job.threads)
    size = SIZES[job.size]
    ranker = new_ranker(size, job.device).to(getattr(torch, job.dtype))
    bench = Workbench(ranker, size, job.batch_size)
    texts = token_sequences(job.texts, size)
    if job.kind == "training":
        step = training_step(job.variant, bench, prepared_optimizer(bench), texts)
        return above(step, job.device)
    score = scoring(job.variant, bench)
    return above(lambda: score(texts), job.device)


def above(run: Callable[[], object], device: str) -> Memory:
    """Run something, and say how far this process's memory rises meanwhile."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return Memory(
            before / MIB, (torch.cuda.max_memory_allocated() - before) / MIB, "torch.cuda"
        )
    if platform.libc_ver()[0] == "glibc":
        # What building the model left behind in the allocator would otherwise count as "before".
        ctypes.CDLL(None).malloc_trim(0)
    marker = _reset_high_water_mark()
    before = psutil.Process().memory_info().rss
    run()
    peak = _high_water_mark() if marker else _ru_maxrss()
    return Memory(before / MIB, (peak - before) / MIB, "VmHWM" if marker else "ru_maxrss")


def _reset_high_water_mark() -> bool:
    """Linux: let the kernel forget the peak of building the model. False where that cannot be done."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _high_water_mark() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def _ru_maxrss() -> int:
    """Bytes; on Linux a process may inherit the figure of the one that started it, hence the mark
    above.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


if __name__ == "__main__":
    main()
