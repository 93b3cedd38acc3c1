"""Reading and writing files: gzip by name, results that are complete or absent, and the cache folder."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import yaml

RANKER = "ranker"
"""In the folder of a training run: the saved ranker."""
LAST = "checkpoints/last.ckpt"
"""In the folder of a training run: the state after the last epoch."""
CACHE_VARIABLE = "BACKPACK_RANK_CACHE"
LARGEST_YAML = 100_000
SMALL_FILE = 64 * 10**6
"""Bytes of a lexicon, a configuration or another file that is read as a whole, at most."""


def cache_dir() -> Path:
    """Folder for indexes, sense vectors and downloads: ``$BACKPACK_RANK_CACHE`` or ``~/.cache/backpack_rank``."""
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "backpack_rank").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def resource_folder(name: str) -> Path:
    """``conf`` or ``lexicons``: inside the installed package, or beside it in a checkout.

    Raises:
        FileNotFoundError: it is in neither place.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"there is no folder {name} in {package} or beside it: the installation is not complete")


def open_text(path: str | Path) -> TextIO:
    """Open a UTF-8 text file for reading; a name that ends in ``.gz`` is decompressed on the way.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


def read_text(path: str | Path, limit: int = SMALL_FILE) -> str:
    """The text of a small UTF-8 file, without a byte order mark; ``.gz`` by name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8, a damaged gzip file, or holds more than ``limit`` bytes, as a file may that was
            made to fill the memory.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as handle:
            raw = handle.read(limit + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged or incomplete gzip file: {error}") from error
    if len(raw) > limit:
        raise ValueError(f"{path} holds more than {limit / 1e6:g} MB, which no file of its kind does")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text: {error}") from error


def read_yaml(path: str | Path) -> Any:
    """The content of a small YAML file: texts, numbers, lists and mappings.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not YAML, or its aliases stand for more than :data:`LARGEST_YAML` entries (a few lines can
            stand for billions).
    """
    try:
        found = yaml.safe_load(read_text(path))
        entries = _entries(found, {})
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML ({' '.join(str(error).split())})") from error
    if entries > LARGEST_YAML:
        raise ValueError(f"{path}: its aliases stand for more than {LARGEST_YAML} entries")
    return found


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
        FileNotFoundError: the name cannot be a hub id (absolute, or with a dot in front, or with several slashes), and
            there is no such folder.
    """
    path = os.path.expanduser(name)
    no_hub_id = os.path.isabs(path) or path.startswith(".") or path.replace(os.sep, "/").count("/") > 1
    if no_hub_id and not os.path.isdir(path):
        raise FileNotFoundError(f"{name}: there is no such folder; give the folder of a saved model, or a hub id")
    return path


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling of ``path`` that takes its place when the block ends without an error.

    The sibling may be written as a file or made a folder. When the block raises, it is removed and what stood
    at ``path`` stays as it was, also when the last step (putting a folder in the place of another) fails.
    The parent folder is created.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary = holder / path.name
    try:
        yield temporary
        _sync(temporary)
        if temporary.is_dir() and path.exists():
            _replace_folder(temporary, path, holder / f"{path.name}.previous")
        else:
            os.replace(temporary, path)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all; gzip when the name ends in ``.gz``."""
    data = text.encode("utf-8")
    with atomic_path(path) as temporary:
        temporary.write_bytes(gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def reserve_space(path: str | Path) -> None:
    """Take a file's space now: on a full disk an ``OSError`` here, not a killed process while it is filled."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, Path(path).stat().st_size)


def _replace_folder(temporary: Path, path: Path, previous: Path) -> None:
    # A folder that is not empty cannot be replaced in one step, so the old one steps aside and back on failure.
    os.replace(path, previous)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.replace(previous, path)
        raise


def _sync(path: Path) -> None:
    if not path.is_file():
        return
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())
