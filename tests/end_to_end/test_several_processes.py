"""Training in several processes: the same global batches give the same ranker, and FSDP is set up
right.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import ForkedWorkplace
from workplace import ROOT, SMALL, Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.models.loading import load_ranker
from backpack_rank.reranking.scorer import Scorer

EXACT = ["model.ranker.dropout=0", "training.epochs=2"]
TWO = ["trainer.devices=2", "training.lists_per_batch=2"]
ON_CPU = ["trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.deterministic=true"]
# What a shard could get wrong: the norm of all gradients, decay for matrices alone, parameters that
# learn later.
HARD = [
    "training.gradient_clip=0.1",
    "training.weight_decay=1",
    "training.frozen=[senses]",
    "training.frozen_epochs=1",
]
HARD += ["model.ranker.layers=2", "training.learning_rate=0.003"]


@pytest.mark.processes
@pytest.mark.parametrize(("trainer", "options"), [("ddp", []), ("fsdp", HARD)])
def test_two_processes_train_the_ranker_that_one_trains_on_the_same_global_batches(
    tmp_path: Path, trainer: str, options: list[str]
) -> None:
    """24 lists in batches of 4, or of 2 in each of two processes: the same 12 steps."""
    in_one_process = ForkedWorkplace(tmp_path / "one")
    in_two_processes = Workplace(tmp_path / "two")
    same = [*SMALL, "pretraining.epochs=0", *EXACT, *options]
    in_one_process.run("train.py", *same, "training.lists_per_batch=4", "trainer.devices=1")
    in_two_processes.run("train.py", *same, *TWO, f"trainer={trainer}", *ON_CPU)
    losses = [losses_of(place.newest("train")) for place in (in_one_process, in_two_processes)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5), (
        "the losses that are logged are those of the global batches"
    )
    assert losses[0]
    scores = [scores_of(place.newest("train")) for place in (in_one_process, in_two_processes)]
    # What is added to every score has no gradient under a loss over lists but rounding, which Adam
    # makes as large.
    centred = [scores_of_ranker - scores_of_ranker.mean() for scores_of_ranker in scores]
    assert np.abs(centred[0] - centred[1]).max() < 1e-5
    assert np.std(scores[0]) > 0.01


@pytest.mark.processes
def test_the_console_script_starts_further_processes_outside_a_checkout(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "backpack-rank"
    script.parent.mkdir()
    script.write_text("import sys\n\nfrom backpack_rank.cli import main\n\nsys.exit(main())\n")
    place, elsewhere = Workplace(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = [
        *SMALL,
        *TWO,
        "trainer=ddp",
        *ON_CPU,
        "training.epochs=1",
        "output=results",
    ]
    command = [sys.executable, str(script), "train", *options]
    environment = {**place.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MEMBER: 2/2" in done.stdout + done.stderr
    (run,) = (elsewhere / "results" / "train").iterdir()
    ranker, _ = load_ranker(run / "ranker")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in ranker.state_dict().values())


@pytest.mark.processes
def test_a_killed_run_of_fsdp_resumes_to_the_weights_of_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    options = [*SMALL, *TWO, "trainer=fsdp", *ON_CPU, "training.epochs=3"]
    uninterrupted, resumed = Workplace(tmp_path / "whole"), Workplace(tmp_path / "halved")
    uninterrupted.run("train.py", *options)
    process = resumed.start("train.py", *options)
    try:
        while not list(resumed.output.glob("train/*/checkpoints/last.ckpt")):
            assert process.poll() is None, "the process ended before it was to be killed"
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not list(resumed.output.glob("train/*/ranker")), "killed too late to test anything"
    resumed.run("train.py", "resume=true")
    expected, weights = (
        load_ranker(place.newest("train") / "ranker")[0].state_dict()
        for place in (uninterrupted, resumed)
    )
    assert all(torch.equal(a, b) for a, b in zip(expected.values(), weights.values(), strict=True))


@pytest.mark.cuda(devices=2)
@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
def test_fsdp_trains_on_two_gpus(tmp_path: Path, precision: str) -> None:
    place = Workplace(tmp_path)
    place.run(
        "train.py", *SMALL, "trainer=fsdp", "trainer.devices=2", f"trainer.precision={precision}"
    )
    ranker, _ = load_ranker(place.newest("train") / "ranker")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in ranker.state_dict().values())
    assert np.std(scores_of(place.newest("train"))) > 0


def losses_of(run: Path) -> list[float]:
    """``train/loss`` of every step that was logged."""
    (file,) = run.rglob("metrics.csv")
    with file.open(encoding="utf-8", newline="") as lines:
        return [float(row["train/loss"]) for row in csv.DictReader(lines) if row["train/loss"]]


def scores_of(run: Path) -> np.ndarray:
    """Scores of a run's ranker for some pairs."""
    texts = load_synthetic("test", test_queries=12, documents=80)
    pairs = [
        (query, document)
        for query in texts.queries.values()
        for _, document in list(texts.documents)[:20]
    ]
    return Scorer(*load_ranker(run / "ranker")).score_texts(pairs)
