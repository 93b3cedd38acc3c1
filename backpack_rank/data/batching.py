"""Pairs of query and candidate, encoded and packed in chunks, for validation and for scoring."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from torch.utils.data import Dataset

from backpack_rank.checks import located
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import Beginning, PairTokenizer

CPU_TOKENS = 1500
"""Tokens per packed batch that keep a CPU's caches warm."""
GPU_TOKENS = 65_536
"""Tokens per packed batch that keep a GPU busy."""
ROWS = 512
"""Pairs that are tokenised, and sorted by length, together."""


def start_worker(_worker: int) -> None:
    """For data loaders: a forked process must not wait for the tokenizer's threads, which it does
    not have.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


@dataclass(frozen=True)
class Pairs:
    """Rows of (query id, document id) of one collection, in a fixed order.

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
        """All pairs of a run. Raises ``ValueError`` for a query that the collection does not
        have.
        """
        unknown = [query_id for query_id in run if query_id not in collection.queries]
        if unknown:
            raise ValueError(
                f"{len(unknown)} queries of the candidates are not in {collection.name}: "
                f"{', '.join(unknown[:5])}"
            )
        rows = [(query_id, doc_id) for query_id, documents in run.items() for doc_id in documents]
        query_ids, doc_ids = (
            tuple(query_id for query_id, _ in rows),
            tuple(doc_id for _, doc_id in rows),
        )
        return cls(collection, query_ids, doc_ids, tuple(run))

    def __len__(self) -> int:
        return len(self.query_ids)

    def texts(self) -> Iterator[tuple[str, str]]:
        """(query text, document text) of every row, fetched in chunks."""
        for start in range(0, len(self), 4096):
            documents = self.collection.documents.get_many(
                dict.fromkeys(self.doc_ids[start : start + 4096])
            )
            for row in range(start, min(start + 4096, len(self))):
                yield self.collection.queries[self.query_ids[row]], documents[self.doc_ids[row]]

    def to_run(self, scores: np.ndarray) -> Run:
        """Scores [N] as a run; a query without documents keeps its empty list.

        Raises:
            ValueError: a score is not finite; the pair is named.
        """
        self.check_finite(scores)
        run: Run = {query_id: {} for query_id in self.queries or self.query_ids}
        for query_id, doc_id, score in zip(
            self.query_ids, self.doc_ids, scores.tolist(), strict=True
        ):
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
                "document "
                f"{self.doc_ids[row]}: {scores[row]}. The weights may have diverged in training, "
                "or the type "
                "is too narrow (try scoring.dtype=float32)"
            )


@dataclass(frozen=True)
class JoinedPairs:
    """What a ranker reads of pairs of texts.

    Attributes:
        sequences: token ids of the joined texts, several for a pair that is read in parts.
        starts: where the sequences of each pair begin. [N]
        is_cut: which documents are read in part. [N]
    """

    sequences: list[np.ndarray]
    starts: list[int]
    is_cut: list[bool]

    @property
    def cut(self) -> int:
        """How many documents are read in part."""
        return sum(self.is_cut)


def join_pairs(
    pair_tokenizer: PairTokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    chunks: bool = False,
    max_document: int | None = None,
    names: Sequence[str] | None = None,
) -> JoinedPairs:
    """Tokenise pairs of texts and join them; a text that several pairs have is tokenised once.

    Args:
        pair_tokenizer: the ranker's.
        pairs: (query, document) texts. [N]
        chunks: read a document that does not fit behind its query in parts, in place of its
            beginning alone.
        max_document: tokens of a document at most, beside what fits.
        names: of the pairs, for errors; None: there is one query, and errors are about it.

    Raises:
        ValueError: a query is empty or too long.
    """
    texts = list(dict.fromkeys(document for _, document in pairs))
    if chunks:
        whole = [
            Beginning(text, ids, True)
            for text, ids in zip(texts, pair_tokenizer.encode(texts), strict=True)
        ]
    documents = dict(zip(texts, whole if chunks else pair_tokenizer.beginnings(texts), strict=True))
    queries: dict[str, np.ndarray] = {}
    sequences: list[np.ndarray] = []
    starts: list[int] = []
    is_cut: list[bool] = []
    for number, (query, document) in enumerate(pairs):
        if query not in queries:
            with nullcontext() if names is None else located(names[number]):
                queries[query] = pair_tokenizer.encode_query(query)
        found = documents[document]
        ids = found.ids[:max_document]
        long = len(ids) > pair_tokenizer.room(queries[query])
        parts = pair_tokenizer.chunks(queries[query], ids) if long and chunks else [ids]
        is_cut.append(not found.is_whole or len(ids) < len(found.ids) or (long and not chunks))
        starts.append(len(sequences))
        sequences += [pair_tokenizer.join(queries[query], part) for part in parts]
    return JoinedPairs(sequences, starts, is_cut)


