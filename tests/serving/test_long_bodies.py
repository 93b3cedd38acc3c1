"""Ordinary requests beside clients that send megabytes without pause."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from serve_processes import free_port, started

pytestmark = pytest.mark.processes
QUIET, LOADED = 5.0, 20.0
"""Seconds of either phase."""
CLIENTS = 8
UNITS = ("her his him ", "the nurse said that her ", " ", "e")


def _body(**fields) -> bytes:
    return json.dumps({"alpha": 0, "policy": "renditions", **fields}).encode()


def _post(port: int, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/rerank", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _megabytes(process) -> float:
    (line,) = [
        status_line
        for status_line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if "VmRSS" in status_line
    ]
    return int(line.split()[1]) / 1024


def _ordinary(port: int, process, seconds: float) -> tuple[list[float], Counter[int], float]:
    """Seconds of requests one after the other, their statuses, and the most memory seen."""
    body = _body(
        query="doctor in the ward",
        documents=[f"she saw her brother in ward {n}" for n in range(10)],
    )
    times: list[float] = []
    statuses: Counter[int] = Counter()
    most, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        statuses[_post(port, body)] += 1
        times.append(time.monotonic() - start)
        most = max(most, _megabytes(process))
        time.sleep(0.01)
    return times, statuses, most


def test_ordinary_requests_do_not_wait_for_megabytes(folder, tmp_path, capsys):
    port = free_port()
    bodies = [
        _body(query="q", documents=["the " + unit * (7_900_000 // len(unit))]) for unit in UNITS
    ]
    bodies[1] = _body(query="q", documents=[UNITS[1] * 5_000] * 60)
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def send(number: int) -> None:
        while not stop.is_set():
            statuses[_post(port, bodies[number % len(bodies)])] += 1

    with started(folder, tmp_path / "log", port) as process:
        _ordinary(port, process, 1.0)
        quiet, quiet_statuses, before = _ordinary(port, process, QUIET)
        threads = [threading.Thread(target=send, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        loaded, loaded_statuses, most = _ordinary(port, process, LOADED)
        stop.set()
        for thread in threads:
            thread.join()
    first, second = np.percentile(quiet, 99), np.percentile(loaded, 99)
    with capsys.disabled():
        print(
            f"\np99 {first:.3f} s quiet ({len(quiet)}), {second:.3f} s beside "
            f"{sum(statuses.values())} long requests ({len(loaded)}); memory {before:.0f} -> "
            f"{most:.0f} MB; statuses {dict(statuses)}"
        )
    assert set(quiet_statuses) == set(loaded_statuses) == {200}
    assert set(statuses) <= {200, 429}
    assert statuses[200] >= CLIENTS
    assert second < first + 1.0
    assert most < before + 300
