"""Files that are packed in a way that is not read, or under another name, say what they are; a score
beyond what other tools read says where it stands.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading

import pytest

from backpack_rank.data.queries import read_queries_tsv
from backpack_rank.data.trec import read_run
from backpack_rank.files import read_text

LINE = b"q Q0 d 1 2.5 t\n"
PACKED = {
    "run.bz2": (bz2.compress(LINE), r"run\.bz2 is packed by bzip2: unpack it first \(bunzip2"),
    "run.xz": (lzma.compress(LINE), r"run\.xz is packed by xz: unpack it first \(unxz"),
    "run.trec": (gzip.compress(LINE), r"run\.trec is packed by gzip: call it run\.trec\.gz"),
}


@pytest.mark.parametrize("read", [read_run, read_queries_tsv, read_text])
@pytest.mark.parametrize("name", PACKED)
def test_a_packed_file_says_what_it_is(tmp_path, name, read):
    content, words = PACKED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read(tmp_path / name)


def test_a_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "run.trec"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[LINE])
    writer.start()
    assert read_run(pipe) == {"q": {"d": 2.5}}
    writer.join()


def test_gzip_by_its_name_is_read(tmp_path):
    (tmp_path / "run.gz").write_bytes(gzip.compress(LINE))
    assert read_run(tmp_path / "run.gz") == {"q": {"d": 2.5}}


@pytest.mark.parametrize("score", ["1e39", "-1e39"])
def test_a_score_beyond_32_bits_names_its_file(tmp_path, score):
    (tmp_path / "run").write_text(f"q Q0 d 1 {score} t\n")
    with pytest.raises(ValueError, match=r"run, line 1: score of query 'q', document 'd'"):
        read_run(tmp_path / "run")
