"""Real rerank servers on loopback, in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.serving.app import create_app
from backpack_rank.serving.batcher import Batcher
from backpack_rank.serving.jobs import Slice
from backpack_rank.serving.pointwise import ServedPointwise
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

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def rerank(self, path: str = "/v1/rerank", **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)


@contextmanager
def running(loaders: dict[str, Any], ready: bool = True, **options: Any) -> Iterator[Running]:
    """A server in a thread of this process, for the length of a ``with`` block."""
    app = create_app(loaders, ServerSettings(**options))
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=20)
    )
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


def wait_for(condition: Any, seconds: float = 10.0) -> None:
    """Until something becomes true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


class Gate(ServedPointwise):
    """A ranker whose model stands still while the gate is shut.

    Attributes:
        open: set while it scores.
        entered: batches that have reached the model.
        poisoned: a document that breaks the batch that it is in.
    """

    def __init__(self, name: str, reranker: PointwiseReranker) -> None:
        super().__init__(name, reranker)
        self.open = threading.Event()
        self.open.set()
        self.entered: list[list[Slice]] = []
        self.poisoned: str | None = None

    def score(self, slices: Sequence[Slice]) -> None:
        self.entered.append(list(slices))
        assert self.open.wait(10)
        if any(self.poisoned in part.job.documents for part in slices):
            raise RuntimeError(self.poisoned)
        super().score(slices)


@contextmanager
def gated(reranker: PointwiseReranker, **options: Any) -> Iterator[tuple[Running, Gate]]:
    """A server whose ranker, ``tiny``, is a gate."""
    gate = Gate("tiny", reranker)
    with running({"tiny": lambda: gate}, **options) as server:
        try:
            yield server, gate
        finally:
            gate.open.set()
