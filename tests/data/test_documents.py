"""Documents of line files: the store on disk gives what the store in memory gives, with bounded
memory.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_processes import working

from backpack_rank.data import documents as stores
from backpack_rank.data.collection import MemoryStore
from backpack_rank.data.documents import OffsetStore, open_documents, read_documents


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))


def _write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def index_of(tmp_path: Path) -> Path:
    """The one index in the cache."""
    (database,) = (tmp_path / "cache").glob("documents/*/*.sqlite")
    return database


def _jsonl(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


LONG = "Straße, " + "long " * 3000
LINES = "two\nlines\tand a tab"
ROWS = _jsonl(
    {"_id": "b", "title": "Titel", "text": LONG},
    {"_id": "a", "title": "", "text": "plain"},
    {"_id": "ü", "text": "", "metadata": {"x": 1}},
    {"_id": "c", "title": None, "text": LINES},
)
TEXTS = {"b": f"Titel {LONG}", "a": "plain", "ü": "", "c": LINES}
both_stores = pytest.mark.parametrize("open_store", [OffsetStore, read_documents])


def test_the_first_line_with_an_id_that_stands_twice_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stores, "_ROWS", 7)
    ids = [*range(40), 20, 3, 20, 0]
    path = _write(tmp_path / "c.tsv", "".join(f"d{number}\tx\n" for number in ids))
    message = f"{path}, line 41: document id 'd20' stands twice, first in line 21"
    with pytest.raises(ValueError, match=re.escape(message)):
        len(OffsetStore(path))


@pytest.mark.skipif(
    not Path("/sys/kernel").is_dir(), reason="needs Linux's /sys, in which nobody makes folders"
)
@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_cache_that_cannot_be_written_is_left_out_with_a_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", "/sys/kernel/cache")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "system"))
    (tmp_path / "system").mkdir()

    def read(store: OffsetStore) -> tuple[dict[str, str], dict[str, str]]:
        return dict(store), store.get_many(list(TEXTS))

    assert read(OffsetStore(_write(tmp_path / name, ROWS))) == (TEXTS, TEXTS)
    (message,) = caplog.messages
    reason = "is not kept, because the cache cannot be written: "
    assert message.startswith(f"the index of {tmp_path / name} {reason}")
    assert list((tmp_path / "system").iterdir()) == []


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
@both_stores
def test_both_stores_give_every_document(tmp_path, name: str, open_store: type[OffsetStore]):
    store = open_store(_write(tmp_path / name, "\ufeff" + ROWS.replace("\n", "\r\n\n", 1)))
    assert dict(store) == TEXTS
    assert list(dict(store)) == ["b", "a", "ü", "c"]  # order of the file
    assert len(store) == 4
    assert store.get_many(["c", "ü", "b", "c"]) == {key: TEXTS[key] for key in ("c", "ü", "b")}
    assert store.get_many([]) == {}
    assert "ü" in store
    assert "z" not in store
    assert 3 not in store
    with pytest.raises(KeyError, match=r"1 document ids are not in the collection: 'nope'"):
        store.get_many(["a", "nope"])


@both_stores
def test_the_title_can_be_left_out(tmp_path: Path, open_store: type[OffsetStore]) -> None:
    store = open_store(_write(tmp_path / "c.jsonl", ROWS), title=False)
    assert store.get_many(["b"])["b"].startswith("Straße")
    assert dict(store)["b"].startswith("Straße")


@both_stores
def test_tab_separated_collections_of_two_and_three_columns(tmp_path, open_store) -> None:
    two = open_store(_write(tmp_path / "two.tsv", "7\tthe text\n8\t\n"))
    three = open_store(_write(tmp_path / "three.tsv.gz", "7\tTitle\tthe text\n8\t\tonly text"))
    assert dict(two) == {"7": "the text", "8": ""}
    assert dict(three) == {"7": "Title the text", "8": "only text"}
    assert three.get_many(["8"]) == {"8": "only text"}


def test_small_files_are_read_into_memory_and_big_ones_are_not(tmp_path: Path) -> None:
    path = _write(tmp_path / "c.jsonl", ROWS)
    size = path.stat().st_size
    assert isinstance(open_documents(path, memory_limit=size), MemoryStore)
    assert isinstance(open_documents(path, memory_limit=size - 1), OffsetStore)


def test_the_index_is_built_once_and_anew_when_the_file_changes(tmp_path: Path) -> None:
    path = _write(tmp_path / "c.jsonl", ROWS)
    first = OffsetStore(path)
    assert len(first) == 4
    database = index_of(tmp_path)
    built = database.stat()
    again = OffsetStore(path)
    assert again.get_many(["a"]) == {"a": "plain"}
    assert again.fingerprint == first.fingerprint
    now = database.stat()
    assert (now.st_ino, now.st_mtime_ns) == (built.st_ino, built.st_mtime_ns)
    path.write_text(_jsonl({"_id": "a", "text": "new"}))
    os.utime(path, ns=(1, 1))
    changed = OffsetStore(path)
    assert dict(changed) == {"a": "new"}
    assert changed.fingerprint != first.fingerprint


def test_the_fingerprint_follows_content_and_title_not_the_place(tmp_path: Path) -> None:
    here = OffsetStore(_write(tmp_path / "here.jsonl", ROWS))
    there = OffsetStore(_write(tmp_path / "there.jsonl", ROWS))
    assert here.fingerprint == there.fingerprint
    assert here.fingerprint != OffsetStore(tmp_path / "here.jsonl", title=False).fingerprint


def test_a_file_that_changes_under_an_open_store_is_reported(tmp_path: Path) -> None:
    path = _write(tmp_path / "c.jsonl", ROWS)
    store = OffsetStore(path)
    assert "a" in store
    path.write_text(_jsonl({"_id": "z", "text": "other"}))
    with pytest.raises(ValueError, match="was changed while it was in use"):
        store.get_many(["a"])


@pytest.mark.parametrize("same", [True, False])
def test_a_file_with_other_ids_at_the_same_places_is_reported(tmp_path: Path, same: bool) -> None:
    path = _write(tmp_path / "c.tsv", "a\tone\nb\ttwo\n")
    store = OffsetStore(path)
    assert "a" in store
    path.write_text("x\tone\ny\ttwo\n" if same else "a\tone\nz\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match="was changed while it was in use"):
        store.get_many(["a", "b"])


def test_ids_that_sql_could_mistake_stay_texts(tmp_path: Path) -> None:
    ids = ["7", "007", "7.0", "7e0", "'", '"a"', "%", "NULL", "\u00e9", "e\u0301", "A", "a"]
    lines = [f"{doc_id}\ttext of {doc_id}\n" for doc_id in ids]
    store = OffsetStore(_write(tmp_path / "c.tsv", "".join(lines)))
    assert store.get_many(ids) == {doc_id: f"text of {doc_id}" for doc_id in ids}
    assert "07" not in store


def test_a_finished_index_needs_a_folder_that_can_be_read_alone(tmp_path: Path) -> None:
    path = _write(tmp_path / "c.jsonl", ROWS)
    store = OffsetStore(path)
    assert len(store) == 4
    database = index_of(tmp_path)
    before = sorted(database.parent.iterdir())
    database.parent.chmod(0o500)
    database.chmod(0o400)
    try:
        assert OffsetStore(path).get_many(["a"]) == {"a": "plain"}
        assert sorted(database.parent.iterdir()) == before  # no journal and no lock beside it
    finally:
        database.parent.chmod(0o700)


HARMS = [lambda raw: raw[:-4096], lambda raw: raw[:4096] + bytes(len(raw) - 4096), lambda raw: b""]


@pytest.mark.parametrize("harm", HARMS, ids=["cut", "zeroed", "empty"])
def test_a_damaged_index_is_made_anew(tmp_path, harm, caplog) -> None:
    path = _write(tmp_path / "c.jsonl", ROWS)
    assert len(OffsetStore(path)) == 4
    database = index_of(tmp_path)
    database.write_bytes(harm(database.read_bytes()))
    assert OffsetStore(path).get_many(list(TEXTS)) == TEXTS
    assert "is damaged" in caplog.text


# bad input

GOOD = {"c.jsonl": '{"_id": "1", "text": "a"}', "c.tsv": "1\ta"}
_BAD = [
    ("c.jsonl", '{"_id": "2", "text": 5}', ["'2'", "text", "got 5"]),
    ("c.jsonl", '{"_id": "2"', ["JSON"]),
    ("c.jsonl", '{"title": "t", "text": "b"}', ["_id"]),
    ("c.jsonl", '{"_id": "2", "text": "b", "title": 3}', ["'2'", "title"]),
    ("c.jsonl", '{"_id": "2 3", "text": "b"}', ["'2 3'", "white space"]),
    ("c.jsonl", '{"_id": "1", "text": "b"}', ["'1'", "twice", "line 1"]),
    ("c.tsv", "1\tb", ["'1'", "twice", "line 1"]),
    ("c.tsv", "2\tb\tc", ["'2'", "expected 2 columns", "got 3"]),
    ("c.tsv", "no tab", ["'no tab'", "expected 2 columns", "got 1"]),
]


@pytest.mark.parametrize(("name", "bad", "named"), _BAD)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@both_stores
def test_a_malformed_document_is_refused_with_file_line_and_id(
    tmp_path: Path, open_store, suffix: str, name: str, bad: str, named: list[str]
) -> None:
    path = _write(tmp_path / (name + suffix), f"{GOOD[name]}\n\n{bad}\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: ")) as caught:
        len(open_store(path))
    for words in named:
        assert words in str(caught.value)
    assert not list((tmp_path / "cache").glob("documents/*/*"))  # no half-built index stays


@both_stores
def test_files_without_documents_and_of_other_forms_are_refused(tmp_path, open_store) -> None:
    for name in ("empty.jsonl", "empty.tsv"):
        with pytest.raises(ValueError, match=f"{name}: holds no documents"):
            len(open_store(_write(tmp_path / name, "\n")))
    message = r"four\.tsv, line 1: expected 2 columns .* or 3 .*, got 4"
    with pytest.raises(ValueError, match=message):
        len(open_store(_write(tmp_path / "four.tsv", "1\ta\tb\tc\n")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for open_store in (OffsetStore, open_documents):
        with pytest.raises(FileNotFoundError, match=r"gone\.jsonl"):
            open_store(tmp_path / "gone.jsonl")


FULL = """
import resource, signal, sys
from pathlib import Path
from backpack_rank.data import documents
from backpack_rank.files import DiskFullError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    documents._kept_index(Path(sys.argv[1]))
except DiskFullError as error:
    print(error)
