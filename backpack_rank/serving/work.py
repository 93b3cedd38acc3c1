"""A request at work: the one way to the threads and to the model, for every route with a body.

What is promised of requests is kept here: a body is read within its limits, nothing goes on beyond
the deadline or when the client has gone, and ordinary requests do not stand behind megabytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
from fastapi import Request
from starlette.requests import ClientDisconnect

from backpack_rank.serving.admission import SMALL, Admission
from backpack_rank.serving.batcher import Batcher
from backpack_rank.serving.bodies import Body, RequestError, read_body
from backpack_rank.serving.jobs import Budget, Job, NotFiniteError
from backpack_rank.serving.settings import ServerSettings

T = TypeVar("T")
P = ParamSpec("P")


class Work(Generic[Body]):
    """What a route has of a request.

    Attributes:
        body: what is asked.
        budget: seconds and tokens that the request may cost.
        notes: for the line of the log.
    """

    body: Body

    def __init__(
        self,
        batcher: Batcher,
        readers: ThreadPoolExecutor,
        gone: asyncio.Task[None],
        budget: Budget,
        notes: dict[str, Any],
        is_long: bool,
    ) -> None:
        self._is_long = is_long
        self.budget = budget
        self.notes = notes
        self._batcher = batcher
        self._readers = readers
        self._gone = gone

    async def run(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function beside the event loop; what it may cost is its own to look at.

        Raises:
            RequestError: 504, the deadline passed before.
            ClientDisconnect: nobody waits for the answer.
        """
        loop = asyncio.get_running_loop()
        return await self._before_end(
            loop.run_in_executor(self._readers, lambda: call(*arguments, **options))
        )

    async def scores(self, job: Job) -> np.ndarray:
        """Logits of a job, once the queue has come to it. [A, m]

        Raises:
            RequestError: it does not fit into the queue, the deadline passed, or a score is not
                finite.
            ClientDisconnect: nobody waits for the answer.
        """
        self.notes |= {"model": job.served.name, "documents": len(job.documents)}
        self.notes |= {"tokens": job.tokens, "truncated": job.truncated}
        job.deadline = self.budget.deadline
        self._batcher.submit(job)
        try:
            scores = await self._before_end(asyncio.wrap_future(job.future))
        except NotFiniteError as error:
            raise RequestError(500, str(error)) from None
        if job.started is not None:
            self.notes["queue_ms"] = round(1000 * (job.started - job.queued), 1)
        return scores

    async def answer(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Make the answer of what is scored: one of megabytes beside the event loop, too."""
        if self._is_long:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._readers, lambda: call(*arguments, **options))
        return call(*arguments, **options)

    async def _before_end(self, awaitable: Awaitable[T]) -> T:
        """The result, unless the client goes away or the deadline passes: both cancel it."""
        wanted = asyncio.ensure_future(awaitable)
        try:
            await asyncio.wait(
                {wanted, self._gone},
                timeout=max(0.0, self.budget.deadline - time.monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if wanted.done():
                return wanted.result()
            if self._gone.done():
                raise ClientDisconnect
            raise RequestError(504, "the deadline passed before the request was scored")
        finally:
            if not wanted.done():
                wanted.cancel()


class Workplace:
    """Takes requests in: counts them, reads their bodies, and gives them threads."""

    def __init__(self, settings: ServerSettings, batcher: Batcher, admission: Admission) -> None:
        self.settings = settings
        self.batcher = batcher
        self.admission = admission
        self._readers = ThreadPoolExecutor(
            settings.tokenizer_threads, thread_name_prefix="tokenizer"
        )
        # Long bodies have a thread of their own, so that others never stand behind them.
        self._long_readers = ThreadPoolExecutor(1, thread_name_prefix="long tokenizer")

    def close(self) -> None:
        """Give up what waits for a thread; what runs ends by its own budget."""
        for readers in (self._readers, self._long_readers):
            readers.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def work(self, request: Request, kind: type[Body]) -> AsyncIterator[Work[Body]]:
        """A request from its body to its answer; ``kind`` is what the route takes.

        ::

            async with workplace.work(request, RerankBody) as work:
                job = await work.run(prepare, work.body, work.budget)
                scores = await work.scores(job)

        Raises:
            RequestError: whatever is wrong with it, in the form that its family of clients reads.
            ClientDisconnect: the client has gone.
        """
        deadline = time.monotonic() + self.settings.timeout
        notes = request.scope["state"]["notes"]
        with self.admission.request():
            raw = await self._read(request, deadline)
            is_long = len(raw) > SMALL
            readers = self._long_readers if is_long else self._readers
            gone = asyncio.create_task(_disconnected(request))
            budget = Budget(deadline, self.settings.max_queue_tokens)
            work: Work[Body] = Work(self.batcher, readers, gone, budget, notes, is_long)
            try:
                work.body = await work.run(read_body, raw, self.settings, kind)
                del raw  # megabytes that need not wait in the queue
                if work.body.timeout is not None:
                    started = deadline - self.settings.timeout
                    budget.deadline = min(deadline, started + work.body.timeout)
                yield work
            except RequestError as error:
                with suppress(AttributeError):  # there is no body yet
                    error.as_text = error.as_text or work.body.as_list
                raise
            finally:
                gone.cancel()

    async def _read(self, request: Request, deadline: float) -> bytes:
        """The body of a request.

        Raises :class:`RequestError` where it is too long or too slow, or where its Content-Type is
        not JSON.
        """
        media_type, _, _ = request.headers.get("content-type", "").partition(";")
        if media_type.strip().lower() != "application/json":
            raise RequestError(415, "send JSON with Content-Type: application/json")
        limit = self.settings.max_body
        too_long = RequestError(413, f"the body is longer than {limit:,} bytes", Connection="close")
        header = request.headers.get("content-length", "")
        announced = int(header) if header.isdigit() else None  # None: a body in chunks
        if announced is not None and announced > limit:
            raise too_long
        if announced is not None and announced > SMALL:
            await self._take(request, announced, deadline)

        async def read() -> bytes:
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_long
                has_turn = "bytes" in request.scope["state"]
                if announced is None and len(body) > SMALL and not has_turn:
                    # Its length is not known, so it counts as the longest that is accepted.
                    await self._take(request, limit, deadline)
            return bytes(body)

        try:
            return await asyncio.wait_for(read(), max(0.0, deadline - time.monotonic()))
        except asyncio.TimeoutError:
            raise RequestError(408, "the body did not arrive in time", Connection="close") from None

    async def _take(self, request: Request, number: int, deadline: float) -> None:
        await self.admission.take(number, deadline)
        request.scope["state"]["bytes"] = number


async def _disconnected(request: Request) -> None:
    """Ends when the client has gone; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
