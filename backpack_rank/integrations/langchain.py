"""A document compressor for LangChain (langchain-core 1 or newer)."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document

from backpack_rank.integrations.chain_options import RerankerOptions


class BackpackCompressor(RerankerOptions, BaseDocumentCompressor):
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

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Copies of the best documents, best first."""
        texts = [document.page_content for document in documents]
        rows = self._ranked(query, texts)
        best = []
        for row in rows:
            document = documents[row["corpus_id"]]
            metadata = {**document.metadata, "relevance_score": row["score"]}
            best.append(document.model_copy(update={"metadata": metadata}))
        return best
