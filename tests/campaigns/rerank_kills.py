"""Kills re-rankings, gives the same command again, and compares the merged runs byte by byte.

    python -m tests.campaigns.rerank_kills --kills 100 --seed 0

Every process is a real one; a command with one worker is forked from a parent that has imported
everything, one with two workers starts them as it always does. A command is killed at a random
moment, or right before or after one of its renames (at which files come into being), by SIGKILL or
Ctrl-C; with two workers it is one of them, or their parent. Between a kill and the next command a
file of scores may be damaged, and two commands may go on at once. Recovered
means: exit code 0, runs equal byte by byte to those of an uninterrupted command, every whole file
of scores untouched, no traceback, nothing temporary left behind.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "shared")]

from kill_campaigns import main  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TRAIN = [
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
    *("max_length=64", "pretraining.epochs=0", "training.epochs=1"),
]
RERANK = [
    *(
        "data=synthetic",
        "+data.test.test_queries=40",
        "+data.test.documents=150",
        "data.first_stage.depth=50",
    ),
    *("alpha=[1,0.5,0]", "policy=paired_tokens", "folder=shards", "shards=20"),
]
KINDS = {"moment": 3, "rename": 5, "ctrl-c": 1, "worker": 1, "parent": 1}
"""What is killed and when, and how often of twelve."""
LEFT = {"plan", "scores", "runs", "locks"}


@dataclass(frozen=True)
class Kill:
    """One end of a command.

    Attributes:
        kind: a key of :data:`KINDS`.
        seconds: after its start, where it is no rename.
        rename: at which one, from 1.
        after: that rename, not before it.
    """

    kind: str
    seconds: float = 0.0
    rename: int = 0
    after: bool = False

    def __str__(self) -> str:
        if self.kind == "rename":
            return f"{'after' if self.after else 'before'} rename {self.rename}"
        return f"{self.kind} at {self.seconds:.2f} s"


def forked(place: Path, verb: str, options: Sequence[str], kill: Kill | None = None) -> int:
    """A command in a process of its own, which has begun; its number."""
    log = place / f"log-{len(list(place.glob('log-*')))}.txt"
    log.touch()
    child = os.fork()
    if child == 0:
        _be_the_command(place, verb, options, log, kill)
    return child


def code_of(child: int) -> int:
    """Exit code of a forked command, below 0 where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _be_the_command(
    place: Path, verb: str, options: Sequence[str], log: Path, kill: Kill | None
) -> NoReturn:
    code = 70
    try:
        os.chdir(place)
        os.environ["BACKPACK_RANK_CACHE"] = str(place.parent / "cache")
        written = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        _count_renames(kill)
        from backpack_rank import cli

        cli.main([verb, *options])
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


def _count_renames(kill: Kill | None) -> None:
    """End the process at the wanted call of os.replace."""
    seen, replace = Counter[str](), os.replace

    def counted(*arguments, **options) -> None:
        seen["all"] += 1
        wanted = kill is not None and seen["all"] == kill.rename
        if wanted and not kill.after:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments, **options)
        if wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = counted


