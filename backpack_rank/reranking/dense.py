"""A first stage that compares vectors.

It gives the documents whose vectors have the highest dot product with the query's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from backpack_rank.constructors import Count, FilePath, Name, OneOf
from backpack_rank.data.collection import Collection, DocumentStore, Run
from backpack_rank.data.first_stage import checked_depth
from backpack_rank.files import cache_dir, kept_or_rebuilt
from backpack_rank.models.factory import load_ranker, ranker_folder
from backpack_rank.models.number_formats import FORMATS
from backpack_rank.reranking.dense_search import top_k
from backpack_rank.reranking.dense_vectors import DocumentVectors, Encoding
from backpack_rank.reranking.scorer import Scorer, ScoringSettings


class Dense:
    """A dual encoder over the whole corpus, exactly.

    No document is left out by an approximate index.

    Documents are encoded once and their vectors kept on disk in half precision. Scores are those of
    the dual encoder up to that rounding. Every document has a score, so every query has ``depth``
    candidates, and ties are broken by ascending document id. A
    :class:`~backpack_rank.data.first_stage.FirstStage`.
    """

    def __init__(
        self,
        checkpoint: FilePath,
        depth: Count = 100,
        device: Name = "auto",
        dtype: Annotated[str, OneOf(FORMATS)] = "float32",
        tokens_per_batch: Count | None = None,
        folder: FilePath | None = None,
        name: Name = "dense",
    ) -> None:
        """
        Args:
            checkpoint: folder of a saved dual encoder, or of the run that trained it.
            depth: candidates per query; a smaller corpus gives fewer.
            device, dtype, tokens_per_batch: as in
                :class:`~backpack_rank.reranking.scorer.ScoringSettings`.
            folder: where vectors are kept; None is ``dense/`` in the cache folder.
            name: row label in reports.

        Raises:
            ValueError: an option is out of its range or unknown.
            FileNotFoundError: the folder has no saved ranker.
        """
        self.depth = checked_depth(depth)
        self.name = name
        self.folder = Path(folder).expanduser() if folder else cache_dir() / "dense"
        self.checkpoint = ranker_folder(checkpoint, "first_stage.checkpoint")
        try:
            self.settings = ScoringSettings(device, dtype, tokens_per_batch)
        except ValueError as error:
            raise ValueError(str(error).replace("scoring.", "first_stage.")) from error

    def candidates(self, collection: Collection) -> Run:
        """Search every query; the documents are encoded, or their vectors taken from the folder.

        Raises:
            ValueError: the collection has no documents, the ranker is no dual encoder, or a query
                is empty or too long.
        """
        if len(collection.documents) == 0:
            raise ValueError(f"collection {collection.name!r} has no documents to search")
        ranker, pair_tokenizer = load_ranker(self.checkpoint)
        try:
            encoding = Encoding(Scorer(ranker, pair_tokenizer, self.settings))
        except ValueError as error:
            raise ValueError(f"first_stage.checkpoint={self.checkpoint}: {error}") from error
        queries = torch.from_numpy(encoding.queries(collection.queries))
        known = self._vectors(collection.documents, encoding)
        order = np.argsort(known.doc_ids, kind="stable")  # UTF-8 bytes sort as their characters do
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        best_ranks, scores = top_k(queries, known.vectors, ranks, self.depth, encoding.device)
        run: Run = {}
        for query_id, query_ranks, query_scores in zip(
            collection.queries, best_ranks, scores, strict=True
        ):
            candidates: dict[str, float] = {}
            for rank, score in zip(query_ranks, query_scores, strict=True):
                candidates[known.doc_ids[order[rank]].decode("utf-8")] = float(score)
            run[query_id] = candidates
        return run

    def _vectors(self, documents: DocumentStore, encoding: Encoding) -> DocumentVectors:
        def kept() -> DocumentVectors:
            return DocumentVectors.of(documents, encoding, self.folder)

        def made_anew() -> DocumentVectors:
            # Mapped files stay readable after they are removed, where the system removes them.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                return DocumentVectors.of(documents, encoding, Path(folder))

        return kept_or_rebuilt(kept, made_anew, "vectors of documents")
