"""Real servers on loopback, with tiny rankers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.app import create_app
from backpack_rank.serving.batcher import Batcher
from backpack_rank.serving.jobs import served
from backpack_rank.serving.settings import ServerSettings


@dataclass
class Running:
    """A server that listens.

    Attributes:
        url: where.
        client: speaks to it.
        batcher: its queue.
        server: uvicorn's.
    """

    url: str
    client: httpx.Client
    batcher: Batcher
    server: uvicorn.Server

    def rerank(self, path: str = "/v1/rerank", **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)


@contextmanager
def running(loaders: dict[str, Any], ready: bool = True, **options: Any) -> Iterator[Running]:
    """A server in a thread of this process, for the length of a ``with`` block."""
    app = create_app(loaders, ServerSettings(**options))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=20))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    batcher = app.state.batcher
    try:
        if ready:
            assert batcher.wait_until_ready(60), batcher.failure
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            yield Running(url, client, batcher, server)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def wait_for(condition: Any, seconds: float = 20.0) -> None:
    """Until something becomes true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def pointwise(make_backpack, pair_tokenizer):
    """Makes a reranker with weights of its own seed."""
    return lambda seed=0: PointwiseReranker(Scorer(make_backpack(seed), pair_tokenizer))


@pytest.fixture(scope="session")
def reranker(pointwise):
    """The one that is served as ``tiny``."""
    return pointwise()


@pytest.fixture(scope="session")
def server(pointwise) -> Iterator[Running]:
    """A server of one tiny Backpack."""
    with running({"tiny": lambda: served("tiny", pointwise())}) as found:
        yield found