"""


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="SQLite's errors have names from Python 3.11 on"
)
def test_a_disk_without_room_for_the_index_is_named_and_nothing_stays(tmp_path: Path) -> None:
    _many(tmp_path / "c.tsv", 5000)
    command = [sys.executable, "-c", FULL, str(tmp_path / "c.tsv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "could not be written: No space left on device" in done.stdout
    assert "BACKPACK_RANK_CACHE=FOLDER" in done.stdout
    assert [path.suffix for path in (tmp_path / "cache" / "documents").iterdir()] == [".lock"]


# processes and threads


def _many(path: Path, documents: int) -> dict[str, str]:
    texts = {f"doc{index}": f"text {index} " + "x" * (index % 50) for index in range(documents)}
    path.write_text("".join(f"{key}\t{text}\n" for key, text in texts.items()))
    return texts


def _read_all(store: OffsetStore, texts: dict[str, str]) -> bool:
    for start in range(13):
        keys = list(texts)[start::13]
        if store.get_many(keys) != {key: texts[key] for key in keys}:
            return False
    return True


def _worker(store: OffsetStore, texts: dict[str, str]) -> None:
    sys.exit(0 if _read_all(store, texts) else 1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_an_open_store(tmp_path: Path, method: str) -> None:
    texts = _many(tmp_path / "c.tsv", 2000)
    store = OffsetStore(tmp_path / "c.tsv")
    assert "doc5" in store  # opened before the fork
    with working(_worker, [(store, texts)] * 2, method):
        assert _read_all(store, texts)


def test_threads_share_an_open_store(tmp_path: Path) -> None:
    texts = _many(tmp_path / "c.tsv", 1000)
    store = OffsetStore(tmp_path / "c.tsv")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: _read_all(store, texts), range(4))) == [True] * 4


def test_a_pickled_store_holds_no_index_and_reads_again(tmp_path: Path) -> None:
    store = OffsetStore(_write(tmp_path / "c.jsonl", ROWS), title=False)
    assert len(store) == 4
    data = pickle.dumps(store)
    assert len(data) < 1000
    assert pickle.loads(data).get_many(["b"])["b"].startswith("Straße")


def test_parallel_jobs_build_one_index(tmp_path: Path) -> None:
    texts = _many(tmp_path / "c.tsv", 3000)
    packed = _write(tmp_path / "c.tsv.gz", (tmp_path / "c.tsv").read_text())
    with working(_worker, [(OffsetStore(packed), texts) for _ in range(3)]):
        pass
    indices = [path for path in (tmp_path / "cache" / "documents").iterdir() if path.is_dir()]
    assert len(indices) == 1


# size

_MEASURE = """
import resource, sys
from backpack_rank.data.documents import OffsetStore
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
store = OffsetStore(sys.argv[1])
found = store.get_many([f"passage-{index}" for index in range(0, 200_000, 1000)])
assert all(text.startswith(f"{key} says") for key, text in found.items()) and len(found) == 200
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_a_large_file_needs_few_bytes_of_memory_per_document(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    with open(path, "w") as handle:
        for index in range(200_000):
            handle.write(
                f'{{"_id": "passage-{index}", "text": "passage-{index} says {"word " * 60}"}}\n'
            )
    assert path.stat().st_size > 64e6
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    grown = int(done.stdout)
    # What SQLite holds and sorts in, rows of one write and the progress bar, not 70 MB of text
    assert grown < 28e6, f"grew by {grown / 1e6:.0f} MB in {time.perf_counter() - start:.1f} s"
