"""A ranker is one file and one choice of conf/model: train.py trains it, and its folder is loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import yaml
from in_process import configured

from backpack_rank import models
from backpack_rank.data.packing import PackedBatch
from backpack_rank.files import resource_folder
from backpack_rank.models import loading
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.rankers import Ranker
from backpack_rank.pipelines import nodes
from backpack_rank.pipelines.train import train

TARGET = "backpack_rank.models.word_sum.new_word_sum"
WORD_SUM = '''
from torch import nn
from transformers import GPT2Config

from backpack_rank.constructors import Positions, Width
from backpack_rank.models.rankers import Ranker, RankerOutput


class WordSumForRanking(Ranker):
    """The sum of all word vectors, through one layer."""

    config_class = GPT2Config

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.n_embd)
        self.out = nn.Linear(config.n_embd, 1)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def forward(self, batch, sense_weights=None, token_shift=None, return_senses=False):
        self.refuse_senses(sense_weights, return_senses)
        vectors = self.words(batch.input_ids)
        sums = vectors.new_zeros(len(batch), vectors.shape[-1])
        return RankerOutput(self.out(sums.index_add_(0, batch.text_ids, vectors)).squeeze(-1))


def new_word_sum(tokenizer, *, hidden_size: Width = 64, positions: Positions = 512):
    return WordSumForRanking(
        GPT2Config(vocab_size=len(tokenizer), n_embd=hidden_size, n_positions=positions)
    )
'''
SMALL = [
    "model=word_sum",
    "lists.per_epoch=24",
    "+data.train.train_queries=24",
    "+data.train.documents=120",
    "+data.dev.dev_queries=6",
    "+data.dev.documents=60",
    "training.epochs=1",
    "training.frozen=[out]",
]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that somebody writes who adds a ranker: a file of backpack_rank/models/ and a choice."""
    package = tmp_path / "models"
    package.mkdir()
    (package / "word_sum.py").write_text(WORD_SUM, encoding="utf-8")
    monkeypatch.setattr(models, "__path__", [*models.__path__, os.fspath(package)])
    # Hydra would tell of a further folder of configurations; nothing runs under it here.
    known = nodes.known_targets() | {TARGET}
    monkeypatch.setattr(nodes, "known_targets", lambda: known)
    choice = yaml.safe_load((resource_folder("conf") / "model" / "gpt2_tiny.yaml").read_text())
    choice["name"] = "word_sum"
    choice["ranker"] = {
        "_target_": TARGET,
        "hidden_size": 16,
        "positions": 256,
    }
    choice["recommended"]["pretraining_epochs"] = 0
    conf = tmp_path / "conf"
    (conf / "model").mkdir(parents=True)
    (conf / "model" / "word_sum.yaml").write_text(yaml.safe_dump(choice), encoding="utf-8")
    return conf


@pytest.mark.slow
def test_train_trains_it_and_its_folder_has_its_scores(
    added: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    options = [f"hydra.searchpath=[file://{added}]", *SMALL, f"output={tmp_path}"]
    folder = tmp_path / "train" / "word_sum"
    train(configured("train", *options), folder, options)
    ranker, _ = load_ranker(folder / "ranker")
    assert ranker.label == "WordSumForRanking"
    words = ranker.get_input_embeddings().weight
    by_hand = ranker.out(torch.stack([words[5] + words[6] + words[7], words[9]])).squeeze(-1)
    batch = PackedBatch.from_sequences([[5, 6, 7], [9]])
    assert ranker(batch).scores.tolist() == pytest.approx(by_hand.tolist(), abs=1e-5)


def test_folders_are_loaded_as_the_classes_that_name_a_configuration() -> None:
    classes = loading._own_classes()
    assert {kind.__name__ for kind in classes.values()} == {
        "BackpackEncoderForRanking",
        "BackpackForRanking",
        "CrossEncoderForRanking",
        "DualEncoderForRanking",
        "GPT2ForRanking",
        "InteractionForRanking",
    }
    # Two more names of the same classes are those of sentence-transformers.
    assert len(classes) == 8
    assert not Ranker.is_saved()
