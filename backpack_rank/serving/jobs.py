"""Requests as work for the model.

A request becomes a :class:`Job`. Its reading plan says which texts the model reads, and in which
passes; each pass is cut into slices, and a slice fills a batch or a part of one. A ranker answers
requests as a :class:`Served`::

    job = served_ranker.job(query, documents, RequestOptions(alphas=[1.0, 0.5]))
    served_ranker.score(list(job.slices))  # the queue does this, with slices of several requests
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

import numpy as np

from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.reranking.pointwise import CALIBRATED
from backpack_rank.reranking.reading_plan import Pass, ReadingPlan, TextPair
from backpack_rank.serving.bodies import ReadBody, RequestError


class NotFiniteError(ValueError):
    """A score is not a number."""


class Slice:
    """Texts of one pass that are scored in the same batch.

    Attributes:
        job: the request.
        text_pass: the pass; None for a ranker that reads the request in its own way.
        texts: numbers of the texts in the job's plan. [b]
        sequences: their token ids. [b]
        tokens: of the texts together.
        key: slices with the same key may share a batch; None: it shares none.
    """

    def __init__(
        self,
        job: Job,
        text_pass: Pass | None,
        texts: np.ndarray,
        sequences: list[np.ndarray],
        tokens: int,
        key: tuple[str, str | None] | None,
    ) -> None:
        self.job = job
        self.text_pass = text_pass
        self.texts = texts
        self.sequences = sequences
        self.tokens = tokens
        self.key = key

    def fill(self, column: int, scores: np.ndarray) -> None:
        """Give the job the scores of these texts: the best chunk of a text counts.

        Args:
            column: of the job's scores.
            scores: of the texts or chunks. [b]
        """
        with np.errstate(invalid="ignore"):  # a score that is no number is refused at the end
            np.maximum.at(self.job.scores[column], self.texts, scores)


class Budget:
    """What a request may cost before it waits in the queue.

    Attributes:
        deadline: in ``time.monotonic()``.
        most_tokens: that are made of its texts.
    """

    def __init__(self, deadline: float = float("inf"), most_tokens: float = float("inf")) -> None:
        self.deadline = deadline
        self.most_tokens = most_tokens

    def check_time(self) -> None:
        """Raise :class:`RequestError` 504 once the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise RequestError(504, "the deadline passed before the request was read")

    def check_tokens(self, tokens: int) -> None:
        """Raise :class:`RequestError` 413 for more tokens than a queue would take."""
        if tokens > self.most_tokens:
            raise RequestError(
                413,
                f"more tokens than this server takes in a request ({self.most_tokens:,}); send "
                "fewer documents",
            )


@dataclass(frozen=True)
class RequestOptions:
    """How a request wants its texts to be scored.

    Attributes:
        alphas: positions of the dial.
        policy: name of the policy that alpha controls; None: that of the ranker.
        max_tokens: that a document is cut to.
        long_documents: how they are read; None: as the ranker is served.
        instruct: the instruction of a prompted ranker; None: that of its template.
        budget: looked at between documents.
    """

    alphas: Sequence[float]
    policy: str | None = None
    max_tokens: int | None = None
    long_documents: LongDocuments | None = None
    instruct: str | None = None
    budget: Budget = field(default_factory=Budget)


class Job:
    """A request on its way through the model.

    Attributes:
        served: the ranker.
        query, documents: texts.
        plan: what is read for the scores at A alphas.
        truncated: documents that are read in part, or beside a part of the query; None where the
            ranker does not say.
        deadline: in ``time.monotonic()``.
        slices: those that wait for a batch.
        pending: slices without scores, those that are in a batch now among them.
        tokens: of all slices.
        future: the scores [A, m], or why there are none; cancelling it takes the request out of the
            queue.
        scores: of the texts that are read, filled slice by slice. [C, T]
        queued, started: when the job came into the queue and when its first slice left it, in
            ``time.monotonic()``.
        turns: batches that this job was the first of; after some, a long job goes to the queue's
            end.
    """

    def __init__(
        self,
        served: Served,
        query: str,
        documents: list[str],
        plan: ReadingPlan,
        truncated: int | None = 0,
    ) -> None:
        self.served = served
        self.query = query
        self.documents = documents
        self.plan = plan
        self.truncated = truncated
        self.deadline = float("inf")
        self.slices: deque[Slice] = deque()
        self.pending = 0
        self.tokens = 0
        self.future: Future[np.ndarray] = Future()
        self.scores = plan.empty_scores()
        self.scores[plan.needed()] = -np.inf  # below that of every chunk
        self.queued = 0.0
        self.started: float | None = None
        self.turns = 0

    def seal(self) -> None:
        """Count the work, once all slices are there."""
        self.pending = len(self.slices)
        self.tokens = sum(part.tokens for part in self.slices)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline

    def finish(self) -> None:
        """Add up the views, once all slices are scored."""
        scores = self.plan.sums(self.scores)
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=0))
        if bad.size:
            self.fail(NotFiniteError(f"the score of document {int(bad[0])} is not finite"))
            return
        self._settle(lambda: self.future.set_result(scores))

    def fail(self, error: Exception) -> None:
        """Give the error in place of scores."""
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, set_future: Callable[[], None]) -> None:
        try:
            set_future()
        except InvalidStateError:  # the client has gone meanwhile, which cancelled the future
            return


