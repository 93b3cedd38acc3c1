"""A first stage that compares sparse vectors, such as those of SPLADE, with a dial.

A document has a weight for a few hundred words of the vocabulary. They are kept on disk word by
word, in half precision, and every document is compared.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from scipy.sparse import csr_array

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.constructors import Count, FilePath, Name, OneOf
from backpack_rank.data.batching import pack_by_length
from backpack_rank.data.collection import DocumentStore
from backpack_rank.data.wordings import wordings_of
from backpack_rank.files import write_text
from backpack_rank.models.apart import DOCUMENT, QUERY
from backpack_rank.models.number_formats import FORMATS
from backpack_rank.models.sparse_encoder import SparseEncoderForRanking
from backpack_rank.progress import Progress
from backpack_rank.reranking.dense import Dense
from backpack_rank.reranking.dense_search import best_of
from backpack_rank.reranking.dense_vectors import Encoding, begun, chunks, finish
from backpack_rank.senses.renditions import MeanOfRenditions

log = logging.getLogger(__name__)
_BLOCK = 65_536
"""Documents that are compared at a time."""
_TOKENS = 2048
"""Tokens of a batch at most: each has a logit for every word of the vocabulary."""
_NOTE, _IDS = "encoded.txt", "doc_ids.npy"
_FILES = {"rows": np.int64, "lengths": np.int32, "words": np.int32, "weights": np.float16}
Row = tuple[np.ndarray, np.ndarray]
"""Words and weights of a text. [n] of both"""


class SparseEncoding(Encoding):
    """Encodes texts with a sparse encoder. Vectors are the rows of a matrix [N, V]."""

    @staticmethod
    def check(ranker: Any) -> None:
        """Raise ``ValueError`` for one that is no sparse encoder."""
        if not isinstance(ranker, SparseEncoderForRanking):
            raise ValueError(
                f"{type(ranker).__name__} makes no sparse vectors; give a SparseEncoder of "
                "sentence-transformers (SPLADE), or take first_stage=dense"
            )

    @property
    def size(self) -> int:
        """V"""
        size: int = self.ranker.config.vocab_size
        return size

    def rows(self, texts: Sequence[str]) -> list[Row]:
        """Words and weights of documents, rounded as those on disk are."""
        return self._rows(self.pair_tokenizer.documents(texts), queries=False)

    def mean(self, wordings: Sequence[Row]) -> Row:
        """What stands for a document of several wordings: their mean, which is sparse too."""
        words, places = np.unique(np.concatenate([row[0] for row in wordings]), return_inverse=True)
        every_weight = np.concatenate([row[1] for row in wordings]).astype(np.float64)
        weights = np.bincount(places, every_weight) / len(wordings)
        if self.ranker.similarity == "cosine":
            weights /= np.linalg.norm(weights)
        return words.astype(np.int32), weights.astype(np.float16)

    def _vectors(self, sequences: list[np.ndarray], queries: bool) -> csr_array:
        return matrix(self._rows(sequences, queries), self.size)

    def _rows(self, sequences: list[np.ndarray], queries: bool) -> list[Row]:
        found: list[Row] = [(np.empty(0), np.empty(0))] * len(sequences)
        if not sequences:
            return found
        tokens = min(self.tokens_per_batch or _TOKENS, _TOKENS)
        kind = QUERY if queries else DOCUMENT
        with torch.inference_mode():
            for rows, batch in pack_by_length(np.arange(len(sequences)), sequences, tokens):
                made = self.ranker.read(batch.to(self.device), kind)
                for row, values in zip(rows, made, strict=True):
                    words, weights = values.cpu().numpy()
                    # Queries are not kept, and need no rounding.
                    form = np.float32 if queries else np.float16
                    found[row] = words.astype(np.int32), weights.astype(form)
        return found


@dataclass(frozen=True)
class SparseVectors:
    """Some documents of a store in the order of their numbers; all arrays are mapped from disk.

    Attributes:
        doc_ids: UTF-8 bytes of all documents. [N]
        rows: numbers of these documents, ascending. [M]
        starts: where the words of each begin. [M + 1]
        words, weights: of one after the other. [sum of n]
    """

    doc_ids: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    words: np.ndarray
    weights: np.ndarray

    def block(self, first: int, last: int, words: int) -> csr_array:
        """Documents ``first`` to ``last``, by their place here. float32 [n, V]"""
        start, end = self.starts[first], self.starts[last]
        weights = np.asarray(self.weights[start:end], dtype=np.float32)
        indices = np.array(self.words[start:end])
        indptr = self.starts[first : last + 1] - start
        return csr_array((weights, indices, indptr), shape=(last - first, words))


class Sparse(Dense):
    """A sparse encoder over the whole corpus, exactly: SPLADE and its like.

    What :class:`~backpack_rank.reranking.dense.Dense` says holds here too; its dial acts by
    ``renditions``.
    """

    def __init__(
        self,
        checkpoint: FilePath,
        depth: Count = 100,
        device: Name = "auto",
        dtype: Annotated[str, OneOf(FORMATS)] = "float32",
        tokens_per_batch: Count | None = None,
        folder: FilePath | None = None,
        name: Name = "sparse",
        alpha: float = 1.0,
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
        attribute: Name | Attribute = "gender",
    ) -> None:
        """Options and errors are those of :class:`~backpack_rank.reranking.dense.Dense`."""
        super().__init__(
            checkpoint,
            depth=depth,
            device=device,
            dtype=dtype,
            tokens_per_batch=tokens_per_batch,
            folder=folder,
            name=name,
            alpha=alpha,
            queries=queries,
            attribute=attribute,
        )

    @cached_property
    def encoding(self) -> SparseEncoding:
        """Makes vectors of texts. Raises ``ValueError`` for a ranker of another kind."""
        encoding = self._encoding(SparseEncoding)
        assert isinstance(encoding, SparseEncoding)
        return encoding

    def vectors(self, documents: DocumentStore) -> Any:
        """Vectors of all documents as the encoder makes them: e."""

        def rows_of(chunk: list[tuple[str, str]], start: int) -> tuple[list[int], list[Row]]:
            rows = list(range(start, start + len(chunk)))
            return rows, self.encoding.rows([text for _, text in chunk])

        settings = {**self.encoding.settings(documents), "kind": "sparse"}
        return self._kept(
            lambda folder: _filled(documents, folder, settings, rows_of, "encoding documents"),
            "sparse vectors of documents",
        )

    def neutral_vectors(self, documents: DocumentStore) -> Any:
        """Those at alpha = 0 of the documents that the policy rewrites: e_0."""
        policy = self.policy
        assert isinstance(policy, MeanOfRenditions)

        def rows_of(chunk: list[tuple[str, str]], start: int) -> tuple[list[int], list[Row]]:
            rows, wordings = [], []
            for row, (_, text) in enumerate(chunk, start):
                text = self.encoding.pair_tokenizer.cut(text)
                together = policy.wordings(text)
                if together != text:
                    rows.append(row)
                    wordings.append(wordings_of(together))
            return rows, self._means(wordings)

        settings = {**self.encoding.settings(documents), "kind": "sparse", "policy": policy.key}
        return self._kept(
            lambda folder: _filled(documents, folder, settings, rows_of, "encoding renditions"),
            "sparse vectors of renditions",
        )

    def scores_of_texts(
        self, pairs: Sequence[tuple[str, str]], alphas: Sequence[float]
    ) -> np.ndarray:
        """See :meth:`Dense.scores_of_texts`."""
        policy = self.policy
        assert isinstance(policy, MeanOfRenditions)
        encoding = self.encoding
        cut = [encoding.pair_tokenizer.cut(text) for _, text in pairs]
        texts = list(dict.fromkeys(cut))
        places = {text: place for place, text in enumerate(texts)}
        rows = [places[text] for text in cut]
        own = matrix(encoding.rows(texts), encoding.size)
        wordings = [wordings_of(policy.wordings(text)) for text in texts]
        neutral = matrix(self._means(wordings), encoding.size)
        query_texts = list(dict.fromkeys(query for query, _ in pairs))
        of_queries = encoding.queries({query: query for query in query_texts})
        places_of_queries = {query: place for place, query in enumerate(query_texts)}
        queries = of_queries[[places_of_queries[query] for query, _ in pairs]]
        at_one = np.asarray(own[rows].multiply(queries).sum(axis=1), dtype=np.float32)
        at_zero = np.asarray(neutral[rows].multiply(queries).sum(axis=1), dtype=np.float32)
        is_turned = self.is_turned([query for query, _ in pairs])
        scores = np.empty((len(alphas), len(pairs)), dtype=np.float32)
        for place, alpha in enumerate(alphas):
            positions = np.where(is_turned, alpha, 1.0).astype(np.float32)
            scores[place] = at_zero + positions * (at_one - at_zero)
        return scores

    def pairs_of_vectors(self, documents: DocumentStore, block: int = 0) -> Iterator[Any]:
        """Raises ``ValueError``: sparse vectors are of no use to a database of dense ones."""
        raise ValueError("export vectors writes dense vectors: take first_stage=dense")

    def _means(self, wordings: Sequence[Sequence[str]]) -> list[Row]:
        texts: dict[str, None] = {}
        for of_text in wordings:
            texts.update(dict.fromkeys(of_text))
        rows = dict(zip(texts, self.encoding.rows(list(texts)), strict=True))
        means = []
        for of_text in wordings:
            parts = [rows[text] for text in of_text]
            means.append(parts[0] if len(parts) == 1 else self.encoding.mean(parts))
        return means

    def _searched(self, documents: DocumentStore, alphas: Sequence[float]) -> tuple[Any, Any]:
        is_turned = any(alpha != 1 for alpha in alphas)
        return self.vectors(documents), self.neutral_vectors(documents) if is_turned else None

    def _search(
        self,
        queries: Any,
        known: Any,
        neutral: Any,
        ranks: np.ndarray,
        alpha: float,
        depth: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        words = np.ascontiguousarray(queries.toarray().T, dtype=np.float32)
        size = self.encoding.size

        def blocks() -> Iterator[tuple[torch.Tensor, np.ndarray]]:
            for start in range(0, len(known.rows), _BLOCK):
                end = min(start + _BLOCK, len(known.rows))
                scores = known.block(start, end, size) @ words
                if alpha != 1 and neutral is not None:
                    first, last = np.searchsorted(neutral.rows, [start, end])
                    rows = np.asarray(neutral.rows[first:last]) - start
                    at_zero = neutral.block(first, last, size) @ words
                    scores[rows] = at_zero + np.float32(alpha) * (scores[rows] - at_zero)
                yield torch.from_numpy(np.ascontiguousarray(scores.T)), ranks[start:end]

        return best_of(blocks(), queries.shape[0], depth)


def matrix(rows: Sequence[Row], words: int) -> csr_array:
    """Texts as the rows of a matrix. float32 [N, V]"""
    lengths = [len(of_text) for of_text, _ in rows]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate([np.empty(0), *(of_text for of_text, _ in rows)]).astype(np.int64)
    weights = np.concatenate([np.empty(0), *(weights for _, weights in rows)]).astype(np.float32)
    return csr_array((weights, indices, starts), shape=(len(rows), words))


def _filled(
    documents: DocumentStore,
    folder: Path,
    settings: dict[str, Any],
    rows_of: Callable[[list[tuple[str, str]], int], tuple[list[int], list[Row]]],
    title: str,
) -> SparseVectors:
    """Vectors from the folder, or made now; a killed attempt goes on behind its last note."""
    final, is_kept = begun(folder, settings)
    with is_kept as kept:
        if not kept:
            partial = final.with_name(f"{final.name}.partial")
            _fill(documents, partial, rows_of, title)
            finish(partial, final, settings)
    columns = {}
    for name, form in _FILES.items():
        # An empty file cannot be mapped.
        is_empty = not (final / name).stat().st_size
        columns[name] = np.empty(0, form) if is_empty else np.memmap(final / name, form, "r")
    starts = np.concatenate([[0], np.cumsum(columns["lengths"], dtype=np.int64)])
    doc_ids = np.load(final / _IDS, mmap_mode="r")
    return SparseVectors(doc_ids, columns["rows"], starts, columns["words"], columns["weights"])


def _fill(
    documents: DocumentStore,
    folder: Path,
    rows_of: Callable[[list[tuple[str, str]], int], tuple[list[int], list[Row]]],
    title: str,
) -> None:
    done, texts, weights = _started(folder)
    for name, form in _FILES.items():
        number = weights if name in ("words", "weights") else texts
        # What a killed job wrote behind its last note is written again.
        with open(folder / name, "ab") as file:
            file.truncate(number * np.dtype(form).itemsize)
    doc_ids: list[bytes] = []
    with Progress(total=len(documents), initial=done, desc=title, unit="doc") as bar:
        for chunk in chunks(documents):
            start = len(doc_ids)
            doc_ids += [doc_id.encode("utf-8") for doc_id, _ in chunk]
            if start < done:
                continue
            rows, of_texts = rows_of(chunk, start)
            values: dict[str, Any] = {
                "rows": rows,
                "lengths": [len(words) for words, _ in of_texts],
                "words": np.concatenate([np.empty(0), *(words for words, _ in of_texts)]),
                "weights": np.concatenate([np.empty(0), *(row for _, row in of_texts)]),
            }
            for name, form in _FILES.items():
                with open(folder / name, "ab") as file:
                    file.write(np.asarray(values[name], dtype=form).tobytes())
                    file.flush()
                    os.fsync(file.fileno())
            texts += len(rows)
            weights += len(values["words"])
            # On disk before the note that says so.
            write_text(folder / _NOTE, f"{len(doc_ids)} {texts} {weights}\n")
            bar.update(len(chunk))
    np.save(folder / _IDS, np.array(doc_ids, dtype=np.bytes_))
    (folder / _NOTE).unlink(missing_ok=True)


def _started(folder: Path) -> tuple[int, int, int]:
    """Documents that were looked at, vectors that were made of them, and weights in these."""
    note = folder / _NOTE
    if note.is_file():
        try:
            done, texts, weights = map(int, note.read_text().split())
            return done, texts, weights
        except (OSError, ValueError) as error:
            log.warning("%s is damaged (%s), so all documents are encoded anew", folder, error)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return 0, 0, 0
