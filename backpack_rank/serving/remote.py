"""A ranker behind another server: the dial stands in front of it.

backpack-rank serve https://api.cohere.com/v2 --server-model rerank-v3.5
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from backpack_rank.reranking.pointwise import LOGITS, PointwiseReranker
from backpack_rank.reranking.reading_plan import ReadingPlan, TextPair
from backpack_rank.reranking.remote import DOCUMENTS
from backpack_rank.serving.bodies import RequestError
from backpack_rank.serving.dial import ServedWithDial
from backpack_rank.serving.jobs import Job, RequestOptions, Served, Slice

log = logging.getLogger(__name__)


class ServedRemote(ServedWithDial):
    """Serves the scores of another server under policies that write texts, such as renditions.

    A slice is what that server is asked at once. Its answer is waited for in the thread of the
    model, so requests to other rankers of this server wait too.
    """

    def __init__(self, name: str, reranker: PointwiseReranker) -> None:
        super().__init__(name, reranker)
        self._scorer = reranker.scorer

    def job_of_pairs(self, pairs: Sequence[TextPair], options: RequestOptions) -> Job:
        """The texts that the views of all alphas ask for, each once."""
        if options.instruct is not None:
            raise RequestError(400, f"model {self.name} takes no instruct: its server asks it")
        if options.max_tokens is not None:
            raise RequestError(400, f"model {self.name} cuts its texts on its server")

        # Before policies write further texts of these.
        options.budget.check_tokens(_about_tokens(pairs))

        def looked_at() -> Iterator[TextPair]:
            for pair in pairs:
                options.budget.check_time()
                yield pair

        try:
            policies = self.views_of(options)
            plan = ReadingPlan(policies, len(pairs), looked_at)
        except ValueError as error:
            raise RequestError(400, str(error)) from None

        job = _TextJob(self, pairs, plan)
        for text_pass in plan.passes():
            for start in range(0, len(text_pass.texts), DOCUMENTS):
                texts = text_pass.texts[start : start + DOCUMENTS]
                tokens = _about_tokens([job.texts[text] for text in texts])
                job.slices.append(Slice(job, text_pass, texts, [], tokens, key=None))
        job.seal()
        options.budget.check_tokens(job.tokens)
        return job

    def score(self, slices: Sequence[Slice]) -> None:
        """Ask the server; where it gives no scores, the request is answered by 502."""
        for part in slices:
            job = part.job
            assert isinstance(job, _TextJob)
            assert part.text_pass is not None
            texts = [job.texts[text] for text in part.texts]
            try:
                scores = self._scorer.score_texts(texts)
            except (OSError, ValueError) as error:
                # What the server says of a request may have a client's text in it.
                log.error("%s: %s", self.name, str(error).partition(": ")[0])
                job.fail(RequestError(502, f"the server of model {self.name} gave no scores"))
                continue
            (column,) = part.text_pass.columns
            part.fill(column, scores)

    def shown(
        self, logits: np.ndarray, alpha: float, policy: str | None, activation: str | None
    ) -> np.ndarray | None:
        # Where neither says anything, as the server gives them: they may be probabilities already.
        if activation is None and self._reranker.activation == LOGITS:
            return logits
        return super().shown(logits, alpha, policy, activation)

    def warm_up(self) -> None:
        """Score a short text: a wrong address or key ends the start."""
        self._scorer.score_texts([("a", "a")])


class _TextJob(Job):
    """A job that keeps its texts, which become no tokens here.

    Attributes:
        texts: of the pairs, and those that policies write. [T]
    """

    def __init__(self, served: Served, pairs: Sequence[TextPair], plan: ReadingPlan) -> None:
        documents = [document for _, document in pairs]
        super().__init__(served, pairs[0][0], documents, plan, truncated=None)
        self.texts = [*pairs, *plan.new_texts]


def _about_tokens(pairs: Sequence[TextPair]) -> int:
    """Tokens of documents, by their characters: one of English prose has about four."""
    return sum(len(document) // 4 + 1 for _, document in pairs)