class Served(ABC):
    """A ranker under its name on the server.

    Attributes:
        name: which requests ask for.
        policies: that alpha may act by.
        max_length: tokens of query and document that are read together; None where that is not
            known.
        tokens_per_batch: what a batch holds.
    """

    name: str
    policies: tuple[str, ...] = ()
    max_length: int | None = None
    tokens_per_batch: int = 0

    @abstractmethod
    def job(self, query: str, documents: list[str], options: RequestOptions) -> Job:
        """The request as a job for the queue; called in several threads.

        Raises:
            RequestError: 400, what cannot be done with this ranker, 413 or 504.
        """

    def job_of_pairs(self, pairs: Sequence[TextPair], options: RequestOptions) -> Job:
        """The same for pairs whose queries may differ.

        Raises:
            RequestError: they do, and this ranker compares the documents of a query.
        """
        queries = {query for query, _ in pairs}
        if len(queries) > 1:
            raise RequestError(
                400, f"{self.name} compares documents: give one query for all of them"
            )
        documents = [document for _, document in pairs]
        return self.job(queries.pop(), documents, options)

    def cut_query(self, query: str, tokens: int) -> str:
        """A query of so many tokens at most.

        Raises:
            RequestError: 400, its tokens are not known here.
        """
        raise RequestError(400, f"{self.name} does not say what its tokens are")

    def long_documents_of(self, body: ReadBody) -> LongDocuments:
        """How a request wants long documents to be read, or how the ranker reads them.

        Raises:
            RequestError: 400, this ranker does not read them so.
        """
        if body.strategy in (None, "cut"):
            return CUT
        raise RequestError(400, f"{self.name} reads no chunks of long documents")

    @abstractmethod
    def score(self, slices: Sequence[Slice]) -> None:
        """Write the scores of slices of one key; called in the thread of the model."""

    def policy_that_acts(
        self, queries: Iterable[str], policy: str | None, alphas: Sequence[float]
    ) -> str | None:
        """Name of the policy that a request's scores come from; None where none acts."""
        return None

    def check_activation(self, activation: str | None) -> None:
        """Refuse an activation that this ranker cannot show scores as.

        Raises :class:`RequestError` for it.
        """
        if activation == CALIBRATED:
            raise RequestError(400, f"model {self.name} has no calibration")

    def shown(
        self, logits: np.ndarray, alpha: float, policy: str | None, activation: str | None
    ) -> np.ndarray | None:
        """What is shown in place of raw logits; None: their sigmoid, or the logits. [m]

        Args:
            logits: at alpha. [m]
            alpha, policy: as of the request.
            activation: what the request asks for; None: that of the server.
        """
        return None

    def warm_up(self) -> None:  # noqa: B027
        """Run the model once at every size, so that the first client does not wait for it."""


def readable(
    long_documents: LongDocuments, most_tokens: float, max_length: int | None
) -> LongDocuments:
    """How long documents are read, of which no more is tokenised than a request may have.

    What is longer is refused when its tokens are counted; without a bound it would be tokenised to
    its end before that.

    Args:
        long_documents: as the request or the server wants it.
        most_tokens: that the queue takes.
        max_length: tokens that the ranker reads together.
    """
    if not long_documents.in_chunks or not max_length:
        return long_documents
    most_chunks = int(most_tokens // max_length) + 2
    wanted = long_documents.max_chunks_per_doc
    if wanted is not None and wanted <= most_chunks:
        return long_documents
    return long_documents.changed(max_chunks_per_doc=most_chunks)
