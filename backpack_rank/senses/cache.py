"""Sense vectors on disk: computed once per model and set of texts, shared by all alphas and
parallel jobs.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import nn

from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, intact, remove_sealed, reserve_space

log = logging.getLogger(__name__)
GB = 1024**3


class _FillError(Exception):
    """What fills an array had an error of its own."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class SenseCache:
    """A folder of ``.npy`` files, one per key: sense vectors [N, k, d], or scores [N] of rankers
    without senses.

    The number format is the caller's: fp32 keeps scores as they are, fp16 halves the space.

    Attributes:
        folder: where the files lie.
        max_gb: bound of the folder; the entries used longest ago make room for a new one.
    """

    folder: Path
    max_gb: float = 20.0

    def get(
        self, key: str, shape: tuple[int, ...], dtype: str, fill: Callable[[np.ndarray], None]
    ) -> np.ndarray | None:
        """The array of that key, read-only and mapped from disk; ``fill`` writes it when it is not
        there yet.

        Jobs that ask for the same key at the same time wait for the first. A job that dies while
        filling leaves nothing behind. A file that was damaged afterwards is filled again.

        Returns:
            None when the array alone is larger than ``max_gb``, or cannot be written; a warning
            says so.
        """
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size > self.max_gb * GB:
            log.warning(
                "%.1f GB of sense vectors do not fit into cache.max_gb=%g: every alpha is a pass "
                "of its own",
                size / GB,
                self.max_gb,
            )
            return None
        try:
            return self._known_or_filled(key, shape, dtype, fill)
        except _FillError as failed:
            raise failed.error from None
        except OSError as error:
            log.warning(
                "the cache of sense vectors is left out, every alpha is a pass of its own: %s. "
                "cache.folder=FOLDER "
                "keeps it elsewhere",
                error,
            )
            return None

    def _known_or_filled(
        self, key: str, shape: tuple[int, ...], dtype: str, fill: Callable[[np.ndarray], None]
    ) -> np.ndarray:
        path = self.folder / f"{key}.npy"
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._lock(key)):
            if intact(path) and (known := _open(path)) is not None:
                return known
            # One at a time: two jobs that make room at once would stumble over what the other
            # removes.
            with FileLock(self.folder / "room.lock"):
                self._remove_leftovers(key)
                self._make_room(int(np.prod(shape)) * np.dtype(dtype).itemsize)
            with atomic_path(path, sealed=True) as temporary:
                array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
                reserve_space(temporary)
                try:
                    fill(array)
                except OSError as error:  # not the cache's
                    raise _FillError(error) from error
                array.flush()
                # Opened before it has its name: from then on another job may remove it to make
                # room.
                return np.load(temporary, mmap_mode="r")

    def _lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _remove_leftovers(self, held: str) -> None:
        """Remove what killed jobs left of their arrays: those whose lock nobody holds (``held`` is
        our own).
        """
        for leftover in self.folder.glob(".*.npy.*"):
            key = leftover.name[1:].partition(".npy.")[0]
            if key == held:
                shutil.rmtree(leftover, ignore_errors=True)
                continue
            try:
                with FileLock(self._lock(key), timeout=0):
                    shutil.rmtree(leftover, ignore_errors=True)
            except Timeout:
                log.debug("%s is being filled by another job", key)

    def _make_room(self, size: int) -> None:
        # A mapped file that is removed stays readable for the job that has it open.
        entries = sorted(self.folder.glob("*.npy"), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in entries)
        for path in entries:
            if total + size <= self.max_gb * GB:
                return
            total -= path.stat().st_size
            remove_sealed(path)
            log.info("removed %s from the cache of sense vectors to make room", path.name)


def _open(path: Path) -> np.ndarray | None:
    """The array of a file, marked as used now; None when there is no such file (any more)."""
    try:
        array = np.load(path, mmap_mode="r")
        with suppress(PermissionError):  # somebody else's
            os.utime(path)
    except FileNotFoundError:
        return None
    return array


def weights_digest(model: nn.Module) -> str:
    """Digest of every parameter's name, type and bytes."""
    return digest(_weights(model))


def _weights(model: nn.Module) -> Iterator[str | np.ndarray]:
    for name, tensor in model.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        # As bytes, because numpy has no bfloat16.
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
