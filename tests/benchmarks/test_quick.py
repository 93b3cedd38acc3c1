"""Every benchmark runs, small, and writes a record of what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_layout import write_data, write_encoder

from backpack_rank.reporting.measure_files import read_per_query

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.benchmarks


def run(name: str, *options: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        ("scoring", ["--threads", "1"], ["scoring", "sweep", "training", "memory"]),
        ("measures", ["--repeats", "1", "--queries", "40"], ["speedups"]),
        ("bm25", [], ["sizes", "goals"]),
        ("backbones", ["--threads", "1"], ["backbones"]),
        ("rankers", ["--threads", "1"], ["rankers"]),
        ("kemeny", ["--seeds", "1", "--repeats", "1"], ["instances"]),
        ("rerank", [], ["way", "plans", "goals"]),
        ("serving", [], ["serving", "goals"]),
        ("utilisation", ["--device", "cpu", "--texts", "10", "--repeats", "1", "--no-compile"], ["machine"]),
    ],
)
def test_a_benchmark_runs_small_and_says_what_it_measured(name, options, figures, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    run(name, "--quick", *options, "--output", str(record))
    written = json.loads(record.read_text())
    assert written["command"].startswith(f"python -m benchmarks.{name} --quick")
    for figure in figures:
        assert written[figure]


def test_seeds_are_laid_out(tmp_path: Path) -> None:
    shown = run("synthetic_seeds", "--quick", "--output", str(tmp_path))
    assert "| seed | nDCG@10 BM25 |" in shown
    (row,) = json.loads((tmp_path / "synthetic_seeds.json").read_text())["rows"]
    assert {"BM25", "GPT-2", "alpha=1", "alpha=0.5"} <= set(row)


def test_policies_on_real_collections_are_measured_once_and_laid_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", str(write_data(tmp_path / "data")))
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    folders = ["--rankers", str(tmp_path / "rankers"), "--records", str(tmp_path / "records")]
    options = ["--quick", "--weights", str(write_encoder(tmp_path / "bert")), *folders]
    shown = run("real_collections", *options)
    assert "| Backpack | paired_tokens | 0 |" in shown
    assert "### `alpha=auto`" in shown
    record = json.loads((tmp_path / "records" / "backpack-0.json").read_text())
    assert record["dl19 unchanged 1"].keys() == record["dl20 unchanged 1"].keys() | {"|gap|/std", "gap/std"}
    assert (
        max(record["dl19 paired_tokens 0"]["|gap|/std"].values())
        < 1e-4
        < max(record["dl19 unchanged 1"]["|gap|/std"].values())
    )
    assert record["cost paired_tokens"]["turned passes"] == 1
    # evaluate.py, which shares nothing between policies, gives the same values.
    (ranker,) = (tmp_path / "rankers").glob("backpack-0/train/*")
    options_of_one = ["data=dl19", "variants=grep_biasir", "policy=renditions", "alpha=0", f"checkpoint={ranker}"]
    command = [sys.executable, "evaluate.py", *options_of_one, f"output={tmp_path / 'outputs'}"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    (file,) = (tmp_path / "outputs").glob("evaluate/*/per_query.csv")
    for measure, values in record["dl19 renditions_keep 0"].items():
        assert read_per_query(file)["alpha=0"][measure] == pytest.approx(values, rel=1e-4, abs=1e-6), measure
    # What is measured needs no ranker, and is left as it is.
    (tmp_path / "rankers").rename(tmp_path / "elsewhere")
    assert shown.endswith(run("real_collections", *options))
    assert not (tmp_path / "rankers").exists()
