"""What campaigns of kills share: their command line, and a few kills of one as a test."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def main(
    description: str | None,
    campaign: Callable[[int, int, Path], dict],
    show: Callable[[dict], object],
) -> None:
    """Run a campaign as its command line asks; status 1 when a kill was not recovered from.

    Args:
        description: for ``--help``.
        campaign: gives figures and ``failures`` of so many kills with a seed, in a folder.
        show: prints the figures.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument(
        "--keep", type=Path, help="work in this folder, and keep the rounds that failed"
    )
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    begun = time.monotonic()
    results = campaign(options.kills, options.seed, folder)
    results["minutes"] = round((time.monotonic() - begun) / 60, 1)
    if options.keep is None:
        shutil.rmtree(folder)
    show(results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    raise SystemExit(1 if results["failures"] else 0)


def few(name: str, folder: Path) -> dict[str, Any]:
    """The figures of six kills of ``tests/campaigns/NAME.py``, all of which must be recovered from."""
    command = [sys.executable, "-m", f"tests.campaigns.{name}", "--kills", "6", "--seed", "1"]
    done = subprocess.run(
        [*command, "--keep", str(folder / "kept"), "--json", str(folder / "found.json")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert results["failures"] == []
    return results
