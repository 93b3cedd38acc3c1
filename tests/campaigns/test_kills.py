"""A few kills of the campaign; ``python -m tests.campaigns.kills`` makes many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
def test_killed_commands_recover_to_the_results_of_uninterrupted_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.campaigns.kills", "--kills", "6", "--seed", "1"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "kept"), "--json", str(tmp_path / "found.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failures"] == []
    assert sum(count["recovered"] for count in found["commands"].values()) >= 6
