"""A few kills of the campaign; ``python -m tests.campaigns.rerank_kills`` makes many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
def test_killed_re_rankings_recover_to_the_bytes_of_uninterrupted_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.campaigns.rerank_kills", "--kills", "6", "--seed", "1"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "kept"), "--json", str(tmp_path / "found.json")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failures"] == []
    assert found["recovered"] >= 6
