"""The vectors of a collection's documents: encoded once, and kept on disk in half precision."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from backpack_rank.data.batching import pack_by_length
from backpack_rank.data.collection import DocumentStore, Queries
from backpack_rank.data.wordings import ApartPairTokenizer, wordings_of
from backpack_rank.digests import digest
from backpack_rank.files import intact, reserve_space, seal, write_text
from backpack_rank.models.apart import ApartRanker, VectorRanker
from backpack_rank.progress import Progress
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.cache import weights_digest
from backpack_rank.senses.renditions import MeanOfRenditions

log = logging.getLogger(__name__)
_FORMAT = 1
_CHUNK = 4096
"""Documents that are encoded between two notes of how far the encoding has come."""
_VECTORS = "vectors.npy"
_IDS = "doc_ids.npy"
_ROWS = "rows.int64"
_NEUTRAL = "neutral.float16"
_SETTINGS = "settings.json"
_DONE = "encoded.txt"


@dataclass(frozen=True)
class DocumentVectors:
    """Dense retrieval: the vectors of all documents of a store, in its order.

    ::

        vectors = DocumentVectors.of(collection.documents, Encoding(scorer), Path("vectors"))

    Attributes:
        doc_ids: UTF-8 bytes. [N]
        vectors: fp16, mapped from disk, or what
            :func:`~backpack_rank.reranking.dense_search.kept_on` makes of them. [N, d]
    """

    doc_ids: np.ndarray
    vectors: Any

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
        final, is_kept = begun(folder, settings)
        with is_kept as kept:
            if kept:
                log.info("vectors of %d documents taken from %s", len(documents), final)
            else:
                partial = final.with_name(f"{final.name}.partial")
                _encode(documents, encoding, partial)
                finish(partial, final, settings)
        doc_ids = np.load(final / _IDS, mmap_mode="r")
        vectors = np.load(final / _VECTORS, mmap_mode="r")
        return cls(doc_ids, vectors)


@dataclass(frozen=True)
class NeutralVectors:
    """The dial of dense retrieval: e_0 of the documents that a policy rewrites.

    e_0 is the mean of the vectors of a document's renditions, of length 1 where vectors have it. Of
    all other documents it is their own vector, which :class:`DocumentVectors` holds.

    Attributes:
        rows: numbers of the documents, ascending. int64 [M]
        vectors: fp16, mapped from disk, or what
            :func:`~backpack_rank.reranking.dense_search.kept_on` makes of them. [M, d]
    """

    rows: np.ndarray
    vectors: Any

    @classmethod
    def of(
        cls,
        documents: DocumentStore,
        encoding: Encoding,
        known: DocumentVectors,
        policy: MeanOfRenditions,
        folder: Path,
    ) -> NeutralVectors:
        """From the folder, or encoded now; all alphas share them.

        They are kept, resumed and shared as :meth:`DocumentVectors.of` says.

        Args:
            documents: in the order of their vectors.
            encoding: that the vectors were made by.
            known: vectors of the documents as they are, which are not made again.
            policy: writes the renditions.
            folder: with a subfolder for each policy.

        Raises:
            ValueError: a vector does not fit into half precision; the document is named.
        """
        settings = {**encoding.settings(documents), "policy": policy.key}
        final, is_kept = begun(folder, settings)
        with is_kept as kept:
            if kept:
                log.info("vectors under policy %s taken from %s", policy.name, final)
            else:
                partial = final.with_name(f"{final.name}.partial")
                _encode_neutral(documents, encoding, known, policy, partial)
                finish(partial, final, settings)
        rows = np.fromfile(final / _ROWS, dtype=np.int64)
        if not len(rows):  # an empty file cannot be mapped
            return cls(rows, np.empty((0, encoding.size), dtype=np.float16))
        vectors = np.memmap(
            final / _NEUTRAL, dtype=np.float16, mode="r", shape=(len(rows), encoding.size)
        )
        return cls(rows, vectors)


class Encoding:
    """Encodes texts with the dual encoder of a scorer."""

    ranker: Any

    def __init__(self, scorer: Scorer) -> None:
        """Raises ``ValueError`` where the scorer's ranker makes no such vectors."""
        self.check(scorer.ranker)
        assert isinstance(scorer.pair_tokenizer, ApartPairTokenizer)
        self.ranker = scorer.ranker
        self.pair_tokenizer = scorer.pair_tokenizer
        self.device = scorer.device
        self.tokens_per_batch = scorer.tokens_per_batch

    @staticmethod
    def check(ranker: Any) -> None:
        """Raise ``ValueError`` for one that is no dual encoder."""
        if isinstance(ranker, VectorRanker):
            return
        name = type(ranker).__name__
        if isinstance(ranker, ApartRanker):
            raise ValueError(
                f"{name} makes no dense vector of a text; SPLADE is first_stage=sparse, and late "
                "interaction ranks again"
            )
        raise ValueError(
            f"{name} reads query and document together, so documents have no vectors of their own; "
            "give a bi-encoder, or train one with model=bert_dot"
        )

    @property
    def size(self) -> int:
        """Dimensions d of a vector."""
        size: int = self.ranker.vector_size
        return size

    def settings(self, documents: DocumentStore) -> dict[str, Any]:
        """Everything that the vectors of documents depend on."""
        return {
            "format": _FORMAT,
            "weights": weights_digest(self.ranker),
            "configuration": self.ranker.config.to_json_string(),
            "tokens": self.pair_tokenizer.fingerprint,
            "documents": documents.fingerprint,
        }

    def documents(self, texts: Sequence[str]) -> Any:
        """Vectors of documents. [N, d] float32"""
        return self._vectors(self.pair_tokenizer.documents(texts), queries=False)

    def queries(self, queries: Queries) -> Any:
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

    def _vectors(self, sequences: list[np.ndarray], queries: bool) -> Any:
        vectors = np.empty((len(sequences), self.size), dtype=np.float32)
        if not sequences:
            return vectors
        encode = self.ranker.encode_queries if queries else self.ranker.encode_documents
        rows_of_all = np.arange(len(sequences))
        with torch.inference_mode():
            for rows, batch in pack_by_length(rows_of_all, sequences, self.tokens_per_batch):
                vectors[rows] = encode(batch.to(self.device)).float().cpu().numpy()
        return vectors


