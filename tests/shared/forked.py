"""The entry scripts in real processes without seconds of imports: each is forked from a process that
has imported the package and done nothing else.

A test that needs a cold start, a signal or several processes uses ``workplace.Workplace``.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from workplace import ROOT, Workplace

IMPORTED = [
    "backpack_rank.cli",
    "backpack_rank.pipelines.evaluate",
    "backpack_rank.pipelines.hydra_jobs",
    "backpack_rank.pipelines.train",
    "backpack_rank.position.registers",
    "bm25s",
    "hydra.main",
    "pytest",
]
SECONDS = 600


class ForkedWorkplace(Workplace):
    """A workplace whose scripts start at once."""

    def run(
        self, script: str, *options: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        given = [*options, f"output={self.output}"]
        done = run_forked(script, given, ROOT, self.environment())
        if check and done.returncode:
            raise AssertionError(f"{' '.join(done.args)}\n{done.stdout}\n{done.stderr}")
        return done


def run_forked(
    script: str, options: list[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What ``python SCRIPT OPTIONS`` in a folder ends with and says."""
    command = [str(ROOT / script), *options]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as said:
        out, err = Path(said, "out"), Path(said, "err")
        given = (command, folder, dict(environment), out, err)
        process = context.Process(target=_run, args=given)
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(command, SECONDS)
        texts = out.read_text(), err.read_text()
        return subprocess.CompletedProcess(command, process.exitcode, *texts)


def _run(
    command: list[str], folder: Path, environment: dict[str, str], out: Path, err: Path
) -> None:
    """Be the process of a script."""
    # Standard output and error, which numpy and torch write to as well: descriptors, not sys.stdout.
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    # torch was imported before the variable was set.
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.argv = command
    sys.path.insert(0, str(ROOT))
    runpy.run_path(command[0], run_name="__main__")
