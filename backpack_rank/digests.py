"""The one place that hashes: keys of caches, checksums of files, draws that depend on a text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import xxhash

# The command line hashes before it needs numpy.
if TYPE_CHECKING:
    import numpy as np

Algorithm: TypeAlias = Literal["blake2b", "sha256", "xxh3"]
Content: TypeAlias = "str | bytes | np.ndarray"
_BLOCK = 2**20
"""Bytes of a file that are read at once."""


def digest(
    content: str | bytes | BufferedIOBase | Iterable[Content],
    *,
    size: int = 16,
    algorithm: Algorithm = "blake2b",
) -> str:
    """Every hash: of a text, of bytes, of an open file from its position, of parts.

        >>> digest("a text", size=4)
        '6dc57015'

    Everything is hashed by BLAKE2b, but for two kinds of checksums in files: SHA-256, which every
    tool can check, is that of saved rankers and of what others publish. XXH3, ten times as fast, is
    that of caches of gigabytes: it finds damage, and keeps nobody out.

    A draw is made of the number ``int(digest(...), 16)``. It is the same in every process, as
    Python's ``hash`` is not.

    Args:
        content: texts count as UTF-8. Parts run together: where their borders matter, give lengths
            too, as :func:`with_lengths` does. Files and parts are read piece by piece, so they may
            be larger than the memory.
        size: bytes of the hash, of BLAKE2b. Hashes of another size are others from the first byte.
        algorithm: one of the three.

    Returns:
        The hash in hexadecimal.
    """
    state: Any
    if algorithm == "blake2b":
        state = hashlib.blake2b(digest_size=size)
    elif algorithm == "sha256":
        state = hashlib.sha256()
    else:
        state = xxhash.xxh3_64()
    for part in _parts(content):
        # Names of files may hold lone surrogates, which are no UTF-8; nothing is refused here.
        state.update(part.encode(errors="surrogatepass") if isinstance(part, str) else part)
    return state.hexdigest()


def with_lengths(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Hash pairs of texts: no other pairs run together to the same text.

    >>> list(with_lengths([("ab", "c")]))
    ['2 1 ab c']
    """
    for first, second in pairs:
        yield f"{len(first)} {len(second)} {first} {second}"


def _parts(content: str | bytes | BufferedIOBase | Iterable[Content]) -> Iterable[Content]:
    if isinstance(content, (str, bytes)):
        return [content]
    if isinstance(content, BufferedIOBase):
        return _blocks(content)
    return content


def _blocks(file: BufferedIOBase) -> Iterator[bytes]:
    # Not line by line: a file without line breaks is one line, of any length.
    while block := file.read(_BLOCK):
        yield block
