"""train.py and evaluate.py from text to the table that shows what alpha does."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from forked import ForkedWorkplace
from in_process import TEST_SPLIT, evaluated, trained_in
from workplace import SMALL, Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.data.trec import read_run
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.configuration import SENSES, BackpackConfig
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.number_formats import computes_in_bf16
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.views import View


def measures(folder: Path) -> dict:
    return json.loads((folder / "measures.json").read_text())


def figure(folder: Path, label: str, block: str, measure: str) -> float:
    (system,) = [system for system in measures(folder)["systems"] if system["label"] == label]
    return system[block]["figures"][measure]["mean"]


def test_a_run_folder_holds_configuration_checkpoints_and_a_loadable_ranker(
    trained: Workplace,
) -> None:
    folder = trained.newest("train")
    assert {"config.yaml", "checkpoints", "ranker", "logs"} <= {
        path.name for path in folder.iterdir()
    }
    assert "${" not in (folder / "config.yaml").read_text()
    ranker, pair_tokenizer = load_ranker(folder / "ranker")
    assert ranker.config.hidden_size == 32
    assert pair_tokenizer.max_length == 96
    with open(folder / "logs" / "metrics.csv") as handle:
        logged = [row["val/nDCG@10"] for row in csv.DictReader(handle) if row.get("val/nDCG@10")]
    assert len(logged) == 2
    assert all(0 <= float(value) <= 1 for value in logged)


@pytest.fixture(scope="module")
def evaluated_unchanged(
    trained: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Folder and output of ``evaluate.py``."""
    folder = tmp_path_factory.mktemp("plain")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        evaluated(trained, folder, quiet=False)
    return folder, shown.getvalue()


def test_evaluate_measures_the_last_trained_ranker_beside_bm25(
    evaluated_unchanged: tuple[Path, str],
) -> None:
    folder, shown = evaluated_unchanged
    labels = [system["label"] for system in measures(folder)["systems"]]
    assert labels == ["BM25", "alpha=1"]
    assert "nDCG@10" in shown
    assert "male minus female" in shown
    runs = {path.name: read_run(path) for path in (folder / "runs").iterdir()}
    assert set(runs) == {"BM25__synthetic-test.run", "alpha-1__synthetic-test.run"}
    first, ranked = runs["BM25__synthetic-test.run"], runs["alpha-1__synthetic-test.run"]
    assert {q: set(d) for q, d in first.items()} == {q: set(d) for q, d in ranked.items()}
    with open(folder / "per_query.csv") as handle:
        rows = list(csv.DictReader(handle))
    mean = np.mean(
        [float(r["value"]) for r in rows if r["system"] == "alpha=1" and r["measure"] == "nDCG@10"]
    )
    assert mean == pytest.approx(figure(folder, "alpha=1", "effectiveness", "nDCG@10"), abs=1e-12)


@pytest.mark.slow
def test_the_number_format_is_resolved_and_said(trained: Workplace, tmp_path: Path) -> None:
    def retrieval(folder: Path) -> dict:
        return yaml.safe_load((folder / "tira" / "ir-metadata.yml").read_text())["method"][
            "retrieval"
        ][1]["params"]

    evaluated(trained, tmp_path / "auto", "scoring.dtype=auto", "scoring.device=cpu", "swap=false")
    expected = "bfloat16" if computes_in_bf16(cpu=True) else "float32"
    assert retrieval(tmp_path / "auto")["number format"] == f"{expected} on cpu"
    evaluated(trained, tmp_path / "plain", "scoring.device=cpu", "swap=false")
    assert retrieval(tmp_path / "plain")["number format"] == "float32 on cpu"


@pytest.mark.slow
def test_a_sweep_computes_senses_once_and_ends_in_one_table_and_plot(
    trained: Workplace, evaluated_unchanged: tuple[Path, str]
) -> None:
    cache = trained.folder / "cache" / "senses"
    shutil.rmtree(cache, ignore_errors=True)  # other tests share it
    shown = ForkedWorkplace(trained.folder).run("evaluate.py", "-m", "alpha=1,0.5,0").stdout
    entries = list(cache.glob("*.npy"))
    assert len(entries) == 4, (
        "the candidates as they are and in swapped wording, of test and of dev"
    )
    folder = trained.newest("sweep")
    assert {"sweep.csv", "sweep.json", "tradeoff.png"} <= {path.name for path in folder.iterdir()}
    assert "tradeoff.png" in shown
    assert "chosen on the dev queries" in (folder / "report.html").read_text()
    jobs = {path.parent.name: path.parent for path in folder.glob("*/measures.json")}
    assert set(jobs) == {"alpha-1", "alpha-0.5", "alpha-0"}
    scores = {name: next((job / "runs").glob("alpha*")) for name, job in jobs.items()}
    at_one, at_zero = (read_run(scores[name]) for name in ("alpha-1", "alpha-0"))
    assert at_one != at_zero
    # The sweep's alpha = 1 is the plain evaluation, score by score.
    plain, _ = evaluated_unchanged
    assert read_run(plain / "runs" / "alpha-1__synthetic-test.run") == at_one


