"""Pairs of query and candidate, encoded and packed in portions, for validation and for scoring."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch.utils.data import Dataset

from backpack_rank.checks import located
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer

CPU_TOKENS = 1500
"""Tokens per packed batch that keep a CPU's caches warm."""
GPU_TOKENS = 65_536
"""Tokens per packed batch that keep a GPU busy."""
ROWS = 512
"""Pairs that are tokenised, and sorted by length, together."""
_FETCHED = 4096
"""Documents that are in memory at once while texts are read one after the other."""


def start_worker(_worker: int) -> None:
    """A ``worker_init_fn`` of a data loader.

    A forked process has none of the tokenizer's threads and would wait for them for ever.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


@dataclass(frozen=True)
class Pairs:
    """Wherever a ranker scores a run: its rows are the pairs to score, in a fixed order.

        pairs = Pairs.from_run(candidates, collection)
        scores = np.array([len(document) for _, document in pairs.texts()], dtype=np.float32)
        run = pairs.to_run(scores)

    Attributes:
        collection: texts of queries and documents.
        query_ids, doc_ids: of every row.
        queries: every query of the run that the rows come from, also those without a document.
    """

    collection: Collection
    query_ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    queries: tuple[str, ...] = ()

    @classmethod
    def from_run(cls, run: Run, collection: Collection) -> Pairs:
        """All pairs of a run, query by query.

        Raises:
            ValueError: a query that the collection does not have.
        """
        unknown = [query_id for query_id in run if query_id not in collection.queries]
        if unknown:
            raise ValueError(
                f"{len(unknown)} queries of the candidates are not in {collection.name}: "
                f"{', '.join(unknown[:5])}"
            )
        query_ids: list[str] = []
        doc_ids: list[str] = []
        for query_id, documents in run.items():
            query_ids += [query_id] * len(documents)
            doc_ids += documents
        return cls(collection, tuple(query_ids), tuple(doc_ids), tuple(run))

    def __len__(self) -> int:
        return len(self.query_ids)

    def texts(self) -> Iterator[tuple[str, str]]:
        """(query text, document text) of every row; documents are fetched in portions."""
        queries, store = self.collection.queries, self.collection.documents
        for start in range(0, len(self), _FETCHED):
            rows = range(start, min(start + _FETCHED, len(self)))
            documents = store.get_many(dict.fromkeys(self.doc_ids[row] for row in rows))
            for row in rows:
                yield queries[self.query_ids[row]], documents[self.doc_ids[row]]

    def to_run(self, scores: np.ndarray) -> Run:
        """Scores [N] as a run; a query without documents keeps its empty list.

        Raises:
            ValueError: a score is not finite; the pair is named.
        """
        self.check_finite(scores)
        run: Run = {query_id: {} for query_id in self.queries or self.query_ids}
        rows = zip(self.query_ids, self.doc_ids, scores.tolist(), strict=True)
        for query_id, doc_id, score in rows:
            run[query_id][doc_id] = score
        return run

    def check_finite(self, scores: np.ndarray) -> None:
        """Raise ``ValueError`` where one of the scores [N] is not finite; the pair is named."""
        if len(scores) != len(self):
            raise ValueError(f"{len(scores)} scores for {len(self)} pairs")
        bad = np.flatnonzero(~np.isfinite(scores))
        if bad.size:
            row = int(bad[0])
            raise ValueError(
                f"{bad.size} scores are not finite, the first for query {self.query_ids[row]} and "
                f"document {self.doc_ids[row]}: {scores[row]}. The weights may have diverged in "
                "training, or the type is too narrow (try scoring.dtype=float32)"
            )


@dataclass(frozen=True)
class JoinedPairs:
    """What a ranker reads of N pairs of texts: :func:`join_pairs` makes it.

    Attributes:
        sequences: token ids of the joined texts: of each pair its chunks, one after the other,
            which is one of a document that fits or is cut.
        starts: where the sequences of each pair begin. int64 [N]
        is_cut: whether a text of each pair is read in part. [N]
    """

    sequences: list[np.ndarray]
    starts: np.ndarray
    is_cut: list[bool]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def cut(self) -> int:
        """How many pairs are read in part."""
        return sum(self.is_cut)

    def of_pair(self, pair: int) -> list[np.ndarray]:
        """Token ids of the chunks of a pair."""
        is_last = pair == len(self) - 1
        end = len(self.sequences) if is_last else self.starts[pair + 1]
        return self.sequences[self.starts[pair] : end]

    def ids_of_pairs(self) -> list[np.ndarray]:
        """All token ids that are read of each pair, chunk behind chunk. [N]"""
        if len(self.sequences) == len(self):
            return self.sequences
        return [np.concatenate(self.of_pair(pair)) for pair in range(len(self))]

    def pair_of_sequence(self) -> np.ndarray:
        """The pair of each of S sequences, by number. int64 [S]"""
        return pair_of_chunk(self.starts, len(self.sequences))

    def best_scores(
        self, score: Callable[[np.ndarray], np.ndarray], pairs: np.ndarray | None = None
    ) -> np.ndarray:
        """Scores of pairs: of each, that of its best chunk; see :func:`best_scores`."""
        return best_scores(self.starts, len(self.sequences), score, pairs)


def pair_of_chunk(starts: np.ndarray, number: int) -> np.ndarray:
    """The pair of each of S chunks, which follow each other pair by pair. int64 [S]

    >>> pair_of_chunk(np.array([0, 2]), 5)
    array([0, 0, 1, 1, 1])

    Args:
        starts: first chunk of each pair. [N]
        number: S.
    """
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, number)))


def best_scores(
    starts: np.ndarray,
    number: int,
    score: Callable[[np.ndarray], np.ndarray],
    pairs: np.ndarray | None = None,
) -> np.ndarray:
    """Score pairs that are read in chunks: the best chunk counts.

    >>> scores_of_chunks = np.array([0.5, 2.0, 1.0], dtype=np.float32)
    >>> best_scores(np.array([0, 2]), 3, lambda chunks: scores_of_chunks[chunks])
    array([2., 1.], dtype=float32)

    Args:
        starts: first chunk of each pair. [N]
        number: of all chunks.
        score: gives the scores of chunks, by number. int64 [s] -> float32 [s]
        pairs: numbers of the pairs, ascending [n]; None: all.

    Returns:
        float32 [n]
    """
    if pairs is None:
        pairs = np.arange(len(starts))
    # First chunks are scored apart from the others, in the batches that they have where documents
    # are cut: a score depends on its batch in the last bits, and a text of one chunk keeps its
    # very score whatever stands beside it.
    scores = np.array(score(starts[pairs]), dtype=np.float32)
    is_further = np.isin(pair_of_chunk(starts, number), pairs)
    is_further[starts] = False
    further = np.flatnonzero(is_further)
    if len(further):
        places = np.searchsorted(pairs, pair_of_chunk(starts, number)[further])
        scores_of_further = score(further)
        with np.errstate(invalid="ignore"):  # a score that is no number is named later
            np.maximum.at(scores, places, scores_of_further)
    return scores


def join_pairs(
    pair_tokenizer: PairTokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    long_documents: LongDocuments = CUT,
    max_document: int | None = None,
    names: Sequence[str] | None = None,
) -> JoinedPairs:
    """Turn texts into what a ranker reads.

        joined = join_pairs(pair_tokenizer, [("electrician", "She rewires houses.")])
        joined.sequences[0]  # token ids

    A text that several pairs have is tokenised once.

    Args:
        pair_tokenizer: the ranker's.
        pairs: (query, document) texts. [N]
        long_documents: what is read of a document that does not fit behind its query.
        max_document: tokens of a document at most.
        names: of the pairs, for errors; None: there is one query, and errors are about it.

    Raises:
        ValueError: a query is empty or too long.
    """
    texts = list(dict.fromkeys(document for _, document in pairs))
    beginnings = pair_tokenizer.beginnings(texts, long_documents)
    documents = dict(zip(texts, beginnings, strict=True))
    queries: dict[str, np.ndarray] = {}
    sequences: list[np.ndarray] = []
    starts: list[int] = []
    is_cut: list[bool] = []
    for number, (query, document) in enumerate(pairs):
        if query not in queries:
            with nullcontext() if names is None else located(names[number]):
                queries[query] = pair_tokenizer.encode_query(query)
        query_ids = queries[query]
        room = pair_tokenizer.room(query_ids)
        chunks, is_read_in_part = pair_tokenizer.chunks(
            documents[document], room, long_documents, max_document
        )
        starts.append(len(sequences))
        for chunk in chunks:
            # Classifiers of others cut the query too, where it is the longer text.
            is_read_in_part |= pair_tokenizer.query_tokens_read(query_ids, chunk) < len(query_ids)
            sequences.append(pair_tokenizer.join(query_ids, chunk))
        is_cut.append(is_read_in_part)
    return JoinedPairs(sequences, np.array(starts, dtype=np.int64), is_cut)


class PairPortions(Dataset):
    """The data set of a loader that validates: it gives portions of pairs.

        loader = DataLoader(PairPortions(pairs, pair_tokenizer), batch_size=None, num_workers=4)
        for portion in loader:
            for rows, texts in portion:
                scores[rows] = ranker(texts)

    A portion is a list of (row numbers, packed batch), with texts of similar length together. Long
    documents are cut.
    """

    def __init__(
        self,
        pairs: Pairs,
        pair_tokenizer: PairTokenizer,
        tokens_per_batch: int = CPU_TOKENS,
        rows: int = ROWS,
    ) -> None:
        self.pairs = pairs
        self.pair_tokenizer = pair_tokenizer
        self.tokens_per_batch = tokens_per_batch
        self.rows = rows

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.rows)

    def __getitem__(self, index: int) -> list[tuple[np.ndarray, PackedBatch]]:
        rows = self._rows(index)
        return pack_by_length(rows, self._join(rows).sequences, self.tokens_per_batch)

    def _rows(self, index: int) -> np.ndarray:
        start = index * self.rows
        rows = np.arange(start, min(start + self.rows, len(self.pairs)))
        if not len(rows):
            raise IndexError(index)
        return rows

    def _join(self, rows: np.ndarray, long_documents: LongDocuments = CUT) -> JoinedPairs:
        pairs, collection = self.pairs, self.pairs.collection
        documents = collection.documents.get_many(dict.fromkeys(pairs.doc_ids[row] for row in rows))
        texts: list[tuple[str, str]] = []
        names: list[str] = []
        for row in rows:
            query_id = pairs.query_ids[row]
            texts.append((collection.queries[query_id], documents[pairs.doc_ids[row]]))
            names.append(f"query {query_id} of {collection.name}")
        return join_pairs(self.pair_tokenizer, texts, long_documents=long_documents, names=names)


class ChunkBatch(NamedTuple):
    """Texts that a ranker reads together.

    Attributes:
        rows: the pair of each text. [B]
        chunks: which chunk of its document each text is, from 0. [B]
        texts: the texts.
    """

    rows: np.ndarray
    chunks: np.ndarray
    texts: PackedBatch


class ChunkPortions(PairPortions):
    """The data set of a loader that scores: portions of pairs with all chunks.

    A portion is a list of :class:`ChunkBatch`, those of first chunks before all others: they are
    the batches of a :class:`PairPortions`.
    """

    def __init__(
        self,
        pairs: Pairs,
        pair_tokenizer: PairTokenizer,
        tokens_per_batch: int = CPU_TOKENS,
        long_documents: LongDocuments = CUT,
    ) -> None:
        super().__init__(pairs, pair_tokenizer, tokens_per_batch)
        self.long_documents = long_documents

    def __getitem__(self, index: int) -> list[ChunkBatch]:  # type: ignore[override]
        rows = self._rows(index)
        joined = self._join(rows, self.long_documents)
        pair_of_sequence = joined.pair_of_sequence()
        chunk_of_sequence = np.arange(len(joined.sequences)) - joined.starts[pair_of_sequence]
        batches = []
        for numbers in (np.flatnonzero(chunk_of_sequence == 0), np.flatnonzero(chunk_of_sequence)):
            sequences = [joined.sequences[number] for number in numbers]
            for of_batch, texts in pack_by_length(numbers, sequences, self.tokens_per_batch):
                chunks = chunk_of_sequence[of_batch]
                batches.append(ChunkBatch(rows[pair_of_sequence[of_batch]], chunks, texts))
        return batches

    def chunk_counts(self, index: int) -> np.ndarray:
        """How many chunks each pair of a portion has. int64 [rows]"""
        joined = self._join(self._rows(index), self.long_documents)
        return np.bincount(joined.pair_of_sequence(), minlength=len(joined))


def pack_by_length(
    rows: np.ndarray, sequences: list[np.ndarray], tokens_per_batch: int
) -> list[tuple[np.ndarray, PackedBatch]]:
    """Pack texts of similar length until a batch holds ``tokens_per_batch`` tokens.

    Args:
        rows: number of each text, for whoever puts scores to their rows. [N]
        sequences: token ids of each text. [N]
        tokens_per_batch: at most; a longer text is a batch by itself.

    Returns:
        Row numbers and packed texts of every batch.
    """
    batches: list[tuple[np.ndarray, PackedBatch]] = []
    lengths = [len(sequence) for sequence in sequences]
    for places in group_by_length(lengths, tokens_per_batch):
        batch = PackedBatch.from_sequences([sequences[place] for place in places])
        batches.append((rows[places], batch))
    return batches


def group_by_length(lengths: Sequence[int] | np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Put texts of similar length together: positions, in groups of so many tokens.

    >>> [group.tolist() for group in group_by_length([5, 2, 9, 3], tokens_per_batch=10)]
    [[0, 1, 3], [2]]

    A text longer than ``tokens_per_batch`` is a group by itself.
    """
    groups: list[list[int]] = []
    tokens = 0
    for position in np.argsort(np.asarray(lengths), kind="stable").tolist():
        if not groups or tokens + lengths[position] > tokens_per_batch:
            groups.append([])
            tokens = 0
        groups[-1].append(position)
        tokens += lengths[position]
    # Within a group texts stand as they came: those of one query side by side, whose common
    # beginning a decoder reads once.
    return [np.sort(group) for group in groups]


def sample_texts(
    pairs: Pairs, pair_tokenizer: PairTokenizer, number: int, seed: int
) -> list[np.ndarray]:
    """Token ids of a random sample of pairs, all of them where there are fewer.

        texts = sample_texts(pairs, pair_tokenizer, number=1000, seed=0)

    Raises:
        ValueError: there is no pair.
    """
    if not len(pairs):
        raise ValueError(f"{pairs.collection.name} has no candidates to draw texts from")
    rows = np.random.default_rng(seed).permutation(len(pairs))[:number]
    query_ids = tuple(pairs.query_ids[row] for row in rows)
    doc_ids = tuple(pairs.doc_ids[row] for row in rows)
    portions = PairPortions(Pairs(pairs.collection, query_ids, doc_ids), pair_tokenizer)
    # A portion gives its texts by length; their places put them back into the order of the draw.
    texts: list[np.ndarray] = [np.empty(0)] * len(rows)
    for portion in range(len(portions)):
        for places, batch in portions[portion]:
            parts = batch.input_ids.split(batch.lengths)
            for place, part in zip(places, parts, strict=True):
                texts[place] = part.numpy()
    return texts
