"""Sense vectors on disk, computed once per model and texts, for all alphas and parallel jobs."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import nn

from backpack_rank.constructors import FilePath, NonNegative
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, cache_dir, intact, remove_sealed, reserve_space

log = logging.getLogger(__name__)
GB = 1024**3


class SenseCache:
    """Where a ranker is scored at several alphas: its network then reads each text once.

    A folder of ``.npy`` files, one per key: sense vectors [N, k, d], or scores [N] of rankers
    without senses. The caller chooses the number format: fp32 changes no score, fp16 halves the
    space.

    >>> cache = SenseCache(Path("cache"), max_gb=5)  # doctest: +SKIP
    >>> cache.get("key", (10, 16, 768), "float32", fill).shape  # doctest: +SKIP
    (10, 16, 768)

    Attributes:
        folder: where the files lie; None: ``senses`` in the user's cache folder.
        max_gb: bound of the folder; the entries used longest ago make room for a new one.
    """

    def __init__(self, folder: FilePath | None = None, max_gb: NonNegative = 20.0) -> None:
        self.folder = Path(folder).expanduser() if folder else cache_dir() / "senses"
        self.max_gb = max_gb

    def get(
        self, key: str, shape: tuple[int, ...], dtype: str, fill: Callable[[np.ndarray], None]
    ) -> np.ndarray | None:
        """The array of that key, read-only and mapped from disk.

        Jobs that ask for the same key at the same time wait for the first. A job that dies while
        filling leaves nothing behind. A file that was damaged afterwards is filled again.

        Args:
            key: names the file.
            shape, dtype: of the array.
            fill: writes the array when it is not there yet.

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

        def fill_marked(array: np.ndarray) -> None:
            try:
                fill(array)
            except OSError as error:
                raise _FillError(error) from error

        try:
            return self._read_or_write(key, shape, dtype, fill_marked)
        except _FillError as failed:
            # An error of fill() is the caller's. An error of the cache itself is only a warning.
            raise failed.error from None
        except OSError as error:
            log.warning(
                "the cache of sense vectors is left out, every alpha is a pass of its own: %s. "
                "cache.folder=FOLDER keeps it elsewhere",
                error,
            )
            return None

    def _read_or_write(
        self, key: str, shape: tuple[int, ...], dtype: str, fill: Callable[[np.ndarray], None]
    ) -> np.ndarray:
        """The array of a file, which is written when it is missing or damaged."""
        path = self.folder / f"{key}.npy"
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._lock(key)):
            if intact(path):
                array = _open(path)
                if array is not None:
                    return array
            # One job at a time: two that make room at once would fail on what the other removes.
            with FileLock(self.folder / "room.lock"):
                self._remove_leftovers(key)
                self._make_room(int(np.prod(shape)) * np.dtype(dtype).itemsize)
            with atomic_path(path, sealed=True) as temporary:
                array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
                reserve_space(temporary)
                fill(array)
                array.flush()
                # Opened before it has its name: from then on another job may remove it to make
                # room.
                return np.load(temporary, mmap_mode="r")

    def _lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _remove_leftovers(self, locked_key: str) -> None:
        """Remove what killed jobs left of their arrays: those whose lock no other job holds.

        Args:
            locked_key: its lock is held by this job.
        """
        # atomic_path() writes KEY.npy in a folder .KEY.npy.RANDOM beside it.
        for leftover in self.folder.glob(".*.npy.*"):
            key = leftover.name[1:].partition(".npy.")[0]
            if key == locked_key:
                shutil.rmtree(leftover, ignore_errors=True)
                continue
            try:
                with FileLock(self._lock(key), timeout=0):
                    shutil.rmtree(leftover, ignore_errors=True)
            except Timeout:
                log.debug("%s is being filled by another job", key)

    def _make_room(self, size: int) -> None:
        """Remove the files used longest ago until ``size`` bytes more fit below the bound."""
        paths = sorted(self.folder.glob("*.npy"), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in paths)
        for path in paths:
            if total + size <= self.max_gb * GB:
                return
            total -= path.stat().st_size
            # A mapped file that is removed stays readable for the job that has it open.
            remove_sealed(path)
            log.info("removed %s from the cache of sense vectors to make room", path.name)


class _FillError(Exception):
    """An error of the function that fills an array, not of the cache's files."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def _open(path: Path) -> np.ndarray | None:
    """The array of a file, marked as used now; None when there is no such file (any more)."""
    try:
        array = np.load(path, mmap_mode="r")
        # The file of another user can be read, but not marked.
        with suppress(PermissionError):
            os.utime(path)
    except FileNotFoundError:
        return None
    return array


def weights_digest(model: nn.Module) -> str:
    """Tell whether two models have equal weights, by names, types, shapes and bytes."""
    return digest(_weights(model))


def _weights(model: nn.Module) -> Iterator[str | np.ndarray]:
    for name, tensor in model.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        # As bytes, because numpy has no bfloat16.
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
