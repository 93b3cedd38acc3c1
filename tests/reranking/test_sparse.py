"""The sparse first stage: exact, with the scores of the ranker at every alpha, resumed when killed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from foreign_rankers import WORDS, tokenizer_of
from transformers import BertConfig, BertForMaskedLM

from backpack_rank.data.collection import Collection
from backpack_rank.data.documents import MemoryStore
from backpack_rank.reranking import dense_vectors
from backpack_rank.reranking.dense import Dense
from backpack_rank.reranking.load import load
from backpack_rank.reranking.sparse import Sparse, SparseEncoding

TEXTS = ["she saw bread", "fish", "he saw fish", "the doctor", "she and a nurse", "a nurse b", "he"]
QUERIES = {"q1": "bread and fish", "q2": "a nurse saw the doctor", "asks": "women in the ward"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A SPLADE as sentence-transformers saves it."""
    folder = tmp_path_factory.mktemp("splade")
    specials = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    specials |= {"unk_token": "[UNK]"}
    template = "[CLS] $A [SEP]|[CLS] $A [SEP] $B [SEP]"
    tokenizer = tokenizer_of(specials, template, "input_ids", "attention_mask")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS) + 4,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = "sentence_transformers.sparse_encoder.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kinds}.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{kinds}.SpladePooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_SpladePooling").mkdir()
    (folder / "1_SpladePooling" / "config.json").write_text('{"pooling_strategy": "max"}')
    model = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(model))
    return folder


def collection(number=20):
    texts = {f"d{place}": TEXTS[place % len(TEXTS)] for place in range(number)}
    return Collection("small", MemoryStore(texts), QUERIES, {})


def test_its_scores_are_those_of_the_ranker_at_every_alpha(checkpoint, tmp_path):
    searched = collection()
    alphas = [1, 0.5, 0]
    runs = Sparse(checkpoint, folder=tmp_path, depth=20).candidates_at(searched, alphas)
    reranker = load(checkpoint)
    for alpha, run in zip(alphas, runs, strict=True):
        scores = reranker.with_policy("renditions", alpha).rerank(run, searched)
        for query_id, found in run.items():
            assert len(found) == 20
            # Best first, equal scores by ascending id.
            assert list(found) == sorted(found, key=lambda doc_id: (-found[doc_id], doc_id))
            for doc_id, score in found.items():
                assert score == pytest.approx(scores[query_id][doc_id], rel=2e-3, abs=2e-2)
    # d0 and d7 have one text; d2 and d6 others, of which one is the swap of no other.
    assert runs[0]["q1"]["d0"] == runs[0]["q1"]["d7"]
    assert runs[0]["q1"]["d0"] != runs[2]["q1"]["d0"]
    assert runs[0]["asks"] == runs[2]["asks"]
    (first,) = Sparse(checkpoint, folder=tmp_path, depth=3, alpha=0.5).candidates_at(
        searched, [0.5]
    )
    assert list(first["q1"]) == list(runs[1]["q1"])[:3]


def test_texts_are_scored_as_if_they_were_in_the_corpus(checkpoint, tmp_path):
    stage = Sparse(checkpoint, folder=tmp_path, depth=20)
    searched = collection()
    alphas = [1, 0.25, 0]
    runs = stage.candidates_at(searched, alphas)
    pairs = [(QUERIES[query], text) for query in ("q1", "asks") for text in TEXTS]
    scores = stage.scores_of_texts([*pairs, (QUERIES["q1"], "he saw bread")], alphas)
    for place, run in enumerate(runs):
        expected = [run[query][f"d{number}"] for query in ("q1", "asks") for number in range(7)]
        np.testing.assert_allclose(scores[place, :14], expected, rtol=1e-6)
    # "she saw bread" and its swap.
    assert scores[2, 0] == scores[2, 14]
    assert scores[0, 0] != scores[0, 14]
    at_zero = Sparse(checkpoint, folder=tmp_path, alpha=0)
    assert at_zero.same_score("bread", "she saw bread", "he saw bread")


@pytest.mark.slow
def test_an_encoding_goes_on_where_it_was_stopped_to_the_bit(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(dense_vectors, "_CHUNK", 3)
    searched = collection()
    whole = Sparse(checkpoint, folder=tmp_path / "whole", alpha=0).candidates(searched)
    rows = SparseEncoding.rows
    for stopped_after in (2, 9):
        seen = []

        def stopping(self, texts, seen=seen, stopped_after=stopped_after):
            if len(seen) == stopped_after:
                raise KeyboardInterrupt
            seen.append(texts)
            return rows(self, texts)

        folder = tmp_path / str(stopped_after)
        monkeypatch.setattr(SparseEncoding, "rows", stopping)
        with pytest.raises(KeyboardInterrupt):
            Sparse(checkpoint, folder=folder, alpha=0).candidates(searched)
        monkeypatch.setattr(SparseEncoding, "rows", rows)
        (partial,) = (path for path in folder.iterdir() if path.suffix == ".partial")
        with open(partial / "weights", "ab") as file:
            file.write(b"half a weight")
        assert Sparse(checkpoint, folder=folder, alpha=0).candidates(searched) == whole


def test_rankers_of_another_kind_are_refused(checkpoint, tmp_path):
    with pytest.raises(ValueError, match="SPLADE is first_stage=sparse"):
        Dense(checkpoint, folder=tmp_path).candidates(collection())
    BertForMaskedLM.from_pretrained(checkpoint).bert.save_pretrained(tmp_path / "bert")
    for file in checkpoint.glob("tokenizer*"):
        (tmp_path / "bert" / file.name).write_bytes(file.read_bytes())
    stage = Sparse(tmp_path / "bert", folder=tmp_path)
    stage.pooling = "mean"
    with pytest.raises(ValueError, match="makes no sparse vectors; give a SparseEncoder"):
        stage.candidates(collection())
