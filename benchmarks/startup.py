"""What an evaluation takes outside its network, and what every command takes until it works; old
and new in turns.

::

    python -m benchmarks.startup --ranker FOLDER --tiny FOLDER                    # this checkout
    python -m benchmarks.startup --ranker FOLDER --tiny FOLDER --base CHECKOUT    # an older one too, in turns with it

``--ranker`` is evaluated on TREC DL 2019 (``data=dl19``, alpha 0 under paired tokens, swaps)
without its forward
passes: values of their shapes take their place, so that all else has its full size. ``--tiny`` is
the ranker of ``make run``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

from rich.console import Console
from tqdm import tqdm

from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("data=dl19", "alpha=0", "policy=paired_tokens")
GOAL = 15.0
"""Processor seconds of an evaluation outside the network; the parts that the probe calls network
are left out.
"""
EVALUATION, FIRST = "an evaluation outside the network", "evaluate.py to the first batch"
BOUND = "torch and transformers alone"
LIBRARIES = (
    "import gc, os\n"
    "gc.disable()\n"  # as the package imports them
    "import torch\n"
    "from transformers import AutoConfig, AutoTokenizer, GPT2Model, PreTrainedModel\n"
    "os._exit(0)\n"
)
"""What no evaluation can do without: the bound of every start."""


@dataclass(frozen=True)
class Cost:
    """Processor and wall seconds of a process, with its parts where a probe names them."""

    cpu: float
    wall: float
    parts: dict[str, float]


Found: TypeAlias = dict[str, dict[str, list[Cost]]]
"""Door to checkout to its runs."""


def main() -> None:
    """Every door of every checkout, round by round; prints tables and writes the record."""
    options = arguments()
    checkouts = (
        {"new": ROOT} if options.base is None else {"old": options.base.resolve(), "new": ROOT}
    )
    facts, found = machine("cpu"), Found()
    with tempfile.TemporaryDirectory() as folder:
        jobs = {
            (door, name): job
            for name, root in checkouts.items()
            for door, job in doors(options, root, folder)
        }
        jobs = {
            key: job
            for key, job in jobs.items()
            if options.doors is None or key[0] in options.doors
        }
        with tqdm(
            total=options.rounds * len(jobs), desc="start-up", unit="run", leave=False
        ) as bar:
            for turn in range(options.rounds):
                for door, name in sorted(jobs, reverse=bool(turn % 2)):
                    found.setdefault(door, {}).setdefault(name, []).append(jobs[door, name]())
                    bar.update()
                write(
                    options, facts, found
                )  # after each round: a run takes long, and may be stopped
    show(options, found)


def goals(options: argparse.Namespace, found: Found) -> list[Goal]:
    """What is held against a bound."""
    if EVALUATION not in found:
        return []
    outside = median(cost.cpu - cost.parts.get("network", 0) for cost in found[EVALUATION]["new"])
    return [Goal("processor s outside the network", outside, GOAL, False, not options.quick)]


def show(options: argparse.Namespace, found: Found) -> None:
    """The tables."""
    console = Console()
    rows = [
        [door, name, *figures(costs)] for door, of in found.items() for name, costs in of.items()
    ]
    print_table(
        console, "Medians", ["", "checkout", "processor s", "wall s", "imports, processor s"], rows
    )
    for door in (EVALUATION, FIRST):
        if door in found:
            print_table(console, door, ["processor s", *found[door]], shares(found[door]))
    print_table(
        console,
        "Goals",
        ["", "value", "goal", ""],
        [goal.as_row() for goal in goals(options, found)],
    )


def write(options: argparse.Namespace, facts: dict[str, object], found: Found) -> None:
    """The record of what is measured so far."""
    record: dict[str, object] = {
        "command": command_line("startup"),
        "machine": facts,
        "medians": {
            door: {name: medians(costs) for name, costs in of.items()} for door, of in found.items()
        },
        "runs": {
            door: {
                name: [{"cpu": round(c.cpu, 2), "wall": round(c.wall, 2)} for c in costs]
                for name, costs in of.items()
            }
            for door, of in found.items()
        },
        "goals": [goal.as_record() for goal in goals(options, found)],
    }
    write_record(options.output, record)


def medians(costs: Sequence[Cost]) -> dict[str, object]:
    """Of processor and wall seconds, and of the processor seconds of every part."""
    names = dict.fromkeys(name for cost in costs for name in cost.parts)
    parts = {name: round(median(cost.parts.get(name, 0.0) for cost in costs), 3) for name in names}
    return {
        "cpu": round(median(cost.cpu for cost in costs), 2),
        "wall": round(median(cost.wall for cost in costs), 2),
        "parts": parts,
    }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ranker", type=Path, default=None, help="evaluated on data=dl19; none: that is left out"
    )
    parser.add_argument("--tiny", type=Path, required=True, help="folder of the ranker of make run")
    parser.add_argument(
        "--base", type=Path, default=None, help="an older checkout, measured in turns with this one"
    )
    parser.add_argument("--rounds", type=int, default=None, help="5; quick: 1")
    parser.add_argument(
        "--doors", nargs="+", default=None, help="names of the first table; all where none is given"
    )
    parser.add_argument(
        "--options", nargs="*", default=list(OUTSIDE), help="of the evaluation (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="once: checks that all runs")
    parser.add_argument(
        "--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.output = options.output or record_file("startup-cpu.json", options.quick)
    return options


def doors(
    options: argparse.Namespace, root: Path, folder: str
) -> list[tuple[str, Callable[[], Cost]]]:
    """Name and measurement of every way in."""
    tiny, ranker = str(options.tiny.resolve()), options.ranker and str(options.ranker.resolve())

    def ran(*command: str, status: int = 0) -> Callable[[], Cost]:
        return lambda: run(root, command, status)

    def probed(*words: str) -> Callable[[], Cost]:
        return lambda: probe(root, words, folder)

    script = "import sys; from backpack_rank.cli import main; main(sys.argv[1:])"
    found = [
        (BOUND, ran("-c", LIBRARIES)),
        ("backpack-rank --help", ran("-c", script, "--help")),
        ("evaluate.py --help", ran("evaluate.py", "--help")),
        ("a mistyped option", ran("evaluate.py", "alhpa=0", status=2)),
        (FIRST, probed("--first-batch", "evaluate", f"checkpoint={tiny}", f"output={folder}/o")),
        ("load(folder).rank(...)", probed("rank", tiny)),
        ("serve until ready", lambda: served(root, script, tiny)),
    ]
    if ranker is not None:
        words = (
            "--no-network",
            "evaluate",
            *options.options,
            f"checkpoint={ranker}",
            f"output={folder}/o",
        )
        found.append((EVALUATION, probed(*words)))
    return found


def run(root: Path, command: Sequence[str], status: int = 0) -> Cost:
    """A process to its end. Raises ``RuntimeError`` with what it said if its status is another."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment(root), capture_output=True, text=True
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        raise RuntimeError(f"{root}: {' '.join(command)}:\n{done.stderr[-3000:]}")
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, {})


