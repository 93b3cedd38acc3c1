"""The entry scripts as a user runs them: in processes of their own, on a small synthetic
collection.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "model.tokenizer.vocab_size=600",
    "model.ranker.layers=1",
    "model.ranker.hidden_size=32",
    "model.ranker.heads=2",
    "+data.train.train_queries=24",
    "+data.train.documents=120",
    "+data.dev.dev_queries=6",
    "+data.dev.documents=60",
    "+data.test.test_queries=12",
    "+data.test.documents=80",
    "max_length=96",
    "pretraining.epochs=1",
    "training.epochs=2",
]


def built_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[Workplace], object]
) -> Workplace:
    """A workplace of a worker's own, copied from one that the first worker to ask for it has built."""
    folder = tmp_path_factory.mktemp(name)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        build(Workplace(folder))
        return Workplace(folder)
    shared = tmp_path_factory.getbasetemp().parent / f"shared-{name}"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            building = shared.with_suffix(".building")
            shutil.rmtree(building, ignore_errors=True)
            build(Workplace(building))
            building.rename(shared)
    # outputs/latest links to a run; as a copy it would be another folder.
    shutil.copytree(shared, folder, symlinks=True, dirs_exist_ok=True)
    return Workplace(folder)


@dataclass(frozen=True)
class Workplace:
    """Runs the scripts with their own output and cache folders."""

    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "outputs"

    def environment(self) -> dict[str, str]:
        variables = {
            "BACKPACK_RANK_CACHE": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "140",
        }
        return {**os.environ, **variables}

    def run(
        self, script: str, *options: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / script), *options, f"output={self.output}"]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=600
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, script: str, *options: str) -> subprocess.Popen:
        """A script in the background."""
        command = [sys.executable, str(ROOT / script), *options, f"output={self.output}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, cwd=ROOT, env=self.environment(), **quiet)

    def fails(self, script: str, *options: str) -> str:
        """What a script says that must end with a sentence: status 2, few lines, no traceback."""
        done = self.run(script, *options, check=False)
        assert done.returncode == 2, done.stdout + done.stderr
        assert len(done.stderr.strip().splitlines()) <= 6, done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def newest(self, kind: str) -> Path:
        return max((self.output / kind).iterdir(), key=lambda folder: folder.stat().st_mtime)
