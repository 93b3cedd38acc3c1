"""Training lists as token ids: prompt and target answer, in the orders of an augmentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import cycle, islice

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from backpack_rank.data.datamodule import EpochSamplerBase
from backpack_rank.position.lists.augmentation import Augmentation
from backpack_rank.position.lists.passages import ListSource, ListwiseExample
from backpack_rank.position.lists.prompt import PromptTokenizer

_ORDERS, _SHUFFLE = 3, 4
"""Parts of seeds, so that orders, shuffles and the draws of sorting tasks are independent."""


@dataclass(frozen=True)
class ListwiseBatch:
    """What a training step reads: B lists of at most m passages, padded on the right.

    :func:`collate` makes it of encoded lists.

    Attributes:
        ids: prompt and answer without its last token. [B, n]
        lengths: tokens of each of them. [B]
        prompts: tokens of the prompts alone; the first token of an answer is predicted at
            ``prompts - 1``. [B]
        targets: answers. [B, t]
        known: True where there is a token of an answer. [B, t]
        identifiers: the token of each input position's identifier, 0 where there is none. [B, m]
        ranks: target rank by input position. [B, m]
        levels: passages of the same level are tied. [B, m]
        mask: True where there is a passage. [B, m]
    """

    ids: Tensor
    lengths: Tensor
    prompts: Tensor
    targets: Tensor
    known: Tensor
    identifiers: Tensor
    ranks: Tensor
    levels: Tensor
    mask: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ListwiseBatch:
        """The same batch on another device."""
        return ListwiseBatch(*(tensor.to(device) for tensor in self._tensors()))

    def pin_memory(self) -> ListwiseBatch:
        """The same batch in page-locked memory (called by torch's data loader)."""
        return ListwiseBatch(*(tensor.pin_memory() for tensor in self._tensors()))

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


@dataclass(frozen=True, eq=False)
class EncodedList:
    """A list as token ids, as :func:`encode_lists` makes it; see :class:`ListwiseBatch`."""

    prompt: np.ndarray
    answer: np.ndarray
    identifiers: np.ndarray
    ranks: np.ndarray
    levels: np.ndarray


def single_identifiers(pair_tokenizer: PromptTokenizer, size: int) -> list[int]:
    """Where a loss reads the logit of each of the first ``size`` identifiers.

    ``single_identifiers(pair_tokenizer, 20)`` gives their 20 tokens.

    Raises:
        ValueError: an identifier has several tokens, and others may begin with the first of them.
    """
    tokens = []
    for number, ids in enumerate(pair_tokenizer.identifiers(size), start=1):
        if len(ids) != 1:
            raise ValueError(
                f"identifier {number} of prompt {pair_tokenizer.prompt.name} has {len(ids)} tokens "
                "here, and the ranking loss reads one logit for each passage: take alphabetic "
                "identifiers (model.prompt.identifiers=alphabetic) or shorter lists (task.size)"
            )
        tokens.append(ids[0])
    return tokens


def encode_lists(
    pair_tokenizer: PromptTokenizer, items: Sequence[ListwiseExample]
) -> list[EncodedList]:
    """On the way to a batch: lists, in the order in which they are shown, as token ids::

    batch = collate(encode_lists(pair_tokenizer, items))
    """
    prompts = pair_tokenizer.encode_all([item.passages for item in items])
    longest = max(map(len, items))
    identifiers = np.array(single_identifiers(pair_tokenizer, longest), dtype=np.int64)
    encoded = []
    for prompt, item in zip(prompts, items, strict=True):
        encoded.append(
            EncodedList(
                prompt=prompt.ids,
                answer=np.array(pair_tokenizer.answer(item.order)),
                identifiers=identifiers[: len(item)],
                ranks=item.ranks,
                levels=item.relevance_levels,
            )
        )
    return encoded


def collate(items: Sequence[EncodedList]) -> ListwiseBatch:
    """A data loader's ``collate_fn``: it pads several lists to a batch."""
    texts = []
    text_lengths = []
    prompt_lengths = []
    for item in items:
        # Nothing is predicted behind the last token of an answer, so the model does not read it.
        text = np.concatenate([item.prompt, item.answer[:-1]])
        texts.append(text)
        text_lengths.append(len(text))
        prompt_lengths.append(len(item.prompt))
    ids, _ = _padded(texts)
    targets, known = _padded([item.answer for item in items])
    identifiers, mask = _padded([item.identifiers for item in items])
    # As many ranks and levels as identifiers, so that the mask serves all three.
    ranks, _ = _padded([item.ranks for item in items])
    levels, _ = _padded([item.levels for item in items])
    return ListwiseBatch(
        ids=ids,
        lengths=torch.tensor(text_lengths),
        prompts=torch.tensor(prompt_lengths),
        targets=targets,
        known=known,
        identifiers=identifiers,
        ranks=ranks,
        levels=levels,
        mask=mask,
    )


class ListwiseDataset(Dataset):
    """Looks up training lists by (epoch, number)::

        dataset = ListwiseDataset(source, pair_tokenizer, augmentation)
        dataset.shown(epoch=0, number=3)  # the list, in the order in which it is shown

    ``number`` counts every order of every list of the epoch.
    """

    def __init__(
        self,
        source: ListSource,
        pair_tokenizer: PromptTokenizer,
        augmentation: Augmentation,
        seed: int = 0,
    ) -> None:
        self.source = source
        self.pair_tokenizer = pair_tokenizer
        self.augmentation = augmentation
        self.seed = seed
        # The lists of the epoch read last: sorting tasks draw new ones for every epoch.
        self._epoch: int | None = None
        self._lists: Sequence[ListwiseExample] = ()

    def __len__(self) -> int:
        return len(self.source) * self.augmentation.copies

    def __getitem__(self, key: tuple[int, int]) -> EncodedList:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[tuple[int, int]]) -> list[EncodedList]:
        """All lists of a batch, encoded together (called by torch's data loader)."""
        shown = [self.shown(epoch, number) for epoch, number in keys]
        return encode_lists(self.pair_tokenizer, shown)

    def shown(self, epoch: int, number: int) -> ListwiseExample:
        """A list in the order in which it is shown."""
        if self._epoch != epoch:
            self._lists = self.source.lists(epoch)
            self._epoch = epoch
        place, copy = divmod(number, self.augmentation.copies)
        item = self._lists[place]
        # All copies of a list draw the same orders, and each takes its own of them. So they need
        # not be read in the same process.
        rng = np.random.default_rng([self.seed, epoch, place, _ORDERS])
        orders = self.augmentation.orders(len(item), rng)
        return item.permute(orders[copy])


