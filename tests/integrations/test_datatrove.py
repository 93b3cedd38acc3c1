"""``engine=datatrove``: its local executor scores the same shards to the same bytes, and only those
that are open.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from in_process import configured
from reranked import run_bytes, score_times
from saved_rankers import FIXTURES
from workplace import ROOT

from backpack_rank.scale.rerank import rerank

pytest.importorskip("datatrove")
pytestmark = pytest.mark.packaging


@pytest.fixture
def rerank_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Six queries of four documents each, in a folder in BEIR's layout and a run."""
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    texts = {f"d{n}": f"He said that a doctor and {n} nurses rewire her house." for n in range(4)}
    for name, lines in (
        ("corpus", texts),
        ("queries", {f"q{n}": f"who is nurse {n}" for n in range(6)}),
    ):
        rows = (json.dumps({"_id": key, "text": text}) + "\n" for key, text in lines.items())
        (data / f"{name}.jsonl").write_text("".join(rows))
    judged = "".join(f"q{n}\td1\t1\n" for n in range(6))
    (data / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    run = "".join(f"q{q} Q0 d{d} {d + 1} {-d} first\n" for q in range(6) for d in range(4))
    (tmp_path / "first.trec").write_text(run)
    given = [
        "data=beir",
        f"data.folder={data}",
        f"run={tmp_path / 'first.trec'}",
        "alpha=[1,0]",
        "shards=6",
    ]
    return [f"checkpoint={FIXTURES / 'backpack'}", *given]


def done(*options: str) -> Path:
    return rerank(configured("rerank", *options))


@pytest.mark.parametrize("workers", [1, 2])
def test_its_local_executor_writes_the_bytes_of_ours(
    rerank_options: list[str], workers: int, tmp_path: Path
) -> None:
    by_our_workers = done(*rerank_options, f"folder={tmp_path / 'own'}", "workers=1")
    theirs = done(
        *rerank_options, f"folder={tmp_path / 'theirs'}", f"workers={workers}", "engine=datatrove"
    )
    assert run_bytes(theirs) == run_bytes(by_our_workers)
    assert len(run_bytes(by_our_workers)["alpha-0"].splitlines()) == 24
    assert (theirs / "datatrove" / "logs").is_dir()


def test_after_an_error_only_what_is_open_is_scored(
    rerank_options: list[str], tmp_path: Path
) -> None:
    rerank_options = [
        *rerank_options,
        f"folder={tmp_path / 'one'}",
        "engine=datatrove",
        "workers=1",
    ]
    folder = done(*rerank_options, "action=plan")
    pairs = folder / "plan" / "00003.tsv"
    content = pairs.read_bytes()
    pairs.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"00003\.tsv is damaged"):
        done(*rerank_options)
    before = score_times(folder)
    assert set(before) == {f"0000{number}.safetensors" for number in range(3)}
    pairs.write_bytes(content)
    done(*rerank_options)
    after = score_times(folder)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before


def test_options_that_an_executor_does_not_take_are_named(
    rerank_options: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"executor_options: .*partition"):
        done(
            *rerank_options,
            f"folder={tmp_path / 'one'}",
            "engine=datatrove",
            "+executor_options.partition=cpu",
        )


SBATCH = """#!/bin/bash
# Runs the tasks of a job array one after the other, in place of a cluster.
script="${@: -1}"
cp "$script" "$0.$(ls $0.* 2>/dev/null | wc -l)"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
export SLURM_NODELIST=localhost RUN_OFFSET=0
for task in $(seq 0 $last); do
    SLURM_ARRAY_TASK_ID=$task bash "$script" >> "$0.log" 2>&1 || { cat "$0.log" >&2; exit 1; }
done
echo "Submitted batch job 1"
"""


def test_a_job_array_of_slurm_scores_a_shard_in_each_task(
    rerank_options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs are real processes that get only what datatrove saved for them; the cluster is a
    script.
    """
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    scontrol = tmp_path / "bin" / "scontrol"  # show hostnames LIST
    scontrol.write_text('#!/bin/sh\necho "$3"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv(
        "PATH", f"{sbatch.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    rerank_options = [*rerank_options[:-1], "shards=2", f"folder={tmp_path / 'one'}"]
    done(*rerank_options, "action=plan")
    slurm = ["engine=datatrove", "executor=slurm", "workers=8"]
    slurm += [
        f"+executor_options.{option}"
        for option in ("partition=cpu", "time='10:00:00'", "with_srun=false")
    ]
    with pytest.raises(ValueError, match="executor=slurm only hands jobs in"):
        done(*rerank_options, *slurm)
    folder = done(*rerank_options, *slurm, "action=score")
    assert len(score_times(folder)) == 2, (tmp_path / "bin" / "sbatch.log").read_text()
    script = (tmp_path / "bin" / "sbatch.0").read_text()
    assert "#SBATCH --array=0-1%8" in script
    assert "#SBATCH --partition=cpu" in script
    done(*rerank_options, "action=merge")
    assert len(run_bytes(folder)["alpha-0"].splitlines()) == 24
