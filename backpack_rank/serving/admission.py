"""Which requests are let in.

None before rankers are loaded, not too many at a time, and not too many bytes of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from backpack_rank.serving.batcher import Batcher
from backpack_rank.serving.bodies import RequestError

SMALL = 65_536
"""Bytes of a body that never waits for others."""


class Admission:
    """Counts the requests at work, of all routes; used in the thread of the event loop alone."""

    def __init__(self, batcher: Batcher, max_requests: int, max_bytes: int) -> None:
        self._batcher, self._max_requests, self._max_bytes = batcher, max_requests, max_bytes
        self._active = self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

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

    async def take(self, number: int, deadline: float) -> None:
        """Wait until a long body has its turn.

        It is not read before, so that the client's side waits too.

        Turns are in the order of asking. :meth:`give_back` the same number once the request is
        answered.

        Raises:
            RequestError: 429 where the deadline passes before.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, turn))
        self._call_next()
        try:
            await asyncio.wait_for(asyncio.shield(turn), max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            if turn.done():
                self.give_back(number)
            else:
                self._waiting.remove((number, turn))
                self._call_next()
            if isinstance(error, asyncio.TimeoutError):
                raise RequestError(
                    429, "too many long requests at a time", Retry_After="1"
                ) from None
            raise

    def give_back(self, number: int) -> None:
        """The bytes of a body are free again."""
        self._bytes -= number
        self._call_next()

    def _call_next(self) -> None:
        while self._waiting and self._bytes + self._waiting[0][0] <= self._max_bytes:
            number, turn = self._waiting.popleft()
            self._bytes += number
            turn.set_result(None)
