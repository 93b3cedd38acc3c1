"""Training lists and validation candidates as Lightning wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from backpack_rank.data.collection import Collection
from backpack_rank.data.lists import TrainingList, TrainingLists
from backpack_rank.data.pairs import CPU_TOKENS, PairChunks, Pairs
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.packing import PackedBatch


@dataclass(frozen=True)
class ListBatch:
    """L lists of at most m documents: the packed texts (list by list), labels [L, m] and mask [L, m]."""

    texts: PackedBatch
    labels: Tensor
    mask: Tensor

    def to(self, device: torch.device | str) -> ListBatch:
        """The same batch on another device."""
        return ListBatch(self.texts.to(device), self.labels.to(device), self.mask.to(device))

    def pin_memory(self) -> ListBatch:
        """The same batch in page-locked memory (called by torch's data loader)."""
        return ListBatch(self.texts.pin_memory(), self.labels.pin_memory(), self.mask.pin_memory())


class ListDataset(Dataset):
    """The training lists of one epoch, encoded when they are asked for."""

    def __init__(self, collection: Collection, lists: Sequence[TrainingList], encoder: PairEncoder) -> None:
        self.collection = collection
        self.lists = lists
        self.encoder = encoder

    def __len__(self) -> int:
        return len(self.lists)

    def __getitem__(self, index: int) -> tuple[list[np.ndarray], tuple[int, ...]]:
        item = self.lists[index]
        texts = self.collection.documents.get_many(item.doc_ids)
        try:
            query = self.collection.queries[item.query_id]
            sequences = self.encoder.pairs(query, [texts[doc_id] for doc_id in item.doc_ids])
        except ValueError as error:
            raise ValueError(f"query {item.query_id} of {self.collection.name}: {error}") from error
        return sequences, item.labels


def collate_lists(items: list[tuple[list[np.ndarray], tuple[int, ...]]]) -> ListBatch:
    """Pack the texts of several lists into one row; shorter lists are masked."""
    size = max(len(labels) for _, labels in items)
    labels = torch.zeros((len(items), size))
    mask = torch.zeros((len(items), size), dtype=torch.bool)
    for row, (_, values) in enumerate(items):
        labels[row, : len(values)] = torch.tensor(values, dtype=torch.float32)
        mask[row, : len(values)] = True
    texts = PackedBatch.from_sequences([sequence for sequences, _ in items for sequence in sequences])
    return ListBatch(texts, labels, mask)


class RankingData(L.LightningDataModule):
    """Training lists, drawn anew every epoch, and the dev split's candidates.

    The trainer must be made with ``reload_dataloaders_every_n_epochs=1``. Lists depend on seed and epoch
    alone, so a resumed run sees the lists it would have seen.
    """

    def __init__(
        self,
        lists: TrainingLists,
        train: Collection,
        dev: Pairs,
        encoder: PairEncoder,
        *,
        lists_per_batch: int = 8,
        workers: int = 0,
        tokens_per_batch: int = CPU_TOKENS,
    ) -> None:
        super().__init__()
        self.lists = lists
        self.train = train
        self.dev = dev
        self.encoder = encoder
        self.lists_per_batch = lists_per_batch
        self.workers = workers
        self.tokens_per_batch = tokens_per_batch

    def train_dataloader(self) -> DataLoader:
        """Batches of :class:`ListBatch` for the trainer's current epoch; already in shuffled order."""
        epoch = self.trainer.current_epoch if self.trainer else 0
        dataset = ListDataset(self.train, self.lists.epoch(epoch), self.encoder)
        return DataLoader(
            dataset,
            batch_size=self.lists_per_batch,
            collate_fn=collate_lists,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
        )

    def val_dataloader(self) -> DataLoader:
        """Chunks of dev pairs: lists of (row numbers, packed batch)."""
        chunks = PairChunks(self.dev, self.encoder, self.tokens_per_batch)
        return DataLoader(chunks, batch_size=None, num_workers=self.workers)

    def transfer_batch_to_device(self, batch, device: torch.device, dataloader_idx: int):
        """Move a list batch or a chunk of packed batches."""
        if isinstance(batch, ListBatch):
            return batch.to(device)
        return [(rows, texts.to(device)) for rows, texts in batch]