def begun(folder: Path, settings: Mapping[str, Any]) -> tuple[Path, Any]:
    """Where vectors of these settings lie, and a lock that says whether they do."""
    key = digest(json.dumps(settings, sort_keys=True))
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / key

    @contextmanager
    def locked() -> Iterator[bool]:
        with FileLock(folder / f"{key}.lock"):
            yield intact(final)

    return final, locked()


def finish(partial: Path, final: Path, settings: Mapping[str, Any]) -> None:
    write_text(partial / _SETTINGS, json.dumps(settings, indent=2) + "\n")
    seal(partial)
    os.replace(partial, final)


def _encode_neutral(
    documents: DocumentStore,
    encoding: Encoding,
    known: DocumentVectors,
    policy: MeanOfRenditions,
    folder: Path,
) -> None:
    """Fill a folder with e_0 of the documents that a policy rewrites, resuming an attempt."""
    done, number = _started_neutral(folder)
    if done:
        log.info("encoding goes on behind the first %d of %d documents", done, len(documents))
    title = "encoding renditions"
    with (
        Progress(total=len(documents), initial=done, desc=title, unit="doc") as bar,
        open(folder / _ROWS, "ab") as rows_file,
        open(folder / _NEUTRAL, "ab") as vectors_file,
    ):
        # What a killed job wrote behind its last note is written again.
        rows_file.truncate(number * 8)
        vectors_file.truncate(number * encoding.size * 2)
        start = 0
        for chunk in chunks(documents):
            if start >= done:
                rows, vectors = _neutral_of_chunk(chunk, start, encoding, known, policy)
                for file, values in ((rows_file, rows), (vectors_file, vectors)):
                    file.write(values.tobytes())
                    file.flush()
                    os.fsync(file.fileno())
                number += len(rows)
                # On disk before the note that says so.
                write_text(folder / _DONE, f"{start + len(chunk)} {number}\n")
                bar.update(len(chunk))
            start += len(chunk)
    (folder / _DONE).unlink(missing_ok=True)