def probe(root: Path, words: Sequence[str], folder: str) -> Cost:
    """A command under ``startup_probe.py``."""
    out = Path(folder) / "parts.json"
    with (
        tempfile.TemporaryDirectory() as senses
    ):  # of its own: those of an earlier run would be taken
        cache = [f"cache.folder={senses}"] if "evaluate" in words else []
        cost = run(
            root,
            [str(ROOT / "benchmarks" / "startup_probe.py"), str(root), str(out), *words, *cache],
        )
    return Cost(
        cost.cpu, cost.wall, {name: cpu for name, (cpu, _) in json.loads(out.read_text()).items()}
    )


def served(root: Path, script: str, tiny: str) -> Cost:
    """The server until ``/health`` says that its ranker is there."""
    import httpx
    import psutil

    started = time.perf_counter()
    command = [sys.executable, "-c", script, "serve", tiny, "--port", "0"]
    with subprocess.Popen(
        command, cwd=root, env=environment(root), stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            address = next(
                m[0] for line in server.stderr if (m := re.search(r"http://[\d.]+:\d+", line))
            )
            while httpx.get(f"{address}/health").status_code != 200:
                time.sleep(0.02)
            times = psutil.Process(server.pid).cpu_times()
            return Cost(times.user + times.system, time.perf_counter() - started, {})
        finally:
            server.kill()


def environment(root: Path) -> dict[str, str]:
    """One thread, the checkout's own package."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}


def figures(costs: Sequence[Cost]) -> list[str]:
    """Medians for the table."""
    imports = [cost.parts["imports"] for cost in costs if "imports" in cost.parts]
    shown = [median(cost.cpu for cost in costs), median(cost.wall for cost in costs)]
    return [*(f"{value:.2f}" for value in shown), f"{median(imports):.2f}" if imports else "-"]


def shares(found: dict[str, list[Cost]]) -> list[list[str]]:
    """A row for each part: the median of every checkout, the largest first."""
    names = dict.fromkeys(name for costs in found.values() for cost in costs for name in cost.parts)
    rows = [
        (name, [median(c.parts.get(name, 0.0) for c in costs) for costs in found.values()])
        for name in names
    ]
    return [
        [name, *(f"{value:.2f}" for value in values)]
        for name, values in sorted(rows, key=lambda row: -row[1][0])
    ]


if __name__ == "__main__":
    main()
