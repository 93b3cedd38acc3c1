"""Dense retrieval: candidates are the dual encoder's own best, and documents are encoded once."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.factory import dual_encoder
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.reranking import dense_vectors as module
from backpack_rank.reranking.dense import Dense
from backpack_rank.reranking.dense_vectors import Encoding
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.erasure import fit_map
from backpack_rank.senses.renditions import MeanOfRenditions


@pytest.fixture(scope="module")
def checkpoint(tokenizer, tmp_path_factory):
    """A run's folder with a saved dual encoder over a small random BERT."""
    folder = tmp_path_factory.mktemp("dual")
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        cls_token="<|endoftext|>",
        sep_token="<|separator|>",
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
    ).save_pretrained(folder / "bert")
    ranker = dual_encoder(fast_tokenizer, name=str(folder / "bert"))
    save_ranker(folder / "run" / "ranker", ranker, make_pair_tokenizer(fast_tokenizer, ranker, 20))
    return folder / "run"


@pytest.fixture
def collection(sentences):
    """Ids out of order, and one text five times."""
    texts = {f"d{n * 7 % 10}": sentences[n % 8] for n in range(10)} | {
        f"é{n}": "bread" for n in (3, 1, 2)
    }
    texts |= {"empty": "", "b1": "bread", "b0": "bread"}
    queries = {"q1": "doctor in the ward", "q2": "soup, bread and fish", "q3": "bridge"}
    return Collection("small", MemoryStore(texts), queries, {})


def dense(checkpoint, folder, **options):
    return Dense(checkpoint, folder=folder, **{"depth": 7, **options})


def test_candidates_are_the_rankers_best_documents(checkpoint, collection, tmp_path):
    run = dense(checkpoint, tmp_path).candidates(collection)
    assert list(run) == list(collection.queries)
    scorer = Scorer(*load_ranker(checkpoint / "ranker"))
    texts = dict(collection.documents)
    for query_id, query in collection.queries.items():
        every = dict(zip(texts, scorer.score(query, list(texts.values())).tolist(), strict=True))
        scores = run[query_id]
        assert len(scores) == 7
        for doc_id, score in scores.items():
            assert score == pytest.approx(
                every[doc_id], rel=2e-3, abs=2e-2
            )  # vectors are rounded to fp16
        assert list(scores) == sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
        left = [score for doc_id, score in every.items() if doc_id not in scores]
        assert max(left) <= min(scores.values()) + 2e-2


def test_equal_documents_come_in_the_order_of_their_ids(checkpoint, collection, tmp_path):
    run = dense(checkpoint, tmp_path, depth=100).candidates(collection)
    for scores in run.values():
        assert len(scores) == len(collection.documents)
        bread = [doc_id for doc_id in scores if doc_id[0] in "bé"]
        assert bread == ["b0", "b1", "é1", "é2", "é3"]
        assert len({scores[doc_id] for doc_id in bread}) == 1
    cut = dense(checkpoint, tmp_path, depth=3).candidates(collection)
    assert {q: list(scores) for q, scores in cut.items()} == {
        q: list(scores)[:3] for q, scores in run.items()
    }


def test_vectors_are_kept_in_half_precision_and_used_again(
    checkpoint, collection, tmp_path, monkeypatch
):
    first = dense(checkpoint, tmp_path).candidates(collection)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    stored = np.load(folder / "vectors.npy", mmap_mode="r")
    assert (stored.dtype, stored.shape) == (np.float16, (16, 16))
    assert [doc_id.decode() for doc_id in np.load(folder / "doc_ids.npy")] == [
        d for d, _ in collection.documents
    ]
    assert (
        json.loads((folder / "settings.json").read_text())["documents"]
        == collection.documents.fingerprint
    )
    assert {path.name for path in folder.iterdir()} == {
        "vectors.npy",
        "doc_ids.npy",
        "settings.json",
        "seal.json",
    }
    monkeypatch.setattr(Encoding, "documents", lambda self, texts: pytest.fail("encoded again"))
    assert dense(checkpoint / "ranker", tmp_path).candidates(collection) == first


