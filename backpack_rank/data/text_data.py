"""A token corpus as Lightning wants it: rows to train on, and the held-out documents to measure perplexity on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from backpack_rank.data.token_rows import RowSampler, TokenCorpus, TokenRows


@dataclass(frozen=True)
class HeldOutBatch:
    """Pieces of documents, padded on the right, where a decoder does not look.

    Attributes:
        ids: of B pieces, the token before the first one to predict in front. [B, n + 1]
        known: True where ``ids[:, 1:]`` is a token to predict, False at padding. [B, n]
    """

    ids: Tensor
    known: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> HeldOutBatch:
        """The same batch on another device."""
        return HeldOutBatch(self.ids.to(device), self.known.to(device))


class TextData(L.LightningDataModule):
    """Rows in an order drawn for each pass, by seed and epoch alone; held-out documents one by one, uncut if they fit.

    Several processes share both here; the trainer must be made with ``use_distributed_sampler=False``.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        length: int,
        *,
        batch_size: int,
        rows_per_epoch: int | None = None,
        seed: int = 0,
        workers: int = 0,
    ) -> None:
        """Raises ``ValueError`` when there is less text than one row of ``length`` tokens."""
        super().__init__()
        self.corpus = corpus
        self.rows = TokenRows(corpus, length)
        self.length = length
        self.batch_size = batch_size
        self.rows_per_epoch = rows_per_epoch
        self.seed = seed
        self.workers = workers

    def train_dataloader(self) -> DataLoader:
        """Batches of rows. [batch_size, length + 1]"""
        rank, world_size = self._place()
        return DataLoader(
            self.rows,
            batch_size=self.batch_size,
            sampler=RowSampler(len(self.rows), self.rows_per_epoch, self.seed, rank, world_size),
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
        )

    def val_dataloader(self) -> DataLoader:
        """Batches of :class:`HeldOutBatch`, each token of the held-out documents in one of one process."""
        rank, world_size = self._place()
        windows = self.corpus.held_out_windows(self.length)[rank::world_size]
        batches = [padded(batch) for batch in by_size(windows, self.batch_size * self.length)]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]

    def _place(self) -> tuple[int, int]:
        """Rank of this process and the number of processes."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)


def by_size(windows: Sequence[np.ndarray], tokens: int) -> Iterator[Sequence[np.ndarray]]:
    """Neighbours among pieces that are sorted by length, longest first; at most ``tokens`` of a batch, padded."""
    start = 0
    while start < len(windows):
        count = max(1, tokens // (len(windows[start]) - 1))
        yield windows[start : start + count]
        start += count


def padded(windows: Sequence[np.ndarray]) -> HeldOutBatch:
    """One batch of some pieces."""
    lengths = torch.tensor([len(window) for window in windows])
    ids = torch.zeros((len(windows), int(lengths.max())), dtype=torch.long)
    for row, window in zip(ids, windows, strict=True):
        row[: len(window)] = torch.from_numpy(window.astype(np.int64))
    return HeldOutBatch(ids, torch.arange(1, ids.shape[1])[None] < lengths[:, None])
