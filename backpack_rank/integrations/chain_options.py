"""Options of a reranker as fields of pydantic: what LangChain and LlamaIndex read alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import Ranking, check_threshold


class RerankerOptions(BaseModel):
    """The first base of a class of a pydantic framework that ranks texts.

    >>> class Rerank(RerankerOptions):  # and the framework's own base
    ...     def run(self, query, texts):
    ...         return self._ranked(query, texts)

    Attributes:
        reranker: what :func:`backpack_rank.load` gives.
        alpha, policy: as of ``PointwiseReranker.predict``.
        top_n: texts that are kept; None: all.
        score_threshold: texts with lower scores are left out, and counted in the log; None: none.
        long_documents, max_chunks_per_doc, chunk_overlap: as of ``PointwiseReranker.reading``.

    Raises:
        ValueError: an option of these is wrong.
    """

    reranker: PointwiseReranker
    alpha: float | None = None
    policy: Any = None
    top_n: int | None = None
    score_threshold: float | None = None
    long_documents: str | None = None
    max_chunks_per_doc: int | None = None
    chunk_overlap: int | None = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

    def model_post_init(self, context: Any, /) -> None:
        """Refuse what does not fit here, and not in the middle of a chain."""
        super().model_post_init(context)
        check_threshold(self.score_threshold)
        self._reading()

    def _reading(self) -> PointwiseReranker:
        return self.reranker.reading(
            self.long_documents, self.max_chunks_per_doc, self.chunk_overlap
        )

    def _ranked(self, query: str, texts: Sequence[str]) -> Ranking:
        """Rows of the texts that are kept, best first."""
        return self._reading().rank(
            query,
            texts,
            self.top_n,
            score_threshold=self.score_threshold,
            alpha=self.alpha,
            policy=self.policy,
        )
