"""What docs/serving.md shows for Ray, as it is written there: two replicas behind Ray's own proxy."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient
from rerank_servers import wait_for

from backpack_rank.models.loading import save_ranker
from backpack_rank.serving.app import create_app
from backpack_rank.serving.jobs import Served

pytest.importorskip("ray")
pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parents[2]
(CODE,) = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs/serving.md").read_text(), re.MULTILINE | re.DOTALL
)
MAX_TOKENS = 20_000


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Ray puts a token and sockets there; their paths must be short."""
    path = Path(tempfile.mkdtemp(prefix="ray"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def client(home, make_backpack, pair_tokenizer) -> Iterator[httpx.Client]:
    save_ranker(home / "ranker", make_backpack(), pair_tokenizer)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    code = CODE
    for shown, used in {
        "8000": str(port),
        '"outputs/train/DATE"': '"ranker"',
        "DATE": "tiny",
        "200_000": str(MAX_TOKENS),
    }.items():
        assert shown in code
        code = code.replace(shown, used)
    environment = {
        **os.environ,
        "HOME": str(home),
        "RAY_TMPDIR": str(home),
        "RAY_ADDRESS": "local",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "BACKPACK_RANK_API_KEY": "kitten",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=home, env=environment, stdout=log, stderr=log
        )
    try:
        wait_for(
            lambda: " is ready at " in (home / "log").read_text() or process.poll() is not None, 120
        )
        assert process.poll() is None, (home / "log").read_text()
        started = psutil.Process(process.pid).children(recursive=True)
        assert sum("ServeReplica" in " ".join(child.cmdline()) for child in started) == 2
        key = {"Authorization": "Bearer kitten"}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=key, timeout=60, trust_env=False
        ) as ray_client:
            yield ray_client
        process.send_signal(signal.SIGINT)
        process.wait(60)
        _, left = psutil.wait_procs(started, timeout=20)
        assert left == []
    finally:
        for listener in psutil.Process().children(recursive=True):
            if listener.pid == process.pid or process.pid in {
                parent.pid for parent in listener.parents()
            }:
                listener.kill()
        process.wait()


def test_two_replicas_give_the_scores_of_the_library(client, reranker, sentences):
    wanted = reranker.predict(
        [("doctor", text) for text in sentences], alpha=0.5, policy="lowest_senses"
    )
    body = {
        "query": "doctor",
        "documents": sentences,
        "alpha": 0.5,
        "policy": "lowest_senses",
        "raw_scores": True,
    }

    def scores(_number: int) -> list[float]:
        rows = client.post("/v1/rerank", json=body).raise_for_status().json()["results"]
        return [row["relevance_score"] for row in sorted(rows, key=lambda row: row["index"])]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(scores, range(31)))
    for each in answers:
        assert each == pytest.approx(list(wanted), abs=1e-5)
    # Each replica counts its own, and 31 is odd: two numbers that make it up are of two replicas.
    counts: set[int] = set()

    def both_seen() -> bool:
        text = client.get("/metrics").raise_for_status().text
        counts.update(
            int(float(n))
            for n in re.findall(r'requests_total\{route="/v1/rerank",status="200"} (\S+)', text)
        )
        return len(counts) == 2

    wait_for(both_seen, 30)
    assert sum(counts) == len(answers)


def test_tokens_and_the_key_are_checked_by_each_replica(client, sentences):
    assert (
        client.post("/rerank", json={}, headers={"Authorization": "Bearer dog"}).status_code == 401
    )
    body = {"query": "doctor", "documents": sentences, "policy": "paired_tokens"}
    large = {**body, "alphas": [n / 200 for n in range(100)]}
    too_large = client.post("/rerank", json={**large, "documents": sentences * 20})
    assert too_large.status_code == 413
    assert f"this server takes {MAX_TOKENS:,}" in too_large.json()["message"]
    tokens = client.post("/rerank", json=large).raise_for_status().json()["usage"]["total_tokens"]
    assert MAX_TOKENS / 2 < tokens <= MAX_TOKENS
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/rerank", json=large), range(8)))
    assert {answer.status_code for answer in answers} == {200, 429}
    assert all("Retry-After" in answer.headers for answer in answers if answer.status_code == 429)


def test_a_replica_whose_ranker_cannot_be_loaded_is_unhealthy_and_says_why():
    from backpack_rank.serving.ray_serve import Replica

    def missing() -> Served:
        raise FileNotFoundError("no ranker here")

    replica = Replica()
    replica.app = create_app({"tiny": missing})
    with TestClient(replica.app), pytest.raises(RuntimeError, match="no ranker here"):
        asyncio.run(replica.check_health())
