"""train.py task=listwise from lists to a saved ranker, its propensities, and training with them;
resuming; mistakes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from causal_example import WIDE, gpt2
from hydra.errors import InstantiationException
from in_process import configured
from read_back import csv_rows
from transformers import AutoModelForCausalLM, BertConfig, BertForMaskedLM

from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.pipelines.train import train
from backpack_rank.position.lists.permutation import rank_shuffled
from backpack_rank.position.lists.propensity import load_propensities
from backpack_rank.position.lists.saved import load_listwise
from backpack_rank.position.lists.sorting_scores import sorting_scores
from backpack_rank.position.lists.sorting_tasks import MathSort
from backpack_rank.position.lists.sources import ListwiseDataConfig
from backpack_rank.position.lists.training import ListwiseModule

SHAPE = [
    "model.ranker.layers=1",
    "model.ranker.hidden_size=32",
    "model.ranker.heads=2",
    "model.ranker.positions=400",
]
TINY = ["task=listwise", "model=listwise_tiny", *SHAPE, "model.tokenizer.vocab_size=500"]
MATH = ["task.lists=mathsort", "task.size=4", "task.number=24"]
MATH += ["task.held_out=12", "task.batch_size=8"]
PRETRAINED = ["task=listwise", "model=listwise_lm", *MATH, "task.epochs=1", "task.max_length=1000"]
SYNTHETIC = ["+data.train.train_queries=12", "+data.train.documents=60"]
SYNTHETIC += ["+data.dev.dev_queries=5", "+data.dev.documents=30", "task.size=4"]


def trained(folder: Path, *overrides: str, resume: bool = False) -> float:
    """What train.py does, in this process."""
    config = configured("train", *overrides, f"resume={resume}", f"output={folder.parent.parent}")
    return train(config, folder, [f"resume={resume}"] if resume else list(overrides))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a saved language model."""
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def changed_weights(before: Path, after: Path) -> set[str]:
    """Names of the weights that differ between two saved language models."""
    first, second = weights_of(before), weights_of(after)
    assert first.keys() == second.keys()
    return {name for name, weight in first.items() if not torch.equal(weight, second[name])}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on sorted expressions whose best stand in front."""
    folder = tmp_path_factory.mktemp("out") / "train" / "first"
    trained(folder, *TINY, *MATH, "task.imbalance=1", "task.epochs=3", "task.learning_rate=1e-2")
    return folder


@pytest.mark.slow
def test_a_run_leaves_a_ranker_that_sorts_held_out_lists_as_well_as_it_says(finished_run: Path):
    names = sorted(path.name for path in finished_run.iterdir())
    assert names[:3] == ["checkpoints", "config.yaml", "logs"]
    assert names[3:] == ["overrides.yaml", "ranker", "training.json"]
    assert not (finished_run / "checkpoints" / "last.ckpt").exists()
    summary = json.loads((finished_run / "training.json").read_text())
    assert (summary["lists"], summary["lists_per_epoch"], summary["steps"]) == ("mathsort", 24, 9)
    ranker = load_listwise(finished_run / "ranker", device="cpu")
    assert (ranker.passages, ranker.mode) == (4, "first_token")
    assert ranker.pair_tokenizer.max_length == 400
    held_out = ListwiseDataConfig("mathsort", 4, held_out=12).held_out_lists(None)
    rankings = ranker.rank([item.passages for item in held_out])
    scores = sorting_scores(rankings, [item.relevance_levels for item in held_out])
    assert scores.tau == pytest.approx(summary["best"], abs=1e-6)
    taus = [row["val/kendall_tau"] for row in csv_rows(finished_run / "logs" / "metrics.csv")]
    logged = [float(tau) for tau in taus if tau]
    assert len(logged) == 3
    assert max(logged) == pytest.approx(summary["best"])


@pytest.mark.slow
def test_propensities_are_estimated_and_change_training(finished_run: Path, tmp_path, capsys):
    asked = ["experiment=propensities", f"checkpoint={finished_run}", f"output={tmp_path}"]
    asked += ["scoring.device=cpu", "task.number=20", "task.shuffles=3"]
    evaluate(configured("evaluate", *asked), tmp_path / "found")
    propensities = load_propensities(tmp_path / "found")
    assert (propensities.size, propensities.lists, propensities.shuffles) == (4, 20, 3)
    lists = [item.passages for item in ListwiseDataConfig("mathsort", 4, 20).source(None).lists(0)]
    shuffled = rank_shuffled(load_listwise(finished_run / "ranker", device="cpu"), lists, 3)
    counts = np.zeros((4, 4), dtype=int)
    for ranking in shuffled.rankings:
        for output, place in enumerate(ranking.order):
            counts[place, output] += 1
    assert np.array_equal(propensities.counts, counts)
    endings = {path.suffix for path in (tmp_path / "found").glob("propensity_map.*")}
    assert endings == {".json", ".csv", ".png", ".svg"}
    assert "20 lists of 4 passages, each shuffled 3 times" in capsys.readouterr().out

    options = [*TINY, *MATH, "task.epochs=1"]
    weighted = [f"task.propensities={tmp_path / 'found' / 'propensities.json'}", "task.weight=1"]
    trained(tmp_path / "plain", *options, "task.weight=1")
    trained(tmp_path / "weighted", *options, *weighted)
    assert changed_weights(tmp_path / "plain" / "ranker", tmp_path / "weighted" / "ranker")
    message = r"of lists of 4 passages, and a training list has 6.*set task\.size=4"
    with pytest.raises(ValueError, match=message):
        trained(tmp_path / "longer", *options, *weighted, "task.size=6")


@pytest.mark.slow
def test_a_collection_s_lists_in_rotated_orders_with_noise_and_activations_computed_twice(tmp_path):
    options = ["task.augmentation=rotate", "task.copies=2", "task.noise=5", "task.epochs=1"]
    options += ["task.gradient_checkpointing=true", "trainer.precision=bf16-mixed"]
    best = trained(tmp_path / "run", *TINY, *SYNTHETIC, *options)
    summary = json.loads((tmp_path / "run" / "training.json").read_text())
    assert summary["lists"] == "synthetic/train"
    assert summary["steps"] == 1
    assert summary["after_last_epoch"]["val/nDCG@10"] == best
    assert 0.4 < best <= 1
    assert load_listwise(tmp_path / "run" / "ranker", device="cpu").passages == 4


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path, monkeypatch):
    options = [*TINY, *MATH, "task.augmentation=shuffle", "task.copies=2"]
    options += ["task.epochs=3", "task.noise=3"]
    uninterrupted, halved = tmp_path / "whole", tmp_path / "out" / "train" / "halved"
    expected = trained(uninterrupted, *options)
    real = ListwiseModule.on_train_batch_start

    def interrupted(self, batch, batch_idx):
        if self.trainer.global_step == 8:
            raise RuntimeError("interrupted")
        real(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(ListwiseModule, "on_train_batch_start", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            trained(halved, *options)
    assert not (halved / "ranker").exists()
    with monkeypatch.context() as patch:
        patch.setattr(
            "backpack_rank.data.tokenisation.train_bpe", lambda *_: pytest.fail("trained again")
        )
        assert trained(halved, resume=True) == expected
    assert not changed_weights(uninterrupted / "ranker", halved / "ranker")


def test_a_collection_s_lists_come_in_first_stage_order_or_near_their_target_order() -> None:
    data = dataset_of(configured("train", *SYNTHETIC[:-1]).data)

    def shown_at(strength: float | None):
        return ListwiseDataConfig("collection", 6, imbalance=strength).source(data).lists(0)

    given = ListwiseDataConfig("collection", 6).source(data).lists(0)
    shown = {strength: shown_at(strength) for strength in (0, 1)}
    in_order = [list(range(len(item.grades))) for item in given]
    assert [item.order.tolist() for item in shown[1]] == in_order
    assert max(len(item.grades) for item in given) == 6
    assert [item.passages.ids for item in shown[0]] != [item.passages.ids for item in given]
    for strength, lists in shown.items():
        for before, after in zip(given, lists, strict=True):
            grades = dict(zip(before.passages.ids, before.grades, strict=True))
            assert dict(zip(after.passages.ids, after.grades, strict=True)) == grades, strength
    held_out = ListwiseDataConfig("collection", 6, imbalance=1.0).held_out_lists(data)
    expected = ListwiseDataConfig("collection", 6).held_out_lists(data)
    assert [item.passages for item in held_out] == [item.passages for item in expected]


@pytest.fixture(scope="module")
def tokenizer_of_math():
    texts = []
    for item in MathSort(200).lists(0):
        texts += [*item.passages.passages, "[A] > [B]"]
    return train_bpe(texts, 400)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_a_pretrained_model_is_trained_whole_or_with_adapters(tmp_path, tokenizer_of_math, adapter):
    if adapter == "lora":
        pytest.importorskip("peft")
    folder = tmp_path / "gpt2"
    gpt2(tokenizer_of_math, n_positions=1024, initializer_range=0.02).save_pretrained(folder)
    tokenizer_of_math.save_pretrained(folder)
    options = [f"model.ranker.name={folder}", "task.learning_rate=1e-2", f"adapter={adapter}"]
    if adapter == "lora":
        options += ["adapter.target_modules=all-linear"]
    trained(tmp_path / "run", *PRETRAINED, *options)
    ranker = tmp_path / "run" / "ranker"
    changed = changed_weights(folder, ranker)
    assert "transformer.h.1.mlp.c_fc.weight" in changed
    assert ("transformer.wte.weight" in changed) == (adapter == "none")
    assert load_listwise(ranker, device="cpu").pair_tokenizer.prompt.name == "first"


@pytest.mark.slow
def test_an_encoder_becomes_a_decoder(tmp_path: Path, tokenizer_of_math) -> None:
    torch.manual_seed(0)
    shape = {**WIDE, "vocab_size": len(tokenizer_of_math), "max_position_embeddings": 1024}
    BertForMaskedLM(BertConfig(**shape)).save_pretrained(tmp_path / "bert")
    tokenizer_of_math.save_pretrained(tmp_path / "bert")
    trained(tmp_path / "run", *PRETRAINED, f"model.ranker.name={tmp_path / 'bert'}")
    ranker = load_listwise(tmp_path / "run" / "ranker", device="cpu")
    assert ranker.model.config.is_decoder
    assert type(ranker.model).__name__ == "BertLMHeadModel"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["training.epochs=2"], "training.epochs=2: options of ranking"),
        (["model=backpack_tiny"], "model=backpack_tiny is none: use model=listwise_tiny"),
        (["task.lists=words"], "task.lists=words: use one of collection, mathsort, wordsort"),
        (["task.size=21"], "task.size=21 must be a whole number from 2 to 20"),
        (["task.max_length=500"], "task.max_length=500 exceeds the model's 400 positions"),
        (["task.augmentation=rotate"], "rotation needs groups"),
        (
            ["task.augmentation=rotate", "task.copies=9"],
            "a list of 4 passages, which cannot be cut into task.copies=9",
        ),
        (["task.epochs=0"], "task.epochs=0 must be a whole number"),
        (["task.learning_rate=0"], "task.learning_rate=0 must be a number above 0"),
        (["task.propensities=missing.json"], "there is no file missing.json"),
        (["task.teacher=run.trec"], "task.teacher=run.trec orders a collection's passages"),
        (["task.imbalance=2"], "task.imbalance=2 must be a number from 0 to 1, or null"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, options: list[str], message: str) -> None:
    shape = TINY if not options[0].startswith("model=") else ["task=listwise"]
    with pytest.raises(
        (ValueError, FileNotFoundError, InstantiationException), match=re.escape(message)
    ):
        trained(tmp_path / "run", *shape, *MATH, *options)
