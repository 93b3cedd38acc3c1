"""``backpack-rank rerank`` in this process, and as a user runs it; a run that takes some seconds to
score.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from in_process import configured
from workplace import ROOT, Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.trec import write_run
from backpack_rank.scale.rerank import rerank

PROGRAM = "from backpack_rank.cli import main; main()"
LARGE = ["data=synthetic", "+data.test.test_queries=40", "+data.test.documents=150"]


def reranked(place: Workplace, *options: str) -> Path:
    """The folder of a re-ranking that is done in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_CACHE", str(place.folder / "cache"))
        return rerank(configured("rerank", f"output={place.output}", "workers=1", *options))


def write_large_run(path: Path) -> Path:
    """Every document of the large synthetic test set for each of its 40 queries: 6,000 pairs."""
    collection = load_synthetic("test", test_queries=40, documents=150)
    doc_ids = [doc_id for doc_id, _ in collection.documents]
    scores = np.random.default_rng(0).random((len(collection.queries), len(doc_ids)))
    write_run(
        path,
        {
            q: dict(zip(doc_ids, row, strict=True))
            for q, row in zip(collection.queries, scores, strict=True)
        },
        "r",
    )
    return path


def command(place: Workplace, *options: str) -> list[str]:
    """Of a process of its own."""
    return [sys.executable, "-c", PROGRAM, "rerank", f"output={place.output}", *options]


def start(place: Workplace, *options: str, **more: object) -> subprocess.Popen[str]:
    """A re-ranking in the background, in a session of its own."""
    return subprocess.Popen(
        command(place, *options),
        cwd=ROOT,
        env={**place.environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **more,  # type: ignore[call-overload]
    )


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    """What a process says that must end with this code."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return output


def run_bytes(folder: Path) -> dict[str, bytes]:
    """The merged runs of a folder."""
    return {path.parent.name: path.read_bytes() for path in sorted(folder.glob("runs/*/run.txt"))}


def score_times(folder: Path) -> dict[str, int]:
    """When each file of scores was written."""
    return {
        path.name: path.stat().st_mtime_ns for path in sorted(folder.glob("scores/*.safetensors"))
    }


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that must come while the process runs."""
    until = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, (
            f"it ended before it was to be stopped: {process.communicate()[0]}"
        )
        assert time.monotonic() < until
        time.sleep(0.005)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that score, without multiprocessing's own."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if any("spawn_main" in part for part in child.cmdline())]
