"""A plan and its scores in a store that machines share: a bucket, or any other place of fsspec.

Object stores have no locks and no renames, but what is put there appears whole. So the plan is put
with ``plan.json`` last, which marks it as complete, and the scores of a shard are one put. Work is
shared out beforehand (``claim=static``), since nobody can claim a shard.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backpack_rank.commands import install
from backpack_rank.files import atomic_path, no_space
from backpack_rank.scale.shard_plan import FILE, PLAN, Plan, pair_file

WHOLE = frozenset(
    ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos", "memory"]
)
"""Protocols whose puts appear whole or not at all."""


class Store:
    """Brings a plan and scores from a store to a folder, and back.

        store = Store("s3://bucket/reranked")
        store.get_plan(folder)
        store.get_scores(Plan.read(folder), [0, 1, 2])
        store.put(folder, "scores/00002.safetensors")

    On stores of objects a file is put directly. Elsewhere it is put beside its place under a
    temporary name and moved. All methods raise ``OSError`` with the store's name where it cannot
    be reached, or does not let this machine read or write.
    """

    def __init__(self, url: str) -> None:
        """``url``: as fsspec reads it, such as ``s3://bucket/name`` or a folder.

        Raises:
            ValueError: fsspec, or its package for this protocol, is not installed, or there is no
                such protocol.
        """
        try:
            import fsspec
        except ModuleNotFoundError as error:
            raise ValueError(f"store={url} needs fsspec: {install('scale')}") from error
        try:
            # Nothing is remembered: other tasks put files while this one runs.
            self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise ValueError(f"store={url}: {error}") from error
        self.url = url
        self._root = root.rstrip("/")
        protocol = self._files.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._puts_whole = bool(names & WHOLE)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, such as ``scores/00002.safetensors``."""
        with self._named_errors():
            return bool(self._files.exists(self._path(name)))

    def put(self, folder: Path, name: str) -> None:
        """Bring a file of the folder to the store, whole or not at all."""
        place = self._path(name)
        with self._named_errors():
            self._put(folder / name, place)

    def _put(self, file_here: Path, place: str) -> None:
        if self._puts_whole:
            self._files.put_file(str(file_here), place)
            return
        parent, _, file = place.rpartition("/")
        self._files.makedirs(parent, exist_ok=True)
        # A task that was killed in a put leaves this behind; it is no name that is ever read.
        temporary = f"{parent}/.{file}.{socket.gethostname()}.{os.getpid()}"
        self._files.put_file(str(file_here), temporary)
        self._files.mv(temporary, place)

    def get(self, folder: Path, name: str) -> bool:
        """Bring a file of the store to the folder; False where the store does not have it."""
        if not self.has(name):
            return False
        with atomic_path(folder / name) as temporary:
            try:
                with self._named_errors():
                    self._files.get_file(self._path(name), str(temporary))
            except FileNotFoundError:
                return False
        return True

    def put_plan(self, plan: Plan) -> None:
        """Bring a plan to the store, unless it is there.

        Raises:
            ValueError: the store has another plan.
        """
        if self.has(f"{PLAN}/{FILE}"):
            self._check_same(plan.folder)
            return
        for number in range(len(plan)):
            self.put(plan.folder, f"{PLAN}/{pair_file(number)}")
        # Last: whoever finds it finds the others too.
        self.put(plan.folder, f"{PLAN}/{FILE}")

    def get_plan(self, folder: Path) -> bool:
        """Bring the plan to the folder, unless it is there; False where the store has none.

        Pairs of shards come with :meth:`get_pairs`, for those that are scored or merged.

        Raises:
            ValueError: the folder has another plan.
        """
        if not self.has(f"{PLAN}/{FILE}"):
            return False
        if (folder / PLAN / FILE).exists():
            self._check_same(folder)
            return True
        return self.get(folder, f"{PLAN}/{FILE}")

    def get_pairs(self, plan: Plan, number: int) -> None:
        """Bring the pairs of a shard to the plan's folder, unless they are there."""
        name = f"{PLAN}/{pair_file(number)}"
        if not (plan.folder / name).exists():
            self.get(plan.folder, name)

    def _check_same(self, folder: Path) -> None:
        with self._named_errors():
            theirs = self._files.cat_file(self._path(f"{PLAN}/{FILE}"))
        if theirs != (folder / PLAN / FILE).read_bytes():
            raise ValueError(
                f"store={self.url} has another plan than {folder}: give the folder or the store "
                "of the same plan, or a new one"
            )

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Let an error say which store it is of, and keep its kind where that has a meaning."""
        try:
            yield
        except Exception as error:
            # Whatever it is: packages for S3 and others have errors that share no class.
            if no_space(error) is not None:
                raise
            kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
            raise kind(
                f"store={self.url}: {error}. Is the name right, is it there, and may this machine "
                "read and write it?"
            ) from error
