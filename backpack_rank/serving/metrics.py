"""Counters of a server, in Prometheus's form.

No text and nothing that a client makes up becomes a label.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = tuple(2**power for power in range(6, 18))


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        names: dict[str, Any] = {"namespace": "backpack_rank", "registry": self._registry}
        self.requests = Counter(
            "requests", "answers by route and status", ["route", "status"], **names
        )
        self.rejected = Counter("rejected", "requests that were not scored", ["reason"], **names)
        self.seconds = Histogram(
            "request_seconds", "from request to answer", ["route"], buckets=_SECONDS, **names
        )
        self.queue_seconds = Histogram(
            "queue_seconds", "from queue to model", buckets=_SECONDS, **names
        )
        self.batch_seconds = Histogram(
            "batch_seconds", "of the model for a batch", buckets=_SECONDS, **names
        )
        self.batch_tokens = Histogram("batch_tokens", "tokens of a batch", buckets=_TOKENS, **names)
        self.batch_requests = Histogram(
            "batch_requests", "requests in a batch", buckets=(1, 2, 4, 8, 16, 32), **names
        )
        self.documents = Counter("documents", "documents scored", ["model"], **names)
        self._queue_tokens = Gauge("queue_tokens", "tokens that wait or are scored", **names)
        self._queue_requests = Gauge("queue_requests", "requests that wait or are scored", **names)

    def watch(self, tokens: Callable[[], float], requests: Callable[[], float]) -> None:
        """Read the length of the queue when the metrics are asked for."""
        self._queue_tokens.set_function(tokens)
        self._queue_requests.set_function(requests)

    def text(self) -> bytes:
        return generate_latest(self._registry)
