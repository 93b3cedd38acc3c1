"""What trains a ranker first: number formats and start-up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark_runs import run
from in_process import trained_in
from workplace import SMALL, Workplace

from benchmarks import startup_probe

FEW = ("+data.test.test_queries=12", "+data.test.documents=80")
pytestmark = pytest.mark.benchmarks


def small_ranker(folder: Path) -> str:
    options = [*SMALL, "training.epochs=1"]
    return str(trained_in(Workplace(folder / "trained"), "small", *options) / "ranker")


def test_number_formats_are_held_against_float32(tmp_path: Path) -> None:
    ranker, record = small_ranker(tmp_path), tmp_path / "record.json"
    formats = ["float32", "bfloat16"]
    given = ["--data", "synthetic", "--formats", *formats, "--options", *FEW, "--texts", "20"]
    run("number_formats", ranker, "--quick", *given, "--output", str(record))
    rows = json.loads(record.read_text())["synthetic"]
    assert list(rows) == formats
    assert rows["float32"]["tau to fp32"] == rows["float32"]["documents/s over fp32"] == 1
    assert all(0.3 < row["tau to fp32"] <= 1 for dtype, row in rows.items() if dtype != "float32")


def test_start_up_is_measured_by_door_and_part(tmp_path: Path) -> None:
    ranker, record = small_ranker(tmp_path), tmp_path / "record.json"
    small = ["data=synthetic", *FEW, "alpha=0", "policy=paired_tokens"]
    options = ["--tiny", ranker, "--ranker", ranker, "--options", *small]
    shown = run("startup", "--quick", *options, "--output", str(record))
    written = json.loads(record.read_text())
    assert written["command"].startswith("python -m benchmarks.startup --quick")
    assert set(written["medians"]) == {
        *(
            "backpack-rank --help",
            "evaluate.py --help",
            "a mistyped option",
            "evaluate.py to the first batch",
            "load(folder).rank(...)",
        ),
        *("serve until ready", "an evaluation outside the network"),
        "torch and transformers alone",
    }
    for of in written["medians"].values():
        assert of["new"]["cpu"] > 0
    parts = written["medians"]["an evaluation outside the network"]["new"]["parts"]
    assert set(parts) == {name for name, *_ in startup_probe.PARTS} | {"imports", "rest"}
    assert min(parts.values()) >= 0
    assert "processor s outside the network" in shown
