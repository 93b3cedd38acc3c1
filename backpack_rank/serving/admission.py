"""Which requests are let in: not before rankers are loaded, and not too many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backpack_rank.serving.batcher import Batcher
from backpack_rank.serving.bodies import RequestError


class Admission:
    """Counts the requests at work, of all routes; used in the thread of the event loop alone."""

    def __init__(self, batcher: Batcher, max_requests: int) -> None:
        self._batcher, self._max_requests = batcher, max_requests
        self._active = 0

    @property
    def is_open(self) -> bool:
        """Whether a request would be let in now."""
        return self._batcher.ready and not self._batcher.full and self._active < self._max_requests

    def check_ready(self) -> None:
        """Raise :class:`RequestError` (503) while rankers are being loaded."""
        if not self._batcher.ready:
            raise RequestError(503, "rankers are being loaded", Retry_After="1")

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request at work.

        Raises:
            RequestError: 503 while rankers are being loaded, 429 where too many are at work.
        """
        self.check_ready()
        if self._active >= self._max_requests:
            raise RequestError(429, "too many requests at a time", Retry_After="1")
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