class PairChunks(Dataset):
    """Chunks of rows, each a list of (row numbers, packed batch) with texts of similar length
    together.
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
        start = index * self.rows
        rows = np.arange(start, min(start + self.rows, len(self.pairs)))
        if not len(rows):
            raise IndexError(index)
        return pack_by_length(rows, self._encode(rows), self.tokens_per_batch)

    def _encode(self, rows: np.ndarray) -> list[np.ndarray]:
        pairs = self.pairs
        documents = pairs.collection.documents.get_many(
            dict.fromkeys(pairs.doc_ids[row] for row in rows)
        )
        texts = [
            (pairs.collection.queries[pairs.query_ids[row]], documents[pairs.doc_ids[row]])
            for row in rows
        ]
        names = [f"query {pairs.query_ids[row]} of {pairs.collection.name}" for row in rows]
        return join_pairs(self.pair_tokenizer, texts, names=names).sequences


def pack_by_length(
    rows: np.ndarray, sequences: list[np.ndarray], tokens_per_batch: int
) -> list[tuple[np.ndarray, PackedBatch]]:
    """Sort texts by length and pack neighbours until a batch holds ``tokens_per_batch`` tokens."""
    batches = group_by_length([len(sequence) for sequence in sequences], tokens_per_batch)
    return [
        (rows[batch], PackedBatch.from_sequences([sequences[p] for p in batch]))
        for batch in batches
    ]


def group_by_length(lengths: Sequence[int] | np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Positions of texts, by length, in groups of ``tokens_per_batch`` tokens at most.

    A text longer than that is a group of its own. Within a group texts stand as they came: those of
    one query side by side, whose common beginning a decoder reads once.
    """
    groups: list[list[int]] = []
    tokens = 0
    for position in np.argsort(np.asarray(lengths), kind="stable").tolist():
        if not groups or tokens + lengths[position] > tokens_per_batch:
            groups.append([])
            tokens = 0
        groups[-1].append(position)
        tokens += lengths[position]
    return [np.sort(group) for group in groups]


def sample_texts(
    pairs: Pairs, pair_tokenizer: PairTokenizer, number: int, seed: int
) -> list[np.ndarray]:
    """Token ids of ``number`` pairs, or of all where there are fewer, in an order drawn by
    ``seed``.

    Raises:
        ValueError: there is no pair.
    """
    if not len(pairs):
        raise ValueError(f"{pairs.collection.name} has no candidates to draw texts from")
    rows = np.random.default_rng(seed).permutation(len(pairs))[:number]
    own = Pairs(
        pairs.collection,
        *(tuple(ids[row] for row in rows) for ids in (pairs.query_ids, pairs.doc_ids)),
    )
    chunks = PairChunks(own, pair_tokenizer)
    texts: dict[int, np.ndarray] = {}
    for chunk in range(len(chunks)):
        for places, batch in chunks[chunk]:
            parts = batch.input_ids.split(batch.lengths)
            texts.update(
                (int(place), part.numpy()) for place, part in zip(places, parts, strict=True)
            )
    return [texts[place] for place in range(len(own))]
