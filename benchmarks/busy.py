"""What waiting threads cost, on a quiet machine and beside other processes:
``python -m benchmarks.busy``.

Threads of one process that wait for each other either spin, which costs a busy neighbour's time
and their own, or sleep, which costs the time to wake. ``GOMP_SPINCOUNT`` says how long they spin
before they sleep; libgomp reads it when torch is imported, so each setting is a process of its own.
All of them are started first, and then take turns: pretraining, ranking training and scoring of
``model=backpack_tiny``, once with nothing beside them and once beside single-threaded processes
that never stop.

On a machine with C cores and N busy neighbours T threads have a fair share of C / (T + N) cores
each, so of the speed on a quiet machine C / (T + N) is fair (T = C).
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch
from hydra import compose, initialize_config_dir
from rich.console import Console

from backpack_rank._threads import LOOKS
from backpack_rank.data.batching import Pairs
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.train import build
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.training.losses import listwise_softmax, scatter_lists
from backpack_rank.training.module import OptimizerConfig
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

ROOT = Path(__file__).resolve().parents[1]
JOBS = ("pretraining", "ranking", "scoring")
LIBGOMP = "as libgomp has it"
ONE_THREAD = "one thread"
QUIET = 0.97
"""Of libgomp's speed on a quiet machine: the least that a default may keep."""
BUSY = 0.5
"""Of the fair share beside others: the least that a default may keep."""


def main() -> None:
    """Time every setting, print tables, write the JSON file."""
    options = _options()
    if options.worker:
        work()
        return
    names = [LIBGOMP, *options.spins]
    # A quick run has the two whose ratio is a goal.
    if not options.quick:
        names.insert(1, ONE_THREAD)
    workers = {name: Worker(name, options.threads) for name in names}
    console = Console(width=118)
    record: dict[str, object] = {"command": command_line("busy"), "machine": machine("cpu")}
    try:
        if options.first:
            for worker in workers.values():
                worker.go_first(True)
        quiet = rates(workers, options.rounds, options.seconds)
        record["quiet"] = quiet
        if options.first:
            for worker in workers.values():
                worker.go_first(False)
        record["load of others"] = others_load(1.0)
        with neighbours(options.neighbours):
            # libgomp's own choice takes many seconds for a step beside others: once is enough.
            busy = rates({LIBGOMP: workers[LIBGOMP]}, 1, options.seconds)
            others = {name: worker for name, worker in workers.items() if name != LIBGOMP}
            for job, found in rates(others, options.rounds, options.seconds).items():
                busy[job] |= found
        record["busy"] = busy
    finally:
        for worker in workers.values():
            worker.stop()
    fair = options.threads / (options.threads + options.neighbours)
    goals = []
    for job in JOBS:
        rows = []
        for name in names:
            in_quiet = _ratio(quiet, job, name)
            share = _ratio(busy, job, name, quiet) / fair
            rate = median(quiet[job][name]), median(busy[job][name])
            rows.append([name, *(f"{value:.2f}" for value in (rate[0], in_quiet, rate[1], share))])
            if name == options.default:
                goals.append(Goal(f"{job}, quiet: over libgomp's", in_quiet, QUIET, True))
                goals.append(Goal(f"{job}, busy: of the fair share", share, BUSY, True))
        columns = ["GOMP_SPINCOUNT", "steps/s quiet", "over libgomp's", "busy", "of fair share"]
        print_table(console, f"{job}: {options.neighbours} neighbours", columns, rows)
    print_table(
        console,
        f"GOMP_SPINCOUNT={options.default}; load of others before: {record['load of others']:.2f}",
        ["", "measured", "goal", ""],
        [goal.as_row() for goal in goals],
    )
    record["goals"] = [goal.as_record() for goal in goals]
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.busy", description=__doc__)
    add = parser.add_argument
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    add("--quick", action="store_true", help="one short round: checks that all runs")
    add("--spins", nargs="+", default=None, help="values of GOMP_SPINCOUNT")
    add("--default", default=LOOKS, help="the value that is judged")
    add("--neighbours", type=int, default=2, help="busy processes of one thread")
    add("--threads", type=int, default=os.cpu_count())
    add(
        "--first",
        action="store_true",
        help="the quiet half goes before all other processes (Linux, root): for a machine that is "
        "not quiet; a core then never idles, so that waking a thread is cheaper than it would be",
    )
    add("--rounds", type=int, default=None, help="medians are reported (5; quick 1)")
    add("--seconds", type=float, default=None, help="of a turn (1.0; quick 0.2)")
    add("--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/")
    options = parser.parse_args()
    options.output = options.output or record_file("busy-cpu.json", options.quick)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (0.2 if options.quick else 1.0)
    if options.spins is None:
        options.spins = [LOOKS] if options.quick else ["0", "300", "1000", LOOKS]
    if options.default not in options.spins:
        options.spins.append(options.default)
    return options