def test_other_texts_weights_and_lengths_have_other_vectors(checkpoint, collection, tmp_path):
    folder = tmp_path / "vectors"
    dense(checkpoint, folder).candidates(collection)
    texts = dict(collection.documents)
    swapped = MemoryStore(texts | {"d0": texts["d1"], "d1": texts["d0"]})
    dense(checkpoint, folder).candidates(replace(collection, documents=swapped))
    ranker, pair_tokenizer = load_ranker(checkpoint / "ranker")
    save_ranker(tmp_path / "shorter", ranker, replace(pair_tokenizer, max_length=12))
    dense(tmp_path / "shorter", folder).candidates(collection)
    with torch.no_grad():
        ranker.backbone.embeddings.word_embeddings.weight[0, 0] += 1
    save_ranker(tmp_path / "moved", ranker, pair_tokenizer)
    dense(tmp_path / "moved", folder).candidates(collection)
    dense(checkpoint, folder, dtype="bfloat16").candidates(collection)
    assert len(list(folder.glob("*/vectors.npy"))) == 5


@pytest.mark.parametrize("stopped_after", [0, 1, 3])
def test_a_stopped_encoding_goes_on_where_it_was(
    checkpoint, collection, tmp_path, monkeypatch, stopped_after
):
    uninterrupted = dense(checkpoint, tmp_path / "whole").candidates(collection)
    monkeypatch.setattr(module, "_CHUNK", 5)
    encode = Encoding.documents
    seen = []

    def stopping(self, texts):
        if len(seen) == stopped_after:
            raise KeyboardInterrupt
        seen.append(list(texts))
        return encode(self, texts)

    monkeypatch.setattr(Encoding, "documents", stopping)
    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        dense(checkpoint, folder).candidates(collection)
    assert [path.suffix for path in folder.iterdir() if path.is_dir()] == [".partial"]
    later = []
    monkeypatch.setattr(
        Encoding, "documents", lambda self, texts: later.append(list(texts)) or encode(self, texts)
    )
    again = dense(checkpoint, folder).candidates(collection)
    assert {q: list(scores) for q, scores in again.items()} == {
        q: list(scores) for q, scores in uninterrupted.items()
    }
    texts_encoded = list(itertools.chain.from_iterable(seen + later))
    assert texts_encoded == [text for _, text in collection.documents]
    assert [path.suffix for path in folder.iterdir() if path.is_dir()] == [""]
    (final,) = folder.glob("*/vectors.npy")
    (expected,) = (tmp_path / "whole").glob("*/vectors.npy")
    np.testing.assert_allclose(np.load(final), np.load(expected), atol=2e-3)


def test_what_a_killed_job_left_before_its_first_note_is_not_trusted(
    checkpoint, collection, tmp_path
):
    expected = dense(checkpoint, tmp_path).candidates(collection)
    (final,) = (path for path in tmp_path.iterdir() if path.is_dir())
    partial = final.with_name(f"{final.name}.partial")
    final.rename(partial)
    (partial / "vectors.npy").write_bytes(b"half a header")
    assert dense(checkpoint, tmp_path).candidates(collection) == expected


@pytest.mark.parametrize("name", ["vectors.npy", "doc_ids.npy", "seal.json"])
def test_damaged_vectors_are_encoded_anew(checkpoint, collection, tmp_path, caplog, name):
    expected = dense(checkpoint, tmp_path).candidates(collection)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (folder / name).write_bytes(bytes((folder / name).stat().st_size))
    assert dense(checkpoint, tmp_path).candidates(collection) == expected
    assert caplog.text.count("is damaged") == 1
    assert dense(checkpoint, tmp_path).candidates(collection) == expected
    assert caplog.text.count("is damaged") == 1


