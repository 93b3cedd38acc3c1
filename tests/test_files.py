"""Results are complete or absent: whatever goes wrong while writing, the old result stays."""

from __future__ import annotations

import errno
import gzip
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backpack_rank.files import atomic_path, cache_dir, hub_or_folder, open_text, write_text


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


def test_the_cache_folder_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    assert cache_dir().is_dir()


@pytest.mark.parametrize("name", ["gpt2", "stanfordnlp/backpack-gpt2", "Qwen/Qwen3-0.6B"])
def test_a_hub_id_is_left_as_it_is(name: str) -> None:
    assert hub_or_folder(name) == name


@pytest.mark.parametrize("name", ["/no/such/model", "./ranker", "../ranker", "outputs/train/ranker", "~/ranker"])
def test_a_path_to_nowhere_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(f"{name}: there is no such folder")):
        hub_or_folder(name)


def test_a_folder_may_be_relative_or_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outputs" / "train" / "ranker").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("outputs/train/ranker", "./outputs", Path("outputs", "train")):
        assert hub_or_folder(name) == str(name)
    assert hub_or_folder("~/outputs") == str(tmp_path / "outputs")