def rates(
    workers: dict[str, Worker], rounds: int, seconds: float
) -> dict[str, dict[str, list[float]]]:
    """Steps per second of every job and setting, in turns."""
    found: dict[str, dict[str, list[float]]] = {}
    for job in JOBS:
        found[job] = {name: [] for name in workers}
        names = list(workers)
        for turn in range(rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                found[job][name].append(workers[name].rate(job, seconds))
    return found


def _ratio(
    of: dict[str, dict[str, list[float]]],
    job: str,
    name: str,
    over: dict[str, dict[str, list[float]]] | None = None,
) -> float:
    """The median round's rate over libgomp's in the same round, or in the median quiet one."""
    if over is not None:
        return median(of[job][name]) / median(over[job][LIBGOMP])
    return median(
        one / libgomp for one, libgomp in zip(of[job][name], of[job][LIBGOMP], strict=True)
    )


class Worker:
    """A process with one setting, which works when it is asked to."""

    def __init__(self, name: str, threads: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        environment.pop("OMP_WAIT_POLICY", None)
        environment.pop("GOMP_SPINCOUNT", None)
        if name == ONE_THREAD:
            environment["OMP_NUM_THREADS"] = "1"
        elif name != LIBGOMP:
            environment["GOMP_SPINCOUNT"] = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.busy", "--worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._say("")

    def rate(self, job: str, seconds: float) -> float:
        """Steps per second."""
        return float(self._say(f"{job} {seconds}"))

    def go_first(self, first: bool) -> None:
        """Let all of its threads run before any other process's, or like them again."""
        policy, priority = (os.SCHED_FIFO, 1) if first else (os.SCHED_OTHER, 0)
        for thread in os.listdir(f"/proc/{self._process.pid}/task"):
            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if line:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError("a worker ended; python -m benchmarks.busy --worker says why")
        return answer


def work() -> None:
    """Of a worker: for each line "JOB SECONDS" do steps for so long, and say how many a second."""
    jobs = made_jobs()
    for step in jobs.values():
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        job, seconds = line.split()
        # A step before the clock: threads wake, and caches get this process's weights.
        jobs[job]()
        steps, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < float(seconds):
            jobs[job]()
            steps += 1
        print(steps / passed, flush=True)


def made_jobs() -> dict[str, Callable[[], object]]:
    """A step of each job by ``model=backpack_tiny`` on the synthetic collection."""
    register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        settings = TrainingSettings(compose("train", []))
    data = settings.dataset
    train, test = data.split("train"), data.split("test")
    ranker, pair_tokenizer = build(settings, train)
    optimizer = OptimizerConfig(1e-6).optimizer(ranker)
    lists = TrainingLists(train, data.candidates("train", train)[1], size=10, seed=0)
    loader = RankingData(
        lists, train, Pairs(train, (), ()), pair_tokenizer, lists_per_batch=4
    ).train_dataloader()
    batches = itertools.cycle(loader)
    rows = torch.randint(1, len(pair_tokenizer.tokenizer), (4, 128))

    def finish(loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def pretraining() -> None:
        ranker.train()
        logits = ranker.lm_logits(rows[:, :-1])  # type: ignore[operator]
        finish(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))

    def ranking() -> None:
        ranker.train()
        batch = next(batches)
        scores = scatter_lists(ranker(batch.texts).scores, batch.mask)
        finish(listwise_softmax(scores, batch.labels, batch.mask)[0])

    scorer = Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu"))
    pairs = Pairs.from_run(data.candidates("test", test)[1], test)
    pairs = Pairs(pairs.collection, pairs.query_ids[:40], pairs.doc_ids[:40])

    def scoring() -> None:
        ranker.eval()
        scorer.scores(pairs)

    return {"pretraining": pretraining, "ranking": ranking, "scoring": scoring}


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes beside this one that each keep a core busy."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def others_load(seconds: float) -> float:
    """Cores that other processes keep busy, while this one sleeps."""

    def busy() -> int:
        with open("/proc/stat", encoding="ascii") as handle:
            user, nice, system, _, _, *rest = map(int, handle.readline().split()[1:])
        # irq, softirq and steal; guests are counted in user.
        return user + nice + system + sum(rest[:3])

    before = busy()
    time.sleep(seconds)
    return (busy() - before) / os.sysconf("SC_CLK_TCK") / seconds


if __name__ == "__main__":
    main()
