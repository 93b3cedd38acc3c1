"""BM25 built in blocks: the index that bm25s builds at once, whatever the blocks are."""

import os
import random
import subprocess
import sys
from pathlib import Path

import bm25s
import numpy as np
import pytest

from backpack_rank.data.bm25_index import METHODS, Bm25Index, Bm25Settings
from backpack_rank.data.collection import MemoryStore

TINY_GB = 1e-5
"""Blocks of 100 characters, and ranges of 100 postings."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def texts(number: int = 400) -> dict[str, str]:
    rng = random.Random(5)
    words = [f"w{index}" for index in range(60)]
    weights = [1 / (index + 1) for index in range(60)]
    return {
        f"d{i}": " ".join(["the", *rng.choices(words, weights, k=rng.randrange(30))])
        for i in range(number)
    }


def matrix(scores, vocabulary, documents: int) -> np.ndarray:
    """Scores of all documents for all words, by the words' alphabet. [V, N]"""
    dense = np.zeros((len(vocabulary), documents), dtype=np.float32)
    for row, word in enumerate(sorted(vocabulary)):
        token = vocabulary[word]
        entries = slice(scores["indptr"][token], scores["indptr"][token + 1])
        dense[row, scores["indices"][entries]] = scores["data"][entries]
    return dense


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("max_gb", [TINY_GB, 2.0])
def test_scores_are_those_of_bm25s(method, max_gb):
    settings = Bm25Settings(1.2, 0.75, None, False, r"(?u)\b\w+\b", method)
    drawn_texts = texts(250)
    index = Bm25Index.of(MemoryStore(drawn_texts), settings, cache=False, max_gb=max_gb)
    reference = bm25s.BM25(k1=1.2, b=0.75, method=method)
    reference.index(
        settings.tokenize(list(drawn_texts.values())), create_empty_token=False, show_progress=False
    )
    ours, theirs = (
        matrix(model.scores, model.vocab_dict, len(drawn_texts))
        for model in (index._model, reference)
    )
    assert set(index._model.vocab_dict) == set(reference.vocab_dict)
    assert (ours > 0).sum() > 1000
    # bm25s multiplies in float32 with numpy 1 and in float64 with numpy 2.
    np.testing.assert_allclose(ours, theirs, rtol=3e-7)


@pytest.mark.slow
def test_runs_do_not_depend_on_the_memory_that_is_allowed():
    store, settings = (
        MemoryStore(texts(150)),
        Bm25Settings(0.9, 0.4, "english", True, r"(?u)\b\w+\b", "lucene"),
    )
    queries = {"q1": "w1 w7", "q2": "w59 the w30", "q3": "unknown"}
    runs = [
        Bm25Index.of(store, settings, cache=False, max_gb=max_gb).search(queries, 50)
        for max_gb in (TINY_GB, 1e-4, 2)
    ]
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]["q1"]) == 50


def test_nothing_but_the_index_is_left_in_its_folder(cache):
    settings = Bm25Settings(0.9, 0.4, None, False, r"(?u)\b\w+\b", "lucene")
    Bm25Index.of(MemoryStore(texts(50)), settings, cache=True, max_gb=TINY_GB)
    (folder,) = [path for path in (cache / "bm25").iterdir() if path.is_dir()]
    assert sorted(path.name for path in folder.iterdir()) == [
        "data.csc.index.npy",
        "doc_ids.npy",
        "indices.csc.index.npy",
        "indptr.csc.index.npy",
        "params.index.json",
        "seal.json",
        "settings.json",
        "vocab.index.json",
    ]


@pytest.mark.parametrize("file", ["data.csc.index.npy", "vocab.index.json", "doc_ids.npy"])
def test_a_damaged_index_is_built_anew_with_one_line(cache, caplog, file):
    settings = Bm25Settings(0.9, 0.4, None, False, r"(?u)\b\w+\b", "lucene")
    store, queries = MemoryStore(texts(50)), {"q": "w1 w7"}
    run = Bm25Index.of(store, settings, cache=True).search(queries, 10)
    (damaged,) = (cache / "bm25").glob(f"*/{file}")
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert Bm25Index.of(store, settings, cache=True).search(queries, 10) == run
    (message,) = caplog.messages
    assert f"the bytes of {file} have changed) and is made anew" in message


@pytest.mark.skipif(
    not Path("/sys/kernel").is_dir(), reason="needs Linux's /sys, in which nobody makes folders"
)
def test_a_cache_that_cannot_be_written_is_left_out_with_a_warning(caplog, monkeypatch):
    settings = Bm25Settings(0.9, 0.4, None, False, r"(?u)\b\w+\b", "lucene")
    store, queries = MemoryStore(texts(50)), {"q": "w1 w7"}
    run = Bm25Index.of(store, settings, cache=False).search(queries, 10)
    monkeypatch.setenv("BACKPACK_RANK_CACHE", "/sys/kernel/cache")
    assert Bm25Index.of(store, settings, cache=True).search(queries, 10) == run
    (message,) = caplog.messages
    assert message.startswith("the index of BM25 is not kept, because the cache cannot be written")


def test_jax_is_not_started(tmp_path):
    """On a GPU it would take most of the memory; a jax that cannot be imported stands in for it."""
    package = tmp_path / "jax"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('jax was imported')")
    code = "import backpack_rank.data.bm25_index, sys; assert 'jax' not in sys.modules"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
