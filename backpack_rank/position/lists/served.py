"""A listwise ranker behind the server's rerank requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from backpack_rank.position.lists.reranker import ListwiseReranker
from backpack_rank.reranking.reading_plan import ReadingPlan
from backpack_rank.senses.views import IDENTITY
from backpack_rank.serving.bodies import RequestError
from backpack_rank.serving.jobs import Job, RequestOptions, Served, Slice


class ServedListwise(Served):
    """Serves a listwise ranker, a request at a time; scores are minus the rank.

    It has no senses, so no alpha changes its answers.
    """

    def __init__(self, name: str, reranker: ListwiseReranker) -> None:
        self.name = name
        self._reranker = reranker

    def job(self, query: str, documents: list[str], options: RequestOptions) -> Job:
        """A single slice with all documents, since the ranker reads them together."""
        if options.instruct is not None:
            raise RequestError(400, f"{self.name} is a listwise ranker, whose prompt is fixed")
        if options.max_tokens is not None:
            raise RequestError(
                400, f"{self.name} is a listwise ranker, which cuts passages by itself"
            )
        plan = ReadingPlan([IDENTITY], len(documents))
        job = Job(self, query, documents, plan, truncated=None)
        # The queue counts tokens; a token has about four characters.
        about = sum(map(len, documents)) // 4 + len(documents)
        job.slices.append(Slice(job, None, np.arange(len(documents)), [], about, None))
        job.seal()
        return job

    def score(self, slices: Sequence[Slice]) -> None:
        for waiting in slices:
            job = waiting.job
            watched = self._reranker.watched(partial(_check_wanted, job))
            try:
                ranked = watched.rank(job.query, job.documents)
            except RequestError as error:
                job.fail(error)
                continue
            for row in ranked:
                job.scores[0, row["corpus_id"]] = row["score"]


def _check_wanted(job: Job) -> None:
    """Raise :class:`RequestError` once nobody waits for the answer."""
    if job.expired or job.future.cancelled():
        raise RequestError(504, "the deadline passed before the request was scored")
