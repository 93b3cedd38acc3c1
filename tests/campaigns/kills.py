"""Kills train.py, evaluate.py and sweeps, recovers by the same command with resume=true, and
compares the results.

    python -m tests.campaigns.kills --kills 100 --seed 0

Every process is a real one with the whole command line; it is forked from a parent that has
imported everything, which spares seconds each time. A process is killed at a random moment, or
right before or after one of its renames (at which files come into being), by SIGKILL; some by
Ctrl-C or SIGTERM. A third of the recoveries is killed as well. Recovered
means: exit code 0, results bit-equal to those of an uninterrupted run, no traceback, nothing
    temporary left behind.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "shared")]

from kill_campaigns import main  # noqa: E402

SMALL = [
    *(
        "model.tokenizer.vocab_size=500",
        "model.ranker.layers=1",
        "model.ranker.hidden_size=16",
        "model.ranker.heads=2",
    ),
    *(
        "+data.train.train_queries=16",
        "+data.train.documents=60",
        "+data.dev.dev_queries=6",
        "+data.dev.documents=40",
    ),
    *(
        "+data.test.test_queries=8",
        "+data.test.documents=40",
        "max_length=64",
        "pretraining.epochs=1",
    ),
]
COMMANDS = {
    "train": ("train", [*SMALL, "training.epochs=6", "training.patience=2"]),
    "evaluate": ("evaluate", ["alpha=0.5"]),
    "sweep": ("evaluate", ["-m", "alpha=1,0.5,0"]),
}
COUNTED = ("rounds", "kills", "recovered", "before their folder")
FOLDERS = {"train": "outputs/train", "evaluate": "outputs/evaluate", "sweep": "outputs/sweep"}
RESULTS = {
    "train": ("ranker/model.safetensors", "ranker/tokenizer.json", "ranker/config.json"),
    "evaluate": ("per_query.csv", "measures.csv", "runs/*.run", "sensitivity.json"),
    "sweep": ("*/per_query.csv", "*/measures.csv", "*/runs/*.run", "sweep.csv"),
}


@dataclass(frozen=True)
class Point:
    """When a process is to end.

    Attributes:
        signal: it gets.
        seconds: after its start, or None.
        rename: at which one it is, from 1; None for a moment.
        after: that rename, not before it.
    """

    signal: int = signal.SIGKILL
    seconds: float | None = None
    rename: int | None = None
    after: bool = False

    def __str__(self) -> str:
        place = "after" if self.after else "before"
        when = (
            f"at {self.seconds:.2f} s" if self.rename is None else f"{place} rename {self.rename}"
        )
        return f"{signal.Signals(self.signal).name} {when}"


def run(place: Path, kind: str, *more: str, point: Point | None = None) -> tuple[int, str]:
    """Exit code (below 0: the signal that ended it) and output of a command in a folder of its own."""
    log = place / f"log-{len(list(place.glob('log-*')))}.txt"
    child = os.fork()
    if child == 0:
        _be_the_command(place, kind, more, log, point)
    if point is not None and point.seconds is not None:
        time.sleep(point.seconds)
        os.kill(child, point.signal)  # a child that has ended is a zombie until it is waited for
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), log.read_text() if log.exists() else ""


def _be_the_command(
    place: Path, kind: str, more: Sequence[str], log: Path, point: Point | None
) -> NoReturn:
    code = 70
    try:
        os.chdir(place)
        os.environ["BACKPACK_RANK_CACHE"] = str(place / "cache")
        written = os.open(log, os.O_CREAT | os.O_WRONLY)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        _count_renames(place, point)
        script, options = COMMANDS[kind]
        sys.argv = [f"{script}.py", *options, *more]
        from backpack_rank import cli

        getattr(cli, script)()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _count_renames(place: Path, point: Point | None) -> None:
    """Count calls of os.replace in a file, and end the process at the wanted one."""
    real, done = os.replace, [0]

    def replace(*arguments: object, **options: object) -> None:
        done[0] += 1
        at = point is not None and point.rename == done[0]
        if at and point is not None and not point.after:
            os.kill(os.getpid(), point.signal)
        real(*arguments, **options)  # type: ignore[arg-type]
        if at and point is not None and point.after:
            os.kill(os.getpid(), point.signal)
        if point is None:
            (place / "renames").write_text(str(done[0]))

    os.replace = replace  # type: ignore[assignment]


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run: its results, how long it took, and how many renames it made."""

    results: dict[str, bytes]
    seconds: float
    renames: int


def results(place: Path, kind: str) -> dict[str, bytes]:
    """Contents of the files of results, by name; of the only folder of their kind."""
    folders = [path for path in (place / FOLDERS[kind]).glob("*") if path.is_dir()]
    if len(folders) != 1:
        return {"folders": b" ".join(str(path).encode() for path in folders)}
    files = {path for pattern in RESULTS[kind] for path in folders[0].glob(pattern)}
    return {path.relative_to(folders[0]).as_posix(): path.read_bytes() for path in files}


