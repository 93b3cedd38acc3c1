"""Every route of the OpenAPI description, with the largest bodies that it takes.

A request is answered by its deadline, in memory that does not grow with what it asks for, others are
answered meanwhile, and SIGTERM ends the server. What a body costs is bounded before work begins, so
that bodies which are short and dear are in the list too.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import httpx
import psutil
import pytest
from serve_processes import free_port, started

pytestmark = pytest.mark.processes
TIMEOUT = 3
"""Seconds that a request has on this server."""
SLACK = 27
"""Seconds that this test gives it, on a machine that others keep busy."""
MEGABYTES = 3_500
"""That the server may grow by in all of these requests together: with the first long texts by some
1,600, then hardly. An explanation of one word took 5,000.
"""
UNITS = {
    "one word": "x",
    "listed words": "she is here ",
    "words with signs": "he/she-",
    "signs": ".",
    "blanks": " ",
    "letters beyond ASCII": "é—",
    "entities": "&amp;&#104;e ",
}
SIZES = {"one document": (1, 7_900_000), "as explained": (1, 99_000), "a thousand": (1000, 7_500)}
CHUNKS, ALPHAS = "renditions in chunks", "all alphas"
WAYS = {
    "as it is": {},
    CHUNKS: {
        "alpha": 0,
        "policy": "renditions",
        "long_documents": "chunks",
        "chunk_overlap": 8,
    },
    ALPHAS: {"policy": "renditions", "alphas": [number / 200 for number in range(201)]},
}
ORDINARY = {"query": "doctor", "documents": ["she saw her brother"]}


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    port = free_port()
    log = tmp_path_factory.mktemp("every route") / "log"
    with started(folder, log, port, "--timeout", str(TIMEOUT)) as process:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=TIMEOUT + SLACK, trust_env=False) as client:
            yield client, process, megabytes(process)


def posts(client: httpx.Client) -> list[str]:
    paths = client.get("/openapi.json").json()["paths"]
    return sorted(path for path, methods in paths.items() if "post" in methods)


def doors(client: httpx.Client, turn: int) -> list[str]:
    """Routes that do different work. One that has several names is called by another each turn."""
    by_work: dict[str, list[str]] = {}
    for path in posts(client):
        by_work.setdefault(path.removeprefix("/v1").removeprefix("/v2"), []).append(path)
    return [names[turn % len(names)] for names in by_work.values()]


def taken_by(path: str, body: dict) -> dict:
    """The body in the words of a route."""
    if not path.endswith("/score"):
        return body
    score = {name: value for name, value in body.items() if name != "alphas"}
    return {"text_1": score.pop("query"), "text_2": score.pop("documents"), **score}


def megabytes(process) -> float:
    """Resident memory once nothing is worked on: a request is given up a little after its deadline."""
    server = psutil.Process(process.pid)
    for _ in range(SLACK):
        if server.cpu_percent(interval=1) < 20:
            break
    return server.memory_info().rss / 2**20


def test_the_description_has_all_routes_with_a_body(server):
    client, *_ = server
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/demo/words", "/demo/explain"} <= set(
        posts(client)
    )


@pytest.mark.parametrize(
    ("unit", "way"),
    [
        *((unit, CHUNKS) for unit in UNITS),  # the dearest way
        *((unit, way) for unit in ("listed words", "signs") for way in ("as it is", ALPHAS)),
    ],
)
def test_the_largest_bodies_are_answered_by_their_deadline(server, unit, way):
    client, process, at_start = server
    turn = list(UNITS).index(unit)
    for number, length in SIZES.values():
        text = UNITS[unit] * (length // len(UNITS[unit].encode())) + "a"
        body = {"query": "q", "documents": [text] * number, **WAYS[way]}
        for path in doors(client, turn):
            # No answer in time is an error of the client, which ends the test.
            answer = client.post(path, json=taken_by(path, body))
            fine = [200, 413, 504]
            if path == "/demo/explain" and number > 1:
                fine.append(400)  # it explains one document
            assert answer.status_code in fine, (path, answer.text[:300])
            assert client.post("/v1/rerank", json=ORDINARY).status_code == 200
    assert megabytes(process) < at_start + MEGABYTES


def test_the_end_does_not_wait_for_them(server):
    """Runs last: it ends the server amid the dearest requests."""
    client, process, _ = server
    text = UNITS["listed words"] * 8_000
    body = {"query": "q", "documents": [text], **WAYS[CHUNKS]}

    statuses = []

    def send(path: str) -> None:
        with suppress(httpx.TransportError):
            statuses.append(client.post(path, json=taken_by(path, body)).status_code)

    threads = [threading.Thread(target=send, args=(path,)) for path in posts(client)]
    for thread in threads:
        thread.start()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30 + SLACK) == 128 + signal.SIGTERM
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 413, 503, 504}
