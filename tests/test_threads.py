"""While they wait, threads of a command sleep early, unless the user's environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workplace import SMALL, Workplace

ROOT = Path(__file__).resolve().parents[1]
WAIT = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
LIBGOMP_SAYS = r"""
import ctypes, os, sys
from backpack_rank._threads import choice, sleep_early
sleep_early()
os.environ["OMP_DISPLAY_ENV"] = "verbose"
import torch
print(choice())
"""


def looks(**environment: str) -> tuple[str, str]:
    """The number that libgomp itself says it took from the environment, and the log's sentence."""
    bare = {name: value for name, value in os.environ.items() if name not in WAIT}
    done = subprocess.run(
        [sys.executable, "-c", LIBGOMP_SAYS],
        env={**bare, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stderr.splitlines():
        if "GOMP_SPINCOUNT" in line:
            return line.split("'")[1], done.stdout.strip()
    pytest.skip("torch has another OpenMP here")


@pytest.mark.slow
def test_libgomp_takes_the_number_of_looks_that_is_set_before_torch_is_imported() -> None:
    number, sentence = looks()
    assert number == "3000"
    assert sentence.endswith("GOMP_SPINCOUNT=3000")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "number"),
    [({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
)
def test_the_users_own_setting_wins(environment, number) -> None:
    taken, sentence = looks(**environment)
    assert taken == number
    ((name, value),) = environment.items()
    assert sentence.endswith(f"as the environment says: {name}={value}")


@pytest.mark.slow
def test_a_program_that_has_imported_torch_keeps_its_environment() -> None:
    program = (
        "import os, torch\n"
        "from backpack_rank._threads import choice, sleep_early\n"
        "sleep_early()\n"
        "assert 'GOMP_SPINCOUNT' not in os.environ\n"
        "assert choice().endswith('torch was imported before')\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in WAIT}
    subprocess.run(
        [sys.executable, "-c", program], env={**bare, "PYTHONPATH": str(ROOT)}, check=True
    )


@pytest.mark.slow
def test_the_log_of_a_training_says_how_its_threads_wait(tmp_path: Path, monkeypatch) -> None:
    for name in WAIT:
        monkeypatch.delenv(name, raising=False)
    place = Workplace(tmp_path)
    place.run("train.py", *SMALL, "training.epochs=1")
    assert "GOMP_SPINCOUNT=3000" in (place.newest("train") / "train.log").read_text()