def with_two_workers(place: Path, kill: Kill) -> int:
    """A command that starts two workers, one of which or whose parent is killed; its exit code."""
    program = "from backpack_rank.cli import main; main()"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "BACKPACK_RANK_CACHE": str(place.parent / "cache"),
    }
    with open(place / f"log-{len(list(place.glob('log-*')))}.txt", "w") as log:
        command = [sys.executable, "-c", program, "rerank", *RERANK, "workers=2"]
        process = subprocess.Popen(
            command, cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    while process.poll() is None and not list(place.glob("shards/scores/*.safetensors")):
        time.sleep(0.01)  # loading the ranker takes most of the time
    time.sleep(kill.seconds)
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
        workers = [
            child for child in family if any("spawn_main" in part for part in child.cmdline())
        ]
        if kill.kind == "worker" and workers:
            workers[0].kill()
        else:
            process.kill()
        _, alive = psutil.wait_procs(workers, timeout=30) if kill.kind == "parent" else ([], [])
        if alive:
            raise AssertionError("workers outlive their parent")
    return process.wait()


def results(place: Path) -> dict[str, bytes]:
    """The merged runs."""
    return {
        path.parent.name: path.read_bytes() for path in sorted(place.glob("shards/runs/*/run.txt"))
    }


def scores(place: Path) -> dict[str, int]:
    """When each file of scores was written."""
    return {
        path.name: path.stat().st_mtime_ns for path in place.glob("shards/scores/*.safetensors")
    }


def damage(place: Path, draw: random.Random) -> str | None:
    """Cut, empty or change one file of scores; its name."""
    files = sorted(place.glob("shards/scores/*.safetensors"))
    if not files:
        return None
    path = draw.choice(files)
    data = path.read_bytes()
    where = draw.randrange(len(data))
    changed = data[:where] + bytes([data[where] ^ (1 << draw.randrange(8))]) + data[where + 1 :]
    path.write_bytes(draw.choice([data[:where], b"", bytes(len(data)), changed]))
    return path.name


def one_round(
    place: Path, expected: dict[str, bytes], seconds: float, renames: int, draw: random.Random
) -> dict:
    """Kill once to three times, then let it end; what happened."""
    place.mkdir()
    killed, changed, problems, where = 0, 0, [], []
    for _ in range(draw.choice([1, 1, 2, 3])):
        kill = _drawn(seconds, renames, draw)
        if kill.kind in ("worker", "parent"):
            code = with_two_workers(place, kill)
        else:
            child = forked(place, "rerank", [*RERANK, "workers=1"], kill)
            if kill.kind != "rename":
                time.sleep(kill.seconds)
                os.kill(child, signal.SIGINT if kill.kind == "ctrl-c" else signal.SIGKILL)
            code = code_of(child)
        killed += code != 0 or kill.kind == "worker"
        where.append(str(kill))
    before = scores(place)
    if draw.random() < 0.3 and (name := damage(place, draw)) is not None:
        changed += 1
        del before[name]
        where.append(f"{name} damaged")
    both = 1 + (draw.random() < 0.3)
    codes = [
        code_of(child)
        for child in [forked(place, "rerank", [*RERANK, "workers=1"]) for _ in range(both)]
    ]
    after = scores(place)
    if any(codes):
        problems.append(f"exit codes {codes}")
    if results(place) != expected:
        problems.append("the runs differ")
    if any(after.get(name) != stamp for name, stamp in before.items()):
        problems.append("whole scores were scored again")
    left = {path.name for path in (place / "shards").iterdir()} ^ LEFT | {
        p.name for p in place.rglob(".*")
    }
    if left:
        problems.append(f"left behind or missing: {sorted(left)}")
    if any("Traceback" in log.read_text() for log in place.glob("log-*")):
        problems.append("a traceback")
    return {
        "killed": killed,
        "damaged": changed,
        "at once": both - 1,
        "where": where,
        "problems": problems,
    }


def _drawn(seconds: float, renames: int, draw: random.Random) -> Kill:
    kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "rename":
        return Kill(kind, rename=draw.randint(1, renames), after=draw.random() < 0.5)
    return Kill(kind, seconds=draw.uniform(0, 0.3 if kind in ("worker", "parent") else seconds))


def campaign(kills: int, seed: int, folder: Path) -> dict:
    """Rounds until so many commands were killed."""

    draw = random.Random(seed)
    reference = folder / "reference"
    reference.mkdir(parents=True)
    if code_of(forked(reference, "train", TRAIN)):
        raise RuntimeError((reference / "log-0.txt").read_text())
    ranker = next(reference.glob("outputs/train/*/ranker"))
    RERANK.append(f"checkpoint={ranker.resolve()}")
    begun = time.monotonic()
    if code_of(forked(reference, "rerank", [*RERANK, "workers=1"])):
        raise RuntimeError((reference / "log-1.txt").read_text())
    seconds, expected = time.monotonic() - begun, results(reference)
    assert len(expected) == 3
    renames = (
        1 + len(scores(reference)) + 6
    )  # the plan, the scores, a run and its description for each alpha
    counts, rounds = Counter[str](), 0
    failures = []
    while counts["killed"] < kills:
        result = one_round(folder / f"round-{rounds}", expected, seconds, renames, draw)
        rounds += 1
        counts.update({name: result[name] for name in ("killed", "damaged", "at once")})
        counts["recovered"] += 0 if result["problems"] else result["killed"]
        if result["problems"]:
            failures.append({"round": rounds - 1, **result})
            print(
                f"round {rounds - 1}, {result['where']}: {'; '.join(result['problems'])}",
                flush=True,
            )
        else:
            shutil.rmtree(folder / f"round-{rounds - 1}")
    return {"seed": seed, "rounds": rounds, **counts, "failures": failures}


def show(results: dict) -> None:
    """The figures."""
    print({name: value for name, value in results.items() if name != "failures"})


if __name__ == "__main__":
    main(__doc__, campaign, show)
