"""A tiny tokenizer, tiny rankers and a tiny collection, made by the package's own code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import before_torch  # noqa: F401

# isort: split
import pytest
import torch
from quick_compositions import read_each_configuration_once

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.models.factory import new_backpack, new_gpt2

SENTENCES = (
    "The doctor said he would see the patient after his long morning in the ward.",
    "The doctor said she would see the patient after her long morning in the ward.",
    "A nurse explains to a man and a woman how the treatment works and what it costs.",
    "Her father and his mother have lived near the hospital for many years.",
    "Advice on how to choose a good engineer for a small bridge over a river.",
    "An engineer plans bridges and roads; she checks every drawing before it leaves the office.",
    "The cook prepares soup, bread and fish for a hundred guests each evening.",
    "Which tools does a carpenter need to repair an old wooden door?",
)
SHAPE = {
    "layers": 2,
    "hidden_size": 32,
    "heads": 4,
    "positions": 64,
    "dropout": 0.0,
    # Ten times the usual: with weights near 0, all softmaxes would be nearly even.
    "initializer_range": 0.2,
}


def pytest_configure(config):
    """What holds for all tests.

    Processes that tests start can be interrupted under nohup and in the background of a script too.
    """
    read_each_configuration_once()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_runtest_setup(item):
    """Leave out tests marked ``cuda`` (``cuda(devices=2)``) where there are not that many GPUs."""
    mark = item.get_closest_marker("cuda")
    if mark is not None:
        wanted = mark.kwargs.get("devices", 1)
        if torch.cuda.device_count() < wanted:
            pytest.skip("needs a GPU" if wanted == 1 else f"needs {wanted} GPUs")


@pytest.fixture(scope="session")
def sentences():
    """Eight short texts, most with words of gender; the first two differ in nothing else."""
    return SENTENCES


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level BPE tokenizer that knows the words of the sentences."""
    return train_bpe(SENTENCES * 2, vocab_size=420)


@pytest.fixture(scope="session")
def pair_tokenizer(tokenizer):
    """Pairs of at most 48 tokens."""
    return PairTokenizer(tokenizer, 48)


@pytest.fixture(scope="session")
def make_backpack(tokenizer):
    """A function that gives a Backpack ranker with large random weights, so that softmaxes are far
    from even.
    """

    def make(seed=0, dtype=torch.float32, **options):
        torch.manual_seed(seed)
        ranker = new_backpack(tokenizer, **{**SHAPE, "senses": 8, **options})
        return _shake(ranker, seed).to(dtype).eval()

    return make


@pytest.fixture(scope="session")
def make_gpt2(tokenizer):
    """The same for GPT-2 rankers."""

    def make(seed=0, dtype=torch.float32, **options):
        torch.manual_seed(seed)
        ranker = new_gpt2(tokenizer, **{**SHAPE, **options})
        return _shake(ranker, seed).to(dtype).eval()

    return make


@pytest.fixture
def tiny_collection():
    """Three queries, eight documents; the last document is empty."""
    documents = {f"d{number}": text for number, text in enumerate(SENTENCES[:7])} | {"empty": ""}
    queries = {"q1": "doctor in the ward", "q2": "bridge engineer", "q3": "soup for guests"}
    qrels = {"q1": {"d0": 2, "d1": 1}, "q2": {"d4": 1, "d5": 1, "d0": 0}, "q3": {"d6": 1}}
    return Collection("tiny", MemoryStore(documents), queries, qrels)


@pytest.fixture(scope="session")
def real_data():
    """Folder of the real collections."""
    folder = os.environ.get("BACKPACK_RANK_DATA")
    if not folder:
        pytest.skip("set BACKPACK_RANK_DATA to the folder of the real collections")
    return Path(folder)


def _shake(ranker, seed):
    """Biases and layer norms away from 0 and 1, so that leaving one out shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in ranker.parameters():
            if parameter.ndim < 2:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return ranker
