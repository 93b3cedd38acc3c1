"""Small trainings: Lightning that writes nothing, data that is learnt from few lists, a small BERT,
and what a training changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from transformers import BertConfig

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.datamodule import RankingData
from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.training.module import OptimizerConfig, RankingModule

ONE_EPOCH = [
    *("training.epochs=1", "lists.per_epoch=6", "lists.size=4", "pretraining.epochs=0"),
    *("+data.train.documents=80", "+data.train.train_queries=12"),
    *("+data.dev.documents=80", "+data.dev.dev_queries=4"),
]
"""Options of train.py: one short epoch on the synthetic data."""
ONE_LAYER = [
    "model.tokenizer.vocab_size=600",
    "model.ranker.layers=1",
    "model.ranker.hidden_size=16",
    "model.ranker.heads=2",
    "model.ranker.senses=4",
    "+data.train.train_queries=6",
    "+data.train.documents=60",
    "+data.dev.dev_queries=3",
    "+data.dev.documents=30",
    "max_length=64",
    "pretraining.epochs=0",
    "lists.size=4",
]
"""Options of train.py: as small a ranker on as few lists as a training takes."""


def quiet_trainer(folder: Path, **options) -> L.Trainer:
    """Lightning on one CPU, without logs, checkpoints and bars where the options do not ask for
    them.
    """
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    return L.Trainer(**quiet | options)


def job_collection(second_grade: int) -> Collection:
    """Documents of eight jobs, two of them relevant to the query of each job: the job's word
    answers it.
    """
    words = ["doctor", "nurse", "engineer", "cook", "carpenter", "bridge", "soup", "hospital"]
    documents, queries, qrels = {}, {}, {}
    for number, word in enumerate(words):
        documents[f"d{number}0"] = f"The {word} works near house 0."
        documents[f"d{number}1"] = f"The {word} works near house 1."
        queries[f"q{number}"] = f"a {word}"
        qrels[f"q{number}"] = {f"d{number}0": 1, f"d{number}1": second_grade}
    return Collection("jobs", MemoryStore(documents), queries, qrels)


def in_document_order(collection: Collection) -> dict[str, dict[str, float]]:
    """Every document as a candidate of every query, in the order of the collection."""
    scores = {doc_id: -float(rank) for rank, (doc_id, _) in enumerate(collection.documents)}
    return {query_id: dict(scores) for query_id in collection.queries}


def train_with_checkpoints(
    ranker: nn.Module,
    collection: Collection,
    pair_tokenizer,
    folder: Path,
    epochs: int,
    callbacks: Sequence[Callback] = (),
    start: Path | None = None,
) -> None:
    """Train on all documents of a collection, and keep ``epoch=N.ckpt`` of every epoch.

    Args:
        start: the checkpoint to go on from.
    """
    candidates = in_document_order(collection)
    pairs = Pairs.from_run(candidates, collection)
    lists = TrainingLists(collection, candidates)
    data = RankingData(lists, collection, pairs, pair_tokenizer, lists_per_batch=2)
    module = RankingModule(ranker.train(), OptimizerConfig(1e-2), pairs)
    trainer = quiet_trainer(
        folder,
        max_epochs=epochs,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        enable_checkpointing=True,
        callbacks=[
            *callbacks,
            ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1),
        ],
    )
    trainer.fit(module, data, ckpt_path=start, weights_only=False if start else None)


def small_bert(vocab_size: int) -> BertConfig:
    """Two layers with large random weights."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=48,
        initializer_range=0.3,
    )


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of its tensors, which further training does not change."""
    return {name: value.clone() for name, value in module.state_dict().items()}


def changed_names(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """Names of the tensors that are not bit for bit the same."""
    assert before.keys() == after.keys()
    return {name for name, value in before.items() if not torch.equal(value, after[name])}
