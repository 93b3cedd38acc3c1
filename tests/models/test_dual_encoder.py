"""The dual encoder: each text is read as the library reads it alone, and scores are dot products of
two vectors.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from transformers import AutoModel
from whole_words import (
    DISTILBERT,
    DOCUMENTS,
    GROUPED,
    SHAPE,
    SPECIAL,
    save_backbone,
    word_tokenizer,
)

from backpack_rank.data.packing import PackedBatch, distinct
from backpack_rank.models.backbone import supports_packing
from backpack_rank.models.configuration import DualEncoderConfig
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.factory import dual_encoder
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import DualPairTokenizer
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.training.freezing import FrozenParts, parts
from backpack_rank.training.module import OptimizerConfig

KINDS = {
    "bert": SHAPE,
    "distilbert": DISTILBERT,
    "electra": {**SHAPE, "embedding_size": 16},
    "roberta": SHAPE,
    "llama": GROUPED,
}
QUERIES = ["w20 w21", "w5", "w20 w21 w3"]


@pytest.fixture(scope="module")
def tokenizer():
    """Texts become <s> text </s>, as BERT's become [CLS] text [SEP]."""
    return word_tokenizer("<s> $A </s>", **SPECIAL, bos_token="<s>")


@pytest.fixture(scope="module")
def folder_of(tokenizer, tmp_path_factory):
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = save_backbone(folder, tokenizer, kind, **KINDS[kind])
        return made[kind]

    return make


@pytest.fixture(scope="module")
def make_dual_encoder(folder_of, tokenizer):
    def make(kind="bert", max_length=24):
        ranker = dual_encoder(tokenizer, name=str(folder_of(kind))).eval()
        return ranker, make_pair_tokenizer(tokenizer, ranker, max_length)

    return make


def pairs(pair_tokenizer):
    return PackedBatch.from_sequences(
        [row for query in QUERIES for row in pair_tokenizer.pairs(query, DOCUMENTS)]
    )


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_dot_products_of_the_librarys_own_vectors_of_each_text_alone(
    kind, make_dual_encoder, folder_of, tokenizer
):
    ranker, pair_tokenizer = make_dual_encoder(kind)
    assert supports_packing(ranker.config) == (kind != "roberta")
    library = AutoModel.from_pretrained(folder_of(kind), attn_implementation="eager").eval()
    place = -1 if kind == "llama" else 0

    def vector(text):
        return library(
            **tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        ).last_hidden_state[0, place]

    expected = torch.stack(
        [vector(query) @ vector(document) for query in QUERIES for document in DOCUMENTS]
    )
    scores = ranker(pairs(pair_tokenizer)).scores
    assert scores.std() > 0.1
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
    apart = {
        "queries": ranker.encode_queries(
            PackedBatch.from_sequences(pair_tokenizer.queries(QUERIES))
        ),
        "documents": ranker.encode_documents(
            PackedBatch.from_sequences(pair_tokenizer.documents(DOCUMENTS))
        ),
    }
    for name, texts in (("queries", QUERIES), ("documents", DOCUMENTS)):
        torch.testing.assert_close(
            apart[name], torch.stack([vector(t) for t in texts]), atol=2e-5, rtol=1e-4
        )


def test_a_row_is_both_texts_as_they_are_read_alone(make_dual_encoder, tokenizer):
    _, pair_tokenizer = make_dual_encoder(max_length=6)
    (row,) = pair_tokenizer.pairs("w20 w21", ["w1 w2 w3 w4 w5"])
    query, document = tokenizer("w20 w21")["input_ids"], tokenizer("w1 w2 w3 w4")["input_ids"]
    assert row.tolist() == query + document
    assert pair_tokenizer.queries(["w20 w21"])[0].tolist() == query
    assert pair_tokenizer.documents(["w1 w2 w3 w4 w5"])[0].tolist() == document


def test_a_document_is_cut_in_the_same_place_behind_any_query(make_dual_encoder):
    _, pair_tokenizer = make_dual_encoder(max_length=8)
    text = " ".join(f"w{n}" for n in range(12))
    (alone,) = pair_tokenizer.documents([text])
    assert len(alone) == 8
    for query in ("w1", "w1 w2 w3 w4 w5 w6"):
        (row,) = pair_tokenizer.pairs(query, [text])
        assert row[-8:].tolist() == alone.tolist()
    with pytest.raises(
        ValueError, match="the query has 9 tokens, added ones included, and max_length=8"
    ):
        pair_tokenizer.pairs("w1 w2 w3 w4 w5 w6 w7", [text])
    with pytest.raises(ValueError, match="the query is empty"):
        pair_tokenizer.pairs("  ", [text])


