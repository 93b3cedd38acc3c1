"""Re-ranking at scale: ``python -m benchmarks.rerank``.

A collection of made-up texts on disk (Zipf's law, as many words as MS MARCO's passages), a TREC run
of 1,000 documents for each query, a ranker that ``train.py`` trained for one epoch. Measured are

- the speed of two workers over one, against that of two processes over one that multiply matrices,
  one thread each, in turns: what other work on the machine and shared caches take, they take from
  both;
- the time of planning, scoring and merging, and the memory of a worker as it goes on;
- what this makes of other sizes: shards, hours, memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
from rich.console import Console

from backpack_rank.scale.shard_plan import PAIRS_PER_SHARD, Plan
from backpack_rank.scale.shards import read_shard, scores_path
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

ROOT = Path(__file__).resolve().parents[1]
MIB = 1024**2
GOAL = 0.9
FLAT = 1.1
"""Most memory of a worker over its whole way, over that after a tenth of it."""
SIZES = {
    "MS MARCO dev, top 1,000": (6_980, 6_980_000),
    "8.8 million documents x 1,000 queries": (1_000, 8_841_823_000),
}
"""Queries and pairs."""
PROGRAM = "from backpack_rank.cli import main; main()"


@dataclass(frozen=True)
class Bench:
    """Where everything lies.

    Attributes:
        folder: of the collection, the run, the ranker and all re-rankings.
        alphas: as the command line takes them.
    """

    folder: Path
    alphas: str

    def command(self, verb: str, *options: str) -> list[str]:
        """Of backpack-rank."""
        return [sys.executable, "-c", PROGRAM, verb, *options, f"output={self.folder / 'outputs'}"]

    def start(self, verb: str, *options: str) -> subprocess.Popen[bytes]:
        """In the background, from the folder of the repository."""
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "BACKPACK_RANK_CACHE": str(self.folder / "cache"),
        }
        with open(self.folder / "log.txt", "ab") as log:
            return subprocess.Popen(
                self.command(verb, *options),
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, verb: str, *options: str) -> float:
        """Seconds until it is done."""
        begun = time.monotonic()
        if self.start(verb, *options).wait():
            raise RuntimeError((self.folder / "log.txt").read_text()[-2000:])
        return time.monotonic() - begun

    def rerank(self, run: str, folder: str, *options: str) -> list[str]:
        """Options of a re-ranking."""
        data = [
            f"data.collection={self.folder / 'collection.tsv'}",
            f"data.test.topics={self.folder / 'queries.tsv'}",
        ]
        return [
            *(
                "data=trec",
                *data,
                "data.test.qrels=null",
                f"run={self.folder / run}",
                f"alpha={self.alphas}",
            ),
            *(f"folder={self.folder / folder}", *options),
        ]


def main() -> None:
    """Measure, print tables, write the JSON file."""
    options = _options()
    console = Console(width=118)
    record: dict[str, object] = {
        "command": command_line("rerank"),
        "machine": machine("cpu"),
        "ranker": options.ranker,
        "alphas": options.alphas,
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        bench = Bench(Path(name), options.alphas)
        _write_collection(bench.folder, options.documents, options.pairs, options.rate_pairs)
        small = (
            ["+data.train.documents=400", "+data.train.train_queries=40"] if options.quick else []
        )
        bench.run(
            "train", f"model={options.ranker}", "training.epochs=1", "pretraining.epochs=0", *small
        )
        goals = []
        if options.rounds:
            record["speed"] = speed = _speed(bench, options)
            for clock in ("clock", "processor time"):
                text = f"two workers over one, share of two matrix products over one, by {clock}"
                goals.append(Goal(text, speed[clock]["share"], GOAL, True))  # type: ignore[index,call-overload]
        if options.pairs:
            record["way"] = way = _whole_way(bench, options.workers)
            goals.append(
                Goal("memory of a worker, over that after a tenth", way["growth"], FLAT, False)
            )  # type: ignore[arg-type]
            record["plans"] = plans = {name: _computed(way, *size) for name, size in SIZES.items()}
            _print_plans(console, plans)
    for goal in goals:
        goal.__dict__["judged"] = not options.quick
    record["goals"] = [goal.as_record() for goal in goals]
    write_record(options.output, record)
    print_table(console, "Goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    console.print(
        json.dumps({key: record[key] for key in ("speed", "way") if key in record}, indent=1)
    )
    console.print(f"written to {options.output}")


# speed


def _speed(bench: Bench, options: argparse.Namespace) -> dict[str, object]:
    """Rates of one and two processes, in turns; shares are ratios of ratios within a round.

    By the clock, and by processor time, which other work on the machine disturbs less: it shows
    what processes take from each other (caches, memory), and not what they wait for.
    """
    jobs: dict[str, Callable[[int], tuple[float, float]]] = {
        "products/s, 1 process": lambda _: _products(1, options.seconds),
        "products/s, 2 processes": lambda _: _products(2, options.seconds),
        "pairs/s, 1 worker": lambda turn: _rate(bench, f"one-{turn}", 1),
        "pairs/s, 2 workers": lambda turn: _rate(bench, f"two-{turn}", 2),
    }
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for turn in range(options.rounds):
        names = list(jobs)[turn % 4 :] + list(jobs)[: turn % 4]
        for name in names:
            rates[name].append(jobs[name](turn))
    found: dict[str, object] = {"load_average": os.getloadavg()}
    for place, clock in enumerate(("clock", "processor time")):
        one, two, slow, fast = ([rate[place] for rate in own] for own in rates.values())
        ideal = [b / a for a, b in zip(one, two, strict=True)]
        workers = [b / a for a, b in zip(slow, fast, strict=True)]
        found[clock] = {
            "rates": {name: [rate[place] for rate in own] for name, own in rates.items()},
            "products, 2 over 1": ideal,
            "workers, 2 over 1": workers,
            "share": median(w / i for w, i in zip(workers, ideal, strict=True)),
        }
    return found


def _products(processes: int, seconds: float) -> tuple[float, float]:
    """Products of two matrices [512, 512] of one-thread processes: a second, and a processor second
    of each of them.
    """
    context = multiprocessing.get_context("spawn")
    ready, counts = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=_multiply, args=(ready, seconds, counts)) for _ in range(processes)
    ]
    for process in started:
        process.start()
    found = [counts.get() for _ in started]
    for process in started:
        process.join()
    total = sum(count for count, _ in found)
    return total / seconds, processes * total / sum(used for _, used in found)


def _multiply(ready, seconds: float, counts) -> None:
    torch.set_num_threads(1)
    one = torch.rand(512, 512)
    ready.wait()
    until, count, begun = time.monotonic() + seconds, 0, time.process_time()
    while time.monotonic() < until:
        torch.mm(one, one)
        count += 1
    counts.put((count, time.process_time() - begun))


def _rate(bench: Bench, folder: str, workers: int) -> tuple[float, float]:
    """Pairs a second, from the start of the first shard to the end of the last, and a processor
    second of a worker.
    """
    options = bench.rerank("rate.trec", folder)
    bench.run("rerank", *options, "action=plan")
    bench.run("rerank", *options, "action=score", f"workers={workers}")
    plan = Plan.read(bench.folder / folder)
    shards = [
        shard for number in range(len(plan)) if (shard := read_shard(plan, number)) is not None
    ]
    ends = [scores_path(plan, number).stat().st_mtime for number in range(len(plan))]
    starts = [end - shard.seconds for end, shard in zip(ends, shards, strict=True)]
    pairs = sum(shard.pairs for shard in plan.shards)
    return pairs / (max(ends) - min(starts)), workers * pairs / sum(
        shard.processor_seconds for shard in shards
    )


# the whole way


def _whole_way(bench: Bench, workers: int) -> dict[str, object]:
    options = bench.rerank("run.trec", "whole")
    planning = bench.run("rerank", *options, "action=plan")
    plan = Plan.read(bench.folder / "whole")
    pairs = sum(shard.pairs for shard in plan.shards)
    begun = time.monotonic()
    process = bench.start("rerank", *options, "action=score", f"workers={workers}")
    memory: dict[int, list[tuple[int, float]]] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, plan, memory, ended))
    watcher.start()
    code = process.wait()
    ended.set()
    watcher.join()
    if code:
        raise RuntimeError((bench.folder / "log.txt").read_text()[-2000:])
    scoring = time.monotonic() - begun
    merging = bench.run("rerank", "action=merge", f"folder={bench.folder / 'whole'}")
    lines = sum(
        path.read_bytes().count(b"\n") for path in (bench.folder / "whole").glob("runs/*/run.txt")
    )
    grown = []
    for seen in memory.values():
        early = [mib for done, mib in seen if 0 < done <= pairs / 10] or [mib for _, mib in seen]
        grown.append(max(mib for _, mib in seen) / max(early))
    seconds = sum(
        shard.seconds
        for number in range(len(plan))
        if (shard := read_shard(plan, number)) is not None
    )
    return {
        "pairs": pairs,
        "shards": len(plan),
        "tokens": sum(shard.tokens for shard in plan.shards),
        "workers": workers,
        "seconds": {"plan": planning, "score": scoring, "merge": merging},
        "pairs/s, all in all": pairs / (planning + scoring + merging),
        "pairs/s of a worker": pairs / seconds,
        "lines of the runs": lines,
        "MiB of the scores": sum(path.stat().st_size for path in plan.folder.glob("scores/*"))
        / MIB,
        "MiB of a worker": [seen[:: max(1, len(seen) // 20)] for seen in memory.values()],
        "growth": max(grown),
        "MiB, most": max(mib for seen in memory.values() for _, mib in seen),
    }


def _watch(
    pid: int, plan: Plan, memory: dict[int, list[tuple[int, float]]], ended: threading.Event
) -> None:
    """Pairs scored and resident MiB of each worker, twice a second."""
    while not ended.wait(0.5):
        done = [
            shard.pairs
            for number, shard in enumerate(plan.shards)
            if scores_path(plan, number).is_file()
        ]
        try:
            family = psutil.Process(pid).children(recursive=True)
            workers = [
                child for child in family if any("spawn_main" in part for part in child.cmdline())
            ]
            for worker in workers:
                memory.setdefault(worker.pid, []).append(
                    (sum(done), worker.memory_info().rss / MIB)
                )
        except psutil.NoSuchProcess:
            continue


def _computed(way: dict[str, object], queries: int, pairs: int) -> dict[str, object]:
    """What another size takes at this ranker's speed: shards hold whole queries."""
    shards = min(queries, -(-pairs // PAIRS_PER_SHARD))
    rate = float(way["pairs/s of a worker"])  # type: ignore[arg-type]
    # A worker holds the scores of one shard; ids are read as they are needed.
    return {
        "pairs": pairs,
        "shards": shards,
        "minutes of a shard": pairs / shards / rate / 60,
        "core-hours": pairs / rate / 3600,
        "hours, 2 workers": pairs / rate / 3600 / 2,
        "hours, 100 workers": pairs / rate / 3600 / 100,
        "MiB of a worker": float(way["MiB, most"]) + 4 * pairs / shards / MIB,  # type: ignore[arg-type]
        "GiB of scores, one alpha": 4 * pairs / 1024**3,
    }


def _print_plans(console: Console, plans: dict[str, dict[str, object]]) -> None:
    names = list(next(iter(plans.values())))
    rows = [[name, *(f"{plan[figure]:,.4g}" for figure in names)] for name, plan in plans.items()]
    print_table(console, "Other sizes, computed", ["", *names], rows)


# files


def _write_collection(folder: Path, documents: int, pairs: int, rate_pairs: int) -> None:
    """``collection.tsv``, ``queries.tsv``, ``run.trec`` and, for speeds, ``rate.trec``."""
    random = np.random.default_rng(0)
    words = np.array([f"{'bcdfghjklm'[n % 10]}{'aeiou'[n // 10 % 5]}{n:x}" for n in range(30_000)])
    weights = 1.0 / (np.arange(len(words)) + 2.7)
    lengths = np.clip(random.gamma(6.25, 9.0, documents), 5, 200).astype(int)
    with open(folder / "collection.tsv", "w") as handle:
        for start in range(0, documents, 10_000):
            own = lengths[start : start + 10_000]
            drawn = words[random.choice(len(words), own.sum(), p=weights / weights.sum())]
            for number, text in enumerate(np.split(drawn, np.cumsum(own)[:-1]), start=start):
                handle.write(f"d{number}\t{' '.join(text)}\n")
    queries = max(1, max(pairs, rate_pairs) // 1000)
    with open(folder / "queries.tsv", "w") as handle:
        for number in range(queries):
            handle.write(
                f"q{number}\t{' '.join(random.choice(words[:5000], random.integers(2, 8)))}\n"
            )
    for name, lines in (("run.trec", pairs), ("rate.trec", rate_pairs)):
        with open(folder / name, "w") as handle:
            for number in range(lines // 1000):
                chosen = random.choice(documents, 1000, replace=False)
                handle.writelines(
                    f"q{number} Q0 d{doc} {rank} {-rank} made-up\n"
                    for rank, doc in enumerate(chosen)
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rerank", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--ranker", default="knrm", help="a model of train.py")
    add("--alphas", default="1", help="such as [1,0.5,0]")
    add("--pairs", type=int, default=1_000_000, help="of the whole way; 0 leaves it out")
    add("--documents", type=int, default=250_000)
    add("--workers", type=int, default=2)
    add("--rounds", type=int, default=3, help="of speeds; 0 leaves them out")
    add("--rate-pairs", type=int, default=300_000, help="for speeds")
    add("--seconds", type=float, default=10.0, help="of matrix products")
    add(
        "--folder",
        type=Path,
        default=None,
        help="for 200 MB of files; default: the folder for temporary files",
    )
    add(
        "--quick",
        action="store_true",
        help="4,000 pairs, no speeds: checks that it runs, judges no goal",
    )
    add("--output", type=Path, default=None, help="JSON file (benchmarks/results/rerank-cpu.json)")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.rate_pairs, options.documents = 4_000, 0, 2_000
        options.rounds = 0
    options.output = options.output or record_file("rerank-cpu.json", options.quick)
    return options


if __name__ == "__main__":
    main()
