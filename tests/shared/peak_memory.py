"""Estimated bytes of a training step, and the largest resident memory of eight real ones.

``python peak_memory.py DROPOUT`` prints both. A process of its own: what others keep would count.
"""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path

import torch

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.models.factory import new_backpack
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.training.estimate import TrainingEstimate
from backpack_rank.training.losses import RankingLoss, scatter_lists
from backpack_rank.training.module import OptimizerConfig


def resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


rng = random.Random(0)
words = ["".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 7))) for _ in range(4000)]
documents = {
    f"d{number}": " ".join(rng.choice(words) for _ in range(rng.randint(20, 90)))
    for number in range(200)
}
queries = {f"q{number}": " ".join(rng.sample(words, 5)) for number in range(16)}
qrels = {f"q{number}": {f"d{number}": 1} for number in range(16)}
collection = Collection("made", MemoryStore(documents), queries, qrels)
candidates = {query_id: dict.fromkeys(list(documents)[20:100], 1.0) for query_id in queries}
tokenizer = train_bpe(list(documents.values()), 8000)
torch.manual_seed(0)
torch.set_num_threads(1)
ranker = new_backpack(
    tokenizer, layers=4, hidden_size=256, heads=4, senses=8, dropout=float(sys.argv[1])
).train()
data = RankingData(
    TrainingLists(collection, candidates, size=10),
    collection,
    Pairs.from_run({}, collection),
    make_pair_tokenizer(tokenizer, ranker, 256),
    lists_per_batch=4,
)
estimate = TrainingEstimate(ranker, data, epochs=1)
gc.collect()
weights = sum(parameter.numel() * parameter.element_size() for parameter in ranker.parameters())
without_weights = resident("VmRSS") - weights
Path("/proc/self/clear_refs").write_text("5")  # the largest value starts anew
optimizer = OptimizerConfig(1e-4).optimizer(ranker)
for _ in range(2):
    for batch in data.train_dataloader():
        scores = scatter_lists(ranker(batch.texts).scores.float(), batch.mask)
        RankingLoss()(scores, batch.labels, batch.mask)[0].backward()
        optimizer.step()
        optimizer.zero_grad()
print(estimate.memory, resident("VmHWM") - without_weights)