class ListwiseSampler(EpochSamplerBase[tuple[int, int]]):
    """Draws the order of an epoch's (epoch, number) keys by seed and epoch alone.

    >>> list(ListwiseSampler(number=3, seed=0))
    [(0, 2), (0, 0), (0, 1)]
    """

    def __init__(self, number: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(number, rank, world_size)
        self.seed = seed

    def __iter__(self) -> Iterator[tuple[int, int]]:
        rng = np.random.default_rng([self.seed, self.epoch, _SHUFFLE])
        order = rng.permutation(self.per_epoch).tolist()
        # Processes must take the same number of steps: the first lists come again where the order
        # falls short.
        shared = islice(cycle(order), len(self) * self.world_size)
        for number in islice(shared, self.rank, None, self.world_size):
            yield self.epoch, number


class ListwiseData(L.LightningDataModule):
    """Gives a trainer lists in augmented orders, and held-out lists by their numbers::

        data = ListwiseData(source, held_out, pair_tokenizer, augmentation, batch_size=8)
        trainer.fit(module, data)

    The trainer must be made with ``use_distributed_sampler=False``: processes share the lists here.
    """

    def __init__(
        self,
        source: ListSource,
        held_out: Sequence[ListwiseExample],
        pair_tokenizer: PromptTokenizer,
        augmentation: Augmentation,
        *,
        batch_size: int,
        seed: int = 0,
        workers: int = 0,
    ) -> None:
        super().__init__()
        self.train = ListwiseDataset(source, pair_tokenizer, augmentation, seed)
        self.held_out = held_out
        self.batch_size = batch_size
        self.seed = seed
        self.workers = workers

    def train_dataloader(self) -> DataLoader:
        """Batches of :class:`ListwiseBatch`."""
        return DataLoader(
            self.train,
            batch_size=self.batch_size,
            sampler=ListwiseSampler(len(self.train), self.seed, *self._place()),
            collate_fn=collate,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
        )

    def val_dataloader(self) -> DataLoader:
        """Numbers of the held-out lists of this process, in one batch."""
        rank, world_size = self._place()
        numbers = torch.arange(rank, len(self.held_out), world_size)
        return DataLoader([numbers], batch_size=None)  # type: ignore[arg-type]

    def _place(self) -> tuple[int, int]:
        """Rank of this process and the number of processes."""
        if not self.trainer:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size


def _padded(rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Rows with 0 behind them, and a mask that is True where there is something. [B, n] each"""
    lengths = torch.tensor([len(row) for row in rows])
    values = torch.zeros((len(rows), int(lengths.max())), dtype=torch.long)
    for number, row in enumerate(rows):
        values[number, : len(row)] = torch.from_numpy(np.asarray(row, dtype=np.int64))
    mask = torch.arange(values.shape[1])[None] < lengths[:, None]
    return values, mask
