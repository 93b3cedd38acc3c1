"""Which class serves a ranker."""

from __future__ import annotations

from backpack_rank.parts import imported, served_classes
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.remote import ServerScorer
from backpack_rank.reranking.rerankers import TextReranker
from backpack_rank.serving.jobs import Served
from backpack_rank.serving.pointwise import ServedPointwise
from backpack_rank.serving.remote import ServedRemote


def served(name: str, reranker: TextReranker) -> Served:
    """Serve what ``backpack_rank.load`` gives, under the name that requests ask for."""
    if isinstance(reranker, PointwiseReranker):
        if isinstance(reranker.scorer, ServerScorer):
            return ServedRemote(name, reranker)
        return ServedPointwise(name, reranker)
    class_name = served_classes()[type(reranker).__name__]
    ranker: Served = imported(class_name)(name, reranker)
    return ranker
