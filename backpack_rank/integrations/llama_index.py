"""A node postprocessor for LlamaIndex (llama-index-core 0.14 or newer)."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from backpack_rank.integrations.chain_options import RerankerOptions


class BackpackRerank(RerankerOptions, BaseNodePostprocessor):
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
        rows = self._ranked(query_bundle.query_str, texts)
        ranked = []
        for row in rows:
            node = nodes[row["corpus_id"]].node
            ranked.append(NodeWithScore(node=node, score=row["score"]))
        return ranked
