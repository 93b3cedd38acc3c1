"""Reading and writing files: gzip by name, results complete or absent, seals, the cache folder."""

from __future__ import annotations

import errno
import glob
import gzip
import json
import logging
import os
import re
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

import yaml

from backpack_rank.digests import digest

T = TypeVar("T")
log = logging.getLogger(__name__)
RANKER = "ranker"
"""In the folder of a training run: the saved ranker."""
LATEST = "latest"
"""In the folder of outputs: links to what was finished last, such as ``latest/train``."""
LAST = "checkpoints/last.ckpt"
"""In the folder of a training run: the state after the last epoch."""
UNFINISHED = "UNFINISHED"
"""In the folder of a run, an evaluation or a multirun until its results are whole."""
CACHE_VARIABLE = "BACKPACK_RANK_CACHE"
_TEMPORARY = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
_NO_HOME = "/nonexistent"  # of users without a home folder, by Debian's policy
_PACKED = {
    rb"\x1f\x8b": ("gzip", "gunzip"),
    rb"BZh[1-9]1AY&SY": ("bzip2", "bunzip2"),
    rb"\xfd7zXZ\x00": ("xz", "unxz"),
    rb"\x28\xb5\x2f\xfd": ("zstandard", "unzstd"),
    rb"PK\x03\x04": ("zip", "unzip"),
}
"""Patterns of the first bytes of packed files, with what packs and unpacks them."""
LARGEST_YAML, DEEPEST_YAML = 100_000, 50
SMALL_FILE = 64 * 10**6
"""Bytes of a lexicon, a configuration or another file that is read as a whole, at most."""


def cache_dir() -> Path:
    """Folder for indexes, sense vectors and downloads.

    It is ``$BACKPACK_RANK_CACHE``, or ``~/.cache/backpack_rank``.

    Whoever writes to it makes it, so that nothing but a warning comes of a folder that cannot be
    made.
    """
    home = os.path.expanduser("~")
    if home == "~":  # a user without an entry, as in a container under another uid
        home = _NO_HOME
    folder = os.environ.get(CACHE_VARIABLE) or Path(home, ".cache", "backpack_rank")
    return Path(folder).expanduser()


def resource_folder(name: str) -> Path:
    """``conf`` or ``lexicons``: inside the installed package, or beside it in a checkout.

    Raises:
        FileNotFoundError: it is in neither place.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"there is no folder {name} in {package} or beside it: the installation is not complete"
    )


def check_not_packed(path: Path) -> None:
    """Refuse a packed file that would be read as text; ``.gz`` alone is unpacked on the way.

    Raises:
        ValueError: its first bytes are those of another format, or of gzip under another name.
    """
    if not path.is_file():
        return  # what is read off a pipe is gone, and whoever opens a missing file says so
    with open(path, "rb") as handle:
        beginning = handle.read(16)
    for pattern, (name, tool) in _PACKED.items():
        if not re.match(pattern, beginning) or (name == "gzip" and path.suffix == ".gz"):
            continue
        advice = f"unpack it first ({tool} {path.name})"
        if name == "gzip":
            advice = f"call it {path.name}.gz"
        raise ValueError(f"{path} is packed by {name}: {advice}")


def open_text(path: str | Path) -> TextIO:
    """Open a UTF-8 text file for reading; a name that ends in ``.gz`` is decompressed on the way.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    check_not_packed(path)
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


