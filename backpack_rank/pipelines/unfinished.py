"""Result folders that are not finished: marked from their start, locked while their process lives.

A folder is marked by a file ``UNFINISHED``, which is written first and removed last, so that
whatever ends a process leaves the mark. The lock is the system's and goes with the process, also by
``kill -9``. It reaches other machines where the file system passes POSIX locks on (NFS with its
lock service, Lustre mounted with ``flock``); elsewhere two machines could resume the same folder,
and on Windows nothing is locked.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml

from backpack_rank.files import LAST, UNFINISHED, read_yaml, remove_leftovers
from backpack_rank.pipelines.run_folder import comparable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_ABOUT = (
    "# Results are missing or may be incomplete. "
    "resume={} goes on; at the end this file is removed.\n"
)
# Open locks. They belong to the process and not to an object: POSIX gives a lock up as soon as the
# process closes any handle of its file, so a second registry would take locks away from the first.
_held: dict[Path, IO[str]] = {}


@dataclass(frozen=True)
class Unfinished:
    """An unfinished folder.

    Attributes:
        folder: of a run, an evaluation or a multirun.
        options: of the command line that began it; None when its mark cannot be read.
        multirun: began with ``-m``.
        process, host: of the process that wrote there last.
    """

    folder: Path
    options: tuple[str, ...] | None = ()
    multirun: bool = False
    process: int = 0
    host: str = "another machine"

    @classmethod
    def read(cls, folder: Path) -> Unfinished | None:
        """What a folder's mark says; None without one."""
        try:
            mark = read_yaml(folder / UNFINISHED)
            return cls(
                folder,
                options=tuple(map(str, mark["options"])),
                multirun=bool(mark["multirun"]),
                process=int(mark["process"]),
                host=str(mark["host"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            return cls(folder, None)

    @property
    def alive(self) -> bool:
        """Whether its process lives, here or on another machine whose locks are seen here."""
        if self.folder.resolve() in _held:
            return True
        if not (self.folder / _LOCK).exists():
            return False
        handle = _locked(self.folder)
        if handle is None:
            return True
        handle.close()
        return False

    def __str__(self) -> str:
        words = list(self.options or ())
        if self.multirun:
            words.insert(0, "-m")
        given = " ".join(words)
        return f"{self.folder} ({given})" if given else str(self.folder)


def claim(folder: str | Path, options: Sequence[str] = (), multirun: bool = False) -> None:
    """Mark a folder as unfinished and lock it for this process.

    What killed processes have left half-written there is removed.

    Raises:
        ValueError: another process writes there; it is named.
    """
    folder = Path(folder)
    if folder.resolve() in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    handle = _locked(folder)
    if handle is None:
        other = Unfinished.read(folder) or Unfinished(folder)
        raise ValueError(
            f"{folder} is in use by process {other.process} on {other.host}; wait until it ends, "
            "or stop it first"
        )
    _held[folder.resolve()] = handle
    remove_leftovers(folder)
    about = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "multirun": multirun,
        "options": list(options),
    }
    text = yaml.safe_dump(about, sort_keys=False, allow_unicode=True, width=10_000)
    # In place: a kill leaves a mark that cannot be read rather than none.
    (folder / UNFINISHED).write_text(_ABOUT.format(folder) + text, encoding="utf-8")


def refuse_links(folder: Path) -> None:
    """Refuse a folder in which something is a link: what is written there could land anywhere.

    The folder itself may be one, and the links that wandb makes within its own folder stay.

    Raises:
        ValueError: names the first link.
    """
    for parent, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            if path.is_symlink() and not _stays_in_wandb(path):
                raise ValueError(
                    f"{path} is a link to {os.readlink(path)!r}, where everything would land that "
                    "is written to it: remove it, or put what it points to in its place; "
                    f"nothing was written to {folder}"
                )


def _stays_in_wandb(path: Path) -> bool:
    return path.parent.name == "wandb" and path.resolve().is_relative_to(path.parent.resolve())


def finish(folder: str | Path) -> bool:
    """Take mark and lock from a folder whose results are complete.

    False for one that this process did not claim.
    """
    folder = Path(folder).resolve()
    handle = _held.pop(folder, None)
    if handle is None:
        return False
    (folder / UNFINISHED).unlink(missing_ok=True)
    (folder / _LOCK).unlink(missing_ok=True)
    handle.close()
    return True


def release(folder: str | Path) -> None:
    """Give the lock back and leave the mark: of a job of a multirun that failed."""
    handle = _held.pop(Path(folder).resolve(), None)
    if handle is not None:
        handle.close()


def held() -> list[Path]:
    """Folders that this process writes to, in the order in which it began them."""
    return list(_held)


def find(roots: Iterable[Path], options: Sequence[str], multirun: bool) -> Unfinished:
    """The unfinished folder to go on with: the last with these options; without any, of all.

    Args:
        roots: folders below which to look.
        options: of the command line, but for ``resume`` and ``output``.
        multirun: whether ``-m`` is given.

    Raises:
        FileNotFoundError: there is nothing to resume.
        ValueError: a process is at work on it.
    """
    roots = list(roots)
    every = _unfinished(roots)
    where = " and ".join(map(str, roots))
    if not every:
        raise FileNotFoundError(
            f"resume=true: nothing to resume, nothing below {where} is unfinished; leave resume "
            "out to begin anew, or give the output=FOLDER that the run was begun with"
        )
    matching = every
    if options or multirun:
        matching = []
        unreadable = []  # killed while they were marked
        for unfinished in every:
            if unfinished.options is None:
                unreadable.append(unfinished)
                continue
            same_options = comparable(unfinished.options) == comparable(options)
            if same_options and unfinished.multirun == multirun:
                matching.append(unfinished)
        matching += unreadable
    if not matching:
        raise FileNotFoundError(
            f"resume=true: nothing to resume with these options; unfinished below {where}: "
            f"{', '.join(map(str, every[:3]))}. Give resume=FOLDER alone to go on with one of "
            "them, or leave resume out"
        )
    interrupted = [unfinished for unfinished in matching if not unfinished.alive]
    if not interrupted:
        raise ValueError(
            f"{matching[0].folder} is not interrupted: process {matching[0].process} on "
            f"{matching[0].host} is at work on it"
        )
    return interrupted[0]


def _unfinished(roots: Sequence[Path]) -> list[Unfinished]:
    """Unfinished folders: those with a checkpoint first, and of these the last one.

    Jobs of a multirun go with their multirun.
    """
    folders: set[Path] = set()
    for root in roots:
        folders.update(mark.parent for mark in root.glob(f"**/{UNFINISHED}"))
    unfinished_folders = []
    for folder in folders:
        is_job = bool(folders.intersection(folder.parents))
        unfinished = None if is_job else Unfinished.read(folder)
        if unfinished is not None:
            unfinished_folders.append(unfinished)
    return sorted(unfinished_folders, key=_has_checkpoint_and_time, reverse=True)


def _has_checkpoint_and_time(unfinished: Unfinished) -> tuple[bool, float]:
    """Whether it has a checkpoint, and when the mark or that was written last."""
    mark, checkpoint = unfinished.folder / UNFINISHED, unfinished.folder / LAST
    times = [path.stat().st_mtime for path in (mark, checkpoint) if path.exists()]
    return checkpoint.exists(), max(times, default=0.0)


def _locked(folder: Path) -> IO[str] | None:
    """The open lock of a folder; None when another process has it."""
    handle = open(folder / _LOCK, "a", encoding="utf-8")  # noqa: SIM115
    if fcntl is None:
        return handle
    try:
        # Of the process alone: workers that it forks do not keep the lock when it is killed.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    except OSError:  # a file system without locks
        return handle
    return handle
