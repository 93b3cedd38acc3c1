"""Rankers that read query and document apart and compare what they make of each.

So a text is read once, whatever it is compared with: in inference a ranker remembers what it made
of texts (:class:`TextMemory`), and a run, a request or a sweep reads each document once.

Notation of the docstrings: B rows, each a query and a document as an
:class:`~backpack_rank.data.wordings.ApartPairTokenizer` joins them; D numbers of a vector.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import Ranker, RankerOutput
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import weight_state

QUERY, DOCUMENT = "query", "document"
_REMEMBERED_BYTES = 2**28
"""Of vectors in memory at once: of 384 numbers each, about 170,000 texts."""


class TextMemory:
    """What a ranker made of texts, up to a number of bytes; the least recently used go first.

    >>> memory = TextMemory(most_bytes=8)
    >>> memory.keep("a", torch.zeros(1)); memory.keep("b", torch.ones(1))
    >>> _ = memory.get("a"); memory.keep("c", torch.ones(1))
    >>> memory.get("b") is None, memory.get("a")
    (True, tensor([0.]))
    """

    def __init__(self, most_bytes: int = _REMEMBERED_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Any, Tensor] = OrderedDict()
        self._state: Hashable = None

    def get(self, key: Any) -> Tensor | None:
        """What is kept under a key, or None."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def keep(self, key: Any, value: Tensor) -> None:
        """Keep a tensor that shares its storage with no other."""
        self._kept[key] = value
        self._bytes += value.nbytes
        while self._bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._bytes = 0

    def of_weights(self, state: Hashable) -> None:
        """Forget everything if the weights are no longer those that made what is kept."""
        if state != self._state:
            self.clear()
            self._state = state

    def __reduce__(self) -> tuple[type[TextMemory], tuple[int]]:
        # A copy of a ranker, also one in another process, has weights of its own: it begins empty.
        return TextMemory, (self._most_bytes,)


