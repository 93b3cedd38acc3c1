"""Training in several processes: the same global batches give the same ranker, and FSDP is set up right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from workplace import SMALL, Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.models.factory import load_ranker
from backpack_rank.reranking.scorer import Scorer

EXACT = ["model.ranker.dropout=0", "pretraining.epochs=0", "training.epochs=2"]
ON_CPU = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.deterministic=true"]


@pytest.mark.processes
def test_two_processes_train_the_ranker_that_one_trains_on_the_same_global_batches(tmp_path: Path) -> None:
    """24 lists in batches of 4, or of 2 in each of two processes: the same 12 steps."""
    one, two = Workplace(tmp_path / "one"), Workplace(tmp_path / "two")
    one.run("train.py", *SMALL, *EXACT, "training.lists_per_batch=4", "trainer.devices=1")
    two.run("train.py", *SMALL, *EXACT, "training.lists_per_batch=2", *ON_CPU, "trainer.devices=2")
    rankers = [load_ranker(place.newest("train") / "ranker") for place in (one, two)]
    texts = load_synthetic("test", test_queries=12, documents=80)
    pairs = [(query, document) for query in texts.queries.values() for _, document in list(texts.documents)[:20]]
    scores = [Scorer(*ranker).score_texts(pairs) for ranker in rankers]
    # What is added to every score has no gradient under a loss over lists but rounding, which Adam makes as large.
    centred = [one - one.mean() for one in scores]
    assert np.abs(centred[0] - centred[1]).max() < 1e-5
    assert np.std(scores[0]) > 0.01