def read_text(path: str | Path, limit: int = SMALL_FILE) -> str:
    """The text of a small UTF-8 file, without a byte order mark; ``.gz`` by name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8, a damaged gzip file, or holds more than ``limit`` bytes, as a
            file may that was made to fill the memory.
    """
    path = Path(path)
    check_not_packed(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as handle:
            raw = handle.read(limit + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged or incomplete gzip file: {error}") from error
    if len(raw) > limit:
        raise ValueError(
            f"{path} holds more than {limit / 1e6:g} MB, which no file of its kind does"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text: {error}") from error


def read_yaml(path: str | Path) -> Any:
    """The content of a small YAML file: texts, numbers, lists and mappings.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not YAML, is nested more than :data:`DEEPEST_YAML` levels deep, or its
            aliases stand for more than :data:`LARGEST_YAML` entries (a few lines can stand for
            billions).
    """
    try:
        found = yaml.load(read_text(path), Loader=_PlainLoader)  # a safe loader with bounds
        entries = _entries(found, {})
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML ({' '.join(str(error).split())})") from error
    if entries > LARGEST_YAML:
        raise ValueError(f"{path}: its aliases stand for more than {LARGEST_YAML} entries")
    return found


class _PlainLoader(yaml.SafeLoader):
    """Refuses what costs more than it says: deep nesting, and ``<<``, which copies entries."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Called by yaml for each level of nesting."""
        if self.depth >= DEEPEST_YAML:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST_YAML} levels deep")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def flatten_mapping(self, node: Any) -> None:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.YAMLError("entries cannot be merged by <<: write them out")
        super().flatten_mapping(node)


def _entries(node: Any, known: dict[int, int]) -> int:
    """How many entries a node has with all its aliases written out; each is looked at once."""
    if not isinstance(node, (dict, list)):
        return 1
    if id(node) not in known:
        known[id(node)] = LARGEST_YAML + 1  # a node within itself has no end
        children = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_entries(child, known) for child in children)
    return known[id(node)]


def hub_or_folder(name: str | Path) -> str:
    """A model's hub id or folder as transformers takes it; ``~`` is the home folder.

    Raises:
        FileNotFoundError: the name cannot be a hub id (absolute, or with a dot in front, or with
            several slashes), and there is no such folder.
    """
    path = os.path.expanduser(name)
    slashes = path.replace(os.sep, "/").count("/")
    cannot_be_hub_id = os.path.isabs(path) or path.startswith(".") or slashes > 1
    if cannot_be_hub_id and not os.path.isdir(path):
        raise FileNotFoundError(
            f"{name}: there is no such folder; give the folder of a saved model, or a hub id"
        )
    return path


@contextmanager
def atomic_path(path: str | Path, *, sealed: bool = False) -> Iterator[Path]:
    """Give a temporary sibling of ``path``, which takes its place if the block raises nothing.

    The sibling may be written as a file or made a folder. When the block raises, it is removed and
    what stood at ``path`` stays as it was, also when the last step (putting a folder in the place
    of another) fails. The parent folder is created. What is put in place is on the disk, not only
    in the system's memory.

    Args:
        sealed: write length and checksum of every file, for :func:`intact`: in a folder as
            ``seal.json``, beside a file as ``NAME.seal``.

    Raises:
        DiskFullError: there is no space left; the file and what was written of it are named.
    """
    path = Path(path)
    holder: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=_TEMPORARY, dir=path.parent))
        temporary = holder / path.name
        yield temporary
        if sealed:
            seal(temporary)
        else:
            _sync(temporary)
        if sealed and temporary.is_file():
            # Before the file: after a kill in between the seal does not fit the old file.
            os.replace(_seal_of(temporary), _seal_of(path))
        if temporary.is_dir() and path.exists():
            _replace_folder(temporary, path, holder / f"{path.name}.previous")
        else:
            os.replace(temporary, path)
        _sync_entries(path.parent)
    except Exception as error:
        if isinstance(error, DiskFullError) or (number := no_space(error)) is None:
            raise
        raise DiskFullError(number, path, 0 if holder is None else _bytes_in(holder)) from error
    finally:
        if holder is not None:
            shutil.rmtree(holder, ignore_errors=True)


class DiskFullError(OSError):
    """There is no space left for a file; its sentence says how much it had and what to do."""

    def __init__(self, number: int, path: Path, written: int) -> None:
        """``number`` is the system's, ``written`` how many bytes found room before."""
        super().__init__(number, os.strerror(number), str(path))
        self.written = written

    def __str__(self) -> str:
        file = Path(self.filename)
        existing = next(folder for folder in file.parents if folder.exists())
        free = shutil.disk_usage(existing).free
        option = f"{CACHE_VARIABLE}=" if file.is_relative_to(cache_dir()) else "output="
        return (
            f"{self.filename} could not be written: {self.strerror} "
            f"({_size(self.written)} of it were written, {_size(free)} are free on its disk); "
            f"free some, or give {option}FOLDER on another disk"
        )


def kept_or_rebuilt(kept: Callable[[], T], rebuilt: Callable[[], T], what: str) -> T:
    """What ``kept`` gives from the cache; where that cannot be written what ``rebuilt`` gives.

    Args:
        what: is not kept; begins the sentence of the warning.
    """
    try:
        return kept()
    except OSError as error:
        if error.errno not in _READ_ONLY and no_space(error) is None:
            raise
        log.warning("%s is not kept, because the cache cannot be written: %s", what, str(error))
    return rebuilt()


