"""Every benchmark runs, small, and writes a record of what it measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from benchmark_runs import run
from real_layout import write_encoder
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.factory import cross_encoder
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from benchmarks import peers
from benchmarks.matrix_products import flops, matrix_products, seconds_alone

pytestmark = pytest.mark.benchmarks


@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        (
            "scoring",
            # The script for a GPU runs its part scoring, and retrieval.
            [
                *("--threads", "1", "--dtype", "float32", "--repeats", "1"),
                *("--parts", "sweep", "training", "memory"),
            ],
            ["sweep", "training", "memory"],
        ),
        ("measures", ["--repeats", "1", "--queries", "40"], ["speedups"]),
        ("bm25", [], ["sizes", "goals"]),
        ("rankers", ["--threads", "1"], ["rankers"]),
        ("prefixes", ["--threads", "1"], ["lists", "goals"]),
        ("rerank", [], ["way", "plans", "goals"]),
        ("long_documents", ["--characters", "300000"], ["characters", "seconds", "goals"]),
        ("serving", [], ["serving", "goals"]),
        ("large_runs", [], ["ways", "goals"]),
        ("busy", ["--threads", "1", "--neighbours", "1"], ["quiet", "busy", "goals"]),
        ("foreign", ["--threads", "1"], ["shapes", "goals", "pairs"]),
        ("growth", ["--threads", "1", "--curves", "pairs"], ["curves"]),
    ],
)
def test_a_benchmark_runs_small_and_says_what_it_measured(
    name, options, figures, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    run(name, "--quick", *options, "--output", str(record))
    written = json.loads(record.read_text())
    assert written["command"].startswith(f"python -m benchmarks.{name} --quick")
    for figure in figures:
        assert written[figure]


def test_peers_score_as_our_cross_encoder_and_are_left_out_with_a_reason_where_they_cannot(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record.json"
    shown = run("peers", "--quick", "--peers", sys.executable, "--output", str(record))
    written = json.loads(record.read_text())
    assert {"cross-encoder float32", "Backpack float32", "Backpack bfloat16"} <= set(
        written["variants"]
    )
    assert len(written["variants"]) + len(written["skipped"]) == len(peers.OURS) + len(peers.PEERS)
    for name, reason in written["skipped"].items():
        assert name in shown
        assert len(reason) > 10
    if peers.BASE in written["variants"]:
        assert written["variants"]["cross-encoder float32"]["largest_difference"] < 1e-6


@torch.no_grad()
def test_a_stock_classifier_has_the_scores_of_the_cross_encoder_it_is_written_from(
    tmp_path: Path,
) -> None:
    encoder = str(write_encoder(tmp_path / "bert"))
    torch.manual_seed(0)
    ranker = cross_encoder(load_tokenizer(encoder), name=encoder).eval()
    pair_tokenizer = make_pair_tokenizer(load_tokenizer(encoder), ranker, 20)
    peers.save_stock(tmp_path / "stock", ranker, pair_tokenizer)
    query, documents = (
        "what does a nurse do",
        ["She is a nurse and she likes her work.", "bread", "long " * 30],
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "stock")
    read = tokenizer([query] * 3, documents, truncation=True, padding=True, return_tensors="pt")
    assert read["input_ids"].shape == (3, 20)
    scores = (
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "stock")
        .eval()(**read)
        .logits[:, 0]
    )
    expected = ranker(PackedBatch.from_sequences(pair_tokenizer.pairs(query, documents))).scores
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)


def test_matrix_products_of_a_job_are_counted_by_shape() -> None:
    layer, left, right = nn.Linear(3, 5), torch.randn(7, 3), torch.randn(2, 3, 4)

    def job() -> None:
        layer(left)
        layer(left) @ torch.randn(5, 6)
        right.transpose(1, 2) @ right

    products = matrix_products(job)
    assert products == {(1, 7, 3, 5): 2, (1, 7, 5, 6): 1, (2, 4, 3, 4): 1}
    assert flops(products) == 2 * (2 * 7 * 3 * 5 + 7 * 5 * 6 + 2 * 4 * 3 * 4)
    assert seconds_alone(products, "cpu", torch.float32, repeats=2) > 0
