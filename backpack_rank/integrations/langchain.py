"""A document compressor for LangChain (langchain-core 1 or newer)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict

from backpack_rank.reranking.pointwise import PointwiseReranker


class BackpackCompressor(BaseDocumentCompressor):
    """Keeps the best documents, with their raw logits as ``metadata["relevance_score"]``.

    >>> BackpackCompressor(reranker=backpack_rank.load(folder), alpha=0.5, top_n=3)  # doctest: +SKIP

    Attributes:
        reranker: what :func:`backpack_rank.load` gives.
        alpha, policy: as of ``PointwiseReranker.predict``.
        top_n: documents that are kept; None: all.
    """

    reranker: PointwiseReranker
    alpha: float | None = None
    policy: Any = None
    top_n: int | None = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Copies of the best documents, best first."""
        texts = [document.page_content for document in documents]
        rows = self.reranker.rank(query, texts, self.top_n, alpha=self.alpha, policy=self.policy)
        return [
            given.model_copy(update={"metadata": {**given.metadata, "relevance_score": row["score"]}})
            for row in rows
            for given in [documents[row["corpus_id"]]]
        ]
