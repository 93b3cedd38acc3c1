"""Candidates in, scores out: batching by length, devices, number formats, and the cache of sense vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.pairs import CPU_TOKENS, GPU_TOKENS, PairChunks, Pairs, pack_by_length
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking, GPT2ForRanking
from backpack_rank.senses.cache import SenseCache, texts_fingerprint, weights_fingerprint
from backpack_rank.senses.control import reweighted

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
        ranker: BackpackForRanking | GPT2ForRanking,
        encoder: PairEncoder,
        settings: ScoringSettings | None = None,
    ) -> None:
        self.settings = settings or ScoringSettings()
        self.device = pick_device(self.settings.device)
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

    def fill_senses(self, pairs: Pairs, out: np.ndarray) -> None:
        """Write the sense vectors of all rows to ``out`` [N, k, d]."""

        def put(rows: np.ndarray, batch: PackedBatch) -> None:
            _put(out, rows, self._backpack().backpack.pooled_senses(batch))

        self._run(self._batches(pairs), put)

    def score_senses(self, senses: np.ndarray, weights: Tensor | None) -> np.ndarray:
        """Scores from sense vectors [N, k, d] under weights per sense [k] (None: as they are). [N] float32"""
        ranker = self._backpack()
        scores = np.empty(len(senses), dtype=np.float32)
        dtype = getattr(torch, self.settings.dtype)

        def head() -> None:
            for start in range(0, len(senses), 1024):
                part = torch.from_numpy(np.array(senses[start : start + 1024])).to(self.device, dtype)
                scores[start : start + 1024] = ranker.score_senses(part).float().cpu().numpy()

        with torch.inference_mode():
            if weights is None:
                head()
            else:
                with reweighted(ranker, weights):
                    head()
        return scores

    def rank_weighted(
        self, candidates: Run, collection: Collection, weights: Tensor | None, cache: SenseCache | None
    ) -> Run:
        """Candidates scored under weights per sense; see :meth:`rank_sweep`."""
        return self.rank_sweep(candidates, collection, [weights], cache)[0]

    def rank_sweep(
        self, candidates: Run, collection: Collection, sweep: Sequence[Tensor | None], cache: SenseCache | None
    ) -> list[Run]:
        """Candidates scored under each of several weights per sense (None: as they are).

        The network runs once and the head once per weights; without a cache, or when the sense vectors do not fit
        into it, every weights are a pass of their own.
        """
        pairs = Pairs.from_run(candidates, collection)
        senseless = not isinstance(self.ranker, BackpackForRanking)
        senses = None if cache is None or senseless else self._cached_senses(pairs, cache)
        if senses is not None:
            return [pairs.to_run(self.score_senses(senses, weights)) for weights in sweep]
        return [pairs.to_run(self._scores_of_a_pass(pairs, weights)) for weights in sweep]

    def _scores_of_a_pass(self, pairs: Pairs, weights: Tensor | None) -> np.ndarray:
        if weights is None:
            return self.scores(pairs)
        with reweighted(self._backpack(), weights):
            return self.scores(pairs)

    @cached_property
    def _weights_key(self) -> str:
        """Digest of the ranker's weights, taken once: a scorer is made for a ranker that is trained."""
        return weights_fingerprint(self.ranker)[:16]

    def _cached_senses(self, pairs: Pairs, cache: SenseCache) -> np.ndarray | None:
        config = self._backpack().config
        dtype = self.settings.cache_dtype or ("float16" if self.settings.dtype == "float16" else "float32")
        # The configuration is part of the key, because it decides what the same weights do (scales, heads).
        texts = texts_fingerprint(pairs.texts(), self.encoder.fingerprint, config.to_json_string())
        key = f"{self._weights_key}-{texts}-{dtype}"
        shape = (len(pairs), config.num_senses, config.n_embd)
        return cache.get(key, shape, dtype, lambda out: self.fill_senses(pairs, out))

    def _backpack(self) -> BackpackForRanking:
        if not isinstance(self.ranker, BackpackForRanking):
            raise TypeError(
                f"{type(self.ranker).__name__} has no sense vectors; alpha other than 1 needs a Backpack ranker"
            )
        return self.ranker

    def _batches(self, pairs: Pairs) -> Iterator[tuple[np.ndarray, PackedBatch]]:
        chunks = PairChunks(pairs, self.encoder, self.tokens_per_batch)
        loader = DataLoader(chunks, batch_size=None, num_workers=self.settings.workers)
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
        with torch.inference_mode():
            for rows, batch in batches:
                work(np.asarray(rows), batch.to(self.device))


def pick_device(name: str) -> torch.device:
    """The device of that name. Raises ``ValueError`` when it asks for a GPU that torch does not see."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"scoring.device={name}, but torch sees no GPU; use scoring.device=cpu")
    return device


def _put(out: np.ndarray, rows: np.ndarray, values: Tensor) -> None:
    out[rows] = values.float().cpu().numpy()
