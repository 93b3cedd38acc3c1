"""Pairs of texts in, scores out: batching by length, devices, number formats, and the cache of
sense vectors.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from backpack_rank.models.number_formats import FORMATS, convert, format_of, resolved_format
from backpack_rank.models.rankers import BackpackForRanking, Ranker
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import pick_device
from backpack_rank.progress import INTERVAL, Progress
from backpack_rank.senses.cache import SenseCache, weights_digest
from backpack_rank.senses.hook import linear_components
from backpack_rank.senses.views import View

log = logging.getLogger(__name__)
_MIXED_ROWS = 1024
SHOWN = 1000
"""Pairs from which on progress is shown."""
LONG_DOCUMENTS = ("cut", "chunks")
PLAIN = View()


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
    """

    device: Name = "auto"
    dtype: Annotated[str, OneOf(FORMATS)] = "float32"
    tokens_per_batch: Count | Annotated[None, Note("to choose by device")] = None
    workers: Workers = 0
    cache_dtype: Literal["float32", "float16"] | None = None


class TextScorer(ABC):
    """Anything that scores pairs of texts, for a
    :class:`~backpack_rank.reranking.pointwise.PointwiseReranker`.

    Attributes:
        ranker: with ``label`` and ``has_senses``.
        tokenizer: of the ranker; None where it is out of reach.
    """

    ranker: Any
    tokenizer: PreTrainedTokenizerBase | None

    @property
    def number_format(self) -> str:
        """In which scores are computed, as far as that is known here."""
        return "a format that is not known here"

    def cut(self, text: str) -> str:
        """A text without what lies behind all that is ever read of it, as far as that is known
        here.
        """
        return text

    def reading(self, text: str) -> Hashable:
        """Equal for two texts that are read alike."""
        return text

    @abstractmethod
    def score_texts(
        self,
        pairs: Sequence[tuple[str, str]],
        view: View = PLAIN,
        long_documents: str = LONG_DOCUMENTS[0],
    ) -> np.ndarray:
        """Raw logits of (query, document) texts; those of equal texts are equal. [N] float32"""

    @abstractmethod
    def scores(
        self, pairs: Pairs, view: View = PLAIN, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows of a collection's pairs. [N] float32"""


class Scorer(TextScorer):
    """A ranker with its tokenizer, ready to score texts."""

    ranker: Ranker

    def __init__(
        self, ranker: Ranker, pair_tokenizer: PairTokenizer, settings: ScoringSettings | None = None
    ) -> None:
        settings = settings or ScoringSettings()
        self.device = pick_device(settings.device, "scoring.device")
        dtype = resolved_format(settings.dtype, self.device, "scoring.dtype")
        self.settings = replace(settings, dtype=dtype)
        convert(ranker, dtype, self.device, "scoring.dtype")
        self.ranker = ranker.eval()
        self._blocked_weights = BlockedWeights(self.ranker)
        self.pair_tokenizer, self.tokenizer = pair_tokenizer, pair_tokenizer.tokenizer
        default = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        self.tokens_per_batch = self.settings.tokens_per_batch or default

    @property
    def number_format(self) -> str:
        """In which scores are really computed, such as ``float32 on cpu``."""
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
        return self.score_texts(
            [(query, document) for document in checked_documents(documents)], view
        )

    def score_texts(
        self,
        pairs: Sequence[tuple[str, str]],
        view: View = PLAIN,
        long_documents: str = LONG_DOCUMENTS[0],
    ) -> np.ndarray:
        """Raw logits of (query, document) texts; equal ones are read once and have one score. [N]
        float32

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
        first_rows, places = once(pairs)
        each = np.empty(len(first_rows), dtype=np.float32)
        is_cut = np.empty(len(first_rows), dtype=bool)
        chunks = long_documents == "chunks"
        with Progress(total=len(each), desc="scoring", unit="pair", delay=delay(len(each))) as bar:
            for start in range(0, len(each), ROWS):
                rows = first_rows[start : start + ROWS]
                names = [f"pair {row}" for row in rows]
                joined = join_pairs(
                    self.pair_tokenizer, [pairs[row] for row in rows], chunks=chunks, names=names
                )
                parts = self.score_tokens(joined.sequences, view, None if chunks else bar)
                each[start : start + ROWS] = np.maximum.reduceat(parts, joined.starts)
                is_cut[start : start + ROWS] = joined.is_cut
                bar.update(len(joined.starts) if chunks else 0)
        scores = each[places]
        self._warn(int(is_cut[places].sum()), len(pairs))
        if (bad := np.flatnonzero(~np.isfinite(scores))).size:
            query, document = pairs[int(bad[0])]
            raise ValueError(
                f"{bad.size} scores are not finite, the first of pair {bad[0]}, {query[:80]!r} and "
                f"{document[:80]!r}: "
                f"{scores[bad[0]]}. The weights may have diverged in training, or the type is too "
                "narrow (try "
                "dtype=float32)"
            )
        return scores

    def join(self, query: str, documents: Sequence[str]) -> list[np.ndarray]:
        """Token ids of one query with each of its documents; says how many documents are cut.
        [m]
        """
        joined = join_pairs(self.pair_tokenizer, [(query, document) for document in documents])
        self._warn(joined.cut, len(documents))
        return joined.sequences

    def score_tokens(
        self, sequences: list[np.ndarray], view: View = PLAIN, bar: Progress | None = None
    ) -> np.ndarray:
        """Raw logits of joined texts; ``bar`` is told how many, batch by batch. [N] float32"""
        scores = np.empty(len(sequences), dtype=np.float32)

        def score(rows: np.ndarray, batch: PackedBatch) -> None:
            _put(scores, rows, self._forward(batch, view).scores)
            if bar is not None:
                bar.update(len(rows))

        self._run(self._packed(sequences), score)
        return scores

    def scores(
        self, pairs: Pairs, view: View = PLAIN, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows under a view that rewrites nothing. [N] float32

        With a cache the network runs once for all weights per sense, twice for all alphas of a
        shift that moves the sense vectors of tokens alone (they are linear in alpha), and once for
        each alpha of a shift that moves what the contextual network reads. Without one, or when the
        sense vectors do not fit into it, every view is a pass of its own.
        """
        unturned = view.sense_weights is None and view.token_shift is None
        if cache is not None and unturned and not self.ranker.has_senses:
            kept = cache.get(
                self._cache_key(pairs, "scores"),
                (len(pairs),),
                "float32",
                partial(self._fill_scores, pairs, view),
            )
            if kept is not None:
                return kept
        if cache is not None and self.ranker.has_senses:
            components = linear_components(view.token_shift)
            parts = [
                (factor, self._cached_senses(pairs, shift, cache)) for factor, shift in components
            ]
            if not any(senses is None for _, senses in parts):
                known = [(factor, senses) for factor, senses in parts if senses is not None]
                return self.score_senses(known, view.sense_weights)
        scores = np.empty(len(pairs), dtype=np.float32)
        self._fill_scores(pairs, view, scores)
        return scores

    def _fill_scores(self, pairs: Pairs, view: View, out: np.ndarray) -> None:
        self._run(
            self._batches(pairs),
            lambda rows, batch: _put(out, rows, self._forward(batch, view).scores),
        )

    def fill_senses(
        self, pairs: Pairs, out: np.ndarray, token_shift: TokenShift | None = None
    ) -> None:
        """Write the sense vectors of all rows to ``out`` [N, k, d], before any weights per
        sense.
        """
        self._fill_senses(self._batches(pairs), out, token_shift)

    def senses(self, pairs: Pairs) -> np.ndarray:
        """The sense vectors of all rows. float32 [N, k, d]"""
        out = self.empty_senses(len(pairs))
        self.fill_senses(pairs, out)
        return out

    def fill_token_senses(
        self,
        sequences: list[np.ndarray],
        out: np.ndarray,
        rows: np.ndarray,
        token_shift: TokenShift | None = None,
    ) -> None:
        """Write the sense vectors of n joined texts, before any weights per sense, to ``rows`` [n]
        of ``out``.
        """
        batches = ((rows[places], batch) for places, batch in self._packed(sequences))
        self._fill_senses(batches, out, token_shift)

    def empty_senses(self, number: int) -> np.ndarray:
        """Room for the sense vectors of texts. float32 [N, k, d]"""
        config = self._backpack().config
        return np.empty((number, config.total_senses, config.hidden_size), dtype=np.float32)

    def _fill_senses(
        self,
        batches: Iterator[tuple[np.ndarray, PackedBatch]],
        out: np.ndarray,
        token_shift: TokenShift | None,
    ) -> None:
        self._backpack()
        view = View(token_shift=token_shift)
        self._run(
            batches,
            lambda rows, batch: _put(
                out, rows, self._forward(batch, view, return_senses=True).senses
            ),
        )

    def _packed(self, sequences: list[np.ndarray]) -> Iterator[tuple[np.ndarray, PackedBatch]]:
        return iter(pack_by_length(np.arange(len(sequences)), sequences, self.tokens_per_batch))

    def _warn(self, cut: int, documents: int) -> None:
        if cut:
            log.warning(
                "%d of %d documents are longer than the %d tokens that the ranker reads, query "
                "included, and were cut; "
                "long_documents='chunks' reads all of them",
                cut,
                documents,
                self.pair_tokenizer.max_length,
            )

    def score_senses(
        self, parts: Sequence[tuple[float, np.ndarray]], weights: Tensor | None = None
    ) -> np.ndarray:
        """Scores from sense vectors under weights per sense [k] (None: as they are). [N] float32

        Args:
            parts: (factor, sense vectors [N, k, d]); the vectors scored are the sum of factor times
                vectors. One part with factor 1 is scored as it is.
            weights: M_s. [k]
        """
        ranker = self._backpack()
        scores = np.empty(len(parts[0][1]), dtype=np.float32)
        dtype = ranker.dtype  # of all but the layers in int8
        with self.inference():
            for start in range(0, len(scores), _MIXED_ROWS):
                rows = slice(start, start + _MIXED_ROWS)
                mixed = torch.from_numpy(
                    weighted_sum([(factor, senses[rows]) for factor, senses in parts])
                )
                scores[rows] = (
                    ranker.score_senses(mixed.to(self.device, dtype), weights).float().cpu().numpy()
                )
        return scores

    def _forward(self, batch: PackedBatch, view: View, return_senses: bool = False) -> Any:
        options: dict[str, Any] = (
            {} if self._token_states is None else {"token_states": self._token_states}
        )
        return self.ranker(
            batch,
            sense_weights=view.sense_weights,
            token_shift=view.token_shift,
            return_senses=return_senses,
            **options,
        )

    _token_states: TokenStateCache | None = None

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Within this the ranker computes as for scores: without gradients, and on a CPU with
        weights in blocks.
        """
        with torch.inference_mode(), self._blocked_weights.in_use():
            yield

    def _run(
        self,
        batches: Iterator[tuple[np.ndarray, PackedBatch]],
        work: Callable[[np.ndarray, PackedBatch], None],
    ) -> None:
        if isinstance(self.ranker, BackpackForRanking) and self.device.type == "cpu":
            self._token_states = TokenStateCache(
                len(self.ranker.backpack.get_input_embeddings().weight)
            )
        try:
            with self.inference():
                for rows, batch in batches:
                    work(np.asarray(rows), batch.to(self.device))
        finally:
            self._token_states = None

    def _batches(self, pairs: Pairs) -> Iterator[tuple[np.ndarray, PackedBatch]]:
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

    @cached_property
    def _weights_key(self) -> str:
        """Digest of the ranker's weights, taken once: a scorer is made for a ranker that is
        trained.
        """
        return weights_digest(self.ranker)[:16]

    def _cached_senses(
        self, pairs: Pairs, shift: TokenShift | None, cache: SenseCache
    ) -> np.ndarray | None:
        config = self._backpack().config
        dtype = self.settings.cache_dtype or (
            "float16" if self.settings.dtype == "float16" else "float32"
        )
        key = self._cache_key(pairs, dtype if shift is None else f"{shift.key}-{dtype}")
        shape = (len(pairs), config.total_senses, config.hidden_size)
        return cache.get(key, shape, dtype, lambda out: self.fill_senses(pairs, out, shift))

    def _cache_key(self, pairs: Pairs, what: str) -> str:
        # The configuration is part of the key, because it decides what the same weights do (scales,
        # heads).
        configuration = self.ranker.config.to_json_string()
        settings = repr((self.pair_tokenizer.fingerprint, configuration))
        texts = digest(chain([settings], with_lengths(pairs.texts())))
        return f"{self._weights_key}-{texts}-{what}"

    def _backpack(self) -> BackpackForRanking:
        if not isinstance(self.ranker, BackpackForRanking):
            raise TypeError(
                f"{self.ranker.label} has no sense vectors; alpha other than 1 needs a Backpack "
                "ranker"
            )
        return self.ranker


def delay(pairs: int) -> float:
    """Seconds until progress is shown: of few pairs only when they take long."""
    return 0 if pairs >= SHOWN else INTERVAL


def once(items: Iterable[Hashable]) -> tuple[list[int], np.ndarray]:
    """The first row of each different item, in order, and for every row which of them it has. [n],
    int64 [N]

    >>> once("abac")
    ([0, 1, 3], array([0, 1, 0, 2]))
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
    """The documents as a list. Raises ``TypeError`` for one text in their place, whose letters
    would be scored.
    """
    if isinstance(documents, str):
        raise TypeError(
            f"documents must be a list of texts, not one text: give [{documents[:40]!r}]"
        )
    return list(documents)


def weighted_sum(parts: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
    """Sum of factor times array, as a new array (mapped files are read-only)."""
    ((factor, first), *others) = parts
    if not others and factor == 1:
        return np.array(first)
    # In float32 whatever the cache's format: numpy before 2 would multiply float16 arrays in
    # float16.
    mixed = factor * first.astype(np.float32)
    for factor, senses in others:
        mixed += factor * senses.astype(np.float32)
    return mixed


def _put(out: np.ndarray, rows: np.ndarray, values: Tensor | None) -> None:
    assert values is not None
    out[rows] = values.float().cpu().numpy()
