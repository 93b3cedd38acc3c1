"""The cache on disk: filled once, whole or absent, bounded, and keyed by all that matters."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from backpack_rank.senses.cache import GB, SenseCache, weights_digest

SHAPE = (5, 2, 3)
BYTES = 5 * 2 * 3 * 4


def ones(array):
    array[:] = 1


def never(array):
    raise AssertionError("filled again")


def names(folder):
    """All but locks and seals."""
    return sorted(path.name for path in folder.iterdir() if path.suffix not in (".lock", ".seal"))


def bounded(folder, entries):
    """A cache with room for so many entries (a .npy header is 128 bytes)."""
    return SenseCache(folder, max_gb=entries * (BYTES + 128) / GB)


def test_an_array_is_filled_once_and_read_back(tmp_path):
    cache = SenseCache(tmp_path / "cache")
    values = np.arange(30, dtype=np.float32).reshape(SHAPE)

    def fill(array):
        array[:] = values

    first = cache.get("key", SHAPE, "float32", fill)
    again = cache.get("key", SHAPE, "float32", never)
    for array in (first, again, np.load(tmp_path / "cache" / "key.npy")):
        np.testing.assert_array_equal(array, values)
    assert not again.flags.writeable
    assert not first.flags.writeable
    assert (tmp_path / "cache" / "key.npy").stat().st_size == BYTES + 128


def test_half_precision_takes_half_the_space(tmp_path):
    array = SenseCache(tmp_path).get("key", SHAPE, "float16", ones)
    assert array.dtype == np.float16
    assert (tmp_path / "key.npy").stat().st_size == BYTES // 2 + 128


def test_other_keys_are_other_arrays(tmp_path):
    cache = SenseCache(tmp_path)
    cache.get("one", SHAPE, "float32", ones)
    two = cache.get("two", SHAPE, "float32", lambda array: array.fill(2))
    assert two.min() == 2
    assert cache.get("one", SHAPE, "float32", never).max() == 1


def test_no_rows_are_an_empty_array(tmp_path):
    assert SenseCache(tmp_path).get("key", (0, 2, 3), "float32", lambda array: None).shape == (
        0,
        2,
        3,
    )


def _job(folder):
    def fill(array):
        with open(Path(folder) / "fills.txt", "a") as handle:
            handle.write("filled\n")
        time.sleep(0.3)
        array[:] = 7

    array = SenseCache(Path(folder) / "cache").get("key", SHAPE, "float32", fill)
    return float(array.min()), float(array.max())


@pytest.mark.slow
def test_parallel_jobs_fill_an_array_once(tmp_path):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        results = pool.map(_job, [str(tmp_path)] * 4, chunksize=1)
    assert results == [(7.0, 7.0)] * 4
    assert (tmp_path / "fills.txt").read_text() == "filled\n"


def _crowd(arguments):
    """Ask for three keys in turn where only one has room, so that each job removes what others have
    just made.
    """
    folder, seed = arguments
    for turn in range(12):
        number = (turn + seed) % 3
        array = bounded(Path(folder), 1).get(
            str(number), SHAPE, "float32", lambda array, n=number: array.fill(n)
        )
        if array.min() != number or array.max() != number:
            return "wrong array"
    return "ok"


def test_parallel_jobs_that_make_room_for_each_other_all_get_their_arrays(tmp_path):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert (
            pool.map(_crowd, [(str(tmp_path), seed) for seed in range(4)], chunksize=1)
            == ["ok"] * 4
        )


def test_an_error_while_filling_leaves_nothing_and_the_next_call_works(tmp_path):
    cache = SenseCache(tmp_path)

    def fail(array):
        array[:2] = 1
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        cache.get("key", SHAPE, "float32", fail)
    assert names(tmp_path) == []
    assert cache.get("key", SHAPE, "float32", ones).min() == 1


KILLED = """
import sys, time
from pathlib import Path
from backpack_rank.senses.cache import SenseCache

def fill(array):
    array[:] = 3
    print("filling", flush=True)
    time.sleep(60)

