"""The one function that hashes: the same bytes as the libraries' own functions, whatever form the
content has.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import xxhash

from backpack_rank.digests import digest, with_lengths

TEXT = "Straße, 東京 " * 1000


@pytest.mark.parametrize(
    "content", [TEXT, TEXT.encode(), [TEXT], iter([TEXT[:7], TEXT[7:].encode()])]
)
def test_a_text_its_bytes_and_its_parts_have_one_digest(content) -> None:
    assert digest(content) == hashlib.blake2b(TEXT.encode(), digest_size=16).hexdigest()


def test_the_digests_are_those_of_the_libraries(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT.encode() * 100)  # more than a block
    content = path.read_bytes()
    assert digest(content, size=8) == hashlib.blake2b(content, digest_size=8).hexdigest()
    assert digest(content, algorithm="xxh3") == xxhash.xxh3_64(content).hexdigest()
    assert (
        digest(content, algorithm="sha256")
        == subprocess.check_output(["sha256sum", path], text=True).split()[0]
    )
    assert digest(b"") == hashlib.blake2b(b"", digest_size=16).hexdigest()


def test_an_open_file_is_hashed_in_pieces_from_where_it_stands(tmp_path: Path) -> None:
    class Counting(io.BytesIO):
        sizes: tuple[int, ...] = ()

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.sizes += (len(data),)
            return data

    content = b"\n" * 3_000_001
    file = Counting(content)
    file.seek(1)
    assert digest(file) == digest(content[1:])
    assert max(file.sizes) <= 2**20


def test_arrays_count_as_their_bytes() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest(["x", array]) == digest(b"x" + array.tobytes())


def test_a_lone_surrogate_of_a_file_name_is_no_error() -> None:
    assert len({digest("a\udc80"), digest("a"), digest("a\udc81")}) == 3


def test_pairs_with_lengths_change_with_words_order_and_borders() -> None:
    def of(*pairs: tuple[str, str]) -> str:
        return digest(chain(["settings"], with_lengths(pairs)))

    versions = [
        of(("query", "document"), ("other", "text")),
        of(("other", "text"), ("query", "document")),
        of(("query", "document")),
        of(("query document", ""), ("other", "text")),
        of(("query", "document5 4 other text")),
        of(("query", "Document"), ("other", "text")),
        of(),
    ]
    assert len(set(versions)) == len(versions)
