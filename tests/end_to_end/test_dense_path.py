"""The dual encoder and its dense first stage through training and evaluation, on little text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import TEST_SPLIT, evaluated, trained_in
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from workplace import Workplace

from backpack_rank.data.trec import read_run
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.factory import load_ranker

SMALL = [
    "lists.size=4",
    "lists.per_epoch=8",
    "training.epochs=1",
    "max_length=96",
    "training.loss=pairwise_hinge",
    "trainer.accelerator=cpu",
    "+data.train.train_queries=12",
    "+data.train.documents=80",
    "+data.dev.dev_queries=4",
    "+data.dev.documents=40",
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="module")
def dual_encoder_run(workplace: Workplace, tokenizer) -> Path:
    """The run of a small dual encoder over a random BERT."""
    folder = workplace.folder / "bert"
    special = {
        "cls_token": "<|endoftext|>",
        "sep_token": "<|separator|>",
        "pad_token": "<|endoftext|>",
    }
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, **special
    )
    torch.manual_seed(0)
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    BertModel(
        BertConfig(vocab_size=len(fast_tokenizer), initializer_range=0.3, **shape)
    ).save_pretrained(folder)
    fast_tokenizer.save_pretrained(folder)
    return trained_in(workplace, "dual", "model=bert_dot", f"model.ranker.name={folder}", *SMALL)


def systems(folder: Path) -> dict[str, dict]:
    return {
        system["label"]: system
        for system in json.loads((folder / "measures.json").read_text())["systems"]
    }


def test_a_dual_encoder_is_a_first_stage_whose_scores_are_its_own(
    workplace: Workplace, dual_encoder_run: Path, tmp_path: Path
) -> None:
    stage = [
        "first_stage=dense",
        f"first_stage.checkpoint={dual_encoder_run}",
        "first_stage.depth=30",
    ]
    for name in ("one", "two"):
        evaluated(workplace, tmp_path / name, *TEST_SPLIT, *stage, f"checkpoint={dual_encoder_run}")
    assert list(systems(tmp_path / "one")) == ["dense", "alpha=1"]
    runs = tmp_path / "one" / "runs"
    first = read_run(runs / "dense__synthetic-test.run")
    again = read_run(runs / "alpha-1__synthetic-test.run")
    assert len(first) == 12
    for query_id, scores in first.items():
        assert len(scores) == 30
        assert scores == pytest.approx(
            again[query_id], abs=0.03, rel=2e-3
        )  # vectors are in half precision
    (vectors,) = (workplace.folder / "cache" / "dense").glob("*/vectors.npy")
    assert np.load(vectors, mmap_mode="r").shape == (80, 16)
    assert read_run(tmp_path / "two" / "runs" / "dense__synthetic-test.run") == first
    assert isinstance(load_ranker(dual_encoder_run / "ranker")[0], DualEncoderForRanking)