class ApartRanker(Ranker):
    """Subclass it for a ranker that reads query and document apart.

    Weights may change between two calls, in the same object: what was made of texts by other
    weights is forgotten. Only a change through ``parameter.data`` in place is not seen by PyTorch;
    after one, call ``ranker.memory.clear()``.

    Attributes:
        mark: number between two wordings of one text, that of its tokenizer; -1: not yet known.
        memory: what it made of texts, in inference.
    """

    mark: int = -1

    @property
    def memory(self) -> TextMemory:
        """Made when it is first asked for: modules of transformers set their attributes late."""
        if "_memory" not in self.__dict__:
            self.__dict__["_memory"] = TextMemory()
        memory: TextMemory = self.__dict__["_memory"]
        return memory

    @abstractmethod
    def read(
        self, batch: PackedBatch, kind: str, token_shift: TokenShift | None = None
    ) -> Sequence[Tensor]:
        """What the ranker makes of each text, ``query`` or ``document``. B tensors"""

    @abstractmethod
    def compare(self, queries: Sequence[Tensor], documents: Sequence[Tensor]) -> Tensor:
        """Scores of B pairs of what :meth:`read` gives. [B]"""

    @abstractmethod
    def parts_of_row(self, row: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The query of a row, and the wordings of its document, which is mostly one.

        Raises:
            ValueError: it is no row of the ranker's tokenizer.
        """

    def mean(self, wordings: Sequence[Tensor]) -> Tensor:
        """What stands for a text of several wordings.

        Raises:
            TypeError: the ranker has no such mean.
        """
        raise TypeError(f"{self.label} compares no vectors that have a mean")

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores of B rows; a text that several rows have is read once.

        Raises:
            TypeError: weights or sense vectors are asked for.
            ValueError: a row is not as the ranker's tokenizer joins texts.
        """
        self.refuse_senses(sense_weights, return_senses)
        return RankerOutput(self.compare(*self.read_pairs(batch, token_shift)))

    def read_pairs(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What is made of the queries and documents of B rows; a text of several is read once.

        Raises:
            ValueError: a row is not as the ranker's tokenizer joins texts.
        """
        if self._remembers:
            self.memory.of_weights(self._state_of_weights())
        ids = batch.input_ids.cpu().numpy()
        queries: list[list[np.ndarray]] = []
        documents: list[list[np.ndarray]] = []
        for row in np.split(ids, batch.offsets[1:-1].cpu().numpy()):
            query, document = self.parts_of_row(row)
            queries.append([query])
            documents.append(document)
        device = batch.input_ids.device
        return (
            self._read_all(queries, QUERY, token_shift, device),
            self._read_all(documents, DOCUMENT, token_shift, device),
        )

    def train(self, mode: bool = True) -> Self:
        """As of every module; what was made of texts by other weights is forgotten."""
        self.memory.clear()
        return super().train(mode)

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        # Called where weights get another device or number format.
        self.memory.clear()
        return super()._apply(*arguments, **options)

    @property
    def _remembers(self) -> bool:
        return not self.training and not torch.is_grad_enabled()

    def _state_of_weights(self) -> Hashable:
        """Differs when a weight was written to, or another tensor took its place."""
        return tuple(weight_state(tensor) for tensor in chain(self.parameters(), self.buffers()))

    def _read_all(
        self,
        texts: Sequence[Sequence[np.ndarray]],
        kind: str,
        token_shift: TokenShift | None,
        device: torch.device,
    ) -> list[Tensor]:
        """What is made of B texts, each of one wording or several."""
        shift = None if token_shift is None else token_shift.key
        remembers = self._remembers
        found: dict[Any, Tensor] = {}
        new: dict[Any, np.ndarray] = {}
        for wordings in texts:
            for ids in wordings:
                key = kind, shift, ids.tobytes()
                known = self.memory.get(key) if remembers else None
                if known is not None:
                    found[key] = known
                else:
                    new[key] = ids
        if new:
            batch = PackedBatch.from_sequences(list(new.values())).to(device)
            for key, made in zip(new, self.read(batch, kind, token_shift), strict=True):
                found[key] = made
                if remembers:
                    # A row of a batch would keep the whole batch.
                    self.memory.keep(key, made.clone())
        of_texts = []
        for wordings in texts:
            parts = [found[kind, shift, ids.tobytes()] for ids in wordings]
            of_texts.append(parts[0] if len(parts) == 1 else self.mean(parts))
        return of_texts


class VectorRanker(ApartRanker):
    """Subclass it for a ranker that makes a vector of each text, and compares by dot products.

    Attributes:
        unit_vectors: whether all vectors have length 1, so that scores are cosines.
    """

    compares_vectors: ClassVar[bool] = True
    scores_stored_vectors: ClassVar[bool] = False
    unit_vectors: bool = False

    @abstractmethod
    def encode_queries(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B queries. [B, D]"""

    @abstractmethod
    def encode_documents(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B documents; they depend on no query. [B, D]"""

    @property
    @abstractmethod
    def vector_size(self) -> int:
        """D"""

    @property
    def pooled_head(self) -> nn.Module:
        """Takes the vector of a document, and that of the query beside it."""
        if "_dot_product" not in self.__dict__:
            self.__dict__["_dot_product"] = DotProduct()
        head: nn.Module = self.__dict__["_dot_product"]
        return head

    def score_vectors(self, vectors: Tensor) -> Tensor:
        """See :meth:`Ranker.score_vectors`: compared with one fixed text. [B]

        It tells vectors of this ranker from those of another one.
        """
        some_tokens = list(range(min(8, self.config.get_text_config().vocab_size)))
        batch = PackedBatch.from_sequences([some_tokens]).to(vectors.device)
        (fixed,) = self.encode_documents(batch)
        return vectors.to(fixed) @ fixed

    def read(
        self, batch: PackedBatch, kind: str, token_shift: TokenShift | None = None
    ) -> Sequence[Tensor]:
        """See :meth:`ApartRanker.read`."""
        encode = self.encode_queries if kind == QUERY else self.encode_documents
        return encode(batch, token_shift).unbind()

    def compare(self, queries: Sequence[Tensor], documents: Sequence[Tensor]) -> Tensor:
        """Dot products. [B]"""
        scores: Tensor = self.pooled_head(torch.stack(list(documents)), torch.stack(list(queries)))
        return scores

    def mean(self, wordings: Sequence[Tensor]) -> Tensor:
        """The mean vector; made a unit vector again where all vectors are. [D]"""
        return mean_vectors(torch.stack(list(wordings))[None], self.unit_vectors)[0]


class DotProduct(nn.Module):
    """Scores of B documents; a map of the pooled vector changes those of documents alone."""

    def forward(self, documents: Tensor, queries: Tensor) -> Tensor:
        """[B, D] and [B, D] -> [B]"""
        return (documents * queries).sum(dim=-1)


def mean_vectors(vectors: Tensor, unit: bool) -> Tensor:
    """E_0: the mean over wordings, with length 1 again where vectors have it.

    A mean of unit vectors is shorter than they are. Unless it is made a unit vector again, texts
    with words of the attribute are pushed down.

    Args:
        vectors: of N texts in R wordings. [N, R, D]
        unit: whether they have length 1.

    Returns:
        [N, D]
    """
    mean = vectors.mean(dim=1)
    return F.normalize(mean, dim=-1) if unit else mean
