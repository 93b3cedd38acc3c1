"""21 values of alpha against one: through the cache of sense vectors on disk, as
``evaluate.py -m alpha=...`` uses it, and in one call, as ``reranker.sweep`` does it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.reranking.planned_scores import scores_of_tokens
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import LowestSenses
from backpack_rank.senses.views import View
from benchmarks.timing import Times, in_turns
from benchmarks.variants import Sequences, Workbench
from benchmarks.workload import as_text, pair_tokenizer

ALPHAS = tuple(round(float(alpha), 2) for alpha in np.linspace(0.0, 1.0, 21))


@dataclass(frozen=True)
class SweepResult:
    """Times of ``one`` and ``many`` alphas through the cache, of ``call`` and ``calls`` without
    one, and the largest difference of a score to a pass of its own.
    """

    times: Times
    difference: float

    @property
    def ratio(self) -> float:
        """Time of all alphas over the time of one, in one call."""
        return self.times.speedup("call", over="calls")

    @property
    def ratio_of_cache(self) -> float:
        """Time of all alphas over the time of one, through the cache."""
        return self.times.speedup("one", over="many")


def sweep(bench: Workbench, texts: Sequences, rounds: int) -> SweepResult:
    """Rank all texts at alpha 0.5, and at 21 alphas, each time from an empty cache."""
    pairs = _pairs(texts)
    settings = ScoringSettings(device=str(bench.device), dtype=bench.dtype)
    scorer = Scorer(bench.ranker, pair_tokenizer(bench.size), settings)

    def scored(alphas: tuple[float, ...]) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            cache = SenseCache(Path(folder))
            return [scorer.scores(pairs, _view(bench, alpha), cache) for alpha in alphas][-1]

    documents = [text for _, text in pairs.texts()]
    query = pairs.collection.queries["q1"]
    texts_of_pairs = [(query, document) for document in documents]

    def called(alphas: tuple[float, ...]) -> np.ndarray:
        joined = scorer.join(query, documents)
        policies = [[_view(bench, alpha)] for alpha in alphas]
        return scores_of_tokens(policies, scorer, joined, texts_of_pairs)[-1]

    direct = scorer.scores(pairs, _view(bench, 0.5))
    difference = max(
        float(np.abs(direct - scored((0.5,))).max()), float(np.abs(direct - called((0.5,))).max())
    )
    jobs = {
        "one": lambda: scored((0.5,)),
        "many": lambda: scored(ALPHAS),
        "call": lambda: called((0.5,)),
        "calls": lambda: called(ALPHAS),
    }
    times = in_turns(jobs, rounds, "sweep of alpha", str(bench.device))
    return SweepResult(times, difference)


def _pairs(texts: Sequences) -> Pairs:
    documents = {f"d{row:05d}": as_text(text) for row, text in enumerate(texts)}
    queries = {"q1": as_text(texts[0][:6])}
    collection = Collection(
        name="benchmark", documents=MemoryStore(documents), queries=queries, qrels={}
    )
    return Pairs(collection, ("q1",) * len(documents), tuple(documents))


def _view(bench: Workbench, alpha: float) -> View:
    sensitivity = torch.arange(bench.size.senses, dtype=torch.float32)
    return View(sense_weights=LowestSenses(2).weights(sensitivity, alpha))