def no_space(error: BaseException) -> int | None:
    """The system's number of an error of a full disk; None for other errors.

    The writers of torch, safetensors, tokenizers and SQLite raise errors of their own, some with
    the system's words.
    """
    if isinstance(error, OSError):
        return error.errno if error.errno in _FULL else None
    if isinstance(error, sqlite3.Error):
        # A full disk has a name of its own; a quota or a limit of a file's size is any failed
        # write.
        failed_write = getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_WRITE"
        is_full = "disk is full" in str(error) or failed_write
        return errno.ENOSPC if is_full else None
    # safetensors and tokenizers are written in Rust, which gives the system's number.
    if match := re.search(r"\(os error (\d+)\)", str(error)):
        number = int(match[1])
        return number if number in _FULL else None
    # The words of torch's writer.
    is_full = "file write failed" in str(error) or "unexpected pos" in str(error)
    return errno.ENOSPC if is_full else None


def remove_leftovers(folder: str | Path) -> int:
    """Remove what killed processes left of :func:`atomic_path`; how many there were.

    For a folder that nobody writes to now.
    """
    leftovers = [path for path in Path(folder).rglob(f".*{_TEMPORARY}") if path.is_dir()]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return len(leftovers)


def remove_leftovers_of(path: Path) -> None:
    """The same for one file or folder, which nobody else writes now."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{_TEMPORARY}"):
        shutil.rmtree(leftover, ignore_errors=True)


def seal(path: Path) -> None:
    """Write length and checksum of a file, or of every file in a folder, for :func:`intact`."""
    seal_file = _seal_of(path)
    if path.is_dir():
        start = path
        files = sorted(file for file in path.rglob("*") if file.is_file() and file != seal_file)
    else:
        start = path.parent
        files = [path]
    sums = {}
    for file in files:
        sums[file.relative_to(start).as_posix()] = [file.stat().st_size, _checksum(file)]
    seal_file.write_text(json.dumps(sums), encoding="utf-8")
    _sync(path)


def damage(path: str | Path) -> str | None:
    """What is wrong with a sealed file or folder, as the end of a sentence; None when it is intact.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    try:
        sums: dict[str, list] = json.loads(_seal_of(path).read_text(encoding="utf-8"))
        for name, (size, checksum) in sums.items():
            file = path / name if path.is_dir() else path
            if file.stat().st_size != size:
                return f"{name} has {file.stat().st_size} bytes in place of {size}"
            if _checksum(file) != checksum:
                return f"the bytes of {name} have changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, TypeError, AttributeError):  # bad JSON and bad UTF-8 are ValueErrors
        return f"{_seal_of(path).name} cannot be read"
    return None


def intact(path: str | Path) -> bool:
    """Whether a sealed file or folder is there as it was written; a damaged one is removed.

    Whoever calls it holds the lock of that file, and makes it anew. So what is half-written beside
    it is of a killed process, and goes.
    """
    path = Path(path)
    remove_leftovers_of(path)
    try:
        why = damage(path)
    except FileNotFoundError:
        return False
    if why is not None:
        log.warning("%s is damaged (%s) and is made anew", path, why)
        remove_sealed(path)
    return why is None


def remove_sealed(path: Path) -> None:
    """Remove a sealed file or folder; one that is gone already, or cannot be removed, is left."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    for part in (path, _seal_of(path)):
        with suppress(OSError):
            part.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all; gzip when the name ends in ``.gz``."""
    data = text.encode("utf-8")
    with atomic_path(path) as temporary:
        temporary.write_bytes(gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def reserve_space(path: str | Path) -> None:
    """Take a file's space now: a full disk is an ``OSError`` here, and kills no process later."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, Path(path).stat().st_size)


def _replace_folder(temporary: Path, path: Path, previous: Path) -> None:
    # A folder that is not empty cannot be replaced in one step: the old one steps aside, and back
    # on failure.
    os.replace(path, previous)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.replace(previous, path)
        raise


def _seal_of(path: Path) -> Path:
    return path / "seal.json" if path.is_dir() else path.with_name(f"{path.name}.seal")


def _checksum(file: Path) -> str:
    with open(file, "rb") as handle:
        return digest(handle, algorithm="xxh3")


def _sync(path: Path) -> None:
    """Every file below a path, or the file itself and its seal, to the disk."""
    for file in [path, _seal_of(path)] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        elif file.is_dir():
            _sync_entries(file)


def _sync_entries(folder: Path) -> None:
    """Names in a folder to the disk, where the system knows how (Windows does not)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