def test_the_cached_sweep_scores_what_a_forward_pass_under_the_view_scores(
    trained: Workplace, tmp_path: Path
) -> None:
    evaluated(trained, tmp_path, "alpha=0.3", "swap=false")
    details = json.loads((tmp_path / "sensitivity.json").read_text())
    assert sorted(details["weights"]) == pytest.approx([0.3] * 2 + [1.0] * SENSES, abs=1e-6)
    chosen = [sense for sense, weight in enumerate(details["weights"]) if weight != 1]
    assert chosen == sorted(np.argsort(details["sensitivity"])[:2])
    ranker, pair_tokenizer = load_ranker(trained.newest("train") / "ranker")
    scorer = Scorer(ranker, pair_tokenizer)
    test = load_synthetic("test", test_queries=12, documents=80)
    run = read_run(tmp_path / "runs" / "alpha-0.3__synthetic-test.run")
    query_id, scores = next(iter(run.items()))
    texts = test.documents.get_many(scores)
    view = View(sense_weights=torch.tensor(details["weights"]))
    direct = scorer.score(test.queries[query_id], list(texts.values()), view)
    assert np.abs(direct - np.array(list(scores.values()))).max() < 1e-5


def test_measuring_the_run_file_gives_the_measures_of_the_ranker_that_wrote_it(
    trained: Workplace, evaluated_unchanged: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = evaluated_unchanged
    path = folder / "runs" / "alpha-1__synthetic-test.run"
    evaluated(trained, tmp_path, f"run={path}", *TEST_SPLIT)
    for block, measure in (
        ("effectiveness", "nDCG@10"),
        ("bias", "RaB(tf)@10"),
        ("bias", "ARaB(bool)@40"),
    ):
        expected = figure(folder, "alpha=1", block, measure)
        assert figure(tmp_path, path.name, block, measure) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_gpt2_takes_the_same_path_and_is_turned_by_renditions(
    gpt2: Workplace, tmp_path: Path
) -> None:
    report = evaluated(gpt2, tmp_path / "one")
    assert report is not None
    assert [row.label for row in report.rows] == ["BM25", "alpha=1"]
    controlled = evaluated(gpt2, tmp_path / "half", "alpha=0.5")
    assert controlled is not None
    assert [row.label for row in controlled.rows] == ["BM25", "alpha=0.5"]
    assert str(controlled.about.policy).startswith("renditions")


@pytest.mark.processes
def test_a_killed_run_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    options = [*SMALL, "training.epochs=4"]
    uninterrupted = ForkedWorkplace(tmp_path / "whole")
    resumed = ForkedWorkplace(tmp_path / "halved")
    uninterrupted.run("train.py", *options)
    process = resumed.start("train.py", *options)
    try:
        checkpoint = wait_for(
            lambda: next((resumed.output / "train").glob("*/checkpoints/last.ckpt"), None), process
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    folder = checkpoint.parent.parent
    assert not (folder / "ranker").exists(), "killed too late to test anything"
    with pytest.raises(ValueError, match=r"leave out training\.epochs=9"):
        TrainingSettings.resumed(folder, ["resume=true", "training.epochs=9"])
    resumed.run("train.py", "resume=true")
    assert resumed.newest("train") == folder
    expected, _ = load_ranker(uninterrupted.newest("train") / "ranker")
    two, _ = load_ranker(folder / "ranker")
    assert all(
        torch.equal(a, b)
        for a, b in zip(expected.state_dict().values(), two.state_dict().values(), strict=True)
    )
    assert "nothing to resume" in resumed.fails("train.py", "resume=true")


def wait_for(look: Callable[[], Path | None], process: subprocess.Popen) -> Path:
    """What ``look`` finds while the process runs."""
    while process.poll() is None:
        if (result := look()) is not None:
            return result
        time.sleep(0.01)
    raise AssertionError("the process ended before it was to be killed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "left_behind"),
    [
        pytest.param(
            ["logger=wandb", "logger.offline=true"],
            "wandb/offline-run-*/*.wandb",
            marks=pytest.mark.slow,
        ),
        (["logger=tensorboard"], "logs/events.out.tfevents.*"),
    ],
)
def test_other_loggers_need_no_account(
    tmp_path: Path, options: list[str], left_behind: str
) -> None:
    run = trained_in(
        Workplace(tmp_path), "logged", *SMALL, "pretraining.epochs=0", "training.epochs=1", *options
    )
    assert list(run.glob(left_behind))


@pytest.mark.slow
def test_a_published_language_model_in_a_folder_becomes_a_ranker(tmp_path: Path) -> None:
    tokenizer = train_bpe((text for _, text in load_synthetic("dev").documents), 600)
    config = BackpackConfig(
        vocab_size=len(tokenizer) + 7, n_positions=96, n_embd=32, n_layer=1, n_head=2, num_senses=4
    )
    BackpackLMHeadModel(config).save_pretrained(tmp_path / "published")
    tokenizer.save_pretrained(tmp_path / "published")
    names = [
        f"model.ranker.name={tmp_path / 'published'}",
        f"model.tokenizer.name={tmp_path / 'published'}",
    ]
    small = [option for option in SMALL if not option.startswith("model.")]
    options = ["model=backpack_gpt2", *names, *small, "pretraining.epochs=0", "training.epochs=1"]
    ranker, _ = load_ranker(trained_in(Workplace(tmp_path), "published", *options) / "ranker")
    assert (ranker.config.num_senses, ranker.config.vocab_size) == (4, len(tokenizer) + 7)
