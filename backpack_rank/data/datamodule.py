"""Training lists and validation candidates as Lightning wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Protocol, TypeVar

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from backpack_rank.data.batching import CPU_TOKENS, PairPortions, Pairs, start_worker
from backpack_rank.data.collection import Collection
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.training_lists import TrainingLists

Key = TypeVar("Key")


class EpochSamplerBase(Sampler[Key]):
    """Subclass it for the order of an epoch, of which each of several processes takes its part.

    All parts have the same size: processes that took other numbers of steps would wait for ever.

    The trainer calls :meth:`set_epoch` before each epoch, also when it continues an interrupted
    run.

    Attributes:
        per_epoch: keys of an epoch, of all processes.
    """

    def __init__(self, per_epoch: int, rank: int = 0, world_size: int = 1) -> None:
        self.per_epoch = per_epoch
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is."""
        self.epoch = epoch

    def __len__(self) -> int:
        # Rounded up: no key is left out, and the last ones may come twice.
        return -(-self.per_epoch // self.world_size)


@dataclass(frozen=True)
class ListBatch:
    """What a training step reads: L lists of at most m documents.

        batch = collate_lists([dataset[key] for key in keys])
        scores = scatter_lists(ranker(batch.texts), batch.mask)  # [L, m]

    Attributes:
        texts: the packed texts, list by list.
        labels: relevance; 0 where there is no document. [L, m]
        mask: True where there is a document. [L, m]
        teacher: a teacher's scores, nan where it has none; None without a teacher. [L, m]
        leanings: a number for each of the N texts, such as the group that its words lean to; None
            where nothing asks for it. [N]
    """

    texts: PackedBatch
    labels: Tensor
    mask: Tensor
    teacher: Tensor | None = None
    leanings: Tensor | None = None

    def to(self, device: torch.device | str) -> ListBatch:
        """The same batch on another device."""
        return self._changed(lambda part: part.to(device))

    def pin_memory(self) -> ListBatch:
        """The same batch in page-locked memory (called by torch's data loader)."""
        return self._changed(lambda part: part.pin_memory())

    def _changed(self, change: Callable) -> ListBatch:
        """The batch with ``change`` applied to each of its tensors and packed batches."""
        return ListBatch(
            texts=change(self.texts),
            labels=change(self.labels),
            mask=change(self.mask),
            teacher=None if self.teacher is None else change(self.teacher),
            leanings=None if self.leanings is None else change(self.leanings),
        )


@dataclass(frozen=True)
class EncodedList:
    """One training list as token ids: what workers make and :func:`collate_lists` packs.

    Attributes:
        sequences: of each (query, document) text.
        labels: relevance of each document.
        teacher: a teacher's score of each document, nan where it has none; None without a teacher.
        leanings: a number for each text, or None.
        copy: the list with all its words swapped, which is trained on too; None where no word is.
    """

    sequences: list[np.ndarray]
    labels: tuple[int, ...]
    teacher: np.ndarray | None = None
    leanings: tuple[int, ...] | None = None
    copy: EncodedList | None = None


class Teacher(Protocol):
    """Implement it to train on scores of another ranker.

    :class:`~backpack_rank.data.teacher_scores.TeacherRun` is an example.
    """

    def scores(self, query_id: str, doc_ids: Sequence[str]) -> np.ndarray:
        """One score per document, nan where there is none. [m]"""
        ...


class ListDataset(Dataset):
    """The data set of a training loader: lists by (epoch, query id), drawn on demand.

        dataset = ListDataset(collection, TrainingLists(collection, candidates), pair_tokenizer)
        dataset[0, "q1"].sequences  # token ids of each (query, document)

    Attributes:
        augment: swaps the words of a text, for counterfactual augmentation: beside a list its copy
            is trained on, in which query and documents are swapped.
        leaning: gives a number for a document, such as the group that its words lean to.
    """

    def __init__(
        self,
        collection: Collection,
        lists: TrainingLists,
        pair_tokenizer: PairTokenizer,
        teacher: Teacher | None = None,
        augment: Callable[[str], str] | None = None,
        leaning: Callable[[str], int] | None = None,
    ) -> None:
        self.collection = collection
        self.lists = lists
        self.pair_tokenizer = pair_tokenizer
        self.teacher = teacher
        self.augment = augment
        self.leaning = leaning

    def __getitem__(self, key: tuple[int, str]) -> EncodedList:
        epoch, query_id = key
        drawn = self.lists.sample(query_id, epoch)
        text_by_id = self.collection.documents.get_many(drawn.doc_ids)
        texts = [text_by_id[doc_id] for doc_id in drawn.doc_ids]
        try:
            query = self.collection.queries[query_id]
            sequences = self.pair_tokenizer.pairs(query, texts)
            copy = self._copy(query, texts, drawn.labels)
        except ValueError as error:
            raise ValueError(f"query {query_id} of {self.collection.name}: {error}") from error
        teacher = None
        if self.teacher is not None:
            teacher = self.teacher.scores(query_id, drawn.doc_ids)
        if copy is not None:
            # The copy keeps the scores of the original: relevance does not depend on the group.
            copy = replace(copy, teacher=teacher)
        return EncodedList(
            sequences=sequences,
            labels=drawn.labels,
            teacher=teacher,
            leanings=self._leanings(texts),
            copy=copy,
        )

    def _copy(
        self, query: str, texts: Sequence[str], labels: tuple[int, ...]
    ) -> EncodedList | None:
        """The list in swapped wording; None where that is the same."""
        if self.augment is None:
            return None
        swapped_query = self.augment(query)
        swapped_texts = [self.augment(text) for text in texts]
        if swapped_query == query and swapped_texts == list(texts):
            return None
        sequences = self.pair_tokenizer.pairs(swapped_query, swapped_texts)
        return EncodedList(sequences, labels, leanings=self._leanings(swapped_texts))

    def _leanings(self, texts: Sequence[str]) -> tuple[int, ...] | None:
        if self.leaning is None:
            return None
        return tuple(self.leaning(text) for text in texts)


class EpochSampler(EpochSamplerBase[tuple[int, str]]):
    """The sampler of :class:`ListDataset`: the (epoch, query id) keys of an epoch.

    sampler = EpochSampler(lists)
    sampler.set_epoch(3)
    next(iter(sampler))  # (3, "q17")
    """

    def __init__(self, lists: TrainingLists, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(len(lists), rank, world_size)
        self.lists = lists

    def __iter__(self) -> Iterator[tuple[int, str]]:
        order = self.lists.order(self.epoch)
        # Processes must take the same number of steps: the first queries come again where the order
        # falls short.
        shared = islice(cycle(order), len(self) * self.world_size)
        of_this_process = islice(shared, self.rank, None, self.world_size)
        return ((self.epoch, query_id) for query_id in of_this_process)


def collate_lists(items: list[EncodedList]) -> ListBatch:
    """A ``collate_fn``: texts of lists are packed, shorter lists are masked."""
    items = _with_copies(items)
    size = max(len(item.labels) for item in items)
    labels = torch.zeros((len(items), size))
    mask = torch.zeros((len(items), size), dtype=torch.bool)
    teacher = None
    if items[0].teacher is not None:
        teacher = torch.full((len(items), size), float("nan"))
    sequences: list[np.ndarray] = []
    leanings: list[int] = []
    for row, item in enumerate(items):
        count = len(item.labels)
        labels[row, :count] = torch.tensor(item.labels, dtype=torch.float32)
        mask[row, :count] = True
        if teacher is not None and item.teacher is not None:
            teacher[row, :count] = torch.from_numpy(item.teacher.astype(np.float32))
        sequences += item.sequences
        leanings += item.leanings or ()
    return ListBatch(
        texts=PackedBatch.from_sequences(sequences),
        labels=labels,
        mask=mask,
        teacher=teacher,
        leanings=torch.tensor(leanings) if leanings else None,
    )


def _with_copies(items: list[EncodedList]) -> list[EncodedList]:
    """Every list, followed by its copy in swapped wording where it has one."""
    lists: list[EncodedList] = []
    for item in items:
        lists.append(item)
        if item.copy is not None:
            lists.append(item.copy)
    return lists


class RankingData(L.LightningDataModule):
    """The data of a training: lists, drawn anew every epoch, and the dev candidates.

        data = RankingData(lists, train, dev_pairs, pair_tokenizer, lists_per_batch=8)
        trainer.fit(module, datamodule=data)

    Lists depend on seed and epoch alone, so a resumed run sees the lists it would have seen.
    Several processes share the lists and the dev pairs here; the trainer must be made with
    ``use_distributed_sampler=False``.
    """

    def __init__(
        self,
        lists: TrainingLists,
        train: Collection,
        dev: Pairs,
        pair_tokenizer: PairTokenizer,
        *,
        lists_per_batch: int = 8,
        workers: int = 0,
        tokens_per_batch: int = CPU_TOKENS,
        teacher: Teacher | None = None,
        augment: Callable[[str], str] | None = None,
        leaning: Callable[[str], int] | None = None,
    ) -> None:
        super().__init__()
        self.teacher = teacher
        self.augment = augment
        self.leaning = leaning
        self.lists = lists
        self.train = train
        self.dev = dev
        self.pair_tokenizer = pair_tokenizer
        self.lists_per_batch = lists_per_batch
        self.workers = workers
        self.tokens_per_batch = tokens_per_batch

    def train_dataloader(self) -> DataLoader:
        """Batches of :class:`ListBatch`, in an order drawn for each epoch."""
        lists = ListDataset(
            self.train,
            self.lists,
            self.pair_tokenizer,
            self.teacher,
            self.augment,
            self.leaning,
        )
        return DataLoader(
            lists,
            batch_size=self.lists_per_batch,
            sampler=EpochSampler(self.lists, *self._place()),
            collate_fn=collate_lists,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=start_worker,
        )

    def val_dataloader(self) -> DataLoader:
        """Portions of dev pairs: lists of (row numbers, packed batch)."""
        portions = PairPortions(self.dev, self.pair_tokenizer, self.tokens_per_batch)
        rank, world_size = self._place()
        sampler: DistributedSampler | None = None
        if world_size > 1:
            sampler = DistributedSampler(portions, world_size, rank, shuffle=False)
        return DataLoader(
            portions,
            batch_size=None,
            sampler=sampler,
            num_workers=self.workers,
            worker_init_fn=start_worker,
        )

    def _place(self) -> tuple[int, int]:
        """Rank of this process and the number of processes."""
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size

    def transfer_batch_to_device(self, batch, device: torch.device, dataloader_idx: int):
        """Move a batch of the training loader, or a portion of the validation loader."""
        if isinstance(batch, ListBatch):
            return batch.to(device)
        return [(rows, texts.to(device)) for rows, texts in batch]
