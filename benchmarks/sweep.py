"""21 values of alpha against one, through the cache of sense vectors, as ``evaluate.py -m alpha=...`` uses it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from backpack_rank.data.collection import Collection, MemoryStore, Run
from backpack_rank.scoring import Scorer, ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.control import Control
from backpack_rank.senses.policy import LowestSenses
from benchmarks.timing import Times, in_turns
from benchmarks.variants import Sequences, Workbench
from benchmarks.workload import as_text, encoder

ALPHAS = tuple(round(float(alpha), 2) for alpha in np.linspace(0.0, 1.0, 21))


@dataclass(frozen=True)
class SweepResult:
    """Times of ``one`` and ``many`` alphas, and the largest difference of a cached score to a pass of its own."""

    times: Times
    difference: float

    @property
    def ratio(self) -> float:
        """Time of all alphas over the time of one."""
        return self.times.speedup("one", over="many")


def sweep(bench: Workbench, texts: Sequences, rounds: int) -> SweepResult:
    """Rank all texts at alpha 0.5, and at 21 alphas, each time from an empty cache."""
    collection, candidates = _collection(texts)
    settings = ScoringSettings(device=str(bench.device), dtype=bench.dtype)
    scorer = Scorer(bench.ranker, encoder(bench.size), settings)

    def ranked(alphas: tuple[float, ...]) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            controls = [_control(bench, alpha) for alpha in alphas]
            return scorer.rank_controls(candidates, collection, controls, SenseCache(Path(folder)))[-1]

    direct = scorer.rank_controlled(candidates, collection, _control(bench, 0.5))
    cached = ranked((0.5,))
    jobs = {"one": lambda: ranked((0.5,)), "many": lambda: ranked(ALPHAS)}
    times = in_turns(jobs, rounds, "sweep of alpha", str(bench.device))
    return SweepResult(times, _difference(direct, cached))


def _collection(texts: Sequences) -> tuple[Collection, Run]:
    documents = {f"d{row:05d}": as_text(text) for row, text in enumerate(texts)}
    queries = {"q1": as_text(texts[0][:6])}
    collection = Collection(name="benchmark", documents=MemoryStore(documents), queries=queries, qrels={})
    return collection, {"q1": {doc_id: -float(row) for row, doc_id in enumerate(documents)}}


def _control(bench: Workbench, alpha: float) -> Control:
    sensitivity = torch.arange(bench.size.senses, dtype=torch.float32)
    return Control(weights=LowestSenses(2).weights(sensitivity, alpha))


def _difference(first: Run, second: Run) -> float:
    return max(abs(first["q1"][doc_id] - second["q1"][doc_id]) for doc_id in first["q1"])
