"""``backpack-rank export vectors``: what a database with its own search finds is what we find."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_process import configured
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from workplace import ROOT

from backpack_rank import cli
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.pipelines.export_vectors import export_vectors
from backpack_rank.reranking.dense import Dense

SMALL = ["data=synthetic", "+data.test.test_queries=6", "+data.test.documents=40"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Path:
    """The folder of a small random BERT, and of vectors."""
    folder = tmp_path_factory.mktemp("encoder")
    special = {"cls_token": "<|endoftext|>", "sep_token": "<|separator|>"}
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<|endoftext|>", **special
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(fast_tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    fast_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path_factory.getbasetemp() / "vectors"))


def options(encoder: Path, output: Path, *more: str) -> list[str]:
    stage = ["first_stage=dense", f"first_stage.checkpoint={encoder}", "first_stage.pooling=mean"]
    return [*SMALL, *stage, f"output={output}", *more]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.0])
def test_two_vectors_of_a_document_serve_every_alpha(encoder: Path, tmp_path: Path, alpha) -> None:
    export_vectors(configured("vectors", *options(encoder, tmp_path / "both")))
    export_vectors(configured("vectors", *options(encoder, tmp_path / "one", f"alpha={alpha}")))
    vectors, queries, asks = (
        np.load(tmp_path / "both" / f"{name}.npy")
        for name in ("vectors", "queries", "asks_for_group")
    )
    ids = (tmp_path / "both" / "ids.txt").read_text().split()
    collection = load_synthetic("test", test_queries=6, documents=40)
    assert vectors.shape == (len(ids), 32)
    # Documents without listed words have no second vector.
    assert 0 < (vectors[:, 16:] == 0).all(axis=1).sum() < len(ids)

    alphas = np.where(asks, 1.0, alpha).astype(np.float32)[:, None]
    found = np.concatenate([queries, alphas * queries], axis=1) @ vectors.T
    stage = Dense(encoder, pooling="mean", depth=40)
    (run,) = stage.candidates_at(collection, [alpha])
    assert (tmp_path / "both" / "query_ids.txt").read_text().split() == list(run)
    for scores, of_query in zip(found, run.values(), strict=True):
        expected = [of_query[doc_id] for doc_id in ids]
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    one = np.load(tmp_path / "one" / "vectors.npy")
    np.testing.assert_allclose(one, vectors[:, :16] + alpha * vectors[:, 16:], atol=1e-6)


def test_faiss_finds_what_our_search_finds_as_the_page_says(encoder: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    export_vectors(configured("vectors", *options(encoder, tmp_path / "both")))
    page = (ROOT / "docs" / "retrieval.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(# needs faiss\n.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"folder": tmp_path / "both"}
    exec(block, names)
    stage = Dense(encoder, pooling="mean", depth=10)
    (run,) = stage.candidates_at(load_synthetic("test", test_queries=6, documents=40), [0.5])
    assert names["found"] == [list(of_query) for of_query in run.values()]


def test_parquet_holds_the_same(encoder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export_vectors(configured("vectors", *options(encoder, tmp_path / "npy")))
    export_vectors(configured("vectors", *options(encoder, tmp_path / "table", "format=parquet")))
    documents = parquet.read_table(tmp_path / "table" / "vectors.parquet").to_pydict()
    queries = parquet.read_table(tmp_path / "table" / "queries.parquet").to_pydict()
    assert documents["id"] == (tmp_path / "npy" / "ids.txt").read_text().split()
    for name, columns in (("vectors", documents), ("queries", queries)):
        expected = np.load(tmp_path / "npy" / f"{name}.npy")
        np.testing.assert_array_equal(np.array(columns["vector"], dtype=np.float32), expected)
    asks = np.load(tmp_path / "npy" / "asks_for_group.npy").tolist()
    assert queries["asks_for_group"] == asks


def test_mistakes_are_one_sentence(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="the first stage BM25 makes no vectors"):
        export_vectors(configured("vectors", *SMALL, f"output={tmp_path / 'no'}"))
    with pytest.raises(ValueError, match="export vectors needs the collection"):
        export_vectors(configured("vectors"))
    with pytest.raises(ValueError, match="format=csv"):
        export_vectors(configured("vectors", *options(encoder, tmp_path / "no", "format=csv")))
    with pytest.raises(SystemExit):
        cli.main(["export", "vectors", "-m", "alpha=1,0"])
    assert "takes no -m: without alpha, one export serves every alpha" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
