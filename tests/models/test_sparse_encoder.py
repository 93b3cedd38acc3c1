"""Sparse encoders: their scores are those of sentence-transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from foreign_rankers import WORDS
from library_encoders import bert_tokenizer_without_types
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    MPNetConfig,
    MPNetForMaskedLM,
)

from backpack_rank.reranking.load import load

pytest.importorskip("sentence_transformers")
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

QUERY = "the doctor saw a nurse"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "the"]


def tokenizer():
    return bert_tokenizer_without_types(mask_token="[MASK]")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Folders of models for masked words; what MPNet reads is padded."""
    torch.manual_seed(0)
    size = {"vocab_size": len(WORDS) + 5, "max_position_embeddings": 32, "initializer_range": 0.5}
    of_bert = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    of_distilbert = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    of_mpnet = {"hidden_size": 16, "pad_token_id": 0, **of_bert}
    models = {
        "bert": BertForMaskedLM(BertConfig(hidden_size=16, **of_bert, **size)),
        "distilbert": DistilBertForMaskedLM(DistilBertConfig(**of_distilbert, **size)),
        "mpnet": MPNetForMaskedLM(MPNetConfig(**of_mpnet, **size)),
    }
    folder = tmp_path_factory.mktemp("mlm")
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
    return folder


def splade(folder, *pooling):
    transformer = Transformer(str(folder), transformer_task="fill-mask")
    return SparseEncoder(modules=[transformer, SpladePooling(*pooling)], device="cpu")


def without_network(folder):
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer(), weight=torch.rand(len(tokenizer())))],
        document_modules=list(splade(folder)),
    )
    return SparseEncoder(modules=[router], device="cpu")


def scores_of(model, documents=DOCUMENTS):
    vectors = model.encode_document(documents).to_dense()
    return (vectors @ model.encode_query([QUERY]).to_dense()[0]).numpy()


@pytest.mark.parametrize(
    "make",
    [
        lambda bare: splade(bare / "bert"),
        lambda bare: splade(bare / "distilbert", "sum"),
        lambda bare: splade(bare / "bert", "max", "log1p_relu"),
        lambda bare: without_network(bare / "bert"),
        lambda bare: splade(bare / "mpnet"),
    ],
    ids=["max", "sum", "two logarithms", "queries without a network", "padded"],
)
def test_scores_are_those_of_the_library(make, bare, tmp_path):
    model = make(bare)
    expected = scores_of(model)
    assert np.ptp(expected) > 0.1
    model.save_pretrained(str(tmp_path))
    scores = load(tmp_path).predict([(QUERY, document) for document in DOCUMENTS])
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_the_dial_is_the_mean_of_sparse_vectors(bare, tmp_path):
    model = splade(bare / "bert")
    model.save_pretrained(str(tmp_path))
    reranker = load(tmp_path)
    she, he, bread = DOCUMENTS[1], DOCUMENTS[0], "bread"
    expected = scores_of(model, [she, he])
    scores = reranker.sweep(QUERY, [she, he, bread], alphas=[1, 0.5, 0])
    neutral = expected.mean()
    np.testing.assert_allclose(scores[2, :2], neutral, rtol=1e-5)
    np.testing.assert_allclose(scores[1, :2], (expected + neutral) / 2, rtol=1e-5)
    assert scores[2, 0] == scores[2, 1]
    assert len(set(scores[:, 2])) == 1
    assert reranker.policies == ("paired_tokens", "renditions")


def test_routers_of_another_kind_are_refused(bare, tmp_path):
    without_network(bare / "bert").save_pretrained(str(tmp_path))
    file = tmp_path / "router_config.json"
    routes = json.loads(file.read_text())
    routes["structure"]["query"] = ["../elsewhere"]
    file.write_text(json.dumps(routes))
    with pytest.raises(ValueError, match="leads out of the folder"):
        load(tmp_path)
    routes["structure"]["query"] = routes["structure"]["document"]
    file.write_text(json.dumps(routes))
    with pytest.raises(ValueError, match="a router for a query of weights and a document alone"):
        load(tmp_path)


def test_what_lies_in_folders_of_a_router_is_looked_at(bare, tmp_path):
    without_network(bare / "bert").save_pretrained(str(tmp_path))
    (file,) = tmp_path.glob("document_*_Transformer/config.json")
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}))
    with pytest.raises(ValueError, match=r"quantised \(awq\)"):
        load(tmp_path)
