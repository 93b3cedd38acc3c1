"""What a training says before it starts: the paper's setting on files in the real format.

The files stand where ir_datasets keeps its downloads, with a thousand lines of training queries.
The ranker is a small one in the form of the published Backpack.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from in_process import configured, trained_in
from irds_home import add_training_files
from workplace import ROOT, SMALL, Workplace

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.training.estimate import try_forward

QUERIES = 1000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("msmarco")
    texts = add_training_files(folder / "irds", QUERIES)
    tokenizer = train_bpe(texts, 600)
    config = BackpackConfig(
        vocab_size=len(tokenizer), n_positions=512, n_embd=32, n_layer=1, n_head=2, num_senses=4
    )
    BackpackLMHeadModel(config).save_pretrained(folder / "published")
    tokenizer.save_pretrained(folder / "published")
    return Workplace(folder)


def train(place: Workplace, *options: str) -> subprocess.CompletedProcess[str]:
    published = place.folder / "published"
    names = [f"model.ranker.name={published}", f"model.tokenizer.name={published}"]
    command = [sys.executable, ROOT / "train.py", "data=msmarco", "model=backpack_gpt2", *names]
    environment = {
        **place.environment(),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "IR_DATASETS_HOME": str(place.folder / "irds"),
        "IR_DATASETS_SKIP_DISK_FREE": "true",
        "IR_DATASETS_DL_TRIES": "1",
        "https_proxy": "http://127.0.0.1:9",  # a download would fail at once
    }
    return subprocess.run(
        [*command, f"output={place.output}", *options],
        cwd=place.folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_papers_setting_is_estimated_before_the_missing_gpu_is_an_error(
    place: Workplace,
) -> None:
    done = train(place, "trainer=gpu", "estimate=500000")
    assert done.returncode == 2
    # 500,000 lists, four of which make a step, and four passes over them.
    assert "steps: 125,000 an epoch (500,000 lists), 500,000 in 4 epochs at most" in done.stdout
    assert "in 40 texts" in done.stdout
    assert re.search(r"memory: about [\d.]+ [GM]B of tensors in a step", done.stdout)
    assert re.search(r"time: very roughly [\d.]+ \w+ \(.* which is a guess", done.stdout)
    last = done.stderr.strip().splitlines()[-1]
    assert "trainer.accelerator=gpu, but torch sees no GPU" in last


@pytest.mark.slow
def test_the_papers_setting_runs_to_its_end_on_files_in_the_real_format(place: Workplace) -> None:
    done = train(
        place,
        "trainer=cpu",
        "training.epochs=1",
        "max_length=64",
        "lists.per_epoch=120",
        "data.dev.max_queries=5",
    )
    assert done.returncode == 0, done.stderr
    assert "estimate: steps: 30 an epoch (120 lists), 30 in 1 epochs at most" in done.stdout
    assert re.search(
        r"a step takes [\d.e-]+ s \(mean of 20\): about .* for the 5 that", done.stdout
    )
    assert (place.newest("train") / "ranker" / "model.safetensors").is_file()


@pytest.mark.slow
def test_an_estimate_trains_nothing_and_is_no_ranker_for_later_commands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = trained_in(Workplace(tmp_path), "asked", *SMALL, "estimate=true")
    lists = re.search(r"estimate: steps: (\d+) an epoch \((\d+) lists\), (\d+) in 2", caplog.text)
    assert lists is not None
    steps, queries, all_steps = map(int, lists.groups())
    assert (steps, all_steps) == (math.ceil(queries / 4), 2 * math.ceil(queries / 4))
    assert "nothing was trained" in caplog.text
    assert not (folder / "ranker").exists()
    assert not (folder / "checkpoints").exists()


def test_an_estimate_of_a_listwise_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="estimate is about task=ranking"):
        trained_in(
            Workplace(tmp_path), "listwise", "task=listwise", "model=listwise_tiny", "estimate=true"
        )


def test_a_gpu_is_asked_for_before_anything_else_without_the_option() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"torch sees no GPU.*estimate=true says"):
        TrainingSettings.of(configured("train", "trainer=gpu"))
    assert TrainingSettings.of(configured("train", "trainer=gpu", "estimate=7")).estimate == 7


def test_what_autograd_keeps_is_counted_without_parameters_and_leaves_the_draws_alone() -> None:
    """Of y = gelu(x W + b) it keeps x for W, and the argument of gelu; here both are new."""

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = torch.nn.Embedding(50, 16)
            self.linear = torch.nn.Linear(16, 24)

        def forward(self, batch: PackedBatch) -> torch.Tensor:
            x = self.embeddings(batch.input_ids)
            return torch.nn.functional.gelu(self.linear(x + torch.rand(len(x), 16)))

    batch = PackedBatch.from_sequences([list(range(10)), list(range(5, 12))])
    layers = Layers()
    state = torch.random.get_rng_state()
    tried = try_forward(layers, batch)  # type: ignore[arg-type]
    assert torch.equal(torch.random.get_rng_state(), state)
    tokens = 17
    ids = tokens * batch.input_ids.element_size()
    assert tried.kept == ids + tokens * 16 * 4 + tokens * 24 * 4
    assert (tried.texts, tried.tokens) == (2, tokens)
    assert tried.operations == 2 * tokens * 16 * 24


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dropout", ["0.0", "0.1"])
def test_the_estimated_memory_is_that_of_real_steps_within_30_percent(dropout: str) -> None:
    """Largest resident memory of eight steps of a Backpack of 8 million parameters."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "shared" / "peak_memory.py", dropout],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    estimated, measured = map(float, done.stdout.split())
    assert math.isclose(estimated, measured, rel_tol=0.3), (estimated, measured)
