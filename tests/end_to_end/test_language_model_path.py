"""train.py task=language_model from text to a folder, from the folder to a ranker, and the quality of its senses."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from in_process import evaluated
from transformers import AutoModelForCausalLM
from workplace import ROOT, SMALL, Workplace

from backpack_rank.data.sources.embedded import load_embedded
from backpack_rank.data.texts import is_held_out
from backpack_rank.data.tokenisation import PairEncoder, load_tokenizer
from backpack_rank.models.build import load_ranker
from backpack_rank.pipelines.common import register_resolvers, run_folder
from backpack_rank.pipelines.train import train
from backpack_rank.training.language_model import TextModule

SHAPE = ["model.ranker.layers=1", "model.ranker.hidden_size=32", "model.ranker.heads=2", "model.ranker.senses=4"]
TINY = [*SHAPE, "model.ranker.positions=96", "model.tokenizer.vocab_size=600", "+data.train.train_queries=12"]
TINY += ["+data.train.documents=60", "task=language_model", "task.sequence_length=48", "task.held_out=0.1"]
PLAIN = ["The cook prepares soup\nfor a hundred guests.", "A river, a bridge and a road."] * 6
LINES = [f"Guest number {number} eats bread and fish." for number in range(20)]


class SingleThread(Workplace):
    """For networks so small that threads only wait for each other."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "OMP_NUM_THREADS": "1"}


