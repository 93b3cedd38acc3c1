"""Training lists and validation candidates as Lightning wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from backpack_rank.data.collection import Collection
from backpack_rank.data.lists import TrainingLists
from backpack_rank.data.pairs import CPU_TOKENS, PairChunks, Pairs, start_worker
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
    """Training lists by (epoch, query id), drawn and encoded when they are asked for."""

    def __init__(self, collection: Collection, lists: TrainingLists, encoder: PairEncoder) -> None:
        self.collection = collection
        self.lists = lists
        self.encoder = encoder

    def __getitem__(self, key: tuple[int, str]) -> tuple[list[np.ndarray], tuple[int, ...]]:
        epoch, query_id = key
        item = self.lists.sample(query_id, epoch)
        texts = self.collection.documents.get_many(item.doc_ids)
        try:
            query = self.collection.queries[query_id]
            sequences = self.encoder.pairs(query, [texts[doc_id] for doc_id in item.doc_ids])
        except ValueError as error:
            raise ValueError(f"query {query_id} of {self.collection.name}: {error}") from error
        return sequences, item.labels


class EpochSampler(Sampler[tuple[int, str]]):
    """The (epoch, query id) keys of an epoch; with several processes every one gets its part, all of equal size.

    The trainer calls :meth:`set_epoch` before each epoch, also when it continues an interrupted run.
    """

    def __init__(self, lists: TrainingLists, rank: int = 0, world_size: int = 1) -> None:
        self.lists = lists
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.lists) // self.world_size)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        order = self.lists.order(self.epoch)
        # Processes must take the same number of steps: the first queries come again where the order falls short.
        shared = islice(cycle(order), len(self) * self.world_size)
        return ((self.epoch, query_id) for query_id in islice(shared, self.rank, None, self.world_size))


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

    Lists depend on seed and epoch alone, so a resumed run sees the lists it would have seen. Several processes share
    the lists and the dev pairs here; the trainer must be made with ``use_distributed_sampler=False``.
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
        """Batches of :class:`ListBatch`, in an order drawn for each epoch."""
        return DataLoader(
            ListDataset(self.train, self.lists, self.encoder),
            batch_size=self.lists_per_batch,
            sampler=EpochSampler(self.lists, *self._place()),
            collate_fn=collate_lists,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=start_worker,
        )

    def val_dataloader(self) -> DataLoader:
        """Chunks of dev pairs: lists of (row numbers, packed batch)."""
        chunks = PairChunks(self.dev, self.encoder, self.tokens_per_batch)
        rank, world_size = self._place()
        sampler: DistributedSampler | None = None
        if world_size > 1:
            sampler = DistributedSampler(chunks, world_size, rank, shuffle=False)
        return DataLoader(
            chunks, batch_size=None, sampler=sampler, num_workers=self.workers, worker_init_fn=start_worker
        )

    def _place(self) -> tuple[int, int]:
        """Rank of this process and the number of processes."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def transfer_batch_to_device(self, batch, device: torch.device, dataloader_idx: int):
        """Move a list batch or a chunk of packed batches."""
        if isinstance(batch, ListBatch):
            return batch.to(device)
        return [(rows, texts.to(device)) for rows, texts in batch]
