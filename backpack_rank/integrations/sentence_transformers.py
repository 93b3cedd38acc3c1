"""``CrossEncoder`` of sentence-transformers (6 or newer), around any reranker or of its folder.

Importing this module is what ``CrossEncoder(folder)`` needs to load a ranker that ``train.py``
saved. It also makes ``CrossEncoder.predict`` refuse ``alpha``, ``policy`` and ``long_documents``
for models that would ignore them.

>>> import backpack_rank.integrations.sentence_transformers  # doctest: +SKIP
>>> CrossEncoder(folder).predict(pairs, alpha=0.5)  # doctest: +SKIP
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import InputModule
from transformers import PreTrainedTokenizerBase

from backpack_rank.integrations.sequence_classification import refuse_ignored_keywords
from backpack_rank.models.loading import save_ranker
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker, ranked_rows
from backpack_rank.reranking.rankings import Ranking, check_threshold, log_below_threshold, reaches
from backpack_rank.senses.policies import Policy


def cross_encoder(reranker: PointwiseReranker) -> CrossEncoder:
    """For programs that expect a ``CrossEncoder``: it gives the reranker's scores, raw logits.

    >>> model = cross_encoder(backpack_rank.load(folder))  # doctest: +SKIP
    >>> model.predict(pairs, alpha=0.5, policy="paired_tokens")  # doctest: +SKIP
    >>> model.rank(query, documents, score_threshold=0.0, alpha=0.5)  # doctest: +SKIP

    ``predict`` and ``rank`` take ``alpha``, ``policy``, ``long_documents``, ``max_chunks_per_doc``
    and ``chunk_overlap``; without them they have the setting of the reranker. It ranks and does
    not train: that is for ``CrossEncoder(folder)``.
    """
    return RerankerCrossEncoder(
        modules=[RerankerModule(reranker)], activation_fn=torch.nn.Identity()
    )


class RerankerCrossEncoder(CrossEncoder):
    """Use :func:`cross_encoder` to make this: a ``CrossEncoder`` whose ``rank`` has the options of
    its reranker.
    """

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        score_threshold: float | None = None,
        **options: Any,
    ) -> Ranking:
        """Documents from best to worst.

        Args:
            query, documents: their texts.
            top_k: at most this many; None: all.
            return_documents: add the text of each document, as ``text``.
            score_threshold: documents with lower scores are left out; how many they are says
                ``below_threshold`` of the ranking.
            options: of ``predict``.
        """
        check_threshold(score_threshold)
        scores = np.empty(0)
        if documents:
            scores = self.predict([(query, document) for document in documents], **options)
        rows = ranked_rows(scores, documents, top_k, return_documents, score_threshold)
        below = int((~reaches(scores, score_threshold)).sum())
        log_below_threshold(below, len(documents), score_threshold)
        return Ranking(rows, query, documents, below)


class RerankerModule(InputModule):
    """The one module of such a ``CrossEncoder``: texts in, scores out."""

    forward_kwargs = {
        "alpha",
        "policy",
        "long_documents",
        "max_chunks_per_doc",
        "chunk_overlap",
    }
    save_in_root = True

    def __init__(self, reranker: PointwiseReranker) -> None:
        super().__init__()
        self.reranker = reranker
        # A submodule, so that the library finds the device and can move it.
        self.ranker = reranker.local_scorer.ranker

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The ranker's."""
        return self.reranker.local_scorer.pair_tokenizer.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Tokens of a pair at most."""
        return self.reranker.local_scorer.pair_tokenizer.max_length

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """The pairs, unchanged.

        Raises ``ValueError`` for a prompt, which the ranker was not trained with.
        """
        if prompt:
            raise ValueError(
                f"prompt={prompt!r}: this ranker reads a query and a document, and no prompt"
            )
        return {"pairs": [tuple(pair) for pair in inputs]}

    def forward(
        self,
        features: dict[str, Any],
        alpha: float | None = None,
        policy: Policy | str | None = None,
        long_documents: str | None = None,
        max_chunks_per_doc: int | None = None,
        chunk_overlap: int | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Adds ``scores`` [B, 1]."""
        scorer = self.reranker.local_scorer
        # The library moves modules by itself, and the scorer does not hear of it.
        scorer.device = next(self.ranker.parameters()).device
        scores = self.reranker.predict(
            features["pairs"],
            alpha=alpha,
            policy=policy,
            long_documents=long_documents,
            max_chunks_per_doc=max_chunks_per_doc,
            chunk_overlap=chunk_overlap,
        )
        features["scores"] = torch.from_numpy(scores)[:, None].to(scorer.device)
        return features

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the ranker into a folder that exists already."""
        # save_ranker replaces a whole folder, and this one has files of the library in it.
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "ranker"
            save_ranker(folder, self.ranker, self.reranker.local_scorer.pair_tokenizer)
            shutil.copytree(folder, output_path, dirs_exist_ok=True)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> RerankerModule:
        """Read what :meth:`save` wrote."""
        download_options = {}
        for name in ("token", "cache_folder", "revision", "local_files_only"):
            if name in options:
                download_options[name] = options[name]
        folder = cls.load_dir_path(model_name_or_path, subfolder, **download_options)
        reranker = load(folder, device="cpu")
        assert isinstance(reranker, PointwiseReranker)
        return cls(reranker)


refuse_ignored_keywords(CrossEncoder)