def leftovers(place: Path) -> list[str]:
    """What must not be there when a command has ended well."""

    def unwanted(path: Path) -> bool:
        return path.name.endswith((".tmp", ".partial")) or path.name == "UNFINISHED"

    return [str(path.relative_to(place)) for path in place.rglob("*") if unwanted(path)]


def reference(place: Path, kind: str) -> Reference:
    begun = time.monotonic()
    code, output = run(place, kind)
    if code != 0:
        raise SystemExit(f"{kind} fails without a kill:\n{output}")
    return Reference(
        results(place, kind), time.monotonic() - begun, int((place / "renames").read_text())
    )


def points(kind: str, known: Reference, draw: random.Random) -> Point:
    """A moment or a rename, evenly over the run."""
    number = draw.choices((signal.SIGKILL, signal.SIGINT, signal.SIGTERM), (8, 1, 1))[0]
    if draw.random() < 0.5:
        return Point(number, seconds=draw.uniform(0, known.seconds))
    return Point(number, rename=draw.randint(1, known.renames), after=draw.random() < 0.5)


def one_kill(
    place: Path, kind: str, known: Reference, draw: random.Random
) -> tuple[list[str], int, str]:
    """What is wrong after a kill and its recovery (nothing), how many processes were killed, and
    where.
    """
    where, killed, problems = [], 0, []
    more: list[str] = []
    while True:
        again = bool(more)
        point = points(kind, known, draw) if not again or draw.random() < 1 / 3 else None
        code, output = run(place, kind, *more, point=point)
        if "Traceback" in output:
            problems.append(f"traceback: {output.strip().splitlines()[-1][:200]}")
        if point is not None and code in (-point.signal, 128 + point.signal):
            killed += 1
            where.append(str(point))
            if point.signal != signal.SIGKILL and code == 128 + point.signal:
                lines = [
                    line
                    for line in output.splitlines()
                    if line.startswith(("Ctrl-C: ", "SIGTERM: "))
                ]
                problems += [] if len(lines) == 1 else [f"{len(lines)} lines after {point}"]
            more = ["resume=true"]
            continue
        if again and "nothing to resume" in output:
            if results(place, kind) == known.results:
                break  # killed after its last word
            if any(place.glob(f"{FOLDERS[kind]}/*")):
                problems.append("nothing to resume, but a folder was begun")
            where.append("before its folder")
            more = []
            code, output = run(place, kind)
        if code != 0:
            problems.append(
                f"exit code {code}: {output.strip().splitlines()[-1][:200] if output.strip() else ''}"
            )
        break
    if results(place, kind) != known.results:
        problems.append("the results differ")
    if left := leftovers(place):
        problems.append(f"left behind: {', '.join(left[:3])}")
    return problems, killed, "; ".join(where)


def campaign(kills: int, seed: int, folder: Path) -> dict:
    """Kill until so many processes were killed; what happened, by kind of command."""
    import backpack_rank.pipelines.evaluate
    import backpack_rank.pipelines.hydra_jobs
    import backpack_rank.pipelines.sweep
    import backpack_rank.pipelines.train  # noqa: F401  imported once, before the forks

    draw = random.Random(seed)
    base = folder / "base"
    base.mkdir(parents=True)
    known = {"train": reference(base, "train")}
    for kind in ("evaluate", "sweep"):
        place = folder / kind
        shutil.copytree(base, place)
        known[kind] = reference(place, kind)
        shutil.rmtree(place)
    counts = {kind: Counter(dict.fromkeys(COUNTED, 0)) for kind in COMMANDS}
    failures: list[dict] = []
    while sum(count["kills"] for count in counts.values()) < kills:
        kind = draw.choices(list(COMMANDS), (3, 1, 2))[0]
        place = folder / f"round-{sum(count['rounds'] for count in counts.values())}"
        if kind == "train":
            place.mkdir()
        else:
            shutil.copytree(base, place)
        problems, killed, where = one_kill(place, kind, known[kind], draw)
        counts[kind].update(kills=killed, rounds=1, recovered=0 if problems else killed)
        counts[kind]["before their folder"] += where.count("before its folder")
        if problems:
            failures.append(
                {"command": kind, "killed": where, "problems": problems, "folder": str(place)}
            )
            print(f"{kind}, {where}: {'; '.join(problems)}", flush=True)
        else:
            shutil.rmtree(place)
    return {
        "seed": seed,
        "commands": {kind: dict(count) for kind, count in counts.items()},
        "failures": failures,
    }


def show(results: dict) -> None:
    """The figures as a table."""
    print(
        f"{'command':10} {'killed':>7} {'recovered':>10} "
        f"{'of them before the folder was begun':>36}"
    )
    for kind, count in results["commands"].items():
        print(
            f"{kind:10} {count['kills']:7} {count['recovered']:10} "
            f"{count['before their folder']:36}"
        )
    print(f"{results['minutes']} minutes")


if __name__ == "__main__":
    main(__doc__, campaign, show)
