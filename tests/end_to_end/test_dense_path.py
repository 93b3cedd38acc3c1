"""The dual encoder, its dense first stage and BM25 as a ranker through training and evaluation, on little text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from in_process import TEST_SPLIT, evaluated
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from workplace import ROOT, Workplace

from backpack_rank.data.formats import read_run
from backpack_rank.data.sources.embedded import load_embedded
from backpack_rank.models.bm25_ranker import Bm25ForRanking
from backpack_rank.models.build import load_ranker
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.pipelines.common import register_resolvers
from backpack_rank.pipelines.train import train

SMALL = [
    "lists.size=4",
    "lists.per_epoch=8",
    "training.epochs=1",
    "max_length=96",
    "training.loss=pairwise_hinge",
    "trainer.accelerator=cpu",
]
DATA = [
    "+data.train.train_queries=12",
    "+data.train.documents=80",
    "+data.dev.dev_queries=4",
    "+data.dev.documents=40",
]
DENSE = "backpack_rank.retrieval.dense.Dense"


def trained(place: Workplace, *options: str) -> Path:
    folder = place.output / "train" / options[0].partition("=")[2]
    register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", overrides=[*DATA, f"output={place.output}", *options])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_CACHE", str(place.folder / "cache"))
        train(config, folder, [option for option in options if option not in SMALL])
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="module")
def dual(place: Workplace, tokenizer) -> Path:
    """The run of a small dual encoder over a random BERT."""
    folder = place.folder / "bert"
    special = {"cls_token": "<|endoftext|>", "sep_token": "<|separator|>", "pad_token": "<|endoftext|>"}
    own = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **special)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(own), initializer_range=0.3, **shape)).save_pretrained(folder)
    own.save_pretrained(folder)
    return trained(place, "model=bert_dot", f"model.ranker.name={folder}", *SMALL)


def systems(folder: Path) -> dict[str, dict]:
    return {system["label"]: system for system in json.loads((folder / "measures.json").read_text())["systems"]}


def test_a_dual_encoder_is_a_first_stage_whose_scores_are_its_own(place: Workplace, dual: Path, tmp_path: Path) -> None:
    stage = ["~data.first_stage", f"+data.first_stage={{_target_:{DENSE},checkpoint:{dual},depth:30}}"]
    for name in ("one", "two"):
        evaluated(place, tmp_path / name, *TEST_SPLIT, *stage, f"checkpoint={dual}")
    assert list(systems(tmp_path / "one")) == ["dense", "DualEncoderForRanking"]
    runs = tmp_path / "one" / "runs"
    first = read_run(runs / "dense__embedded-test.run")
    again = read_run(runs / "DualEncoderForRanking__embedded-test.run")
    assert len(first) == 12
    for query_id, scores in first.items():
        assert len(scores) == 30
        assert scores == pytest.approx(again[query_id], abs=0.03, rel=2e-3)  # vectors are in half precision
    (vectors,) = (place.folder / "cache" / "dense").glob("*/vectors.npy")
    assert np.load(vectors, mmap_mode="r").shape == (80, 16)
    assert read_run(tmp_path / "two" / "runs" / "dense__embedded-test.run") == first
    assert isinstance(load_ranker(dual / "ranker")[0], DualEncoderForRanking)


def test_bm25_is_counted_on_the_training_collection_and_measured_like_any_ranker(
    place: Workplace, tmp_path: Path
) -> None:
    folder = trained(place, "model=bm25")
    ranker, encoder = load_ranker(folder / "ranker")
    assert isinstance(ranker, Bm25ForRanking)
    documents = [text for _, text in load_embedded("train", train_queries=12, documents=80).documents]
    assert ranker.totals.tolist() == [80, sum(len(ids) for ids in encoder.encode(documents))]
    evaluated(place, tmp_path, *TEST_SPLIT, f"checkpoint={folder}")
    found = systems(tmp_path)
    assert list(found) == ["BM25", "Bm25ForRanking"]
    # BM25 counts words: without a gendered word in a query, swaps of gendered words change nothing.
    swaps = found["Bm25ForRanking"]["further"]["swapped documents"]["figures"]
    assert swaps["swap change/std (swapped)"]["mean"] == 0
    # Counted on other documents: other weights of words, much the same ranking.
    figures = [found[name]["effectiveness"]["figures"]["nDCG@10"]["mean"] for name in ("BM25", "Bm25ForRanking")]
    assert figures[1] == pytest.approx(figures[0], abs=0.1)
    for policy, said in (
        ("lowest_senses", "Bm25ForRanking has no sense vectors"),
        ("paired_tokens_weights", "Bm25ForRanking has no word vectors that could be moved, so it takes alpha=1 alone"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            evaluated(place, tmp_path, *TEST_SPLIT, f"checkpoint={folder}", "alpha=0.5", f"policy={policy}")


def test_options_of_training_mean_nothing_to_bm25_and_are_refused(place: Workplace) -> None:
    with pytest.raises(ValueError, match=r"training\.epochs=5, adapter=lora: options of training, but model=bm25"):
        trained(place, "model=bm25", "training.epochs=5", "adapter=lora")
    with pytest.raises(ValueError, match="the vocabulary lacks a word of the document"):
        trained(place, "model=bm25", "model.tokenizer.min_count=2")
