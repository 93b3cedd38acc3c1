"""A function of the command line, ``policy.write=module:function``, in a large re-ranking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reranked import PROGRAM, run_bytes
from saved_rankers import FIXTURES
from workplace import ROOT

pytestmark = pytest.mark.processes
WRITE = """
def write(text, group):
    return text.replace("colour", "color") if group == "us" else text.replace("color", "colour")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the function, a collection of three documents, and a run."""
    (tmp_path / "mywords.py").write_text(WRITE)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    texts = {"d1": "the colour of a house", "d2": "color and colours", "d3": "a nurse"}
    queries = {"q1": "which color", "q2": "a doctor"}
    for name, lines in (("corpus", texts), ("queries", queries)):
        rows = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in lines.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    rows = [f"q{q} Q0 d{d} {d} {-d} first\n" for q in (1, 2) for d in (1, 2, 3)]
    (tmp_path / "first.trec").write_text("".join(rows))
    return tmp_path


def reranked(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What a process of its own says."""
    given = [
        f"checkpoint={FIXTURES / 'backpack'}",
        "data=beir",
        f"data.folder={place}",
        "run=first.trec",
        "alpha=[1,0]",
        "policy=renditions",
        "policy.write=mywords:write",
        "policy.groups=[us,uk]",
        "shards=2",
        *options,
    ]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "rerank", *given],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BACKPACK_RANK_CACHE": str(place / "cache")},
        capture_output=True,
        text=True,
    )


def test_a_plan_serves_other_processes_until_the_function_changes(place: Path) -> None:
    for options in (["action=plan"], ["action=score"], ["action=merge"]):
        done = reranked(place, "folder=out", "workers=1", *options)
        assert done.returncode == 0, done.stderr
    assert set(run_bytes(place / "out")) == {"alpha-1", "alpha-0"}
    (place / "mywords.py").write_text(WRITE.replace("colour", "tint"))
    done = reranked(place, "folder=out", "workers=1")
    assert done.returncode == 2
    assert "holds the plan of another re-ranking; it differs in what the policy does" in done.stderr


def test_workers_get_the_functions_that_were_typed(place: Path) -> None:
    for workers in (1, 2):
        done = reranked(place, f"folder=by{workers}", f"workers={workers}")
        assert done.returncode == 0, done.stderr
    assert run_bytes(place / "by2") == run_bytes(place / "by1")
