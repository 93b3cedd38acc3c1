"""Pairs of texts in, scores out: batching by length, devices, number formats, and the cache of
sense vectors.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from backpack_rank.constructors import Count, Name, Note, OneOf, Workers, checked
from backpack_rank.data.batching import (
    CPU_TOKENS,
    GPU_TOKENS,
    ROWS,
    PairChunks,
    Pairs,
    join_pairs,
    pack_by_length,
    start_worker,
)
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.digests import digest, with_lengths
from backpack_rank.models.blocked_weights import BlockedWeights
from backpack_rank.models.configuration import READOUTS
from backpack_rank.models.factory import with_readout
from backpack_rank.models.number_formats import FORMATS, convert, format_of, resolved_format
from backpack_rank.models.rankers import BackpackForRanking, Ranker, RankerOutput
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import pick_device
from backpack_rank.progress import INTERVAL, Progress
from backpack_rank.senses.cache import SenseCache, weights_digest
from backpack_rank.senses.hook import linear_components
from backpack_rank.senses.views import View

log = logging.getLogger(__name__)
LONG_DOCUMENTS = ("cut", "chunks")
"""Of a document that does not fit behind its query, the beginning or all parts are read."""
SHOWN = 1000
"""Pairs from which on progress is shown at once."""
PLAIN = View()
"""The ranker unchanged."""
_MIXED_ROWS = 1024
"""Sense vectors that are scored at a time; those of a cache may be larger than memory."""


@checked("scoring")
@dataclass(frozen=True)
class ScoringSettings:
    """How scores are computed (``conf/evaluate.yaml``, ``scoring``).

    Attributes:
        device: ``auto`` (a GPU when there is one), ``cpu``, ``cuda``, ``cuda:1`` ...
        dtype: number format of weights and activations, one of
            :data:`~backpack_rank.models.number_formats.FORMATS`; ``auto`` is bfloat16 where the
            device computes in it, ``int8`` is for CPUs.
        tokens_per_batch: tokens of a packed batch; None chooses by device.
        workers: processes that read and tokenise.
        cache_dtype: number format of cached sense vectors; None is that of ``dtype`` (bfloat16 as
            float32).
        readout: where a Backpack with a linear head reads its score, ``pooled`` (one token) or
            ``mean_sigmoid`` (all of them); None: as it was saved.
    """

    device: Name = "auto"
    dtype: Annotated[str, OneOf(FORMATS)] = "float32"
    tokens_per_batch: Count | Annotated[None, Note("to choose by device")] = None
    workers: Workers = 0
    cache_dtype: Literal["float32", "float16"] | None = None
    readout: Annotated[str, OneOf(READOUTS)] | Annotated[None, Note("as it was saved")] = None


class TextScorer(ABC):
    """Subclass this for whatever scores pairs of texts, here or behind a server.

    A :class:`~backpack_rank.reranking.pointwise.PointwiseReranker` ranks with it.

    Attributes:
        ranker: with ``label`` and ``has_senses``.
        tokenizer: of the ranker; None where it is out of reach.
    """

    ranker: Any
    tokenizer: PreTrainedTokenizerBase | None

    @abstractmethod
    def score_texts(
        self,
        pairs: Sequence[tuple[str, str]],
        view: View = PLAIN,
        long_documents: str = LONG_DOCUMENTS[0],
    ) -> np.ndarray:
        """Raw logits of (query, document) texts; equal texts have equal logits. [N] float32"""

    @abstractmethod
    def scores(
        self, pairs: Pairs, view: View = PLAIN, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows of a collection's pairs. [N] float32"""

    @property
    def number_format(self) -> str:
        """The number format that scores are computed in, as far as it is known here."""
        return "a format that is not known here"

    def cut(self, text: str) -> str:
        """The beginning of a text, with at least all that is ever read of it."""
        return text

    def reading(self, text: str) -> Hashable:
        """Equal for two texts of which the ranker reads the same tokens."""
        return text


