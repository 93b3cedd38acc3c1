"""Candidates in, scores out: batching by length, devices, number formats, and the cache of sense vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.pairs import CPU_TOKENS, GPU_TOKENS, PairChunks, Pairs, pack_by_length, start_worker
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import Ranker
from backpack_rank.models.device import pick_device
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.models.token_memory import remembering
from backpack_rank.senses.cache import SenseCache, texts_fingerprint, weights_fingerprint
from backpack_rank.senses.control import UNTOUCHED, Control, applied, sources

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoringSettings:
    """How scores are computed (``conf/evaluate.yaml``, ``scoring``).

    Attributes:
        device: ``auto`` (a GPU when there is one), ``cpu``, ``cuda``, ``cuda:1`` ...
        dtype: ``float32``, ``bfloat16`` or ``float16`` for weights and activations.
        tokens_per_batch: tokens of a packed batch; None chooses by device.
        workers: processes that read and tokenise.
        cache_dtype: number format of cached sense vectors; None is that of ``dtype`` (bfloat16 as float32).
    """

    device: str = "auto"
    dtype: str = "float32"
    tokens_per_batch: int | None = None
    workers: int = 0
    cache_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"scoring.dtype={self.dtype}: use float32, bfloat16 or float16")
        if self.cache_dtype not in (None, "float32", "float16"):
            raise ValueError(f"scoring.cache_dtype={self.cache_dtype}: use float32 or float16")


class Scorer:
    """A ranker with its tokenizer, ready to score texts."""

    def __init__(
        self,
        ranker: Ranker,
        encoder: PairEncoder,
        settings: ScoringSettings | None = None,
    ) -> None:
        self.settings = settings or ScoringSettings()
        self.device = pick_device(self.settings.device, "scoring.device")
        ranker.to(device=self.device, dtype=getattr(torch, self.settings.dtype))  # type: ignore[call-arg]
        self.ranker = ranker.eval()
        self.encoder = encoder
        default = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        self.tokens_per_batch = self.settings.tokens_per_batch or default

    def score(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Raw logits of one query's documents. [m] float32

        Raises:
            ValueError: the query is empty or too long, or a score is not finite.
        """
        sequences = self.encoder.pairs(query, documents)
        scores = np.empty(len(sequences), dtype=np.float32)
        if sequences:
            batches = pack_by_length(np.arange(len(sequences)), sequences, self.tokens_per_batch)
            self._run(iter(batches), lambda rows, batch: _put(scores, rows, self.ranker(batch).scores))
        if not np.isfinite(scores).all():
            raise ValueError(
                f"the score of document {int(np.argmin(np.isfinite(scores)))} is not finite: {query[:80]!r}"
            )
        return scores

    def rank(self, candidates: Run, collection: Collection) -> Run:
        """Candidates with the ranker's scores instead of theirs."""
        pairs = Pairs.from_run(candidates, collection)
        return pairs.to_run(self.scores(pairs))

    def scores(self, pairs: Pairs) -> np.ndarray:
        """Scores of all rows in one pass. [N] float32"""
        scores = np.empty(len(pairs), dtype=np.float32)
        self._run(self._batches(pairs), lambda rows, batch: _put(scores, rows, self.ranker(batch).scores))
        return scores

    def fill_senses(self, pairs: Pairs, out: np.ndarray, control: Control = UNTOUCHED) -> None:
        """Write the sense vectors of all rows to ``out`` [N, k, d], before any weights per sense."""
        self._backpack()

        def put(rows: np.ndarray, batch: PackedBatch) -> None:
            _put(out, rows, self.ranker(batch, return_senses=True).senses)

        with applied(self.ranker, replace(control, weights=None)):
            self._run(self._batches(pairs), put)

    def score_senses(self, parts: Sequence[tuple[float, np.ndarray]], weights: Tensor | None = None) -> np.ndarray:
        """Scores from sense vectors under weights per sense [k] (None: as they are). [N] float32

        Args:
            parts: (factor, sense vectors [N, k, d]); the vectors scored are the sum of factor times vectors. One
                part with factor 1 is scored as it is.
        """
        ranker = self._backpack()
        scores = np.empty(len(parts[0][1]), dtype=np.float32)
        dtype = getattr(torch, self.settings.dtype)
        with torch.inference_mode(), applied(ranker, Control(weights=weights)):
            for start in range(0, len(scores), 1024):
                rows = slice(start, start + 1024)
                mixed = torch.from_numpy(_mixed([(factor, senses[rows]) for factor, senses in parts]))
                scores[rows] = ranker.score_senses(mixed.to(self.device, dtype)).float().cpu().numpy()
        return scores

    def rank_controlled(
        self, candidates: Run, collection: Collection, control: Control, cache: SenseCache | None = None
    ) -> Run:
        """Candidates scored under a control; see :meth:`rank_controls`."""
        return self.rank_controls(candidates, collection, [control], cache)[0]

    def rank_controls(
        self, candidates: Run, collection: Collection, controls: Sequence[Control], cache: SenseCache | None = None
    ) -> list[Run]:
        """Candidates scored under each of several controls.

        With a cache the network runs once for all weights per sense, twice for all positions of a dial that moves
        the sense vectors of tokens alone (they are linear in alpha), and once for each position of a dial that moves
        what the contextual network reads. Without one, or when the sense vectors do not fit into it, every control
        is a pass of its own.
        """
        pairs = Pairs.from_run(candidates, collection)
        return [pairs.to_run(self._controlled(pairs, control, cache)) for control in controls]

    def _controlled(self, pairs: Pairs, control: Control, cache: SenseCache | None) -> np.ndarray:
        if cache is not None and isinstance(self.ranker, BackpackForRanking):
            parts = [(factor, self._cached_senses(pairs, source, cache)) for factor, source in sources(control)]
            if not any(senses is None for _, senses in parts):
                return self.score_senses([(f, senses) for f, senses in parts if senses is not None], control.weights)
        with applied(self.ranker, control):
            return self.scores(pairs)

    @cached_property
    def _weights_key(self) -> str:
        """Digest of the ranker's weights, taken once: a scorer is made for a ranker that is trained."""
        return weights_fingerprint(self.ranker)[:16]

    def _cached_senses(self, pairs: Pairs, control: Control, cache: SenseCache) -> np.ndarray | None:
        config = self._backpack().config
        dtype = self.settings.cache_dtype or ("float16" if self.settings.dtype == "float16" else "float32")
        # The configuration is part of the key, because it decides what the same weights do (scales, heads).
        texts = texts_fingerprint(pairs.texts(), self.encoder.fingerprint, config.to_json_string())
        moved = f"-{control.tokens.key}" if control.tokens is not None else ""
        key = f"{self._weights_key}-{texts}{moved}-{dtype}"
        shape = (len(pairs), config.num_senses, config.hidden_size)
        return cache.get(key, shape, dtype, lambda out: self.fill_senses(pairs, out, control))

    def _backpack(self) -> BackpackForRanking:
        if not isinstance(self.ranker, BackpackForRanking):
            raise TypeError(
                f"{type(self.ranker).__name__} has no sense vectors; alpha other than 1 needs a Backpack ranker"
            )
        return self.ranker

    def _batches(self, pairs: Pairs) -> Iterator[tuple[np.ndarray, PackedBatch]]:
        chunks = PairChunks(pairs, self.encoder, self.tokens_per_batch)
        workers = self.settings.workers
        loader = DataLoader(chunks, batch_size=None, num_workers=workers, worker_init_fn=start_worker)
        with tqdm(total=len(pairs), desc=f"scoring {pairs.collection.name}", unit="doc", leave=False) as bar:
            for chunk in loader:
                for rows, batch in chunk:
                    yield rows, batch
                    bar.update(len(batch))

    def _run(
        self,
        batches: Iterator[tuple[np.ndarray, PackedBatch]],
        work: Callable[[np.ndarray, PackedBatch], None],
    ) -> None:
        ranker = self.ranker
        memory = remembering(ranker.backpack) if isinstance(ranker, BackpackForRanking) else nullcontext()
        with torch.inference_mode(), memory:
            for rows, batch in batches:
                work(np.asarray(rows), batch.to(self.device))


def _mixed(parts: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
    """Sum of factor times array, as a new array (mapped files are read-only)."""
    ((factor, first), *others) = parts
    if not others and factor == 1:
        return np.array(first)
    # In float32 whatever the cache's format: numpy before 2 would multiply float16 arrays in float16.
    mixed = factor * first.astype(np.float32)
    for factor, senses in others:
        mixed += factor * senses.astype(np.float32)
    return mixed


def _put(out: np.ndarray, rows: np.ndarray, values: Tensor) -> None:
    out[rows] = values.float().cpu().numpy()
