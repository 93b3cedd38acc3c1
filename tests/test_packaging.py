"""The wheel holds everything: a command, conf/ and lexicons/, outside a checkout."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path

import httpx
import pytest
from rerank_servers import wait_for

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.packaging


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, over the packages of the one that runs the
    tests.
    """
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        ROOT,
        folder=folder,
    )
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
    (site_packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    here = Path(next(path for path in sys.path if path.endswith("site-packages")))
    # Packages alone: the .pth file of an editable install would put the checkout before the wheel.
    for package in here.iterdir():
        if (
            package.suffix != ".pth"
            and not (site_packages / package.name).exists()
            and "backpack" not in package.name
        ):
            (site_packages / package.name).symlink_to(package)
    return python.parent


def test_the_command_works_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "backpack-rank", "evaluate", "list=policies", folder=tmp_path)
    assert "policy=paired_tokens" in shown
    where = run(
        installed / "python",
        "-c",
        "import backpack_rank; print(backpack_rank.__file__)",
        folder=tmp_path,
    )
    assert str(installed.parent) in where
    page = run(
        installed / "python",
        "-c",
        "from backpack_rank.serving.demo import page; print(page())",
        folder=tmp_path,
    )
    assert page.startswith("<!DOCTYPE html>")


def test_every_verb_works_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    small = [
        "model.ranker.hidden_size=16",
        "model.ranker.layers=1",
        "model.ranker.heads=2",
        "pretraining.epochs=0",
    ]
    small += ["training.epochs=1", "+data.train.train_queries=8", "+data.train.documents=40"]
    cache = {"BACKPACK_RANK_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    run(installed / "backpack-rank", "train", *small, folder=tmp_path, **cache)
    shown = run(
        installed / "backpack-rank",
        "evaluate",
        "alpha=0",
        "policy=paired_tokens",
        folder=tmp_path,
        **cache,
    )
    assert "alpha=0" in shown
    assert list(tmp_path.glob("outputs/evaluate/*/report.html"))
    few = [
        "data=synthetic",
        "alpha=[1,0]",
        "policy=paired_tokens",
        "+data.test.test_queries=6",
        "+data.test.documents=40",
        "workers=1",
    ]
    run(installed / "backpack-rank", "rerank", *few, folder=tmp_path, **cache)
    assert len(list(tmp_path.glob("outputs/rerank/**/run.txt"))) == 2
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{(port := listener.getsockname()[1])}/health"
    command = [str(installed / "backpack-rank"), "serve", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **cache, "PYTHONPATH": ""}
    ) as server:
        try:
            wait_for(lambda: answers(url) or server.poll() is not None, 120)
            assert answers(url)
        finally:
            server.terminate()


def test_the_core_passes_with_the_oldest_dependencies() -> None:
    """``make test-oldest``, with the environment where it was left or a new one."""
    python = shutil.which("python3.10")
    # A version manager's command may be there for a Python that is not.
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip(
            "the oldest dependencies are those of Python 3.10, which is not on this machine"
        )
    outside = {"PYTHONPATH": "", "VIRTUAL_ENV": ""}
    run("make", "test-oldest", f"PYTHON={python}", folder=ROOT, **outside)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
