"""The command in a process of its own, as it is deployed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import httpx
import pytest
from rerank_servers import wait_for
from serve_processes import COMMAND, ROOT, answers, free_port, started

import backpack_rank

pytestmark = pytest.mark.processes


def test_it_serves_is_healthy_drains_and_logs_no_text(folder, tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (check,) = re.findall(
        r"HEALTHCHECK.*?CMD (\[.*?\])\n", (ROOT / "Dockerfile").read_text(), re.DOTALL
    )
    health = [sys.executable, *json.loads(check.replace("8000", str(port)))[1:]]
    key = {"Authorization": "Bearer kitten"}
    statuses: list[int] = []

    def ask() -> None:
        body = {
            "query": "secret",
            "documents": [f"doctor {n} " * 20 for n in range(900)],
            "timeout": 50,
        }
        statuses.append(
            httpx.post(
                f"{url}/rerank", json=body, headers=key, timeout=60, trust_env=False
            ).status_code
        )

    with started(folder, tmp_path / "log", port, BACKPACK_RANK_API_KEY="kitten") as process:
        assert subprocess.run(health).returncode == 0
        body = {
            "query": "doctor",
            "documents": ["he saw his mother", "a bridge"],
            "alpha": 0,
            "raw_scores": True,
        }
        assert httpx.post(f"{url}/rerank", json=body, trust_env=False).status_code == 401
        rows = httpx.post(f"{url}/rerank", json=body, headers=key, trust_env=False).json()[
            "results"
        ]
        # Of the same folder: how weights lie in memory decides the last bit of their products.
        expected = backpack_rank.load(folder).rank(
            "doctor", body["documents"], alpha=0, policy="lowest_senses"
        )
        assert [(row["index"], row["relevance_score"]) for row in rows] == [
            (row["corpus_id"], row["score"]) for row in expected
        ]
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: _queued(url, key) == 3)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        process.wait(30)
        assert statuses == [200] * 3
    assert subprocess.run(health).returncode != 0
    log = (tmp_path / "log").read_text()
    assert '"route": "/rerank", "status": 401' in log
    lines = [json.loads(line) for line in log.splitlines()]  # no other lines among them
    events = [line["event"] for line in lines]
    assert events.count("request") > 4
    assert events[0].endswith("loading rankers")
    (ready,) = (line for line in lines if line["event"] == "rankers are ready")
    assert len(ready["models"]) == 1
    assert ready["seconds"] >= 0
    assert "waiting threads" not in log
    assert "secret" not in log


def _queued(url: str, key: dict[str, str]) -> float:
    text = httpx.get(f"{url}/metrics", headers=key, trust_env=False).text
    return float(re.findall(r"^backpack_rank_queue_requests (\S+)", text, re.MULTILINE)[0])


def test_what_cannot_be_served_ends_with_a_sentence(folder, tmp_path):
    def end(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1]

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "cannot listen at 127.0.0.1" in end(str(folder), "--port", str(port))
    assert "neither a run's folder nor a saved ranker" in end(
        str(tmp_path), "--port", str(free_port())
    )
    assert "backpack-rank serve: " in end()


def test_it_starts_when_nobody_reads_its_log_and_ends_with_a_line_on_sighup(folder, tmp_path):
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*COMMAND, str(folder), "--port", str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        assert b"loading rankers" in process.stderr.readline()
        process.stderr.close()
        wait_for(lambda: answers(f"http://127.0.0.1:{port}") or process.poll() is not None, 120)
        assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait()
    with started(folder, tmp_path / "log", port) as process:
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 128 + signal.SIGHUP
    assert '"event": "SIGHUP: no further requests' in (tmp_path / "log").read_text()


def test_a_second_ctrl_c_ends_at_once_without_a_traceback(folder, tmp_path):
    port = free_port()
    log = tmp_path / "log"
    body = {
        "query": "q",
        "documents": ["her his him " * 400] * 900,
        "alpha": 0,
        "policy": "renditions",
        "timeout": 50,
    }

    def ask() -> None:
        with suppress(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{port}/rerank", json=body, timeout=60, trust_env=False)

    with started(folder, log, port) as process:
        thread = threading.Thread(target=ask)
        thread.start()
        wait_for(lambda: thread.is_alive())
        process.send_signal(signal.SIGINT)
        wait_for(lambda: "SIGINT: no further requests" in log.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 128 + signal.SIGINT
        thread.join()
    assert "Traceback" not in log.read_text()
