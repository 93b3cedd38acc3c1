"""A BM25 index of any number of documents in bounded memory, in the files of bm25s.

bm25s takes the tokens of all documents at once, which needs 2.5 kB of memory for each. Here
documents are read in blocks, whose postings (document, frequency) go to disk sorted by word; then
one range of words after the other is gathered from all blocks and scored with the frequencies and
the mean length of the collection (blocked sort-based indexing, Manning et al. 2008, section 4.2).
The index is the same as that of bm25s, which reads it memory-mapped.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import Stemmer
from filelock import FileLock

from backpack_rank.checks import finite, fraction, one_of
from backpack_rank.data.bm25s_alone import bm25s
from backpack_rank.data.collection import DocumentStore, Queries, Run
from backpack_rank.digests import digest
from backpack_rank.files import atomic_path, cache_dir, intact, kept_or_rebuilt
from backpack_rank.progress import Progress

# bm25l and bm25+ score documents without any word of the query, so "above zero" would not mean a
# match.
METHODS = ("lucene", "robertson", "atire")
SHOW_PROGRESS_FROM = 20_000
_FORMAT = 2
_IDS_FILE = "doc_ids.npy"
_SETTINGS_FILE = "settings.json"
_BYTES_PER_CHARACTER, _BYTES_PER_POSTING = 200, 100
"""What reading a block, and scoring a range of words, takes at most; measured, with a margin."""


@dataclass(frozen=True)
class Bm25Settings:
    """All that decides what an index holds; the cache's key is made from it.

        settings = Bm25Settings(
            k1=0.9, b=0.4, stemmer="porter", stopwords=True,
            token_pattern=r"\b\\w+\b", method="lucene",
        )

    The options are those of :class:`backpack_rank.data.first_stage.Bm25`.
    """

    k1: float
    b: float
    stemmer: str | None
    stopwords: bool | str
    token_pattern: str
    method: str

    def __post_init__(self) -> None:
        finite("BM25: k1", self.k1, 0)
        fraction("BM25: b", self.b)
        one_of("BM25: method", self.method, METHODS)
        if self.stemmer is not None:
            one_of("BM25: stemmer", self.stemmer, Stemmer.algorithms())
        try:
            matches_nothing = re.compile(self.token_pattern).match("") is not None
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(
                f"BM25: token_pattern={self.token_pattern} is no regular expression: {error}"
            ) from error
        if matches_nothing:
            raise ValueError(
                f"BM25: token_pattern={self.token_pattern!r} also matches nothing: say what a word "
                "is"
            )
        # An unknown list of stop words or a broken pattern must fail now, not after the corpus was
        # read.
        self.tokenize(["a"])

    def tokenize(self, texts: Iterable[str]) -> bm25s.tokenization.Tokenized:
        """Token ids of each text and the vocabulary, with bm25s's tokenizer."""
        return bm25s.tokenize(
            texts,
            lower=True,
            token_pattern=self.token_pattern,
            stopwords=self.stopwords,
            stemmer=Stemmer.Stemmer(self.stemmer) if self.stemmer else None,
            show_progress=False,
        )

    def idf(self, holders: np.ndarray, documents: int) -> np.ndarray:
        """Inverse document frequency of words (Kamphuis et al. 2020, Table 1). float32 [V]

        Args:
            holders: how many documents have each word. [V]
            documents: of the collection.
        """
        # Many words have the same number of documents, so few logarithms are taken.
        distinct, where = np.unique(holders, return_inverse=True)
        logarithms: list[float] = []
        for document_frequency in distinct.tolist():
            # Python's logarithm, as bm25s takes it: numpy's may differ in the last bit.
            logarithms.append(math.log(self._inverse(document_frequency, documents)))
        return np.array(logarithms, dtype=np.float32)[where]

    def _inverse(self, document_frequency: int, documents: int) -> float:
        """What the idf of a word in so many documents is the logarithm of."""
        if self.method == "atire":
            return documents / document_frequency
        odds = (documents - document_frequency + 0.5) / (document_frequency + 0.5)
        if self.method == "lucene":
            return 1 + odds
        # Robertson's idf falls below 0 for a word of most documents; bm25s takes 0 there.
        return max(1.0, odds)

    def scores(
        self, idf: np.ndarray, frequencies: np.ndarray, relative_lengths: np.ndarray
    ) -> np.ndarray:
        """BM25 of words in documents, as bm25s computes it (Kamphuis et al. 2020, Table 1).

            idf * tf / (tf + k1 * (1 - b + b * relative length)), times k1 + 1 for ATIRE

        Args:
            idf: of the word. [N]
            frequencies: of the word in the document. [N]
            relative_lengths: of the document, in lengths of a mean document; overwritten. [N]

        Returns:
            float32 [N]
        """
        # In place: N may be hundreds of millions.
        norm = relative_lengths
        norm *= self.b
        norm += 1 - self.b
        norm *= self.k1
        norm += frequencies
        weight = self.k1 + 1 if self.method == "atire" else 1
        return (idf * (frequencies * weight / norm)).astype(np.float32)


