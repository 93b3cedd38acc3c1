"""What samplers of training rows share: the epoch, and which part of it this process takes."""

from __future__ import annotations

from typing import TypeVar

from torch.utils.data import Sampler

Key = TypeVar("Key")


class EpochSamplerBase(Sampler[Key]):
    """Keys of an epoch; with several processes each gets its part, all of equal size.

    The trainer calls :meth:`set_epoch` before each epoch, also when it continues an interrupted run.

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
        return -(-self.per_epoch // self.world_size)
