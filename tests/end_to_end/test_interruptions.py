"""train.py and evaluate.py are stopped by signals, kills and a full disk, say so in a line, and go
on.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import ForkedWorkplace
from in_process import composed, evaluated
from workplace import ROOT, SMALL, Workplace

from backpack_rank.files import LAST, UNFINISHED
from backpack_rank.pipelines.evaluate import has_results
from backpack_rank.reporting.sweep import collect_sweep

ELSEWHERE = "output=FOLDER or cache.folder=FOLDER on another disk"
SWEEP = ["-m", "alpha=1,0.5,0", "policy=uniform", "swap=false"]


def started(
    place: Workplace, script: str, *options: str, limit: int | None = None
) -> subprocess.Popen[str]:
    """A script whose output is read; ``limit``: bytes that a file may have, as on a disk that is
    full from there on.
    """

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, str(ROOT / script), *options, f"output={place.output}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=place.environment(), preexec_fn=limited, **pipes)


def stopped_when(
    process: subprocess.Popen[str], number: int, look: Callable[[], object]
) -> tuple[int, str]:
    """Exit code and what was said, of a process that gets a signal as soon as ``look`` finds
    something.
    """
    while not look():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    return process.returncode, out + err


def marked(place: Workplace, kind: str) -> list[Path]:
    return [path.parent for path in (place.output / kind).rglob(UNFINISHED) if path.stat().st_size]


@pytest.fixture(autouse=True)
def nothing_left_unfinished(trained: Workplace) -> None:
    """Tests of other files stop evaluations in the same workplace, too."""
    for kind in ("train", "evaluate", "sweep"):
        for folder in marked(trained, kind):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.processes
def test_an_evaluation_that_is_stopped_says_one_line_and_goes_on(trained: Workplace) -> None:
    process = started(trained, "evaluate.py", "alpha=0.7")
    code, output = stopped_when(process, signal.SIGINT, lambda: marked(trained, "evaluate"))
    assert code == 130
    assert output.splitlines()[-1].startswith("Ctrl-C: stopped; ")
    assert "Traceback" not in output
    (folder,) = marked(trained, "evaluate")
    assert f"resume={folder}" in output
    ForkedWorkplace(trained.folder).run("evaluate.py", "alpha=0.7", "resume=true")
    assert not marked(trained, "evaluate")
    report = json.loads((folder / "measures.json").read_text())
    assert [system["label"] for system in report["systems"]][-1] == "alpha=0.7"
    assert (trained.output / "latest" / "evaluate").resolve() == folder.resolve()


@pytest.mark.processes
def test_a_killed_sweep_keeps_its_jobs_and_goes_on_with_those_that_are_missing(
    trained: Workplace,
) -> None:
    first = "*/alpha-1*/measures.json"
    process = started(trained, "evaluate.py", *SWEEP)
    stopped_when(process, signal.SIGKILL, lambda: list((trained.output / "sweep").glob(first)))
    (folder,) = [path for path in marked(trained, "sweep") if path.parent.name == "sweep"]
    jobs = {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/measures.json")}
    unfinished = {path.name for path in marked(trained, "sweep")}
    done = ForkedWorkplace(trained.folder).run("evaluate.py", "resume=true")
    assert not marked(trained, "sweep")
    after = {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/measures.json")}
    assert len(after) == 3
    assert {
        name for name, written in jobs.items() if after[name] == written
    } == jobs.keys() - unfinished
    assert (folder / "report.html").is_file()
    assert len(json.loads((folder / "sweep.json").read_text())["systems"]) == 4, done.stdout
    assert "nothing to resume" in ForkedWorkplace(trained.folder).fails(
        "evaluate.py", *SWEEP, "resume=true"
    )


@pytest.mark.processes
def test_a_training_is_not_resumed_while_it_lives_and_ends_with_one_line(tmp_path: Path) -> None:
    place = ForkedWorkplace(tmp_path)
    options = [*SMALL, "training.epochs=300", "training.patience=300"]
    process = started(place, "train.py", *options)

    def refused() -> bool:
        if not list(place.output.glob(f"train/*/{LAST}")):
            return False
        output = place.fails("train.py", *options, "resume=true")
        assert (
            f"is not interrupted: process {process.pid} on {os.uname().nodename} is at work on it"
            in output
        )
        return True

    code, output = stopped_when(process, signal.SIGTERM, refused)
    assert code == 143
    assert "SIGTERM: stopped; " in output
    assert "keeps all up to its last whole epoch; go on with: python train.py resume=" in output
    assert "Traceback" not in output
    assert not list(place.output.glob("train/*/ranker"))


@pytest.mark.processes
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    place = ForkedWorkplace(tmp_path)
    process = started(place, "train.py", *SMALL, limit=200_000)
    out, err = process.communicate(timeout=300)
    sentences = [line for line in (out + err).splitlines() if "could not be written" in line]
    assert process.returncode != 0
    assert len(sentences) == 1
    assert "bytes of it were written" in sentences[0] or "kB of it were written" in sentences[0]
    assert "output=FOLDER on another disk" in sentences[0]
    assert "Traceback" not in out + err
    (folder,) = marked(place, "train")
    place.run("train.py", *SMALL, "resume=true")
    assert (folder / "ranker" / "model.safetensors").is_file()
    assert not marked(place, "train")


@pytest.mark.processes
@pytest.mark.parametrize("several", [[], ["-m", "seed=0,1"]])
def test_a_disk_that_is_full_for_the_first_files_is_one_sentence(
    tmp_path: Path, several: list[str]
) -> None:
    """The mark finds room, the configuration that Hydra writes does not."""
    place = Workplace(tmp_path)
    process = started(place, "train.py", *SMALL, *several, limit=1_500)
    out, err = process.communicate(timeout=300)
    (folder,) = marked(place, "train")
    assert process.returncode == 2
    assert out == ""
    assert (
        err
        == f"{folder} could not be written: File too large; free some space, or give {ELSEWHERE}\n"
    )


@pytest.mark.slow
def test_an_evaluation_goes_on_without_a_cache_that_cannot_be_made(
    trained: Workplace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = (f"checkpoint={trained.newest('train')}", "alpha=0.5", "policy=uniform", "swap=false")
    (
        tmp_path / "cache"
    ).touch()  # a file, where a folder would be made: root may write to a read-only one
    evaluated(Workplace(tmp_path), tmp_path / "without", *options)
    assert "the cache of sense vectors is left out" in caplog.text
    evaluated(trained, tmp_path / "with", *options)
    with_cache, without = (tmp_path / name / "per_query.csv" for name in ("with", "without"))
    assert with_cache.read_bytes() == without.read_bytes()


@pytest.mark.slow
def test_a_job_is_kept_when_its_options_and_its_ranker_are_the_same(
    trained: Workplace, tmp_path: Path
) -> None:
    options = ["alpha=0.2", "policy=uniform", "swap=false"]
    assert not has_results(composed(trained, *options), tmp_path)
    evaluated(trained, tmp_path, *options)
    assert has_results(composed(trained, *options), tmp_path)
    assert not has_results(composed(trained, "alpha=0.3", *options[1:]), tmp_path)
    os.utime(tmp_path / "config.yaml", (0, 0))  # older than the ranker
    assert not has_results(composed(trained, *options), tmp_path)


@pytest.mark.slow
def test_an_unfinished_job_is_named_and_left_out_of_a_sweep(
    trained: Workplace, tmp_path: Path
) -> None:
    for alpha in ("1", "0"):
        evaluated(trained, tmp_path / f"alpha-{alpha}", f"alpha={alpha}", "swap=false")
    (tmp_path / "alpha-0" / UNFINISHED).touch()
    sweep = collect_sweep(tmp_path)
    assert sweep.failed == ("alpha-0",)
    assert {entry.job for entry in sweep.entries} == {"alpha-1"}
