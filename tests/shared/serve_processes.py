"""``backpack-rank serve`` in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from rerank_servers import wait_for

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from backpack_rank.cli import main; main()", "serve"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def started(
    folder: Path, log: Path, port: int, *options: str, **environment: str
) -> Iterator[subprocess.Popen]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    with log.open("w") as file:
        command = [*COMMAND, str(folder), "--port", str(port), *options]
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stderr=file, stdout=file
        )
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}") or process.poll() is not None, 120)
            yield process
        finally:
            process.kill()
            process.wait()
