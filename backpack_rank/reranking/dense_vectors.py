"""The vectors of a collection's documents: encoded once, and kept on disk in half precision."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from backpack_rank.data.batching import pack_by_length
from backpack_rank.data.collection import DocumentStore, Queries
from backpack_rank.data.wordings import ApartPairTokenizer
from backpack_rank.digests import digest
from backpack_rank.files import intact, reserve_space, seal, write_text
from backpack_rank.models.apart import VectorRanker
from backpack_rank.progress import Progress
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.cache import weights_digest

log = logging.getLogger(__name__)
_FORMAT = 1
_CHUNK = 4096
"""Documents that are encoded between two notes of how far the encoding has come."""
_VECTORS = "vectors.npy"
_IDS = "doc_ids.npy"
_SETTINGS = "settings.json"
_DONE = "encoded.txt"


@dataclass(frozen=True)
class DocumentVectors:
    """Use this for dense retrieval: the vectors of all documents of a store, in its order.

    ::

        vectors = DocumentVectors.of(collection.documents, Encoding(scorer), Path("vectors"))

    Attributes:
        doc_ids: UTF-8 bytes. [N]
        vectors: fp16, mapped from disk. [N, d]
    """

    doc_ids: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, documents: DocumentStore, encoding: Encoding, folder: Path) -> DocumentVectors:
        """The vectors of these documents, from the folder or encoded now.

        They lie in a subfolder named after weights, tokenizer, settings and documents, which exists
        when it is complete. An interrupted encoding resumes behind its last 4,096 documents. Jobs
        that need the same vectors at the same time wait for the one that encodes.

        Raises:
            ValueError: a vector does not fit into half precision; the document is named.
        """
        settings = encoding.settings(documents)
        key = digest(json.dumps(settings, sort_keys=True))
        final = folder / key
        partial = folder / f"{key}.partial"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{key}.lock"):
            if not intact(final):
                _encode(documents, encoding, partial)
                write_text(partial / _SETTINGS, json.dumps(settings, indent=2) + "\n")
                seal(partial)
                os.replace(partial, final)
            else:
                log.info("vectors of %d documents taken from %s", len(documents), final)
        doc_ids = np.load(final / _IDS, mmap_mode="r")
        vectors = np.load(final / _VECTORS, mmap_mode="r")
        return cls(doc_ids, vectors)


class Encoding:
    """Use this to encode texts with the dual encoder of a scorer."""

    def __init__(self, scorer: Scorer) -> None:
        """Raises ``ValueError`` where the scorer's ranker is no dual encoder."""
        if not isinstance(scorer.ranker, VectorRanker) or not isinstance(
            scorer.pair_tokenizer, ApartPairTokenizer
        ):
            raise ValueError(
                f"{type(scorer.ranker).__name__} reads query and document together, so documents "
                "have no vectors of their own; give a bi-encoder, or train one with model=bert_dot"
            )
        self.ranker = scorer.ranker
        self.pair_tokenizer = scorer.pair_tokenizer
        self.device = scorer.device
        self._tokens_per_batch = scorer.tokens_per_batch

    @property
    def size(self) -> int:
        """Dimensions d of a vector."""
        return self.ranker.vector_size

    def settings(self, documents: DocumentStore) -> dict[str, Any]:
        """Everything that the vectors of documents depend on."""
        return {
            "format": _FORMAT,
            "weights": weights_digest(self.ranker),
            "configuration": self.ranker.config.to_json_string(),
            "tokens": self.pair_tokenizer.fingerprint,
            "documents": documents.fingerprint,
        }

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of documents. [N, d] float32"""
        return self._vectors(self.pair_tokenizer.documents(texts), queries=False)

    def queries(self, queries: Queries) -> np.ndarray:
        """Vectors of queries. [Q, d] float32

        Raises:
            ValueError: a query is empty or too long; it is named.
        """
        sequences = []
        for query_id, text in queries.items():
            try:
                sequences += self.pair_tokenizer.queries([text])
            except ValueError as error:
                raise ValueError(f"query {query_id}: {error}") from error
        return self._vectors(sequences, queries=True)

    def _vectors(self, sequences: list[np.ndarray], queries: bool) -> np.ndarray:
        vectors = np.empty((len(sequences), self.size), dtype=np.float32)
        if not sequences:
            return vectors
        encode = self.ranker.encode_queries if queries else self.ranker.encode_documents
        rows_of_all = np.arange(len(sequences))
        with torch.inference_mode():
            for rows, batch in pack_by_length(rows_of_all, sequences, self._tokens_per_batch):
                vectors[rows] = encode(batch.to(self.device)).float().cpu().numpy()
        return vectors


def _encode(documents: DocumentStore, encoding: Encoding, folder: Path) -> None:
    """Fill a folder with vectors and ids of all documents, resuming an interrupted attempt."""
    vectors, done = _started(folder, (len(documents), encoding.size))
    if done:
        log.info("encoding goes on behind the first %d of %d documents", done, len(documents))
    doc_ids: list[bytes] = []
    with Progress(total=len(documents), initial=done, desc="encoding documents", unit="doc") as bar:
        for chunk in _chunks(documents):
            start = len(doc_ids)
            doc_ids += [doc_id.encode("utf-8") for doc_id, _ in chunk]
            if start < done:
                continue
            encoded = encoding.documents([text for _, text in chunk])
            vectors[start : start + len(chunk)] = _in_half_precision(encoded, chunk)
            # On disk before the note that says so.
            vectors.flush()
            write_text(folder / _DONE, f"{len(doc_ids)}\n")
            bar.update(len(chunk))
    np.save(folder / _IDS, np.array(doc_ids, dtype=np.bytes_))
    (folder / _DONE).unlink(missing_ok=True)


def _started(folder: Path, shape: tuple[int, int]) -> tuple[np.memmap, int]:
    """The array to fill, and how many of its rows are filled already."""
    done = folder / _DONE
    if done.is_file():
        try:
            vectors = np.lib.format.open_memmap(folder / _VECTORS, mode="r+")
            return vectors, int(done.read_text())
        except (OSError, ValueError) as error:
            log.warning("%s is damaged (%s), so all documents are encoded anew", folder, error)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    vectors = np.lib.format.open_memmap(folder / _VECTORS, mode="w+", dtype=np.float16, shape=shape)
    reserve_space(folder / _VECTORS)
    return vectors, 0


def _chunks(documents: DocumentStore) -> Iterator[list[tuple[str, str]]]:
    """Ids and texts of the documents, some thousands at a time."""
    remaining = iter(documents)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk


def _in_half_precision(vectors: np.ndarray, chunk: list[tuple[str, str]]) -> np.ndarray:
    """Vectors in fp16. Raises ``ValueError`` for values that it cannot hold."""
    with np.errstate(over="ignore"):
        halved = vectors.astype(np.float16)
    not_finite = np.flatnonzero(~np.isfinite(halved).all(axis=1))
    if not_finite.size:
        row = not_finite[0]
        doc_id, _ = chunk[row]
        largest = float(np.abs(vectors[row]).max())
        raise ValueError(
            f"the vector of document {doc_id} has a value of {largest:g}, which half "
            "precision cannot hold (65504 at most); the weights may have diverged in training"
        )
    return halved
