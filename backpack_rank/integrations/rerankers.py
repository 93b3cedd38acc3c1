"""A ranker for the rerankers library (0.10 or newer); importing this module registers it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rerankers.documents import Document
from rerankers.models import AVAILABLE_RANKERS
from rerankers.models.ranker import BaseRanker
from rerankers.results import RankedResults, Result
from rerankers.utils import prep_docs

from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import check_threshold
from backpack_rank.senses.policies import Policy


class BackpackRanker(BaseRanker):
    """Scores are raw logits.

    >>> from rerankers import Reranker
    >>> folder = "outputs/train/DATE/ranker"
    >>> Reranker(folder, model_type="BackpackRanker", alpha=0.5)  # doctest: +SKIP
    """

    def __init__(
        self,
        model_name_or_path: str | Path | PointwiseReranker,
        verbose: int = 1,
        alpha: float | None = None,
        policy: Policy | str | None = None,
        score_threshold: float | None = None,
        long_documents: str | None = None,
        max_chunks_per_doc: int | None = None,
        chunk_overlap: int | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            model_name_or_path: what :func:`backpack_rank.load` takes, or gives.
            verbose: of the library; nothing is printed here.
            alpha, policy: as of ``PointwiseReranker.predict``.
            score_threshold: documents with lower scores are left out of rankings, and counted in
                the log; None: none.
            long_documents, max_chunks_per_doc, chunk_overlap: as of ``PointwiseReranker.reading``.
            options: of :func:`backpack_rank.load`.

        Raises:
            ValueError: the ranker ranks lists, or an option does not fit it.
        """
        reranker: Any
        if isinstance(model_name_or_path, PointwiseReranker):
            reranker = model_name_or_path
        else:
            reranker = load(model_name_or_path, **options)
        if not isinstance(reranker, PointwiseReranker):
            raise ValueError(
                f"{model_name_or_path} ranks lists; rerankers takes rankers that score one "
                "document at a time"
            )
        self.verbose = verbose
        check_threshold(score_threshold)
        controlled = reranker.at(alpha, policy)
        self.reranker = controlled.reading(long_documents, max_chunks_per_doc, chunk_overlap)
        self.score_threshold = score_threshold

    def score(self, query: str, doc: str) -> float:
        """The score of one document."""
        return float(self.reranker.predict([(query, doc)])[0])

    def rank(
        self,
        query: str,
        docs: str | list[str] | Document | list[Document],
        doc_ids: list[str] | list[int] | None = None,
        metadata: list[dict[str, Any]] | None = None,
        batch_size: int | None = None,
    ) -> RankedResults:
        """The documents from best to worst.

        Batches are made by tokens, so ``batch_size`` is not looked at.
        """
        documents: list[Document] = []
        if docs != []:  # prep_docs asks an empty list for its first element
            documents = prep_docs(docs, doc_ids, metadata)
        texts = [document.text for document in documents]
        rows = self.reranker.rank(query, texts, score_threshold=self.score_threshold)
        results = []
        for rank, row in enumerate(rows, start=1):
            document = documents[row["corpus_id"]]
            results.append(Result(document=document, score=row["score"], rank=rank))
        return RankedResults(results=results, query=query, has_scores=True)


AVAILABLE_RANKERS["BackpackRanker"] = BackpackRanker
