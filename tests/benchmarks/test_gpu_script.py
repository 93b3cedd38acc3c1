"""The script for a GPU, on a processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_layout import write_data, write_encoder
from workplace import ROOT

pytestmark = pytest.mark.benchmarks


def write_bi_encoder(folder: Path) -> Path:
    """An encoder as sentence-transformers saves all-MiniLM-L6-v2."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(write_encoder(folder / "bert")))
    pooling = Pooling(transformer.get_embedding_dimension())
    encoder = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    encoder.save_pretrained(str(folder / "bi_encoder"))
    return folder / "bi_encoder"


def test_the_script_for_a_gpu_runs_dry_and_runs_no_step_twice(tmp_path: Path) -> None:
    settings = {"DEVICE": "cpu", "QUICK": "1", "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    settings |= {"RESULTS": str(tmp_path / "results"), "OUTPUT": str(tmp_path / "outputs")}
    settings |= {
        "WEIGHTS": str(write_bi_encoder(tmp_path / "weights")),
        "BACKPACK_RANK_DATA": str(tmp_path / "none"),
    }
    settings |= {"BACKPACK_RANK_CACHE": str(tmp_path / "cache")}

    # Of a benchmark that was run by itself, as benchmarks/results has them.
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "gpu-alone.json").write_text('{"goals": []}')

    def script() -> subprocess.CompletedProcess[str]:
        command = ["bash", "benchmarks/gpu.sh"]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True
        )

    done = script()
    assert done.returncode == 1
    assert "failed: retrieval training" in done.stderr  # both read the data
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
    retrieval = json.loads((tmp_path / "results" / "gpu-retrieval.json").read_text())["record"]
    assert retrieval["searches"]
    assert set(retrieval["encodings"]) == {"float32", "bfloat16"}
    assert "rate of its matrix products" in again.stdout
