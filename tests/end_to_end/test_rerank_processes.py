"""A re-ranking with real processes: several of them, killed, racing, without room. Nothing is lost
or done twice. Two commands in one folder are part of tests/campaigns/rerank_kills.py.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import shutil
import signal
from itertools import chain
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from reranked import (
    LARGE,
    finished,
    reranked,
    run_bytes,
    score_times,
    start,
    wait_until,
    workers_of,
    write_large_run,
)
from workplace import Workplace

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.models.loading import load_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.shard_plan import Candidates, Sharding, make_plan
from backpack_rank.scale.shards import merge, score_shard

pytestmark = pytest.mark.processes
SHARDS = 40


@pytest.fixture(scope="module")
def rerank_options(trained: Workplace, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """6,000 pairs in 40 shards, at three alphas."""
    run = write_large_run(tmp_path_factory.mktemp("run") / "large.trec")
    return [f"run={run}", *LARGE, "alpha=[1,0.5,0]", f"shards={SHARDS}"]


@pytest.fixture(scope="module")
def expected_runs(
    trained: Workplace, rerank_options: list[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """The runs that one process writes."""
    folder = tmp_path_factory.mktemp("expected") / "one"
    reranked(trained, *rerank_options, f"folder={folder}")
    content = run_bytes(folder)
    assert {len(data.splitlines()) for data in content.values()} == {6000}
    return content


def kept(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether every file of scores that was there is there as it was."""
    return bool(before) and all(after[name] == stamp for name, stamp in before.items())


