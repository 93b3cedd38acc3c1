"""The core works by itself: without the part about position and without the doors, it trains,
evaluates and reports.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rooms import BESIDE_THE_CORE
from workplace import ROOT, SMALL


def run(folder: Path, *command: str) -> str:
    """What a script of the copy prints."""
    variables = {"PYTHONPATH": str(folder), "BACKPACK_RANK_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_the_core_trains_evaluates_measures_runs_and_reports_without_the_rest(
    tmp_path: Path,
) -> None:
    shutil.copytree(ROOT / "backpack_rank", tmp_path / "backpack_rank")
    for room in BESIDE_THE_CORE:
        shutil.rmtree(tmp_path / "backpack_rank" / room)
    for name in ("conf", "lexicons"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("train.py", "evaluate.py"):
        shutil.copy(ROOT / name, tmp_path)

    assert run(tmp_path, "-c", "import backpack_rank; print(backpack_rank.__file__)").startswith(
        str(tmp_path)
    )
    run(tmp_path, "train.py", *SMALL, "training.epochs=1")
    run(tmp_path, "evaluate.py", "alpha=0.5")
    (evaluation,) = (tmp_path / "outputs" / "evaluate").iterdir()
    report = json.loads((evaluation / "measures.json").read_text())
    assert [system["label"] for system in report["systems"]] == ["BM25", "alpha=1", "alpha=0.5"]
    assert (evaluation / "report.html").is_file()

    (run_file,) = (evaluation / "runs").glob("*0.5*.run")
    data = ["data=synthetic", "+data.test.test_queries=12", "+data.test.documents=80"]
    run(tmp_path, "evaluate.py", f"run='{run_file}'", *data, "output=of_runs")
    (measured,) = (tmp_path / "of_runs" / "evaluate").iterdir()
    assert (measured / "report.html").is_file()

    (ranker,) = (tmp_path / "outputs" / "train").glob("*/ranker")
    program = (
        "import sys, backpack_rank\n"
        "reranker = backpack_rank.load(sys.argv[1])\n"
        "print(len(reranker.rank('who cooks?', ['she cooks', 'he sings'], alpha=0)))\n"
    )
    assert run(tmp_path, "-c", program, str(ranker)).split() == ["2"]