def test_a_vector_beyond_half_precision_is_refused_by_name(
    checkpoint, collection, tmp_path, monkeypatch
):
    encode = Encoding.documents

    def large(self, texts):
        out = encode(self, texts)
        out[list(texts).index("bread"), 3] = 70000.0
        return out

    monkeypatch.setattr(Encoding, "documents", large)
    with pytest.raises(
        ValueError, match="the vector of document é3 has a value of 70000, which half precision"
    ):
        dense(checkpoint, tmp_path).candidates(collection)
    assert not list(tmp_path.glob("*/settings.json"))


def test_wrong_options_are_refused(checkpoint, collection, tmp_path, make_backpack, pair_tokenizer):
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"first_stage.checkpoint={tmp_path}: neither a run's")
    ):
        Dense(tmp_path)
    with pytest.raises(ValueError, match="depth=0 must be at least 1"):
        Dense(checkpoint, depth=0)
    with pytest.raises(ValueError, match=r"first_stage\.dtype=int4: use one of float32"):
        Dense(checkpoint, dtype="int4")
    save_ranker(tmp_path / "backpack", make_backpack(), pair_tokenizer)
    with pytest.raises(ValueError, match="BackpackForRanking reads query and document together"):
        Dense(tmp_path / "backpack").candidates(collection)
    with pytest.raises(ValueError, match="query q9: the query is empty"):
        Dense(checkpoint, folder=tmp_path).candidates(
            replace(collection, queries={"q1": "soup", "q9": " "})
        )
    with pytest.raises(ValueError, match="collection 'none' has no documents to search"):
        Dense(checkpoint).candidates(Collection("none", MemoryStore({}), {"q": "a"}, {}))


@pytest.mark.slow
def test_the_dial_of_the_first_stage_gives_the_scores_of_the_ranker(
    checkpoint, collection, tmp_path
):
    """Two doors, one number: searched vectors and re-ranked pairs, also for a query that asks."""
    texts = dict(collection.documents) | {"she": "she saw soup", "he": "he saw soup"}
    queries = {**collection.queries, "asks": "women in the ward"}
    collection = replace(collection, documents=MemoryStore(texts), queries=queries)
    stage = dense(checkpoint, tmp_path, depth=100)
    alphas = [1, 0.5, 0]
    runs = stage.candidates_at(collection, alphas)
    reranker = PointwiseReranker(Scorer(*load_ranker(checkpoint / "ranker")))
    for alpha, run in zip(alphas, runs, strict=True):
        scores = reranker.with_policy("renditions", alpha).rerank(run, collection)
        for query_id, found in run.items():
            for doc_id, score in found.items():
                expected = pytest.approx(scores[query_id][doc_id], rel=2e-3, abs=2e-2)
                assert score == expected
    for query_id in collection.queries:
        equal = runs[2][query_id]["she"] == runs[2][query_id]["he"]
        assert equal == (query_id != "asks")
        assert runs[0][query_id]["she"] != runs[0][query_id]["he"]
    assert runs[2]["asks"] == runs[0]["asks"]
    assert dense(checkpoint, tmp_path, depth=100, alpha=0.5).candidates(collection) == runs[1]
    for_all = dense(checkpoint, tmp_path, depth=100, alpha=0, queries="all")
    asked = for_all.candidates(collection)["asks"]
    assert asked["she"] == asked["he"]
    # Vectors of the documents are made once for all alphas, and e_0 for few documents.
    (rows,) = tmp_path.glob("*/rows.int64")
    assert 0 < len(np.fromfile(rows, dtype=np.int64)) < len(texts)
    assert len(list(tmp_path.glob("*/vectors.npy"))) == 1


def test_what_is_promised_of_candidates(checkpoint, tmp_path):
    stage = dense(checkpoint, tmp_path, alpha=0)
    assert stage.not_promised is None
    assert stage.same_score("bread", "she saw soup", "he saw soup")
    assert not stage.same_score("bread", "she saw soup", "he saw fish")
    assert not stage.same_score("women in the ward", "she saw soup", "he saw soup")
    assert "is at alpha 0.5" in dense(checkpoint, tmp_path, alpha=0.5).not_promised
    assert "promises nothing" in dense(checkpoint, tmp_path, policy="erase").not_promised