def test_workers_one_of_which_is_killed_and_replaced_write_the_bytes_that_one_writes(
    trained: Workplace, rerank_options: list[str], expected_runs: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(trained, *rerank_options, f"folder={tmp_path}", "workers=3")
    wait_until(lambda: len(score_times(tmp_path)) > 2, process)
    before = score_times(tmp_path)
    workers_of(process)[0].kill()
    output = finished(process)
    assert "was ended by signal 9; another one takes its place" in output
    assert kept(before, score_times(tmp_path))
    assert run_bytes(tmp_path) == expected_runs


def test_workers_end_with_a_killed_parent_and_the_same_command_goes_on(
    trained: Workplace, rerank_options: list[str], expected_runs: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(trained, *rerank_options, f"folder={tmp_path}", "workers=2")
    wait_until(lambda: len(score_times(tmp_path)) > 5, process)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    before = score_times(tmp_path)
    assert len(before) < SHARDS, "killed too late to test anything"
    finished(start(trained, *rerank_options, f"folder={tmp_path}", "workers=2"))
    assert kept(before, score_times(tmp_path))
    assert run_bytes(tmp_path) == expected_runs
    assert {path.name for path in tmp_path.iterdir()} == {"plan", "scores", "runs", "locks"}


def test_ctrl_c_says_what_is_kept(
    trained: Workplace, rerank_options: list[str], expected_runs: dict[str, bytes], tmp_path: Path
) -> None:
    for workers in (1, 2):
        for _ in range(25):
            process = start(trained, *rerank_options, f"folder={tmp_path}", f"workers={workers}")
            there = len(score_times(tmp_path))
            wait_until(lambda there=there: len(score_times(tmp_path)) > there, process)
            os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=600)
            if process.returncode != 0:
                break
            shutil.rmtree(tmp_path / "scores")  # it had ended before the signal came
        assert process.returncode == 130, output
        (line,) = [line for line in output.splitlines() if "stopped" in line]
        assert re.search(
            rf"stopped: \d+ of {SHARDS} shards are scored and kept in .*; the same command goes on",
            line,
        )
        assert "Traceback" not in output
    before = score_times(tmp_path)
    reranked(trained, *rerank_options, f"folder={tmp_path}")
    assert kept(before, score_times(tmp_path))
    assert run_bytes(tmp_path) == expected_runs


def test_a_killed_task_of_a_store_goes_on_elsewhere_with_what_it_has_put(
    trained: Workplace, rerank_options: list[str], expected_runs: dict[str, bytes], tmp_path: Path
) -> None:
    shared = [*rerank_options, f"store={tmp_path / 'store'}", "workers=1"]
    reranked(trained, *shared, f"folder={tmp_path / 'plan'}", "action=plan")
    tasks = [*shared, "action=score", "parts=2"]
    other = start(trained, *tasks, "part=0", f"folder={tmp_path / 'a'}")
    killed = start(trained, *tasks, "part=1", f"folder={tmp_path / 'b'}")
    wait_until(lambda: len(score_times(tmp_path / "store")) > 3, killed)
    killed.kill()
    killed.communicate()
    finished(other)
    before = score_times(tmp_path / "store")
    assert len(before) < SHARDS, "killed too late to test anything"
    reranked(trained, *tasks, "part=1", f"folder={tmp_path / 'c'}")
    assert kept(before, score_times(tmp_path / "store"))
    reranked(trained, *shared, "action=merge", f"folder={tmp_path / 'd'}")
    assert run_bytes(tmp_path / "d") == run_bytes(tmp_path / "store") == expected_runs


def test_a_command_waits_for_a_damaged_shard_that_another_one_is_at(
    trained: Workplace, rerank_options: list[str], expected_runs: dict[str, bytes], tmp_path: Path
) -> None:
    reranked(trained, *rerank_options, f"folder={tmp_path}")
    path = tmp_path / "scores" / "00007.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    shutil.rmtree(tmp_path / "runs")
    with FileLock(tmp_path / "locks" / "00007.lock"):
        process = start(trained, *rerank_options, f"folder={tmp_path}", "workers=1")
        output = iter(process.stdout)
        assert any("waiting for another process, which is at shards 7" in line for line in output)
        path.write_bytes(content)
    finished(process)
    assert run_bytes(tmp_path) == expected_runs


def test_without_room_a_sentence_says_what_is_kept(
    trained: Workplace, rerank_options: list[str], tmp_path: Path
) -> None:
    large = [*rerank_options[:-1], "shards=2", f"folder={tmp_path}"]  # 36 kB of scores in each
    reranked(trained, *large, "action=plan")

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    output = finished(
        start(trained, *large, "action=score", "workers=2", preexec_fn=little_room), 2
    )
    assert re.search(
        r"0000\d\.safetensors: no room for shard \d \(File too large\)\. What is scored is kept",
        output,
    )
    assert "Traceback" not in output
    assert list((tmp_path / "scores").iterdir()) == []
    reranked(trained, *large)
    assert set(run_bytes(tmp_path)) == {"alpha-1", "alpha-0.5", "alpha-0"}


def _score_all(folder: Path, ranker: Path, out: object) -> None:
    plan, sweep, collection = _plan(folder, ranker)
    out.put([number for number in range(len(plan)) if score_shard(plan, number, sweep, collection)])  # type: ignore[attr-defined]


def _plan(folder: Path, ranker: Path):
    collection = load_synthetic("test", test_queries=40, documents=150)
    sweep = AlphaSweep(PointwiseReranker(Scorer(*load_ranker(ranker))), [1.0, 0.0], "lowest_senses")
    pairs = [
        (query_id, doc_id) for query_id in collection.queries for doc_id, _ in collection.documents
    ]
    given = Candidates("all", lambda: iter(pairs), "one")
    tokenizer, fingerprint = sweep.scorer.pair_tokenizer, sweep.fingerprint(collection)
    labels = ("alpha-1", "alpha-0")
    return (
        make_plan(
            folder, given, collection, tokenizer, fingerprint, labels, sharding=Sharding(SHARDS)
        ),
        sweep,
        collection,
    )


def test_racing_processes_score_every_shard_once(trained: Workplace, tmp_path: Path) -> None:
    """Also the plan: all of them make it at once."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    ranker = trained.newest("train") / "ranker"
    processes = [context.Process(target=_score_all, args=(tmp_path, ranker, out)) for _ in range(3)]
    for process in processes:
        process.start()
    scored = [out.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(chain.from_iterable(scored)) == list(range(SHARDS))
    merge(_plan(tmp_path, ranker)[0])


def test_a_defect_of_a_worker_is_no_silence(
    trained: Workplace, rerank_options: list[str], tmp_path: Path
) -> None:
    reranked(trained, *rerank_options, f"folder={tmp_path}", "action=plan")
    path = tmp_path / "plan" / "00003.tsv"
    path.write_bytes(path.read_bytes()[:-9])
    output = finished(start(trained, *rerank_options, f"folder={tmp_path}", "workers=2"), 2)
    assert "00003.tsv is damaged" in output
    assert "Traceback" not in output
