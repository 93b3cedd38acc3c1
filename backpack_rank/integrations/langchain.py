"""A document compressor for LangChain (langchain-core 1 or newer)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict

from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import check_threshold


class BackpackCompressor(BaseDocumentCompressor):
    """Keeps the best documents, with their raw logits as ``metadata["relevance_score"]``.

    >>> reranker = backpack_rank.load(folder)  # doctest: +SKIP
    >>> BackpackCompressor(reranker=reranker, alpha=0.5, top_n=3)  # doctest: +SKIP

    Attributes:
        reranker: what :func:`backpack_rank.load` gives.
        alpha, policy: as of ``PointwiseReranker.predict``.
        top_n: documents that are kept; None: all.
        score_threshold: documents with lower scores are left out, and counted in the log.
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

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Copies of the best documents, best first."""
        texts = [document.page_content for document in documents]
        rows = self._reading().rank(
            query,
            texts,
            self.top_n,
            score_threshold=self.score_threshold,
            alpha=self.alpha,
            policy=self.policy,
        )
        best = []
        for row in rows:
            document = documents[row["corpus_id"]]
            metadata = {**document.metadata, "relevance_score": row["score"]}
            best.append(document.model_copy(update={"metadata": metadata}))
        return best