class Bm25Index:
    """Searches documents by BM25: it holds ids and the scores of words, without texts.

    index = Bm25Index.of(collection.documents, settings, cache=True)
    run = index.search(collection.queries, depth=100)
    """

    def __init__(self, settings: Bm25Settings, folder: Path, *, mapped: bool) -> None:
        """Read the index of a folder; ``mapped`` leaves it on disk."""
        self._settings = settings
        self._model = bm25s.BM25.load(folder, mmap=mapped)
        self._doc_ids = np.load(folder / _IDS_FILE, mmap_mode="r" if mapped else None)

    @classmethod
    def of(
        cls, documents: DocumentStore, settings: Bm25Settings, *, cache: bool, max_gb: float = 2.0
    ) -> Bm25Index:
        """The index of these documents, from the cache if it is there.

        With ``cache``, the index lies in ``bm25/`` of the cache folder under a key of documents,
        settings and version of bm25s; jobs that need it at the same time wait for the one that
        builds it, and it is read memory-mapped. A cache that cannot be written is left out, with a
        warning. ``max_gb`` is what building it may take of memory, beside the words themselves.

        Raises:
            ValueError: no document has a word.
        """
        built = partial(cls._built, documents, settings, max_gb)
        if not cache:
            return built()
        cached = partial(cls._cached, documents, settings, max_gb)
        return kept_or_rebuilt(cached, built, "the index of BM25")

    @classmethod
    def _built(cls, documents: DocumentStore, settings: Bm25Settings, max_gb: float) -> Bm25Index:
        with tempfile.TemporaryDirectory() as temporary:
            _Builder(settings, max_gb).build(documents, Path(temporary))
            return cls(settings, Path(temporary), mapped=False)

    @classmethod
    def _cached(cls, documents: DocumentStore, settings: Bm25Settings, max_gb: float) -> Bm25Index:
        folder = cache_dir() / "bm25" / _key(documents, settings)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not intact(folder):
                with atomic_path(folder, sealed=True) as temporary_folder:
                    temporary_folder.mkdir()
                    _Builder(settings, max_gb).build(documents, temporary_folder)
        return cls(settings, folder, mapped=True)

    def search(self, queries: Queries, depth: int, threads: int = 1) -> Run:
        """Each query's ``depth`` best documents with a score above zero, ties by ascending id."""
        if not queries:
            return {}
        tokens = self._settings.tokenize(queries.values())
        # The tokenizer numbers the words of the queries, the index those of the collection.
        words = {token_id: word for word, token_id in tokens.vocab.items()}
        indexed = self._model.vocab_dict
        ids_of_queries: list[list[int]] = []
        for query in tokens.ids:
            words_of_query = [words[token] for token in query]
            ids_of_queries.append([indexed[word] for word in words_of_query if word in indexed])
        is_small = max(len(self._doc_ids), len(ids_of_queries)) < SHOW_PROGRESS_FROM
        with ThreadPoolExecutor(max_workers=threads) as pool:
            best = pool.map(lambda word_ids: self._best(word_ids, depth), ids_of_queries)
            total = len(ids_of_queries)
            shown = Progress(best, desc="BM25", total=total, unit="query", disable=is_small)
            return dict(zip(queries, shown, strict=True))

    def _best(self, word_ids: list[int], depth: int) -> dict[str, float]:
        if not word_ids:
            return {}
        scores = self._model.get_scores_from_ids(word_ids)
        matches = np.flatnonzero(scores > 0)
        if len(matches) > depth:
            # Everything that ties with the last place takes part, so that ids and not chance
            # decide about it.
            values = scores[matches]
            last = np.partition(values, len(values) - depth)[len(values) - depth]
            matches = matches[values >= last]
        # By the negative score: equal scores then stand by ascending id.
        ranked: list[tuple[float, str]] = []
        for match in matches:
            ranked.append((-float(scores[match]), self._doc_ids[match].decode("utf-8")))
        ranked.sort()
        return {doc_id: -negative for negative, doc_id in ranked[:depth]}


