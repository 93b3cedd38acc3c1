"""Every benchmark runs, small, and writes a record of what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from real_layout import write_data, write_encoder
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from workplace import SMALL, Workplace

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.factory import cross_encoder
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from benchmarks import peers, startup_probe
from benchmarks.matrix_products import flops, matrix_products, seconds_alone

ROOT = Path(__file__).resolve().parents[2]
FEW = ("+data.test.test_queries=12", "+data.test.documents=80")
pytestmark = pytest.mark.benchmarks


def run(name: str, *options: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        (
            "scoring",
            # The script for a GPU, below, runs its part scoring.
            [
                *("--threads", "1", "--dtype", "float32", "--repeats", "1"),
                *("--parts", "sweep", "training", "memory"),
            ],
            ["sweep", "training", "memory"],
        ),
        ("measures", ["--repeats", "1", "--queries", "40"], ["speedups"]),
        ("bm25", [], ["sizes", "goals"]),
        ("rankers", ["--threads", "1"], ["rankers"]),
        ("prefixes", ["--threads", "1"], ["lists", "goals"]),
        ("rerank", [], ["way", "plans", "goals"]),
        ("long_documents", [], ["characters", "seconds", "goals"]),
        ("retrieval", [], ["searches", "goals"]),
        ("serving", [], ["serving", "goals"]),
        ("large_runs", [], ["ways", "goals"]),
        ("busy", ["--threads", "1", "--neighbours", "1"], ["quiet", "busy", "goals"]),
        ("peers", [], ["variants"]),
        ("foreign", ["--threads", "1"], ["shapes", "goals", "pairs"]),
        ("growth", ["--threads", "1", "--curves", "pairs", "alphas"], ["curves"]),
    ],
)
def test_a_benchmark_runs_small_and_says_what_it_measured(
    name, options, figures, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    run(name, "--quick", *options, "--output", str(record))
    written = json.loads(record.read_text())
    assert written["command"].startswith(f"python -m benchmarks.{name} --quick")
    for figure in figures:
        assert written[figure]


def test_number_formats_are_held_against_float32(tmp_path: Path) -> None:
    place = Workplace(tmp_path / "trained")
    place.run("train.py", *SMALL, "training.epochs=1")
    ranker, record = str(place.newest("train") / "ranker"), tmp_path / "record.json"
    formats = ["float32", "bfloat16"]
    given = ["--data", "synthetic", "--formats", *formats, "--options", *FEW, "--texts", "20"]
    run("number_formats", ranker, "--quick", *given, "--output", str(record))
    rows = json.loads(record.read_text())["synthetic"]
    assert list(rows) == formats
    assert rows["float32"]["tau to fp32"] == rows["float32"]["documents/s over fp32"] == 1
    assert all(0.3 < row["tau to fp32"] <= 1 for dtype, row in rows.items() if dtype != "float32")


def test_start_up_is_measured_by_door_and_part(tmp_path: Path) -> None:
    place = Workplace(tmp_path / "trained")
    place.run("train.py", *SMALL, "training.epochs=1")
    ranker, record = str(place.newest("train") / "ranker"), tmp_path / "record.json"
    small = ["data=synthetic", *FEW, "alpha=0", "policy=paired_tokens"]
    options = ["--tiny", ranker, "--ranker", ranker, "--options", *small, "--base", str(ROOT)]
    shown = run("startup", "--quick", *options, "--output", str(record))
    written = json.loads(record.read_text())
    assert written["command"].startswith("python -m benchmarks.startup --quick")
    assert set(written["medians"]) == {
        *(
            "backpack-rank --help",
            "evaluate.py --help",
            "evaluate.py to the first batch",
            "load(folder).rank(...)",
        ),
        *("serve until ready", "an evaluation outside the network"),
        "torch and transformers alone",
    }
    for of in written["medians"].values():
        assert of["old"]["cpu"] > 0 < of["new"]["cpu"]
    parts = written["medians"]["an evaluation outside the network"]["new"]["parts"]
    assert set(parts) == {name for name, *_ in startup_probe.PARTS} | {"imports", "rest"}
    assert min(parts.values()) >= 0
    assert "processor s outside the network" in shown


def test_peers_score_as_our_cross_encoder_and_are_left_out_with_a_reason_where_they_cannot(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record.json"
    shown = run("peers", "--quick", "--peers", sys.executable, "--output", str(record))
    written = json.loads(record.read_text())
    assert {"cross-encoder float32", "Backpack float32", "Backpack bfloat16"} <= set(
        written["variants"]
    )
    assert len(written["variants"]) + len(written["skipped"]) == len(peers.OURS) + len(peers.PEERS)
    for name, reason in written["skipped"].items():
        assert name in shown
        assert len(reason) > 10
    if peers.BASE in written["variants"]:
        assert written["variants"]["cross-encoder float32"]["largest_difference"] < 1e-6


@torch.no_grad()
def test_a_stock_classifier_has_the_scores_of_the_cross_encoder_it_is_written_from(
    tmp_path: Path,
) -> None:
    encoder = str(write_encoder(tmp_path / "bert"))
    torch.manual_seed(0)
    ranker = cross_encoder(load_tokenizer(encoder), name=encoder).eval()
    pair_tokenizer = make_pair_tokenizer(load_tokenizer(encoder), ranker, 20)
    peers.save_stock(tmp_path / "stock", ranker, pair_tokenizer)
    query, documents = (
        "what does a nurse do",
        ["She is a nurse and she likes her work.", "bread", "long " * 30],
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "stock")
    read = tokenizer([query] * 3, documents, truncation=True, padding=True, return_tensors="pt")
    assert read["input_ids"].shape == (3, 20)
    scores = (
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "stock")
        .eval()(**read)
        .logits[:, 0]
    )
    expected = ranker(PackedBatch.from_sequences(pair_tokenizer.pairs(query, documents))).scores
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)


def test_matrix_products_of_a_job_are_counted_by_shape() -> None:
    layer, left, right = nn.Linear(3, 5), torch.randn(7, 3), torch.randn(2, 3, 4)

    def job() -> None:
        layer(left)
        layer(left) @ torch.randn(5, 6)
        right.transpose(1, 2) @ right

    products = matrix_products(job)
    assert products == {(1, 7, 3, 5): 2, (1, 7, 5, 6): 1, (2, 4, 3, 4): 1}
    assert flops(products) == 2 * (2 * 7 * 3 * 5 + 7 * 5 * 6 + 2 * 4 * 3 * 4)
    assert seconds_alone(products, "cpu", torch.float32, repeats=2) > 0


def test_the_script_for_a_gpu_runs_dry_and_runs_no_step_twice(tmp_path: Path) -> None:
    settings = {"DEVICE": "cpu", "QUICK": "1", "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    settings |= {"RESULTS": str(tmp_path / "results"), "OUTPUT": str(tmp_path / "outputs")}
    settings |= {
        "WEIGHTS": str(write_encoder(tmp_path / "bert")),
        "BACKPACK_RANK_DATA": str(tmp_path / "none"),
    }
    settings |= {"BACKPACK_RANK_CACHE": str(tmp_path / "cache")}

    def script() -> subprocess.CompletedProcess[str]:
        command = ["bash", "benchmarks/gpu.sh"]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True
        )

    done = script()
    assert done.returncode == 1
    assert "failed: training" in done.stderr
    figures = {
        "scoring": ["scoring", "goals"],
        "backbones": ["backbones"],
        "decoder": ["backbones"],
        "pairs": ["pairs", "training", "goals"],
        "utilisation": ["batches", "goals"],
    }
    for name in figures:
        record = json.loads((tmp_path / "results" / f"gpu-{name}.json").read_text())
        assert record["device"] == "cpu"
        assert len(record["commit"].partition("+")[0]) == 40
        assert record["record"]["command"].startswith("python -m benchmarks.")
        for figure in figures[name]:
            assert record["record"][figure]
    write_data(tmp_path / "none")
    again = script()
    assert again.returncode == 0, again.stdout + again.stderr
    for name in figures:
        assert f"{name}: {tmp_path}/results/gpu-{name}.json is of this commit" in again.stdout
    assert json.loads((tmp_path / "results" / "gpu-training.json").read_text())["seconds"] > 0
    assert "rate of its matrix products" in again.stdout
