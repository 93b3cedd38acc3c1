"""How scores are computed, and what every scorer of texts can do, here or behind a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from backpack_rank.constructors import Count, CountOrZero, Name, Note, OneOf, Workers, checked
from backpack_rank.data.batching import Pairs
from backpack_rank.data.long_documents import CUT, STRATEGIES, LongDocuments
from backpack_rank.models.configuration import READOUTS
from backpack_rank.models.number_formats import FORMATS
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

UNCHANGED = View()
"""The ranker as it was trained: no senses weighed, no tokens moved."""


@checked("scoring")
@dataclass(frozen=True)
class ScoringSettings:
    """How scores are computed (``conf/evaluate.yaml``, ``scoring``).

    Attributes:
        device: ``auto`` (a GPU when there is one), ``cpu``, ``cuda``, ``cuda:1`` ...
        dtype: number format of weights and activations, one of
            :data:`~backpack_rank.models.number_formats.FORMATS`; ``auto`` is bfloat16 where the
            device computes in it.
        tokens_per_batch: tokens of a packed batch; None chooses by device.
        workers: processes that read and tokenise.
        readout: where a Backpack with a linear head reads its score, ``pooled`` (one token) or
            ``mean_sigmoid`` (all of them); None: as it was saved.
        long_documents: ``cut`` reads the beginning of a document that does not fit behind its
            query; ``chunks`` reads it in chunks of tokens, and takes the best one's score.
        max_chunks_per_doc: of a document, from its beginning; None: all.
        chunk_overlap: tokens that a chunk shares with the one before it.

    Raises:
        ValueError: chunks are described where documents are cut.
    """

    device: Name = "auto"
    dtype: Annotated[str, OneOf(FORMATS)] = "float32"
    tokens_per_batch: Count | Annotated[None, Note("to choose by device")] = None
    workers: Workers = 0
    readout: Annotated[str, OneOf(READOUTS)] | Annotated[None, Note("as it was saved")] = None
    long_documents: Annotated[str, OneOf(STRATEGIES)] = CUT.long_documents
    max_chunks_per_doc: Count | Annotated[None, Note("for all")] = CUT.max_chunks_per_doc
    chunk_overlap: CountOrZero = CUT.chunk_overlap

    def __post_init__(self) -> None:
        try:
            _ = self.documents
        except ValueError as error:
            raise ValueError(f"scoring.{error}") from None

    @property
    def documents(self) -> LongDocuments:
        """How long documents are read."""
        return LongDocuments(self.long_documents, self.max_chunks_per_doc, self.chunk_overlap)


class TextScorer(ABC):
    """Subclass this for whatever scores pairs of texts, here or behind a server.

    A :class:`~backpack_rank.reranking.pointwise.PointwiseReranker` ranks with it.

    Attributes:
        ranker: with ``label`` and ``has_senses``.
        tokenizer: of the ranker; None where it is out of reach.
        long_documents: how documents are read that are longer than the ranker's input.
    """

    ranker: Any
    tokenizer: PreTrainedTokenizerBase | None
    long_documents: LongDocuments = CUT

    def with_long_documents(self, long_documents: LongDocuments) -> TextScorer:
        """This scorer, reading long documents in another way; the ranker is shared.

        Raises:
            ValueError: it cannot read them in this way.
        """
        if long_documents != self.long_documents:
            raise ValueError(
                f"long_documents={long_documents.long_documents!r}: {self.ranker.label} cuts its "
                "texts itself"
            )
        return self

    @abstractmethod
    def score_texts(self, pairs: Sequence[tuple[str, str]], view: View = UNCHANGED) -> np.ndarray:
        """Raw logits of (query, document) texts; equal texts have equal logits. [N] float32"""

    @abstractmethod
    def scores(
        self, pairs: Pairs, view: View = UNCHANGED, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows of a collection's pairs. [N] float32"""

    @property
    def number_format(self) -> str:
        """The number format that scores are computed in, as far as it is known here."""
        return "a format that is not known here"

    @property
    def identity(self) -> dict[str, Any]:
        """What scores depend on beside the texts, as far as it is known here; values of JSON."""
        return {"weights": f"those of {self.ranker.label}", "number format": self.number_format}

    def cut(self, text: str) -> str:
        """The beginning of a text, with at least all that is ever read of it."""
        return text

    def reading(self, text: str) -> Hashable:
        """Equal for two texts of which the ranker reads the same tokens."""
        return text