@dataclass(frozen=True)
class _Block:
    """Postings of neighbouring documents, sorted by word and document; arrays on disk.

    Attributes:
        folder: holds the postings: ``documents`` and ``frequencies``. [P]
        words: that the block has, ascending. [W]
        starts: where the postings of each word begin, and P. [W + 1]
    """

    folder: Path
    words: np.ndarray
    starts: np.ndarray

    @classmethod
    def write(cls, folder: Path, token_ids: np.ndarray, lengths: np.ndarray, first: int) -> _Block:
        """Sort the postings of neighbouring documents and save them.

        Args:
            folder: made here.
            token_ids: of all documents, one after the other. [sum of lengths]
            lengths: tokens of each document. [N]
            first: number of the first document in the collection.
        """
        folder.mkdir()
        # One number for each token, by word and then document: one sort orders and counts them.
        places = np.repeat(np.arange(len(lengths)), lengths)
        keys = token_ids.astype(np.int64) * len(lengths) + places
        keys, frequencies = np.unique(keys, return_counts=True)
        word_of, document_of = np.divmod(keys, max(1, len(lengths)))
        words, starts = np.unique(word_of.astype(np.int32), return_index=True)
        np.save(folder / "documents.npy", (document_of + first).astype(np.int32))
        np.save(folder / "frequencies.npy", frequencies.astype(np.int32))
        np.save(folder / "words.npy", words)
        np.save(folder / "starts.npy", np.append(starts, len(keys)))
        return cls(
            folder,
            words=np.load(folder / "words.npy", mmap_mode="r"),
            starts=np.load(folder / "starts.npy", mmap_mode="r"),
        )

    def postings(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words, documents and frequencies of all words from ``low`` to before ``high``."""
        begin, end = np.searchsorted(self.words, (low, high))
        starts = self.starts[begin : end + 1]
        rows = slice(int(starts[0]), int(starts[-1]))
        words = np.repeat(self.words[begin:end], np.diff(starts))
        documents = np.load(self.folder / "documents.npy", mmap_mode="r")[rows]
        frequencies = np.load(self.folder / "frequencies.npy", mmap_mode="r")[rows]
        return words, np.array(documents), np.array(frequencies)


class _Builder:
    """Writes the index of one collection."""

    def __init__(self, settings: Bm25Settings, max_gb: float) -> None:
        self._settings = settings
        self._characters = max(1, int(max_gb * 1e9 / _BYTES_PER_CHARACTER))
        self._postings = max(1, int(max_gb * 1e9 / _BYTES_PER_POSTING))
        self._vocabulary: dict[str, int] = {}

    def build(self, documents: DocumentStore, folder: Path) -> None:
        """Write the files to an empty folder. Raises ``ValueError`` when no document has a word."""
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            blocks, lengths = self._blocks(documents, Path(temporary), folder / _IDS_FILE)
            if not self._vocabulary:
                raise ValueError(
                    f"none of the {len(lengths)} documents has a word that BM25 could index; check "
                    f"their texts, token_pattern ({self._settings.token_pattern}) and stopwords "
                    f"({self._settings.stopwords})"
                )
            holders = np.zeros(len(self._vocabulary), dtype=np.int64)
            for block in blocks:
                holders[block.words] += np.diff(block.starts)
            starts = np.append(0, np.cumsum(holders))
            idf = self._settings.idf(holders, len(lengths))
            self._save_frame(folder, starts, len(lengths))
            self._save_scores(folder, blocks=blocks, lengths=lengths, idf=idf, starts=starts)
        settings = json.dumps(asdict(self._settings), indent=2)
        (folder / _SETTINGS_FILE).write_text(settings, encoding="utf-8")

    def _blocks(
        self, documents: DocumentStore, temporary: Path, ids_file: Path
    ) -> tuple[list[_Block], np.ndarray]:
        blocks: list[_Block] = []
        id_files: list[Path] = []
        lengths = [np.zeros(0, dtype=np.int32)]
        first = 0
        is_small = len(documents) < SHOW_PROGRESS_FROM
        with Progress(
            total=len(documents), desc="indexing for BM25", unit="doc", disable=is_small
        ) as bar:
            for ids, texts in _in_blocks(documents, self._characters, bar):
                tokens = self._settings.tokenize(texts)
                block_lengths = np.fromiter(map(len, tokens.ids), dtype=np.int32, count=len(ids))
                token_ids = np.fromiter(
                    chain.from_iterable(tokens.ids),
                    dtype=np.int64,
                    count=int(block_lengths.sum()),
                )
                # bm25s numbers the words of each block anew; the index needs one number for each.
                word_ids = np.zeros(len(tokens.vocab), dtype=np.int64)
                for word, token_id in tokens.vocab.items():
                    word_ids[token_id] = self._vocabulary.setdefault(word, len(self._vocabulary))
                folder = temporary / str(len(blocks))
                blocks.append(_Block.write(folder, word_ids[token_ids], block_lengths, first))
                encoded_ids = [doc_id.encode("utf-8") for doc_id in ids]
                id_files.append(temporary / f"ids-{len(id_files)}.npy")
                np.save(id_files[-1], np.array(encoded_ids, dtype=np.bytes_))
                lengths.append(block_lengths)
                first += len(ids)
        _join_ids(id_files, ids_file, first)
        return blocks, np.concatenate(lengths)

    def _save_frame(self, folder: Path, starts: np.ndarray, documents: int) -> None:
        """What bm25s saves beside the scores: parameters, vocabulary, starts of postings."""
        model = bm25s.BM25(k1=self._settings.k1, b=self._settings.b, method=self._settings.method)
        model.scores = {
            "data": np.zeros(0, dtype=np.float32),
            "indices": np.zeros(0, dtype=np.int32),
            "indptr": starts,
            "num_docs": documents,
        }
        model.vocab_dict = self._vocabulary
        model.nonoccurrence_array = None
        model.save(folder)

    def _save_scores(
        self,
        folder: Path,
        blocks: list[_Block],
        lengths: np.ndarray,
        idf: np.ndarray,
        starts: np.ndarray,
    ) -> None:
        """Fill the two files that bm25s left empty, one range of words after the other."""
        total = int(starts[-1])
        relative_lengths = lengths / lengths.mean()
        is_small = len(lengths) < SHOW_PROGRESS_FROM
        with (
            open(folder / "data.csc.index.npy", "wb") as data,
            open(folder / "indices.csc.index.npy", "wb") as indices,
            Progress(total=total, desc="BM25 scores", unit="posting", disable=is_small) as bar,
        ):
            _write_header(data, np.dtype(np.float32), total)
            _write_header(indices, np.dtype(np.int32), total)
            for low, high in _ranges(starts, self._postings):
                parts = [block.postings(low, high) for block in blocks]
                words, documents, frequencies = map(np.concatenate, zip(*parts, strict=True))
                del parts  # as much memory as the three arrays
                # Within a word, blocks are in the order of documents: so must the postings be.
                order = np.argsort(words, kind="stable")
                documents = documents[order]
                documents.tofile(indices)
                scores = self._settings.scores(
                    idf[words[order]], frequencies[order], relative_lengths[documents]
                )
                scores.tofile(data)
                bar.update(len(documents))


def _in_blocks(
    documents: DocumentStore, characters: int, bar: Progress
) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and texts of documents that together have about ``characters`` characters."""
    ids: list[str] = []
    texts: list[str] = []
    size = 0
    for doc_id, text in documents:
        ids.append(doc_id)
        texts.append(text)
        size += len(text) + 1
        bar.update()
        if size >= characters:
            yield ids, texts
            ids, texts, size = [], [], 0
    if ids:
        yield ids, texts


def _ranges(starts: np.ndarray, postings: int) -> Iterator[tuple[int, int]]:
    """Neighbouring words with at most ``postings`` together; a word with more stands alone."""
    low = 0
    words = len(starts) - 1
    while low < words:
        high = max(low + 1, int(np.searchsorted(starts, starts[low] + postings, side="right")) - 1)
        yield low, high
        low = high


def _join_ids(files: list[Path], target: Path, total: int) -> None:
    """One array of all ids, as wide as the longest: numpy's byte strings have one width."""
    width = 1
    for file in files:
        width = max(width, np.load(file, mmap_mode="r").dtype.itemsize)
    with open(target, "wb") as handle:
        _write_header(handle, np.dtype(f"S{width}"), total)
        for file in files:
            np.load(file).astype(f"S{width}").tofile(handle)


def _write_header(handle: BinaryIO, dtype: np.dtype, length: int) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (length,),
    }
    np.lib.format.write_array_header_2_0(handle, header)
    handle.flush()  # what follows goes past Python's buffer


def _key(documents: DocumentStore, settings: Bm25Settings) -> str:
    parts = [_FORMAT, bm25s.__version__, documents.fingerprint, asdict(settings)]
    return digest(json.dumps(parts, sort_keys=True))