def _neutral_of_chunk(
    chunk: list[tuple[str, str]],
    start: int,
    encoding: Encoding,
    known: DocumentVectors,
    policy: MeanOfRenditions,
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the documents of a chunk that are rewritten, and their e_0."""
    rows: list[int] = []
    wordings_by_row: list[tuple[str, ...]] = []
    vector_of_text: dict[str, np.ndarray] = {}
    for row, (_, text) in enumerate(chunk, start):
        # What is behind the cut is not read, and is not written anew.
        text = encoding.pair_tokenizer.cut(text)
        wordings = policy.wordings(text)
        if wordings != text:
            rows.append(row)
            wordings_by_row.append(wordings_of(wordings))
            vector_of_text[text] = known.vectors[row]
    neutral = means_of_wordings(wordings_by_row, vector_of_text, encoding)
    documents = [chunk[row - start] for row in rows]
    return np.array(rows, dtype=np.int64), in_half_precision(neutral, documents)


def means_of_wordings(
    wordings_of_texts: Sequence[Sequence[str]],
    vector_of_text: dict[str, np.ndarray],
    encoding: Encoding,
) -> np.ndarray:
    """E_0 of texts, from the vectors of their wordings.

    Args:
        wordings_of_texts: wordings of each text.
        vector_of_text: vectors that are known, in half precision [d]; others are added.
        encoding: makes these.

    Returns:
        float32 [n, d]
    """
    new: dict[str, None] = {}
    for wordings in wordings_of_texts:
        new.update(dict.fromkeys(text for text in wordings if text not in vector_of_text))
    # Rounded as the vectors of documents are: so e_0 of a document and of its counterfactual are
    # made of the same numbers.
    vectors = encoding.documents(list(new)).astype(np.float16)
    vector_of_text.update(zip(new, vectors, strict=True))
    neutral = np.empty((len(wordings_of_texts), encoding.size), dtype=np.float32)
    for place, wordings in enumerate(wordings_of_texts):
        stacked = np.stack([vector_of_text[text] for text in wordings]).astype(np.float32)
        neutral[place] = encoding.ranker.mean(torch.from_numpy(stacked)).numpy()
    return neutral


def _started_neutral(folder: Path) -> tuple[int, int]:
    """How many documents were looked at already, and how many of them have an e_0."""
    note = folder / _DONE
    if note.is_file():
        try:
            done, number = note.read_text().split()
            return int(done), int(number)
        except (OSError, ValueError) as error:
            log.warning("%s is damaged (%s), so all documents are encoded anew", folder, error)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return 0, 0


def _encode(documents: DocumentStore, encoding: Encoding, folder: Path) -> None:
    """Fill a folder with vectors and ids of all documents, resuming an interrupted attempt."""
    vectors, done = _started(folder, (len(documents), encoding.size))
    if done:
        log.info("encoding goes on behind the first %d of %d documents", done, len(documents))
    doc_ids: list[bytes] = []
    with Progress(total=len(documents), initial=done, desc="encoding documents", unit="doc") as bar:
        for chunk in chunks(documents):
            start = len(doc_ids)
            doc_ids += [doc_id.encode("utf-8") for doc_id, _ in chunk]
            if start < done:
                continue
            encoded = encoding.documents([text for _, text in chunk])
            vectors[start : start + len(chunk)] = in_half_precision(encoded, chunk)
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


def chunks(documents: DocumentStore) -> Iterator[list[tuple[str, str]]]:
    """Ids and texts of the documents, some thousands at a time."""
    remaining = iter(documents)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk


def in_half_precision(vectors: np.ndarray, chunk: list[tuple[str, str]]) -> np.ndarray:
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
