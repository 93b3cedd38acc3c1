"""A node postprocessor for LlamaIndex (llama-index-core 0.14 or newer)."""

from __future__ import annotations

from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import ConfigDict

from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import check_threshold


class BackpackRerank(BaseNodePostprocessor):
    """Keeps the best nodes, with raw logits as their scores.

    >>> BackpackRerank(reranker=backpack_rank.load(folder), alpha=0.5, top_n=3)  # doctest: +SKIP

    Attributes:
        reranker: what :func:`backpack_rank.load` gives.
        alpha, policy: as of ``PointwiseReranker.predict``.
        top_n: nodes that are kept; None: all.
        score_threshold: nodes with lower scores are left out, and counted in the log; None: none.
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

    @classmethod
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "BackpackRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ValueError("nodes are ranked for a query: give query_str or query_bundle")
        texts = [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        rows = self._reading().rank(
            query_bundle.query_str,
            texts,
            self.top_n,
            score_threshold=self.score_threshold,
            alpha=self.alpha,
            policy=self.policy,
        )
        ranked = []
        for row in rows:
            node = nodes[row["corpus_id"]].node
            ranked.append(NodeWithScore(node=node, score=row["score"]))
        return ranked