def options_of_texts(folder: Path) -> str:
    """A plain file, JSON lines and the collection's documents."""
    (folder / "plain.txt").write_text("\n\n".join(PLAIN))
    lines = "\n".join(json.dumps({"body": text}) for text in LINES)
    (folder / "lines.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return f"task.texts=[{folder / 'plain.txt'},documents,{folder / 'lines.jsonl.gz'}]"


def trained(folder: Path, *overrides: str, resume: bool = False) -> float:
    """What train.py does, in this process."""
    register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", overrides=[*overrides, f"resume={resume}", f"output={folder.parent.parent}"])
    return train(config, folder, [f"resume={resume}"] if resume else list(overrides))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with a trained language model."""
    place = SingleThread(tmp_path_factory.mktemp("language_model"))
    texts = [options_of_texts(place.folder), "task.field=body", "task.epochs=2", "task.learning_rate=5e-3"]
    done = place.run("train.py", *TINY, *texts)
    assert "perplexity" in done.stdout + done.stderr
    return place


@torch.no_grad()
def test_a_run_leaves_a_folder_with_the_perplexity_that_a_loop_finds(place: Workplace) -> None:
    run = place.newest("train")
    left = {path.name for path in run.iterdir()} - {".hydra", "train.log"}
    assert left == {"checkpoints", "config.yaml", "language_model", "logs"}
    folder = run / "language_model"
    summary = json.loads((folder / "training.json").read_text())
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), load_tokenizer(folder)
    encoder = PairEncoder(tokenizer, 96)
    texts = [*PLAIN, *LINES, *(text for _, text in load_embedded("train", train_queries=12, documents=60).documents)]
    held = [text for text in texts if is_held_out(text.strip(), 0.1, 0)]
    total = count = 0
    for text in held:
        ids = [encoder.end_id, *encoder.encode([text])[0].tolist(), encoder.end_id]
        for start in range(0, len(ids) - 1, 48):
            part = torch.tensor([ids[start : start + 49]])
            total += F.cross_entropy(model(part[:, :-1]).logits[0], part[0, 1:], reduction="sum").item()
            count += part.shape[1] - 1
    assert (summary["held_out_documents"], summary["held_out_tokens"]) == (len(held), count)
    assert summary["train_documents"] == len(texts) - len(held)
    assert summary["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-3)
    assert summary["perplexity"] < 0.7 * len(tokenizer)
    with open(run / "logs" / "metrics.csv") as handle:
        logged = [float(row["val/perplexity"]) for row in csv.DictReader(handle) if row["val/perplexity"]]
    assert len(logged) == 2
    assert min(logged) == pytest.approx(summary["perplexity"])
    assert summary["settings"]["task"]["epochs"] == 2
    assert summary["texts"][1] == "documents of embedded/train"
    with pytest.raises(FileNotFoundError, match="no interrupted run"):
        run_folder(str(place.output), True)


def test_the_language_model_becomes_a_ranker_and_both_are_asked_about_their_senses(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    folder = place.newest("train") / "language_model"
    names = [f"model.ranker.name={folder}", f"model.tokenizer.name={folder}"]
    small = [option for option in SMALL if not option.startswith(("model.", "training."))]
    trained(tmp_path / "run", "model=backpack_gpt2", *names, *small, "warmup.epochs=0", "training.epochs=1")
    ranker, encoder = load_ranker(tmp_path / "run" / "ranker")
    assert ranker.config.num_senses == 4
    assert len(encoder.tokenizer) == ranker.config.vocab_size

    pairs = tmp_path / "pairs.csv"
    pairs.write_text("word1,word2,score\nhe,she,9\nhouse,nurse,1\nroad,bridge,6\nold,long,4\n")
    asked = ["experiment=sense_quality", f"task.word_similarity=[{pairs}]", "task.words=[she,people]", "task.count=3"]
    for checkpoint, predicts in ((folder, True), (place.newest("train"), True), (tmp_path / "run", False)):
        job = tmp_path / f"quality of {checkpoint.name}"
        evaluated(place, job, *asked, f"checkpoint={checkpoint}", quiet=not predicts)
        found = json.loads((job / "sense_quality.json").read_text())
        assert [(part["name"], part["pairs"], len(part["per_sense"])) for part in found["lists"]] == [("pairs", 4, 4)]
        assert [word["word"] for word in found["words"]] == ["she", "people"]
        assert [len(sense) for sense in found["words"][0]["nearest"]] == [3] * 4
        assert [len(sense) for sense in found["words"][0]["predicted"]] == [3] * (4 if predicts else 0)
        assert (job / "sense_quality.md").is_file()
        assert (job / "config.yaml").is_file()
    assert "pairs (4)" in capsys.readouterr().out


def test_an_interrupted_run_resumes_to_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*TINY, "task.rows_per_epoch=40", "task.max_steps=7", "task.batch_size=12"]
    whole, halved = tmp_path / "whole", tmp_path / "out" / "train" / "halved"
    expected = trained(whole, *options)
    real = TextModule.on_train_batch_start

    def interrupted(self, batch, batch_idx):
        if self.trainer.global_step == 5:
            raise RuntimeError("interrupted")
        real(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(TextModule, "on_train_batch_start", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            trained(halved, *options)
    assert not (halved / "language_model").exists()
    assert run_folder(str(tmp_path / "out"), True) == str(halved)
    with monkeypatch.context() as patch:
        patch.setattr("backpack_rank.data.tokenisation.train_bpe", lambda *_: pytest.fail("trained again"))
        assert trained(halved, resume=True) == expected
    one, two = (AutoModelForCausalLM.from_pretrained(run / "language_model") for run in (whole, halved))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    summary = json.loads((halved / "language_model" / "training.json").read_text())
    assert summary == json.loads((whole / "language_model" / "training.json").read_text())
    assert summary["steps"] == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["training.epochs=2"], "training.epochs=2: options of ranking"),
        (["model=gpt2_tiny"], "GPT2ForRanking is none: use model=backpack_tiny"),
        (["task.sequence_length=97"], "task.sequence_length=97 exceeds the model's 96 positions"),
        (["task.texts=[missing.txt]"], "there is no file missing.txt"),
        (["task.held_out=1"], "task.held_out=1 must be above 0 and below 1"),
        (["task.epochs=0"], "task.epochs=0 must be a whole number"),
        (["task.learning_rate=0"], "task.learning_rate=0 must be > 0"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, options: list[str], said: str) -> None:
    shape = [option for option in TINY if options != ["model=gpt2_tiny"] or "senses" not in option]
    with pytest.raises((ValueError, FileNotFoundError, InstantiationException), match=said.replace(".", r"\.")):
        trained(tmp_path / "run", *shape, *options)
