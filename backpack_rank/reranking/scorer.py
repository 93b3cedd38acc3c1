"""Pairs of texts in, scores out: batching by length, devices, number formats, and the cache of
sense vectors.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from backpack_rank.checks import whole_number
from backpack_rank.data.batching import (
    CPU_TOKENS,
    GPU_TOKENS,
    ROWS,
    ChunkBatch,
    ChunkPortions,
    JoinedPairs,
    Pairs,
    join_pairs,
    pack_by_length,
    start_worker,
)
from backpack_rank.data.long_documents import CUT, LongDocuments
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.digests import digest
from backpack_rank.models.backpack_encoder import BackpackEncoderForRanking, SenseRanker
from backpack_rank.models.blocked_weights import BlockedWeights
from backpack_rank.models.number_formats import format_of, resolved_format
from backpack_rank.models.pair_tokenizers import with_readout
from backpack_rank.models.pooled_map import PooledMap, kept_vectors, mapped_vectors
from backpack_rank.models.rankers import BackpackForRanking, Ranker, RankerOutput
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import gpu_has_room, pick_device
from backpack_rank.progress import INTERVAL, Progress
from backpack_rank.reranking.cached_scores import CachedScores
from backpack_rank.reranking.given_texts import checked_documents
from backpack_rank.reranking.text_scorer import UNCHANGED, ScoringSettings, TextScorer
from backpack_rank.senses.cache import SenseCache, weights_digest
from backpack_rank.senses.views import View

log = logging.getLogger(__name__)
SHOWN = 1000
"""Pairs from which on progress is shown at once."""
_MIXED_ROWS = 1024
"""Sense vectors that are scored at a time; those of a cache may be larger than memory."""


class Scorer(TextScorer):
    """Scores texts with a ranker and its tokenizer: it makes batches and runs the
    network.

    >>> from backpack_rank.models.loading import load_ranker
    >>> scorer = Scorer(*load_ranker("outputs/train/DATE/ranker"))  # doctest: +SKIP
    >>> scorer.score("who can rewire a house?", ["An electrician can."])  # doctest: +SKIP
    array([2.41], dtype=float32)

    Scores are raw logits. Texts of similar length are scored together, and the last bits of a score
    depend on the batch that it is computed in.
    """

    ranker: Ranker

    def __init__(
        self,
        ranker: Ranker,
        pair_tokenizer: PairTokenizer,
        settings: ScoringSettings | None = None,
    ) -> None:
        settings = settings or ScoringSettings()
        self.device = pick_device(settings.device, "scoring.device")
        dtype = resolved_format(settings.dtype, self.device, "scoring.dtype")
        self.settings = replace(settings, dtype=dtype)
        ranker.to(device=self.device, dtype=getattr(torch, dtype))  # type: ignore[call-arg]
        self.ranker = ranker.eval()
        if settings.readout is not None:
            pair_tokenizer = with_readout(ranker, pair_tokenizer, settings.readout)
        self._blocked_weights = BlockedWeights(self.ranker)
        # Kept from call to call.
        self.token_states: TokenStateCache | None = None
        if isinstance(ranker, BackpackForRanking) and self.device.type == "cpu":
            self.token_states = TokenStateCache(ranker.backpack)
        self.pair_tokenizer = pair_tokenizer
        self.tokenizer = pair_tokenizer.tokenizer
        self._long_queries: set[str] = set()  # those of which the log has spoken
        default = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        self.tokens_per_batch = self.settings.tokens_per_batch or default
        self.long_documents = _that_fit(self.settings.documents, pair_tokenizer)

    def with_long_documents(self, long_documents: LongDocuments) -> Scorer:
        """This scorer, reading long documents in another way; ranker and weights are shared.

        >>> eight_chunks = LongDocuments("chunks", max_chunks_per_doc=8)
        >>> thorough = scorer.with_long_documents(eight_chunks)  # doctest: +SKIP

        Raises:
            ValueError: the overlap is longer than half of what the ranker reads.
        """
        if long_documents == self.long_documents:
            return self
        other = copy.copy(self)
        other.long_documents = _that_fit(long_documents, self.pair_tokenizer)
        return other

    @property
    def number_format(self) -> str:
        """The number format that scores are computed in, such as ``float32 on cpu``."""
        return f"{format_of(self.ranker)} on {self.device.type}"

    @property
    def identity(self) -> dict[str, Any]:
        """Weights, configuration, tokenizer and number format, as values of JSON."""
        return {
            "weights": weights_digest(self.ranker),
            "configuration": digest(self.ranker.config.to_json_string()),
            "tokenizer": self.pair_tokenizer.fingerprint,
            "number format": self.number_format,
            "tokens per batch": self.tokens_per_batch,
        }

    def cut(self, text: str) -> str:
        """The beginning of a text, with more than the ranker reads."""
        return self.pair_tokenizer.cut(text, self.long_documents)

    def reading(self, text: str) -> Hashable:
        """Equal for two texts that are equal in all tokens that can be read."""
        return self.pair_tokenizer.reading(text, self.long_documents)

    def score(self, query: str, documents: Sequence[str], view: View = UNCHANGED) -> np.ndarray:
        """Raw logits of one query's documents. [m] float32

        Raises:
            ValueError: the query is empty or too long, or a score is not finite.
        """
        pairs = [(query, document) for document in checked_documents(documents)]
        return self.score_texts(pairs, view)

    def score_texts(self, pairs: Sequence[tuple[str, str]], view: View = UNCHANGED) -> np.ndarray:
        """Raw logits of (query, document) texts; equal texts are read once. [N] float32

        How many documents are cut is logged.

        Args:
            pairs: the texts.
            view: what the ranker is asked for, of these very texts.

        Raises:
            ValueError: a query is empty or too long, or a score is not finite; the pair is named.
        """
        self.say_long_queries(query for query, _ in pairs)
        first_rows, places = once(pairs)
        number = len(first_rows)
        distinct_scores = np.empty(number, dtype=np.float32)
        is_cut = np.empty(number, dtype=bool)
        with Progress(total=number, desc="scoring", unit="pair", delay=delay(number)) as bar:
            # A portion at a time, because token ids take more memory than texts.
            for start in range(0, number, ROWS):
                rows = first_rows[start : start + ROWS]
                joined = join_pairs(
                    self.pair_tokenizer,
                    [pairs[row] for row in rows],
                    long_documents=self.long_documents,
                    names=[f"pair {row}" for row in rows],
                )
                distinct_scores[start : start + ROWS] = self._score_joined(joined, view, bar)
                is_cut[start : start + ROWS] = joined.is_cut
        scores = distinct_scores[places]
        self._warn_of_cut(int(is_cut[places].sum()), len(pairs))
        not_finite = np.flatnonzero(~np.isfinite(scores))
        if len(not_finite):
            row = int(not_finite[0])
            query, document = pairs[row]
            raise ValueError(
                f"{len(not_finite)} scores are not finite, the first of pair {row}, {query[:80]!r} "
                f"and {document[:80]!r}: {scores[row]}. The weights may have diverged in training, "
                "or the type is too narrow (try dtype=float32)"
            )
        return scores

    def join(self, query: str, documents: Sequence[str]) -> JoinedPairs:
        """Token ids of one query with each document; logs how many documents are cut."""
        self.say_long_queries([query])
        pairs = [(query, document) for document in documents]
        joined = join_pairs(self.pair_tokenizer, pairs, long_documents=self.long_documents)
        self._warn_of_cut(joined.cut, len(documents))
        return joined

    def score_tokens(
        self, sequences: list[np.ndarray], view: View = UNCHANGED, bar: Progress | None = None
    ) -> np.ndarray:
        """Raw logits of joined texts; ``bar`` moves on with every batch. [N] float32"""
        scores = np.empty(len(sequences), dtype=np.float32)

        def computed() -> Iterator[tuple[np.ndarray, Tensor]]:
            for rows, batch in self._packed(sequences):
                yield rows, self._scores_of(batch, view)

        with self.inference():
            for rows, of_batch in _one_batch_behind(computed()):
                scores[rows] = of_batch
                if bar is not None:
                    bar.update(len(rows))
        return scores

    def scores(
        self, pairs: Pairs, view: View = UNCHANGED, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows under a view that rewrites nothing. [N] float32

        With a cache the network runs

        - once for all weights per sense,
        - twice for all alphas of a shift that moves the sense vectors of tokens alone (they are
          linear in alpha),
        - once for all maps of the pooled vector,
        - once for each alpha of a shift that moves what the contextual network reads.

        Without one, or when the sense vectors do not fit into it, every view is a pass of its own.
        """
        query_ids = dict.fromkeys(pairs.query_ids)
        self.say_long_queries(pairs.collection.queries[query_id] for query_id in query_ids)
        if cache is not None:
            cached = CachedScores(self, pairs, cache).scores(view)
            if cached is not None:
                return cached
        return self.scores_of_rows(pairs, view)

    def senses(self, pairs: Pairs) -> np.ndarray:
        """The sense vectors of all rows, whose documents are cut. float32 [N, k, d]"""
        out = np.empty(self.shape_of_senses(len(pairs)), dtype=np.float32)
        self.fill_senses(pairs, out)
        return out

    def fill_senses(
        self,
        pairs: Pairs,
        out: np.ndarray,
        token_shift: TokenShift | None = None,
        starts: np.ndarray | None = None,
    ) -> None:
        """Write the sense vectors of all rows, before any weights per sense.

        Args:
            pairs: the rows.
            out: where they are written. [N, k, d], or with ``starts`` [S, k, d]
            token_shift: tokens that are moved.
            starts: where in ``out`` the chunks of each row begin [N]; None: documents are cut.
        """
        long_documents = self.long_documents
        if starts is None:
            starts, long_documents = np.arange(len(pairs)), CUT
        kept = torch.from_numpy(out)
        with self.inference():
            for rows, chunks, texts in self._batches(pairs, long_documents):
                places = starts[np.asarray(rows)] + np.asarray(chunks)
                self._fill_senses(texts, token_shift, kept, places)

    def fill_token_senses(
        self,
        sequences: list[np.ndarray],
        out: Tensor,
        rows: np.ndarray,
        token_shift: TokenShift | None = None,
    ) -> None:
        """Write the sense vectors of joined texts, before any weights per sense.

        Args:
            sequences: the texts. [n]
            out: where they are written, on any device. [N, k, d]
            rows: of ``out``, one for each text. [n]
            token_shift: tokens that are moved.
        """
        with self.inference():
            for places, batch in self._packed(sequences):
                self._fill_senses(batch, token_shift, out, rows[places])

    def pooled_vectors(self, pairs: Pairs, cache: SenseCache | None = None) -> np.ndarray:
        """What the ranker's head makes the scores of all rows of, documents cut. [N, d] float32

        Raises:
            TypeError: no single vector stands for a text.
        """
        if self.long_documents.in_chunks:
            return self.with_long_documents(CUT).pooled_vectors(pairs, cache)
        # One text tells how wide they are.
        example = PackedBatch.from_sequences(self.pair_tokenizer.pairs("a", ["a"]))
        with self.inference():
            vectors, _ = self.pooled(example.to(self.device))
        shape = len(pairs), vectors.shape[1]
        starts = np.arange(len(pairs))
        if cache is not None:
            cached = CachedScores(self, pairs, cache).vectors(shape, starts)
            if cached is not None:
                return cached
        out = np.empty(shape, dtype=np.float32)
        self.fill_vectors(pairs, out, starts)
        return out

    def token_vectors(
        self, sequences: list[np.ndarray], token_shift: TokenShift | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pooled vectors of joined texts, and their scores. [N, d] and [N] float32"""
        vectors = np.empty((len(sequences), 0), dtype=np.float32)
        scores = np.empty(len(sequences), dtype=np.float32)
        with self.inference():
            for rows, batch in self._packed(sequences):
                pooled, of_batch = self.pooled(batch.to(self.device), View(token_shift=token_shift))
                if not vectors.shape[1]:
                    vectors = np.empty((len(sequences), pooled.shape[1]), dtype=np.float32)
                vectors[rows] = pooled.float().cpu().numpy()
                scores[rows] = of_batch.float().cpu().numpy()
        return vectors, scores

    def score_vectors(
        self, vectors: np.ndarray, pooled_map: PooledMap, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """Scores of stored pooled vectors [N, d] under a map, of all or of some. [n] float32"""
        numbers = np.arange(len(vectors)) if rows is None else rows
        scores = np.empty(len(numbers), dtype=np.float32)
        with self.inference():
            for start in range(0, len(scores), _MIXED_ROWS):
                block = slice(start, start + _MIXED_ROWS)
                stored = torch.from_numpy(vectors[numbers[block]]).to(
                    self.device, self._format_of_stored
                )
                mapped = self.ranker.score_vectors(pooled_map(stored))
                scores[block] = mapped.float().cpu().numpy()
        return scores

    def empty_senses(self, number: int) -> Tensor:
        """Room for the sense vectors of texts, on a GPU that has it. float32 [N, k, d]"""
        shape = self.shape_of_senses(number)
        has_room = gpu_has_room(self.device, 4 * math.prod(shape))
        return torch.empty(shape, device=self.device if has_room else "cpu")

    def shape_of_senses(self, number: int) -> tuple[int, int, int]:
        """[N, k, d], or [N, k, n] where each sense has a number for every position."""
        ranker = self._backpack()
        width = ranker.config.pooled_size
        if ranker.reads_all_positions:
            width = self.pair_tokenizer.max_length
        return number, ranker.config.total_senses, width

    def score_senses(
        self,
        parts: Sequence[tuple[float, np.ndarray | Tensor]],
        weights: Tensor | None = None,
        rows: np.ndarray | None = None,
        pooled_map: PooledMap | None = None,
    ) -> np.ndarray:
        """Scores from sense vectors under weights per sense. [N] float32

        Args:
            parts: (factor, sense vectors [N, k, d]), arrays or tensors on any device; the vectors
                scored are the sum of factor times vectors. One part with factor 1 is scored
                unchanged.
            weights: M_s [k]; None: the senses are mixed unchanged.
            rows: that are scored, by number [n]; None: all.
            pooled_map: of the mixed senses; None: the head scores them unchanged.

        Returns:
            float32 [N], or [n] with ``rows``
        """
        ranker = self._backpack()
        number = len(parts[0][1]) if rows is None else len(rows)
        scores = []
        with self.inference(), mapped_vectors(ranker, pooled_map):
            for start in range(0, number, _MIXED_ROWS):
                block = slice(start, start + _MIXED_ROWS)
                # Numbers of rows copy what a slice looks at in place.
                picked = block if rows is None else rows[block]
                vectors = weighted_sum(
                    [(factor, _on(self.device, senses[picked])) for factor, senses in parts]
                )
                stored = vectors.to(self._format_of_stored)
                scores.append(ranker.score_senses(stored, weights).float())
        # Read behind the last block: to read is to wait for the device.
        return torch.cat(scores).cpu().numpy() if scores else np.empty(0, dtype=np.float32)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Around the ranker to compute as scores are computed.

        Without gradients, and on a CPU with weights in blocks.
        """
        with torch.inference_mode(), self._blocked_weights.in_use():
            yield

    def _score_joined(self, joined: JoinedPairs, view: View, bar: Progress) -> np.ndarray:
        """Scores of joined pairs: of each, its best chunk's; ``bar`` counts the pairs. [N]"""

        def score(numbers: np.ndarray) -> np.ndarray:
            sequences = [joined.sequences[number] for number in numbers]
            # First chunks come in one call, the very first among them, and stand for their pairs.
            return self.score_tokens(sequences, view, bar if numbers[0] == 0 else None)

        return joined.best_scores(score)

    def scores_of_rows(self, pairs: Pairs, view: View) -> np.ndarray:
        """Scores of all rows of a collection's pairs: of each, its best chunk's. [N]"""
        scores = np.full(len(pairs), -np.inf, dtype=np.float32)

        def computed() -> Iterator[tuple[np.ndarray, Tensor]]:
            for rows, _, texts in self._batches(pairs, self.long_documents):
                # A data loader makes tensors of the rows.
                yield np.asarray(rows), self._scores_of(texts, view)

        # A score that is no number is named later, with its pair.
        with self.inference(), np.errstate(invalid="ignore"):
            for rows, of_batch in _one_batch_behind(computed()):
                np.maximum.at(scores, rows, of_batch)
        return scores

    def _scores_of(self, batch: PackedBatch, view: View) -> Tensor:
        """Raw logits of the texts of a batch, on the ranker's device. [B]"""
        return self._forward(batch.to(self.device), view).scores

    def _fill_senses(
        self,
        batch: PackedBatch,
        token_shift: TokenShift | None,
        out: Tensor,
        rows: np.ndarray,
    ) -> None:
        """Write the sense vectors of a batch to these rows of ``out`` [N, k, d]."""
        self._backpack()
        view = View(token_shift=token_shift)
        output = self._forward(batch.to(self.device), view, return_senses=True)
        assert output.senses is not None
        senses = output.senses.float().to(out)
        width = senses.shape[-1]
        out[rows, :, :width] = senses
        # Only numbers by position are narrower: texts of a batch are shorter than others.
        out[rows, :, width:] = torch.nan

    def _forward(self, batch: PackedBatch, view: View, return_senses: bool = False) -> RankerOutput:
        # Only a Backpack has such an argument.
        options = {} if self.token_states is None else {"token_states": self.token_states}
        with mapped_vectors(self.ranker, view.pooled_map):
            output: RankerOutput = self.ranker(
                batch,
                sense_weights=view.sense_weights,
                token_shift=view.token_shift,
                return_senses=return_senses,
                **options,
            )
        return output

    def pooled(self, batch: PackedBatch, view: View = UNCHANGED) -> tuple[Tensor, Tensor]:
        """What the head makes scores of, and the scores. [B, d] and [B]"""
        with kept_vectors(self.ranker.pooled_head) as kept:
            scores = self._forward(batch, view).scores
        lengths = torch.tensor(batch.lengths, device=scores.device)
        vectors = []
        start = 0
        # A ranker that reads texts one by one calls its head for each.
        for states in kept:
            if states.ndim == 3:
                # A decoder's head scores every token, and the last one's score counts.
                last = lengths[start : start + len(states)] - 1
                states = states[torch.arange(len(states), device=states.device), last]
            vectors.append(states)
            start += len(states)
        pooled = torch.cat(vectors)
        if not self.ranker.scores_stored_vectors:
            return pooled, scores
        again = self.ranker.score_vectors(pooled)
        tolerance = 1e-4 if again.dtype == torch.float32 else 0.05
        if not torch.allclose(again.float(), scores.float(), rtol=tolerance, atol=tolerance):
            raise ValueError(
                f"{self.ranker.label} makes its scores of more than the vector that its last layer "
                "takes, so a map of this vector does not say what they become"
            )
        return pooled, scores

    def fill_vectors(self, pairs: Pairs, out: np.ndarray, starts: np.ndarray) -> None:
        """Write the pooled vectors of all rows, whose chunks begin at ``starts`` [N], to [S, d]."""
        with self.inference():
            for rows, chunks, texts in self._batches(pairs, self.long_documents):
                vectors, _ = self.pooled(texts.to(self.device))
                places = starts[np.asarray(rows)] + np.asarray(chunks)
                out[places] = vectors.float().cpu().numpy()

    def _packed(self, sequences: list[np.ndarray]) -> list[tuple[np.ndarray, PackedBatch]]:
        return pack_by_length(np.arange(len(sequences)), sequences, self.tokens_per_batch)

    def _batches(self, pairs: Pairs, long_documents: LongDocuments) -> Iterator[ChunkBatch]:
        """The pairs of a collection, read and tokenised in portions; shows progress."""
        portions = ChunkPortions(pairs, self.pair_tokenizer, self.tokens_per_batch, long_documents)
        workers = self.settings.workers
        loader = DataLoader(
            portions, batch_size=None, num_workers=workers, worker_init_fn=start_worker
        )
        desc = f"scoring {pairs.collection.name}"
        further = 0
        with Progress(total=len(pairs), desc=desc, unit="doc", delay=delay(len(pairs))) as bar:
            for portion in loader:
                for batch in portion:
                    yield batch
                    if int(batch.chunks[0]) == 0:
                        bar.update(len(batch.rows))
                    else:
                        further += len(batch.rows)
        if further:
            log.info(
                "%d documents of %s are read in %d chunks",
                len(pairs),
                pairs.collection.name,
                len(pairs) + further,
            )

    @cached_property
    def weights_key(self) -> str:
        """Digest of the ranker's weights, taken once: a scorer is made for a trained ranker."""
        return weights_digest(self.ranker)[:16]

    @property
    def _format_of_stored(self) -> torch.dtype:
        """What stored vectors are scored in: a similarity has no digits to spare."""
        has_similarity = getattr(self.ranker.config, "similarity", None) is not None
        if has_similarity or isinstance(self.ranker, BackpackEncoderForRanking):
            return torch.float32
        dtype: torch.dtype = self.ranker.dtype
        return dtype

    def _backpack(self) -> SenseRanker:
        if not isinstance(self.ranker, SenseRanker):
            raise TypeError(
                f"{self.ranker.label} has no sense vectors; alpha other than 1 needs a Backpack "
                "ranker"
            )
        return self.ranker

    def say_long_queries(self, queries: Iterable[str]) -> None:
        """Log once how many queries are so long that they are read in part."""
        long_queries = []
        for query in dict.fromkeys(queries):
            if query not in self._long_queries and self.pair_tokenizer.may_be_cut(query):
                long_queries.append(query)
        self._long_queries.update(long_queries)
        if long_queries:
            log.warning(
                "%d queries are longer than half of the %d tokens that %s reads: beside a long "
                "document they are cut, as sentence-transformers does it (%r ...)",
                len(long_queries),
                self.pair_tokenizer.max_length,
                self.ranker.label,
                long_queries[0][:60],
            )

    def _warn_of_cut(self, cut: int, documents: int) -> None:
        if cut:
            hint = "long_documents='chunks' reads all of them"
            if self.long_documents.in_chunks:
                hint = f"max_chunks_per_doc={self.long_documents.max_chunks_per_doc} were read"
            log.warning(
                "%d of %d documents are longer than the %d tokens that the ranker reads, query "
                "included, and were cut; %s",
                cut,
                documents,
                self.pair_tokenizer.max_length,
                hint,
            )


def _one_batch_behind(
    computed: Iterable[tuple[np.ndarray, Tensor]],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and scores of each batch, as numbers on the CPU.

    To read scores is to wait for them. They are read when the next batch has been handed to the
    device, so that a GPU computes while the CPU makes batches.
    """
    waiting: tuple[np.ndarray, Tensor] | None = None
    for batch in computed:
        if waiting is not None:
            yield waiting[0], waiting[1].float().cpu().numpy()
        waiting = batch
    if waiting is not None:
        yield waiting[0], waiting[1].float().cpu().numpy()


def _that_fit(long_documents: LongDocuments, pair_tokenizer: PairTokenizer) -> LongDocuments:
    """The settings, whose overlap must be of use with what a ranker reads."""
    most = pair_tokenizer.max_length // 2
    whole_number(
        "chunk_overlap",
        long_documents.chunk_overlap,
        0,
        f", half of the {pair_tokenizer.max_length} tokens that the ranker reads",
        most=most,
    )
    return long_documents


def delay(pairs: int) -> float:
    """Seconds until progress is shown: of few pairs only when they take long."""
    return 0 if pairs >= SHOWN else INTERVAL


def once(items: Iterable[Hashable]) -> tuple[list[int], np.ndarray]:
    """Do work once for equal items.

    >>> once("abac")
    ([0, 1, 3], array([0, 1, 0, 2]))

    Returns:
        The first row of each distinct item, in order [n], and for every row which of the distinct
        items it has, int64 [N].
    """
    numbers: dict[Hashable, int] = {}
    first_rows: list[int] = []
    places: list[int] = []
    for row, item in enumerate(items):
        if item not in numbers:
            numbers[item] = len(numbers)
            first_rows.append(row)
        places.append(numbers[item])
    return first_rows, np.array(places, dtype=np.int64)


def _on(device: torch.device, vectors: np.ndarray | Tensor) -> Tensor:
    """Vectors on a device; of an array a copy, because mapped files are read-only."""
    if isinstance(vectors, np.ndarray):
        vectors = torch.from_numpy(np.array(vectors))
    return vectors.to(device)


def weighted_sum(parts: Sequence[tuple[float, Tensor]]) -> Tensor:
    """Sum of factor times vectors.

    >>> weighted_sum([(0.5, torch.ones(2)), (2.0, torch.ones(2))])
    tensor([2.5000, 2.5000])
    """
    ((first_factor, first), *others) = parts
    if not others and first_factor == 1:
        return first
    # In float32 whatever the cache's format.
    total = first_factor * first.float()
    for factor, senses in others:
        total += factor * senses.float()
    return total