SenseCache(Path(sys.argv[1])).get("key", (5, 2, 3), "float32", fill)
"""


@pytest.mark.slow
@pytest.mark.parametrize("next_key", ["key", "other"])
def test_a_job_killed_while_filling_leaves_no_array_and_its_space_is_freed(tmp_path, next_key):
    job = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout.readline() == "filling\n"
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    job.stdout.close()
    assert len(names(tmp_path)) == 1
    assert not (tmp_path / "key.npy").exists()
    array = SenseCache(tmp_path).get(next_key, SHAPE, "float32", ones)
    assert array.min() == array.max() == 1
    assert names(tmp_path) == [f"{next_key}.npy"]


FULL = """
import resource, signal, sys
from pathlib import Path
from backpack_rank.senses.cache import SenseCache

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(SenseCache(Path(sys.argv[1])).get("key", (1000, 2, 3), "float32", lambda array: array.fill(1)))
"""


@pytest.mark.slow
def test_without_space_the_cache_is_left_out_with_a_warning_and_leaves_nothing(tmp_path):
    job = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert job.stdout == "None\n"
    (line,) = job.stderr.splitlines()
    assert "every alpha is a pass of its own" in line
    assert f"{tmp_path / 'key.npy'} could not be written: File too large" in line
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_leaves_the_cache_out(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert SenseCache(tmp_path / "file" / "senses").get("key", SHAPE, "float32", never) is None
    assert "cache.folder=FOLDER keeps it elsewhere" in caplog.text


def test_an_error_of_what_fills_is_not_the_caches(tmp_path):
    def fail(array):
        raise OSError("the documents are gone")

    with pytest.raises(OSError, match="the documents are gone"):
        SenseCache(tmp_path).get("key", SHAPE, "float32", fail)
    assert names(tmp_path) == []


@pytest.mark.parametrize("harm", ["cut", "zeroed", "empty", "one bit", "no seal"])
def test_a_damaged_array_is_filled_again_with_one_line(tmp_path, caplog, harm):
    cache, path = SenseCache(tmp_path), tmp_path / "key.npy"
    cache.get("key", SHAPE, "float32", ones)
    data = bytearray(path.read_bytes())
    if harm == "no seal":
        (tmp_path / "key.npy.seal").unlink()
    else:
        data[200] ^= 1
        path.write_bytes(
            {"cut": data[:-8], "zeroed": bytes(len(data)), "empty": b"", "one bit": data}[harm]
        )
    array = cache.get("key", SHAPE, "float32", lambda array: array.fill(2))
    assert array.min() == array.max() == 2
    assert caplog.text.count("is damaged") == 1
    assert cache.get("key", SHAPE, "float32", never).max() == 2


def test_entries_used_longest_ago_make_room(tmp_path):
    cache = bounded(tmp_path, 3)
    held = cache.get("a", SHAPE, "float32", ones)
    for age, key in ((300, "a"), (200, "b"), (100, "c")):
        cache.get(key, SHAPE, "float32", ones)
        os.utime(tmp_path / f"{key}.npy", (time.time() - age,) * 2)
    cache.get("a", SHAPE, "float32", never)  # now "b" is the one used longest ago
    cache.get("d", SHAPE, "float32", ones)
    assert names(tmp_path) == ["a.npy", "c.npy", "d.npy"]
    cache.get("e", SHAPE, "float32", ones)
    cache.get("f", SHAPE, "float32", ones)
    assert names(tmp_path) == ["d.npy", "e.npy", "f.npy"]
    assert held.min() == 1, "an array that is in use stays readable"


def test_an_array_larger_than_the_whole_cache_is_not_kept(tmp_path, caplog):
    cache = bounded(tmp_path, 2)
    cache.get("a", SHAPE, "float32", ones)
    assert cache.get("large", (50, 2, 3), "float32", never) is None
    assert names(tmp_path) == ["a.npy"]
    assert "cache.max_gb" in caplog.text


def test_the_digest_of_weights_changes_with_any_of_them(make_backpack):
    ranker = make_backpack()
    first = weights_digest(ranker)
    assert weights_digest(make_backpack()) == first
    assert weights_digest(make_backpack(seed=1)) != first
    with torch.no_grad():
        ranker.backpack.backbone.ln_f.bias[-1] += 1e-6
    assert weights_digest(ranker) != first
    assert (
        len(
            {
                weights_digest(make_backpack(dtype=dtype))
                for dtype in (torch.float32, torch.bfloat16)
            }
        )
        == 2
    )
