"""Results are complete or absent: whatever goes wrong while writing, the old result stays."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from backpack_rank.files import (
    atomic_path,
    cache_dir,
    damage,
    hub_or_folder,
    intact,
    open_text,
    remove_leftovers,
    write_text,
)


def _disk_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _write_half_a_file(target: Path) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half of the n")
        _disk_full()


def _write_to_a_full_device(target: Path) -> None:
    with atomic_path(target) as temporary:
        temporary.symlink_to("/dev/full")
        with open(temporary, "w") as handle:
            handle.write("new")


def _write_folder(target: Path, *, complete: bool) -> None:
    with atomic_path(target) as temporary:
        temporary.mkdir()
        (temporary / "weights").write_text("new")
        if not complete:
            _disk_full()


def test_a_full_disk_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "run.trec"
    target.write_text("old")
    with pytest.raises(OSError, match="No space left"):
        _write_half_a_file(target)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.trec"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_device_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "run.trec"
    target.write_text("old")
    with pytest.raises(OSError, match="No space left"):
        _write_to_a_full_device(target)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.trec"]


def test_an_error_leaves_the_old_folder_and_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "ranker"
    target.mkdir()
    (target / "weights").write_text("old")
    with pytest.raises(OSError, match="No space left"):
        _write_folder(target, complete=False)
    assert (target / "weights").read_text() == "old"
    assert os.listdir(tmp_path) == ["ranker"]


def test_a_folder_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "previous"  # also when its name could clash with a helper's
    for text in ("old", "new"):
        with atomic_path(target) as temporary:
            temporary.mkdir()
            (temporary / text).write_text(text)
    assert [path.name for path in target.iterdir()] == ["new"]
    assert os.listdir(tmp_path) == ["previous"]


def test_the_previous_folder_is_put_back_when_the_last_step_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "ranker"
    target.mkdir()
    (target / "weights").write_text("old")
    real, calls = os.replace, []

    def second_fails(source: object, destination: object) -> None:
        calls.append(source)
        if len(calls) == 2:
            _disk_full()
        real(source, destination)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="No space left"):
        _write_folder(target, complete=True)
    assert (target / "weights").read_text() == "old"
    assert os.listdir(tmp_path) == ["ranker"]


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "run.trec"
    target.write_text("old")
    script = (
        "import os, signal, sys\n"
        "from backpack_rank.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half of the n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"


def test_gzip_by_name_round_trips_and_equal_text_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_text(tmp_path / name, "Grüße\n")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == "Grüße\n"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    with open_text(tmp_path / "a.gz") as handle:
        assert handle.read() == "Grüße\n"


def test_the_cache_folder_is_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    assert not cache_dir().exists()  # whoever writes to it makes it


@pytest.mark.parametrize("name", ["gpt2", "stanfordnlp/backpack-gpt2", "Qwen/Qwen3-0.6B"])
def test_a_hub_id_is_left_as_it_is(name: str) -> None:
    assert hub_or_folder(name) == name


@pytest.mark.parametrize(
    "name", ["/no/such/model", "./ranker", "../ranker", "outputs/train/ranker", "~/ranker"]
)
def test_a_path_to_nowhere_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(f"{name}: there is no such folder")):
        hub_or_folder(name)


def test_a_folder_may_be_relative_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outputs" / "train" / "ranker").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("outputs/train/ranker", "./outputs", Path("outputs", "train")):
        assert hub_or_folder(name) == str(name)
    assert hub_or_folder("~/outputs") == str(tmp_path / "outputs")


def _sealed_file(path: Path, data: bytes = b"0123456789") -> Path:
    with atomic_path(path, sealed=True) as temporary:
        temporary.write_bytes(data)
    return path


def _sealed_folder(path: Path) -> Path:
    with atomic_path(path, sealed=True) as temporary:
        (temporary / "parts").mkdir(parents=True)
        (temporary / "parts" / "one").write_bytes(b"0123456789")
        (temporary / "empty").touch()
    return path


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "harm", [_cut, _zero, _flip, Path.unlink, lambda path: path.write_bytes(b"")]
)
@pytest.mark.parametrize("which", ["data", "seal"])
def test_any_damage_to_a_sealed_file_or_folder_is_seen_and_makes_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], object], which: str
) -> None:
    file, folder = _sealed_file(tmp_path / "senses.npy"), _sealed_folder(tmp_path / "index")
    assert damage(file) is None
    assert damage(folder) is None
    assert intact(file)
    assert intact(folder)
    harm(file if which == "data" else tmp_path / "senses.npy.seal")
    harm(folder / "parts" / "one" if which == "data" else folder / "seal.json")
    for path in (file, folder):
        there = path.exists()
        assert not intact(path)
        assert not path.exists()
        assert caplog.text.count(f"{path} is damaged") == there
        assert not intact(path), "what is gone is no damage"
        assert caplog.text.count(f"{path} is damaged") == there
    assert intact(_sealed_file(tmp_path / "senses.npy", b"anew"))


def test_the_checksum_is_xxh3(tmp_path: Path) -> None:
    seal = json.loads((_sealed_folder(tmp_path / "index") / "seal.json").read_text())
    # Of nothing: the published test vector of XXH3_64bits.
    assert seal == {
        "empty": [0, "2d06800538d394c2"],
        "parts/one": [10, xxhash.xxh3_64(b"0123456789").hexdigest()],
    }


def test_a_kill_between_seal_and_file_counts_as_damage(tmp_path: Path) -> None:
    path = _sealed_file(tmp_path / "senses.npy")
    other = _sealed_file(tmp_path / "other" / "senses.npy", b"of the next version")
    os.replace(other.with_name("senses.npy.seal"), path.with_name("senses.npy.seal"))
    assert damage(path) == "senses.npy has 10 bytes in place of 19"


def test_leftovers_of_a_killed_process_go_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    script = (
        "import os, signal, sys\n"
        "from backpack_rank.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.mkdir()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run" / "checkpoints" / "ranker")],
        check=False,
    )
    assert len(os.listdir(tmp_path / "run" / "checkpoints")) == 1
    assert remove_leftovers(tmp_path) == 1
    assert os.listdir(tmp_path / "run" / "checkpoints") == []
    assert (tmp_path / "run" / ".hydra").is_dir()


def test_who_has_the_lock_of_a_file_clears_what_a_killed_process_left_of_it(tmp_path: Path) -> None:
    for name in (".index[1].ab12.tmp", ".index[1]2.ab12.tmp", ".other.ab12.tmp"):
        (tmp_path / name).mkdir()
    assert not intact(tmp_path / "index[1]")
    assert sorted(os.listdir(tmp_path)) == [".index[1]2.ab12.tmp", ".other.ab12.tmp"]


LIMITED = """
import resource, signal, sys
from backpack_rank.files import DiskFullError, write_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
try:
    write_text(sys.argv[1], "x" * 5_000_000)
except DiskFullError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("folder", "option"), [("outputs", "output=FOLDER"), ("cache", "BACKPACK_RANK_CACHE=FOLDER")]
)
def test_no_space_is_one_sentence_with_file_size_and_what_to_do(
    tmp_path: Path, folder: str, option: str
) -> None:
    target = tmp_path / folder / "runs" / "a.run"
    environment = {**os.environ, "BACKPACK_RANK_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(target)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith(
        f"{target} could not be written: File too large (2 MB of it were written, "
    )
    assert line.endswith(f"or give {option} on another disk")
    assert os.listdir(target.parent) == []