def test_a_map_acts_on_the_vectors_of_documents(checkpoint, collection, tmp_path):
    reranker = PointwiseReranker(Scorer(*load_ranker(checkpoint / "ranker")))
    run = {query_id: dict.fromkeys(dict(collection.documents), 0.0) for query_id in ["q1", "q2"]}
    policy = Erase(Attribute.named("gender"), fit="random", directions=2)
    random = np.random.default_rng(0).standard_normal((4, 2, 16)).astype(np.float32)
    policy = replace(policy, fitted_map=fit_map(random, "random", 2), fitted_on=4)
    stage = dense(checkpoint, tmp_path, depth=100, policy=policy)
    stage.policy = replace(policy, score_of_mean=0.0)
    (found,) = stage.candidates_at(collection, [0.25])
    ranker, tokenizer = reranker.scorer.ranker, reranker.scorer.pair_tokenizer
    texts = dict(collection.documents)
    pooled_map = replace(policy.fitted_map, alpha=0.25)
    for query_id in run:
        with torch.inference_mode():
            query = ranker.encode_queries(
                PackedBatch.from_sequences(tokenizer.queries([collection.queries[query_id]]))
            )[0]
            for doc_id, score in found[query_id].items():
                document = ranker.encode_documents(
                    PackedBatch.from_sequences(tokenizer.documents([texts[doc_id]]))
                )
                expected = float(pooled_map(document)[0] @ query)
                assert score == pytest.approx(expected, rel=2e-3, abs=2e-2)


@pytest.mark.parametrize("stopped_after", [1, 3])
def test_renditions_go_on_where_they_were_stopped_to_the_bit(
    checkpoint, tmp_path, monkeypatch, stopped_after
):
    monkeypatch.setattr(module, "_CHUNK", 3)
    words = ["she saw bread", "fish", "he saw fish", "soup", "his bread", "her soup", "the ward"]
    texts = {f"d{number}": f"{words[number % 7]} {number}" for number in range(20)}
    collection = Collection("small", MemoryStore(texts), {"q1": "bread"}, {})
    whole = dense(checkpoint, tmp_path / "whole", alpha=0).candidates(collection)
    encode = Encoding.documents
    seen = []

    def stopping(self, texts):
        # Seven portions of documents as they are come first.
        if len(seen) == 7 + stopped_after:
            raise KeyboardInterrupt
        seen.append(texts)
        return encode(self, texts)

    folder = tmp_path / "stopped"
    monkeypatch.setattr(Encoding, "documents", stopping)
    with pytest.raises(KeyboardInterrupt):
        dense(checkpoint, folder, alpha=0).candidates(collection)
    monkeypatch.setattr(Encoding, "documents", encode)
    # What was written behind the last note is not trusted.
    (partial,) = (path for path in folder.iterdir() if path.suffix == ".partial")
    for name in ("rows.int64", "neutral.float16"):
        with open(partial / name, "ab") as file:
            file.write(b"half a vector")
    assert dense(checkpoint, folder, alpha=0).candidates(collection) == whole
    for name in ("rows.int64", "neutral.float16"):
        (resumed,) = folder.glob(f"*/{name}")
        (expected,) = (tmp_path / "whole").glob(f"*/{name}")
        assert resumed.read_bytes() == expected.read_bytes()


def test_a_policy_that_needs_the_query_is_refused(checkpoint, tmp_path):
    policy = MeanOfRenditions.of(Attribute.named("gender"), names=True)
    with pytest.raises(ValueError, match="documents are encoded before there is one"):
        dense(checkpoint, tmp_path, policy=policy)
    with pytest.raises(ValueError, match=r"first_stage\.policy=uniform: use one of"):
        dense(checkpoint, tmp_path, policy="uniform")
    with pytest.raises(ValueError, match=r"first_stage\.map=x is of first_stage\.policy=erase"):
        dense(checkpoint, tmp_path, map="x")