class Scorer(TextScorer):
    """Use this to score texts with a ranker and its tokenizer: it makes batches and runs the
    network.

    >>> from backpack_rank.models.factory import load_ranker
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
        convert(ranker, dtype, self.device, "scoring.dtype")
        self.ranker = ranker.eval()
        if settings.readout is not None:
            pair_tokenizer = with_readout(ranker, pair_tokenizer, settings.readout)
        self._blocked_weights = BlockedWeights(self.ranker)
        self.pair_tokenizer = pair_tokenizer
        self.tokenizer = pair_tokenizer.tokenizer
        default = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        self.tokens_per_batch = self.settings.tokens_per_batch or default

    @property
    def number_format(self) -> str:
        """The number format that scores are computed in, such as ``float32 on cpu``."""
        return f"{format_of(self.ranker)} on {self.device.type}"

    def cut(self, text: str) -> str:
        """The beginning of a text, with more than the ranker reads."""
        return self.pair_tokenizer.cut(text)

    def reading(self, text: str) -> Hashable:
        """Equal for two texts whose first ``max_length`` tokens are equal."""
        return self.pair_tokenizer.reading(text)

    def score(self, query: str, documents: Sequence[str], view: View = PLAIN) -> np.ndarray:
        """Raw logits of one query's documents. [m] float32

        Raises:
            ValueError: the query is empty or too long, or a score is not finite.
        """
        pairs = [(query, document) for document in checked_documents(documents)]
        return self.score_texts(pairs, view)

    def score_texts(
        self,
        pairs: Sequence[tuple[str, str]],
        view: View = PLAIN,
        long_documents: str = LONG_DOCUMENTS[0],
    ) -> np.ndarray:
        """Raw logits of (query, document) texts; equal texts are read once. [N] float32

        Args:
            pairs: the texts.
            view: what the ranker is asked for, of these very texts.
            long_documents: ``cut`` reads the beginning of a document that does not fit behind its
                query, and says how many there were; ``chunks`` reads all of it in parts, and takes
                the highest score.

        Raises:
            ValueError: a query is empty or too long, or a score is not finite; the pair is named.
        """
        if long_documents not in LONG_DOCUMENTS:
            raise ValueError(
                f"long_documents={long_documents!r}: use one of {', '.join(LONG_DOCUMENTS)}"
            )
        chunks = long_documents == "chunks"
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
                    chunks=chunks,
                    names=[f"pair {row}" for row in rows],
                )
                # Parts of documents are no pairs: their progress is counted when all are scored.
                parts = self.score_tokens(joined.sequences, view, None if chunks else bar)
                if chunks:
                    bar.update(len(rows))
                # The highest score of each document's parts, which begin at joined.starts.
                distinct_scores[start : start + ROWS] = np.maximum.reduceat(parts, joined.starts)
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

    def join(self, query: str, documents: Sequence[str]) -> list[np.ndarray]:
        """Token ids of one query with each document; logs how many documents are cut. [m]"""
        joined = join_pairs(self.pair_tokenizer, [(query, document) for document in documents])
        self._warn_of_cut(joined.cut, len(documents))
        return joined.sequences

    def score_tokens(
        self, sequences: list[np.ndarray], view: View = PLAIN, bar: Progress | None = None
    ) -> np.ndarray:
        """Raw logits of joined texts; ``bar`` moves on with every batch. [N] float32"""
        scores = np.empty(len(sequences), dtype=np.float32)
        self._fill_scores(self._packed(sequences), view, scores, bar)
        return scores

    def scores(
        self, pairs: Pairs, view: View = PLAIN, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows under a view that rewrites nothing. [N] float32

        With a cache the network runs

        - once for all weights per sense,
        - twice for all alphas of a shift that moves the sense vectors of tokens alone (they are
          linear in alpha),
        - once for each alpha of a shift that moves what the contextual network reads.

        Without one, or when the sense vectors do not fit into it, every view is a pass of its own.
        """
        if cache is not None:
            cached = self._cached_scores(pairs, view, cache)
            if cached is not None:
                return cached
        scores = np.empty(len(pairs), dtype=np.float32)
        self._fill_scores(self._batches(pairs), view, scores)
        return scores

    def senses(self, pairs: Pairs) -> np.ndarray:
        """The sense vectors of all rows. float32 [N, k, d]"""
        out = self.empty_senses(len(pairs))
        self.fill_senses(pairs, out)
        return out

    def fill_senses(
        self, pairs: Pairs, out: np.ndarray, token_shift: TokenShift | None = None
    ) -> None:
        """Write the sense vectors of all rows to ``out`` [N, k, d], before any weights per
        sense.
        """
        self._fill_senses(self._batches(pairs), token_shift, out)

    def fill_token_senses(
        self,
        sequences: list[np.ndarray],
        out: np.ndarray,
        rows: np.ndarray,
        token_shift: TokenShift | None = None,
    ) -> None:
        """Write the sense vectors of joined texts, before any weights per sense.

        Args:
            sequences: the texts. [n]
            out: where they are written. [N, k, d]
            rows: of ``out``, one for each text. [n]
            token_shift: tokens that are moved.
        """
        batches = ((rows[places], batch) for places, batch in self._packed(sequences))
        self._fill_senses(batches, token_shift, out)

    def empty_senses(self, number: int) -> np.ndarray:
        """Room for the sense vectors of texts. float32 [N, k, d]"""
        return np.empty(self._shape_of_senses(number), dtype=np.float32)

    def _shape_of_senses(self, number: int) -> tuple[int, int, int]:
        """[N, k, d], or [N, k, n] where each sense has a number for every position."""
        ranker = self._backpack()
        width = ranker.config.hidden_size
        if ranker.reads_all_positions:
            width = self.pair_tokenizer.max_length
        return number, ranker.config.total_senses, width

    def score_senses(
        self, parts: Sequence[tuple[float, np.ndarray]], weights: Tensor | None = None
    ) -> np.ndarray:
        """Scores from sense vectors under weights per sense. [N] float32

        Args:
            parts: (factor, sense vectors [N, k, d]); the vectors scored are the sum of factor times
                vectors. One part with factor 1 is scored unchanged.
            weights: M_s [k]; None: the senses are mixed unchanged.
        """
        ranker = self._backpack()
        scores = np.empty(len(parts[0][1]), dtype=np.float32)
        dtype = ranker.dtype  # of all but the layers in int8
        with self.inference():
            for start in range(0, len(scores), _MIXED_ROWS):
                rows = slice(start, start + _MIXED_ROWS)
                vectors = weighted_sum([(factor, senses[rows]) for factor, senses in parts])
                mixed = torch.from_numpy(vectors).to(self.device, dtype)
                scores[rows] = ranker.score_senses(mixed, weights).float().cpu().numpy()
        return scores

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Use this around the ranker to compute as scores are computed.

        Without gradients, and on a CPU with weights in blocks.
        """
        with torch.inference_mode(), self._blocked_weights.in_use():
            yield

    def _fill_scores(
        self,
        batches: Iterable[tuple[np.ndarray, PackedBatch]],
        view: View,
        out: np.ndarray,
        bar: Progress | None = None,
    ) -> None:
        """Write the scores of batches (rows, texts) to these rows of ``out`` [N]."""
        token_states = self._empty_token_states()
        with self.inference():
            for rows, batch in batches:
                output = self._forward(batch.to(self.device), view, token_states)
                # A data loader makes tensors of the rows.
                out[np.asarray(rows)] = output.scores.float().cpu().numpy()
                if bar is not None:
                    bar.update(len(rows))

    def _fill_senses(
        self,
        batches: Iterable[tuple[np.ndarray, PackedBatch]],
        token_shift: TokenShift | None,
        out: np.ndarray,
    ) -> None:
        """Write the sense vectors of batches (rows, texts) to these rows of ``out`` [N, k, d]."""
        self._backpack()
        view = View(token_shift=token_shift)
        token_states = self._empty_token_states()
        with self.inference():
            for rows, batch in batches:
                batch = batch.to(self.device)
                output = self._forward(batch, view, token_states, return_senses=True)
                assert output.senses is not None
                senses = output.senses.float().cpu().numpy()
                width = senses.shape[-1]
                out[np.asarray(rows), :, :width] = senses
                # Only numbers by position are narrower: texts of a batch are shorter than others.
                out[np.asarray(rows), :, width:] = np.nan

    def _empty_token_states(self) -> TokenStateCache | None:
        """A new one for each run over batches: states of another one would show in the last
        bits.
        """
        if not isinstance(self.ranker, BackpackForRanking) or self.device.type != "cpu":
            return None
        return TokenStateCache(len(self.ranker.backpack.get_input_embeddings().weight))

    def _forward(
        self,
        batch: PackedBatch,
        view: View,
        token_states: TokenStateCache | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        # Only a Backpack has such an argument.
        options = {} if token_states is None else {"token_states": token_states}
        return self.ranker(
            batch,
            sense_weights=view.sense_weights,
            token_shift=view.token_shift,
            return_senses=return_senses,
            **options,
        )

    def _packed(self, sequences: list[np.ndarray]) -> list[tuple[np.ndarray, PackedBatch]]:
        return pack_by_length(np.arange(len(sequences)), sequences, self.tokens_per_batch)

    def _batches(self, pairs: Pairs) -> Iterator[tuple[np.ndarray, PackedBatch]]:
        """The pairs of a collection, read and tokenised in portions; shows progress."""
        chunks = PairChunks(pairs, self.pair_tokenizer, self.tokens_per_batch)
        workers = self.settings.workers
        loader = DataLoader(
            chunks, batch_size=None, num_workers=workers, worker_init_fn=start_worker
        )
        desc = f"scoring {pairs.collection.name}"
        with Progress(total=len(pairs), desc=desc, unit="doc", delay=delay(len(pairs))) as bar:
            for chunk in loader:
                for rows, batch in chunk:
                    yield rows, batch
                    bar.update(len(batch))

    def _cached_scores(self, pairs: Pairs, view: View, cache: SenseCache) -> np.ndarray | None:
        """Scores from what the cache holds; None where it is of no use, or has no room."""
        if not self.ranker.has_senses:
            # What does not split into senses is of use for the unchanged ranker alone.
            if view.sense_weights is not None or view.token_shift is not None:
                return None

            def fill(out: np.ndarray) -> None:
                self._fill_scores(self._batches(pairs), view, out)

            return cache.get(self._cache_key(pairs, "scores"), (len(pairs),), "float32", fill)
        parts = []
        has_room = True
        for factor, shift in linear_components(view.token_shift):
            senses = self._cached_senses(pairs, shift, cache)
            if senses is None:
                has_room = False
            else:
                parts.append((factor, senses))
        return self.score_senses(parts, view.sense_weights) if has_room else None

    def _cached_senses(
        self, pairs: Pairs, shift: TokenShift | None, cache: SenseCache
    ) -> np.ndarray | None:
        """The sense vectors of all rows; None where the cache has no room. [N, k, d]"""
        shape = self._shape_of_senses(len(pairs))
        dtype: str | None = self.settings.cache_dtype
        if dtype is None:
            # numpy has no bfloat16.
            dtype = "float16" if self.settings.dtype == "float16" else "float32"
        key = self._cache_key(pairs, dtype if shift is None else f"{shift.key}-{dtype}")
        return cache.get(key, shape, dtype, lambda out: self.fill_senses(pairs, out, shift))

    def _cache_key(self, pairs: Pairs, what: str) -> str:
        # The configuration is part of the key, because it decides what the same weights do (scales,
        # heads).
        configuration = self.ranker.config.to_json_string()
        settings = repr((self.pair_tokenizer.fingerprint, configuration))
        texts = digest(chain([settings], with_lengths(pairs.texts())))
        return f"{self._weights_key}-{texts}-{what}"

    @cached_property
    def _weights_key(self) -> str:
        """Digest of the ranker's weights, taken once: a scorer is made for a trained ranker."""
        return weights_digest(self.ranker)[:16]

    def _backpack(self) -> BackpackForRanking:
        if not isinstance(self.ranker, BackpackForRanking):
            raise TypeError(
                f"{self.ranker.label} has no sense vectors; alpha other than 1 needs a Backpack "
                "ranker"
            )
        return self.ranker

    def _warn_of_cut(self, cut: int, documents: int) -> None:
        if cut:
            log.warning(
                "%d of %d documents are longer than the %d tokens that the ranker reads, query "
                "included, and were cut; "
                "long_documents='chunks' reads all of them",
                cut,
                documents,
                self.pair_tokenizer.max_length,
            )


def delay(pairs: int) -> float:
    """Seconds until progress is shown: of few pairs only when they take long."""
    return 0 if pairs >= SHOWN else INTERVAL


def once(items: Iterable[Hashable]) -> tuple[list[int], np.ndarray]:
    """Use this to do work once for equal items.

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


def checked_documents(documents: Sequence[str]) -> list[str]:
    """The documents as a list.

    Raises:
        TypeError: one text is given in their place, whose letters would be scored.
    """
    if isinstance(documents, str):
        raise TypeError(
            f"documents must be a list of texts, not one text: give [{documents[:40]!r}]"
        )
    return list(documents)


def weighted_sum(parts: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
    """Sum of factor times array, as a new array (mapped files are read-only).

    >>> weighted_sum([(0.5, np.ones(2)), (2.0, np.ones(2))])
    array([2.5, 2.5], dtype=float32)
    """
    ((first_factor, first), *others) = parts
    if not others and first_factor == 1:
        return np.array(first)
    # In float32 whatever the cache's format: numpy before 2 would multiply float16 arrays in
    # float16.
    total = first_factor * first.astype(np.float32)
    for factor, senses in others:
        total += factor * senses.astype(np.float32)
    return total
