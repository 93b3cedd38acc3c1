"""What is read of a document that is longer than a ranker's input."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backpack_rank.checks import whole_number

STRATEGIES = ("cut", "chunks")
"""The beginning of a long document is read, or several chunks of it."""


@dataclass(frozen=True)
class LongDocuments:
    """Says how documents are read that do not fit behind their query.

    A chunk is a stretch of a document's tokens, as long as fits behind the query. The score of a
    document is that of its best chunk. Overlap, and what of a document is read, count in tokens::

        four = LongDocuments("chunks", max_chunks_per_doc=4, chunk_overlap=32)
        [chunk.tolist() for chunk in LongDocuments("chunks").chunks(np.arange(5), room=2)]
        # [[0, 1], [2, 3], [3, 4]]

    Attributes:
        long_documents: one of :data:`STRATEGIES`.
        max_chunks_per_doc: chunks of a document at most, from its beginning; None: all.
        chunk_overlap: tokens that a chunk shares with the one before it, at most half of a chunk.

    Raises:
        ValueError: a value is wrong, or chunks are described where documents are cut.
    """

    long_documents: str = "cut"
    max_chunks_per_doc: int | None = None
    chunk_overlap: int = 0

    def __post_init__(self) -> None:
        if self.long_documents not in STRATEGIES:
            raise ValueError(
                f"long_documents={self.long_documents!r}: use one of {', '.join(STRATEGIES)}"
            )
        whole_number("max_chunks_per_doc", self.max_chunks_per_doc, 1, null="for all")
        whole_number("chunk_overlap", self.chunk_overlap, 0)
        if self.in_chunks:
            return
        for name, unset in (("max_chunks_per_doc", None), ("chunk_overlap", 0)):
            value = getattr(self, name)
            if value != unset:
                raise ValueError(f"{name}={value} needs long_documents=chunks: documents are cut")

    @property
    def in_chunks(self) -> bool:
        """Whether more than the beginning of a long document is read."""
        return self.long_documents == "chunks"

    def changed(
        self,
        long_documents: str | None = None,
        max_chunks_per_doc: int | None = None,
        chunk_overlap: int | None = None,
    ) -> LongDocuments:
        """These settings with others in place of what is given; None keeps what is here.

        >>> LongDocuments("chunks", 4).changed(chunk_overlap=8)
        LongDocuments(long_documents='chunks', max_chunks_per_doc=4, chunk_overlap=8)
        >>> LongDocuments("chunks", 4).changed("cut")
        LongDocuments(long_documents='cut', max_chunks_per_doc=None, chunk_overlap=0)
        """
        # Who asks for the other strategy does not mean the chunks that were described before.
        before = self
        if long_documents is not None and long_documents != self.long_documents:
            before = LongDocuments()
        return LongDocuments(
            before.long_documents if long_documents is None else long_documents,
            before.max_chunks_per_doc if max_chunks_per_doc is None else max_chunks_per_doc,
            before.chunk_overlap if chunk_overlap is None else chunk_overlap,
        )

    def most_tokens(self, max_length: int) -> int | None:
        """Tokens of a document that are ever read, or more; None: all that it has.

        Args:
            max_length: of a joined text.
        """
        if not self.in_chunks:
            return max_length
        if self.max_chunks_per_doc is None:
            return None
        return self.max_chunks_per_doc * max_length

    def tokens(self, room: int) -> int | None:
        """Tokens of a document that are read; None: all that it has.

        Args:
            room: tokens of a document that fit behind its query.
        """
        if not self.in_chunks:
            return room
        if self.max_chunks_per_doc is None:
            return None
        return room + (self.max_chunks_per_doc - 1) * self._step(room)

    def chunks(self, document: np.ndarray, room: int) -> list[np.ndarray]:
        """What is read of a document, one chunk after the other; the first is its beginning.

        The last chunk begins earlier than its turn, so that it is as full as the others.

        Args:
            document: token ids. [n]
            room: tokens of a document that fit behind its query.
        """
        if not self.in_chunks:
            return [document]  # the tokenizer cuts it where it joins it to the query
        document = document[: self.tokens(room)]
        last_start = max(0, len(document) - room)
        chunks = []
        start = 0
        while start < last_start:
            chunks.append(document[start : start + room])
            start += self._step(room)
        chunks.append(document[last_start:])
        return chunks

    def estimated_tokens(self, query: float, document: float, max_length: int) -> float:
        """About how many tokens of a pair are read, its query once for each chunk.

        >>> LongDocuments().estimated_tokens(10, 1000, max_length=110)
        110
        >>> LongDocuments("chunks", 4).estimated_tokens(10, 1000, max_length=110)
        440

        Args:
            query, document: tokens of the two.
            max_length: of a joined text.
        """
        if query + document <= max_length or not self.in_chunks:
            return min(query + document, max_length)
        room = max(1, int(max_length - query))
        number = 1 + math.ceil((document - room) / self._step(room))
        if self.max_chunks_per_doc is not None:
            number = min(number, self.max_chunks_per_doc)
        return number * max_length

    def _step(self, room: int) -> int:
        """Tokens from one chunk's beginning to the next one's, at least half of a chunk."""
        # The room depends on the query. Behind a long one a fixed overlap might leave no step.
        return max(room - self.chunk_overlap, (room + 1) // 2)


CUT = LongDocuments()
"""The beginning alone is read."""
