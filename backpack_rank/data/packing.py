"""Batches without padding: the tokens of all texts in one row.

Linear layers, layer norms and activations work on one token at a time, so they run over the row
unchanged. Only attention has to know where a text ends (see :mod:`backpack_rank.models.attention`);
positions restart at 0 in every text. The scores are those of each text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PackedBatch:
    """What a ranker reads: B texts, T tokens in all, without padding.

    >>> batch = PackedBatch.from_sequences([[7, 8, 9], [7, 5]])
    >>> batch.input_ids.tolist(), batch.offsets.tolist()
    ([7, 8, 9, 7, 5], [0, 3, 5])

    Attributes:
        input_ids: token ids, one text after the other. [T]
        position_ids: 0, 1, ... within each text. [T]
        text_ids: which text a token belongs to. [T]
        offsets: where each text starts, and T at the end. int32 [B + 1]
        max_length: tokens of the longest text.
    """

    input_ids: Tensor
    position_ids: Tensor
    text_ids: Tensor
    offsets: Tensor
    max_length: int

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int] | np.ndarray]) -> PackedBatch:
        """Pack token id sequences. Raises ``ValueError`` for no sequence or for an empty one."""
        if not len(sequences):
            raise ValueError("a batch needs at least one text")
        lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
        empty = np.flatnonzero(lengths == 0)
        if empty.size:
            raise ValueError(
                f"text {empty[0]} of the batch has no token; a separator or end token is the least"
            )
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        text_ids = np.repeat(np.arange(len(lengths)), lengths)
        # A token's place in the row, less where its text starts.
        position_ids = np.arange(offsets[-1]) - offsets[:-1][text_ids]
        input_ids = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
        return cls(
            input_ids=torch.from_numpy(input_ids),
            position_ids=torch.from_numpy(position_ids),
            text_ids=torch.from_numpy(text_ids),
            offsets=torch.from_numpy(offsets.astype(np.int32)),
            max_length=int(lengths.max()),
        )

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text (moves the offsets to the CPU)."""
        return (self.offsets[1:] - self.offsets[:-1]).tolist()

    @property
    def last_positions(self) -> Tensor:
        """Row index of the last token of each text. [B]"""
        return self.offsets[1:].long() - 1

    @property
    def padded_rows(self) -> Tensor:
        """Row of each token in a padded batch laid flat, [B * max_length, ...]. [T]"""
        return self.text_ids * self.max_length + self.position_ids

    def pad(self, values: Tensor) -> Tensor:
        """Spread token values [T, ...] into a zero-padded batch [B, max_length, ...]."""
        shape = (len(self), self.max_length)
        flat = values.new_zeros((len(self) * self.max_length, *values.shape[1:]))
        return flat.index_copy(0, self.padded_rows, values).unflatten(0, shape)

    def select(self, kept: Tensor) -> PackedBatch:
        """The same B texts with only the tokens where ``kept`` [T]; a text may end up empty."""
        # How many tokens before each place are kept is where that place comes to lie. [T + 1]
        kept_before = F.pad(kept.long().cumsum(0), (1, 0))
        offsets = kept_before[self.offsets.long()]
        lengths = offsets[1:] - offsets[:-1]
        text_ids = self.text_ids[kept]
        positions = torch.arange(len(text_ids), device=text_ids.device) - offsets[:-1][text_ids]
        return PackedBatch(
            input_ids=self.input_ids[kept],
            position_ids=positions,
            text_ids=text_ids,
            offsets=offsets.int(),
            max_length=int(lengths.max()),
        )

    def texts(self) -> list[PackedBatch]:
        """Each text as a batch of its own."""
        lengths = self.lengths
        input_ids = self.input_ids.split(lengths)
        position_ids = self.position_ids.split(lengths)
        batches = []
        for ids, positions in zip(input_ids, position_ids, strict=True):
            batch = PackedBatch(
                input_ids=ids,
                position_ids=positions,
                text_ids=torch.zeros_like(ids),
                offsets=self.offsets.new_tensor([0, len(ids)]),
                max_length=len(ids),
            )
            batches.append(batch)
        return batches

    def padding_mask(self) -> Tensor:
        """True where a text has a token. [B, max_length]"""
        lengths = (self.offsets[1:] - self.offsets[:-1]).long()
        return torch.arange(self.max_length, device=lengths.device)[None] < lengths[:, None]

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on another device."""
        return PackedBatch(
            input_ids=self.input_ids.to(device, non_blocking=True),
            position_ids=self.position_ids.to(device, non_blocking=True),
            text_ids=self.text_ids.to(device, non_blocking=True),
            offsets=self.offsets.to(device, non_blocking=True),
            max_length=self.max_length,
        )

    def pin_memory(self) -> PackedBatch:
        """The same batch in page-locked memory (called by torch's data loader)."""
        return PackedBatch(
            input_ids=self.input_ids.pin_memory(),
            position_ids=self.position_ids.pin_memory(),
            text_ids=self.text_ids.pin_memory(),
            offsets=self.offsets.pin_memory(),
            max_length=self.max_length,
        )


def behind_separator(batch: PackedBatch, separator_id: int) -> Tensor:
    """Which tokens are the document's: those behind the first separator. bool [T]

    >>> batch = PackedBatch.from_sequences([[7, 0, 8, 9], [7, 5, 0, 6]])
    >>> batch.input_ids[behind_separator(batch, separator_id=0)].tolist()
    [8, 9, 6]
    """
    separators = (batch.input_ids == separator_id).long()
    # Separators in front of each token count those of earlier texts too: [T]
    before_token = separators.cumsum(0) - separators
    before_text = before_token[batch.offsets[:-1].long()][batch.text_ids]
    return before_token > before_text


def distinct(batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
    """The different texts of a batch, so that each is read once.

    Returns:
        The D different texts in the order of their first places, and for each text of the batch its
        number among them [B].
    """
    # Ids one higher, so that a token with id 0 is not taken for padding.
    _, groups = torch.unique(batch.pad(batch.input_ids + 1), dim=0, return_inverse=True)
    places = torch.arange(len(batch), device=groups.device)
    # Torch orders groups by their tokens, so the first place of each text is looked up, as the
    # minimum of its places. The table starts with len(batch), which is above every place.
    first_of_group = torch.full_like(places, len(batch)).scatter_reduce(0, groups, places, "amin")
    first_places = first_of_group[groups]  # [B]
    is_first = first_places == places
    if bool(is_first.all()):
        return batch, places
    numbers = is_first.long().cumsum(0) - 1  # number of each first text among the D. [B]
    return picked(batch, is_first.nonzero().squeeze(-1)), numbers[first_places]


def joined(first: PackedBatch, second: PackedBatch) -> PackedBatch:
    """The texts of one batch, and behind them those of another."""
    ends = second.offsets[1:] + len(first.input_ids)
    return PackedBatch(
        input_ids=torch.cat([first.input_ids, second.input_ids]),
        position_ids=torch.cat([first.position_ids, second.position_ids]),
        text_ids=torch.cat([first.text_ids, second.text_ids + len(first)]),
        offsets=torch.cat([first.offsets, ends]),
        max_length=max(first.max_length, second.max_length),
    )


def picked(batch: PackedBatch, rows: Tensor) -> PackedBatch:
    """Some texts of a batch, by number in ascending order. [b]"""
    is_picked = torch.zeros(len(batch), dtype=torch.bool, device=rows.device)
    is_picked[rows] = True
    kept = batch.select(is_picked[batch.text_ids])  # still B texts, the others empty
    numbers = is_picked.long().cumsum(0) - 1
    return PackedBatch(
        input_ids=kept.input_ids,
        position_ids=kept.position_ids,
        text_ids=numbers[kept.text_ids],
        offsets=torch.cat([kept.offsets[:-1][is_picked], kept.offsets[-1:]]),
        max_length=kept.max_length,
    )
