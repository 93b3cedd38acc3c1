"""The queue in front of the model, and the one thread that owns it."""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from backpack_rank.serving.bodies import RequestError
from backpack_rank.serving.jobs import Job, Served, Slice
from backpack_rank.serving.metrics import Metrics

log = logging.getLogger(__name__)
_BATCHES_PER_TURN = 8
"""Batches after which a long request lets others go first."""


class Batcher:
    """Scores requests in packed batches.

    The first request of the queue says which ranker and shift a batch is of; slices of other
    requests that fit fill it up. Requests that were cancelled leave the queue at once, those past
    their deadline before they are scored. When a batch fails, its requests are scored one by one,
    so that only the bad one fails.

    Attributes:
        rankers: by name, once they are loaded.
        failure: why they could not be loaded.
    """

    def __init__(
        self,
        loaders: Mapping[str, Callable[[], Served]],
        max_queue_tokens: int,
        metrics: Metrics | None = None,
    ) -> None:
        """``loaders`` are called in the thread of the model, as :meth:`start` begins."""
        self.rankers: dict[str, Served] = {}
        self.failure: Exception | None = None
        self._loaders = loaders
        self._max_tokens = max_queue_tokens
        self._metrics = metrics or Metrics()
        self._metrics.watch(lambda: self._tokens, lambda: len(self._held))
        self._queue: deque[Job] = deque()  # jobs with slices that wait
        self._held: set[Job] = set()  # these, and jobs whose last slices are in a batch now
        self._tokens = 0  # of the jobs that are held
        self._tokens_per_second = 1000.0  # a guess until the first batch
        # Guards the four above: requests come from the event loop, and the model has a thread of
        # its own.
        self._changed = threading.Condition()
        self._stopped = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether rankers are loaded and warmed up, and the thread of the model lives."""
        return self._ready.is_set() and self._thread.is_alive() and not self._stopped

    @property
    def tokens(self) -> int:
        """That wait or are scored."""
        return self._tokens

    @property
    def full(self) -> bool:
        """Whether hardly any request would be accepted."""
        return self._tokens >= 0.95 * self._max_tokens

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; requests that still wait fail."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        for job in list(self._held):
            job.fail(RequestError(503, "the server is shutting down"))

    def wait_until_ready(self, timeout: float) -> bool:
        return self._ready.wait(timeout) and self.ready

    def ranker(self, name: str | None) -> Served:
        """The ranker that a request names; the first one where it names none.

        Raises:
            RequestError: 404, no such ranker is served.
        """
        if name is None:
            return next(iter(self.rankers.values()))
        if name not in self.rankers:
            served_names = ", ".join(self.rankers)
            raise RequestError(404, f"model {name[:80]!r} is not served; use one of {served_names}")
        return self.rankers[name]

    def check_size(self, job: Job) -> None:
        """Raise :class:`RequestError` 413 for a request that no queue would take."""
        if job.tokens > self._max_tokens:
            raise RequestError(
                413,
                f"more tokens than this server takes in a request ({self._max_tokens:,}); send "
                "fewer documents",
            )

    def submit(self, job: Job) -> None:
        """Queue a request.

        Raises:
            RequestError: 413 or 429, with the seconds after which there may be room, or 503.
        """
        self.check_size(job)
        if not job.slices:  # a policy all of whose coefficients are 0 reads no text
            job.finish()
            return
        with self._changed:
            if self._stopped:
                raise RequestError(503, "the server is shutting down")
            if self._tokens + job.tokens > self._max_tokens:
                seconds = math.ceil(min(600.0, max(1.0, self._tokens / self._tokens_per_second)))
                raise RequestError(
                    429, f"the queue is full; try again in {seconds} s", Retry_After=str(seconds)
                )
            job.queued = time.monotonic()
            self._tokens += job.tokens
            self._held.add(job)
            self._queue.append(job)
            self._changed.notify()
        # A future keeps its callbacks: through a weak reference, so that a request's memory is
        # freed as it is answered.
        reference = weakref.ref(job)
        job.future.add_done_callback(lambda _: self._leave(reference()))

    def _leave(self, job: Job | None) -> None:
        """Scored, failed or cancelled: its tokens are free."""
        with self._changed:
            if job is not None and job in self._held:
                self._held.discard(job)
                self._tokens -= job.tokens
                if job in self._queue:
                    self._queue.remove(job)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            for name, load in self._loaders.items():
                ranker = load()
                ranker.warm_up()
                self.rankers[name] = ranker
            self._ready.set()
            seconds = round(time.monotonic() - started, 1)
            fields = {"models": list(self.rankers), "seconds": seconds}
            log.info("rankers are ready", extra={"fields": fields})
            while self._work():
                pass
        except Exception as error:
            self.failure = error
            if isinstance(error, OSError | ValueError) and not self._ready.is_set():
                # A folder that is wrong is no bug, and its sentence says all.
                log.error("rankers cannot be loaded: %s", error)
            else:
                log.error("the thread of the model ended", exc_info=error)
            self._stopped = True
            for job in list(self._held):
                job.fail(RequestError(503, "the server has failed"))
        finally:
            self._ready.set()

    def _next(self) -> list[Slice]:
        """The slices of the next batch; none when the server stops."""
        while True:
            late: list[Job] = []
            with self._changed:
                while not self._queue and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return []
                late = [job for job in self._queue if job.expired]
                if not late:
                    return self._fill()
            for job in late:
                job.fail(RequestError(504, "the deadline passed before the request was scored"))

    def _fill(self) -> list[Slice]:
        """The first slice of the queue, and first slices of other jobs that fit into its batch."""
        head = self._queue[0]
        first = head.slices.popleft()
        batch = [first]
        room = head.served.tokens_per_batch - first.tokens
        if first.key is not None:
            for job in list(self._queue)[1:]:
                candidate = job.slices[0]
                if candidate.key == first.key and candidate.tokens <= room:
                    batch.append(job.slices.popleft())
                    room -= candidate.tokens

        now = time.monotonic()
        for chosen in batch:
            job = chosen.job
            if job.started is None:
                job.started = now
                self._metrics.queue_seconds.observe(now - job.queued)
            if not job.slices:
                self._queue.remove(job)

        # A long request goes to the end of the queue after some batches.
        head.turns += 1
        if head.slices and head.turns % _BATCHES_PER_TURN == 0:
            self._queue.rotate(-1)
        return batch

    def _work(self) -> bool:
        """Score a batch, as soon as there is one; False when the server stops."""
        batch = self._next()
        if not batch:
            return False
        tokens = sum(part.tokens for part in batch)
        started = time.monotonic()
        self._score(batch)
        seconds = time.monotonic() - started

        # A moving average, which tells clients of a full queue when to come back.
        tokens_per_second = tokens / max(seconds, 1e-6)
        self._tokens_per_second += 0.1 * (tokens_per_second - self._tokens_per_second)
        self._metrics.batch_seconds.observe(seconds)
        self._metrics.batch_tokens.observe(tokens)
        self._metrics.batch_requests.observe(len(batch))
        for part in batch:
            job = part.job
            job.pending -= 1
            if job.pending == 0 and not job.future.done():
                job.finish()
        return True

    def _score(self, slices: Sequence[Slice]) -> None:
        try:
            slices[0].job.served.score(slices)
        except Exception as error:
            if len(slices) > 1:
                # One by one, so that only the request that broke the batch fails.
                for part in slices:
                    self._score([part])
                return
            # Only where it happened: a message may have a client's text in it.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s while scoring:\n%s", type(error).__name__, where)
            slices[0].job.fail(RequestError(500, f"scoring failed: {type(error).__name__}"))
