"""Several wordings of one text, for rankers that compare vectors: their mean is one vector.

A policy writes a document once for each group, such as "She cooks." and "He cooks.". A ranker of
pairs scores each of them. One that compares vectors needs them together, because the mean of unit
vectors is shorter than they are and is made a unit vector again before it is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.tokenisation import Beginning, PairTokenizer

_SIGN = "\x1e"
"""Between the wordings of one text, ASCII's sign between records."""


class Wordings(str):
    """In place of a text: all wordings, one behind the other, and yet one text.

    >>> Wordings.of(["She cooks.", "He cooks."]).texts
    ('She cooks.', 'He cooks.')
    >>> Wordings.of(["It cooks.", "It cooks."])
    'It cooks.'

    Attributes:
        texts: the wordings; one that counts twice stands there twice.
    """

    texts: tuple[str, ...]

    def __new__(cls, texts: Sequence[str]) -> Wordings:
        self = super().__new__(cls, _SIGN.join(texts))
        self.texts = tuple(texts)
        return self

    @classmethod
    def of(cls, texts: Sequence[str]) -> str:
        """Some wordings of a text, or the text itself where all of them are equal."""
        return texts[0] if len(set(texts)) == 1 else cls(texts)

    # A text that holds the sign is another one than the wordings on its two sides.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wordings) and other.texts == self.texts

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.texts)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.texts,)


def wordings_of(text: str) -> tuple[str, ...]:
    """The wordings of a text, one of an ordinary text."""
    return text.texts if isinstance(text, Wordings) else (text,)


@dataclass(frozen=True)
class ApartPairTokenizer(PairTokenizer):
    """Subclass it for rankers that read query and document apart: it reads wordings too.

    A pair is one row of tokens. Wordings of a document stand behind each other in it, with
    :attr:`mark` between them, a number beyond the vocabulary that no network reads::

        [query] [document] [mark] [document, other wording]
    """

    @cached_property
    def mark(self) -> int:
        """Stands between two wordings of one text."""
        return max(self.tokenizer.get_vocab().values()) + 1

    @property
    def boundary(self) -> np.ndarray:
        """What stands between query and document, where their own tokens do not tell. [0 or 1]"""
        return np.empty(0, dtype=np.int32)

    def query_row(self, ids: np.ndarray) -> np.ndarray:
        """A query as it is read alone."""
        raise NotImplementedError

    def document_row(self, ids: np.ndarray) -> np.ndarray:
        """A document as it is read alone, cut to its limit."""
        raise NotImplementedError

    def queries(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each query as it is read.

        Raises:
            ValueError: see :meth:`encode_query`.
        """
        return [self.query_row(self.encode_query(text)) for text in texts]

    def documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each document as it is read, cut to ``max_length``."""
        return [self.document_row(beginning.ids) for beginning in self.beginnings(texts)]

    def beginnings(
        self, texts: Sequence[str], long_documents: LongDocuments = CUT
    ) -> list[Beginning]:
        """See :meth:`PairTokenizer.beginnings`; the ids of a text are those of all its wordings."""
        plain: dict[str, None] = {}
        for text in texts:
            plain.update(dict.fromkeys(wordings_of(text)))
        found = super().beginnings(list(plain), long_documents)
        by_text = dict(zip(plain, found, strict=True))
        beginnings = []
        for text in texts:
            parts = [by_text[wording] for wording in wordings_of(text)]
            if len(parts) == 1:
                beginnings += parts
                continue
            ids = self._marked([part.ids for part in parts])
            beginnings.append(Beginning(text, ids, all(part.is_complete for part in parts)))
        return beginnings

    def reading(self, text: str, long_documents: LongDocuments = CUT) -> Any:
        """See :meth:`PairTokenizer.reading`."""
        if not isinstance(text, Wordings):
            return super().reading(text, long_documents)
        readings = []
        for wording in text.texts:
            readings.append(super().reading(wording, long_documents))
        return tuple(readings)

    def chunks(
        self,
        beginning: Beginning,
        room: int,
        long_documents: LongDocuments = CUT,
        most: int | None = None,
    ) -> tuple[list[np.ndarray], bool]:
        """See :meth:`PairTokenizer.chunks`: chunk i holds chunk i of each wording."""
        chunks_of_wordings = []
        is_cut = not beginning.is_complete
        for ids in split(beginning.ids, self.mark):
            chunks, is_part = self.chunks_of_one(ids, room, long_documents, most)
            chunks_of_wordings.append(chunks)
            is_cut |= is_part
        together = []
        for number in range(max(map(len, chunks_of_wordings))):
            # A wording with fewer chunks than others ends with its last one.
            parts = [chunks[min(number, len(chunks) - 1)] for chunks in chunks_of_wordings]
            if all(np.array_equal(part, parts[0]) for part in parts):
                parts = parts[:1]
            together.append(self._marked(parts))
        return together, is_cut

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """The row of a pair, with each wording of the document as it is read alone."""
        documents = [self.document_row(ids) for ids in split(document, self.mark)]
        return np.concatenate([self.query_row(query), self.boundary, self._marked(documents)])

    def _marked(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        if len(parts) == 1:
            return parts[0]
        mark = np.array([self.mark], dtype=np.int32)
        joined = [parts[0]]
        for part in parts[1:]:
            joined += [mark, part]
        return np.concatenate(joined)


def split(ids: np.ndarray, mark: int) -> list[np.ndarray]:
    """The parts of a row of tokens between marks.

    >>> [part.tolist() for part in split(np.array([5, 6, 99, 5, 7]), 99)]
    [[5, 6], [5, 7]]
    """
    places = np.flatnonzero(ids == mark)
    if not len(places):
        return [ids]
    parts = []
    start = 0
    for place in places.tolist():
        parts.append(ids[start:place])
        start = place + 1
    parts.append(ids[start:])
    return parts
