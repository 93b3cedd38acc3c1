"""A node postprocessor for LlamaIndex (llama-index-core 0.14 or newer)."""

from __future__ import annotations

from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import ConfigDict

from backpack_rank.reranking.pointwise import PointwiseReranker


class BackpackRerank(BaseNodePostprocessor):
    """Keeps the best nodes, with raw logits as their scores.

    >>> BackpackRerank(reranker=backpack_rank.load(folder), alpha=0.5, top_n=3)  # doctest: +SKIP

    Attributes:
        reranker: what :func:`backpack_rank.load` gives.
        alpha, policy: as of ``PointwiseReranker.predict``.
        top_n: nodes that are kept; None: all.
    """

    reranker: PointwiseReranker
    alpha: float | None = None
    policy: Any = None
    top_n: int | None = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

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
        rows = self.reranker.rank(
            query_bundle.query_str, texts, self.top_n, alpha=self.alpha, policy=self.policy
        )
        return [
            NodeWithScore(node=nodes[row["corpus_id"]].node, score=row["score"]) for row in rows
        ]