@torch.no_grad()
def test_a_query_that_several_rows_have_is_read_once(make_dual_encoder, monkeypatch):
    ranker, pair_tokenizer = make_dual_encoder()
    batch = pairs(pair_tokenizer)
    seen = []
    read = ranker.encode_queries
    monkeypatch.setattr(
        ranker, "encode_queries", lambda texts, shift: seen.append(texts) or read(texts, shift)
    )
    scores = ranker(batch).scores
    ((texts),) = seen
    query_ids = [part.tolist() for part in texts.input_ids.split(texts.lengths)]
    assert query_ids == [ids.tolist() for ids in pair_tokenizer.queries(QUERIES)]
    one_by_one = [
        ranker(PackedBatch.from_sequences([row])).scores
        for q in QUERIES
        for row in pair_tokenizer.pairs(q, DOCUMENTS)
    ]
    torch.testing.assert_close(scores, torch.cat(one_by_one), atol=1e-4, rtol=1e-4)


def test_distinct_texts_against_a_loop():
    random = np.random.default_rng(3)
    for _ in range(50):
        # Ids of 0 at the end, where they could be taken for padding.
        texts = [
            random.integers(0, 3, random.integers(1, 4)).tolist()
            for _ in range(random.integers(1, 12))
        ]
        order = list(dict.fromkeys(map(tuple, texts)))
        packed, rows = distinct(PackedBatch.from_sequences(texts))
        again = PackedBatch.from_sequences([list(text) for text in order])
        assert rows.tolist() == [order.index(tuple(text)) for text in texts]
        for name in ("input_ids", "position_ids", "text_ids", "offsets"):
            assert torch.equal(getattr(packed, name), getattr(again, name)), name
        assert packed.max_length == again.max_length


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_saved_folder_gives_the_same_scores(kind, make_dual_encoder, tmp_path):
    ranker, pair_tokenizer = make_dual_encoder(kind)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    again, other = load_ranker(tmp_path / "ranker")
    assert isinstance(again, DualEncoderForRanking)
    assert isinstance(other, DualPairTokenizer)
    assert (other.max_length, other.start_id) == (24, 2)
    batch = pairs(other)
    torch.testing.assert_close(
        again.eval()(batch).scores, ranker(batch).scores, atol=1e-5, rtol=1e-5
    )


def test_gradients_reach_every_parameter(make_dual_encoder):
    ranker, pair_tokenizer = make_dual_encoder()
    ranker(pairs(pair_tokenizer)).scores.square().mean().backward()
    without = {
        name
        for name, parameter_name in ranker.named_parameters()
        if parameter_name.grad is None or not parameter_name.grad.abs().max() > 0
    }
    # A key's bias adds the same to all tokens; the second token type is that of no text here.
    assert {name for name in without if "key.bias" not in name} == set()


def test_every_parameter_is_the_backbones(make_dual_encoder):
    """So that training.learning_rate is the one that counts, and training.frozen knows no other
    part.
    """
    ranker, _ = make_dual_encoder()
    groups = OptimizerConfig(1e-4, head_learning_rate=1.0).optimizer(ranker).param_groups
    assert {group["lr"] for group in groups if group["params"]} == {1e-4}
    assert list(parts(ranker)) == [
        "backbone",
        "backbone.embeddings",
        "backbone.layers.0",
        "backbone.layers.1",
    ]
    with pytest.raises(
        ValueError, match=r"Parts are backbone, backbone\.embeddings, backbone\.layers\.0-1; param"
    ):
        FrozenParts(["head"]).apply(ranker)


def test_the_scorer_gives_what_the_ranker_gives(make_dual_encoder):
    ranker, pair_tokenizer = make_dual_encoder("distilbert")
    expected = ranker(pairs(pair_tokenizer)).scores.detach().numpy()
    scorer = Scorer(ranker, pair_tokenizer)
    scores = np.concatenate([scorer.score(query, DOCUMENTS) for query in QUERIES])
    np.testing.assert_allclose(scores, expected, atol=1e-4, rtol=1e-4)


def test_what_it_cannot_do_is_said(make_dual_encoder, tokenizer):
    ranker, pair_tokenizer = make_dual_encoder()
    with pytest.raises(TypeError, match="DualEncoderForRanking has no sense vectors"):
        ranker(pairs(pair_tokenizer), return_senses=True)
    with pytest.raises(ValueError, match="a row has no document behind its query"):
        ranker(PackedBatch.from_sequences([pair_tokenizer.queries(["w1"])[0]]))
    with pytest.raises(ValueError, match="names no separator_id"):
        DualEncoderForRanking(DualEncoderConfig(backbone_config=ranker.config.backbone_config))(
            pairs(pair_tokenizer)
        )
    with pytest.raises(
        ValueError, match=re.escape("max_length=41 exceeds the ranker's 40 positions")
    ):
        make_pair_tokenizer(tokenizer, ranker, 41)
    with pytest.raises(
        ValueError, match="token 3 of the tokenizer starts a text and separates texts"
    ):
        DualPairTokenizer(tokenizer, 24, start_id=3)
