"""Benchmarks as a user runs them, each forked from a process that has imported the package."""

from __future__ import annotations

import os

from forked import run_forked
from workplace import ROOT


def run(name: str, *options: str) -> str:
    """``python -m benchmarks.NAME``: what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = run_forked(f"benchmarks/{name}.py", list(options), ROOT, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
