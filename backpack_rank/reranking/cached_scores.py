"""Scores of a collection's pairs from what a cache holds of them, so that the network runs once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np
from torch import Tensor

from backpack_rank.data.batching import ChunkPortions, Pairs, best_scores
from backpack_rank.data.long_documents import LongDocuments
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.digests import digest, with_lengths
from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.rankers import Ranker
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.hook import linear_components
from backpack_rank.senses.views import View


class Computing(Protocol):
    """What computes scores and what they are made of; see :class:`.scorer.Scorer` for each."""

    ranker: Ranker
    pair_tokenizer: PairTokenizer
    settings: ScoringSettings
    long_documents: LongDocuments

    @property
    def weights_key(self) -> str: ...
    def shape_of_senses(self, number: int) -> tuple[int, int, int]: ...
    def scores_of_rows(self, pairs: Pairs, view: View) -> np.ndarray: ...
    def fill_vectors(self, pairs: Pairs, out: np.ndarray, starts: np.ndarray) -> None: ...
    def fill_senses(
        self,
        pairs: Pairs,
        out: np.ndarray,
        token_shift: TokenShift | None = None,
        starts: np.ndarray | None = None,
    ) -> None: ...
    def score_vectors(
        self, vectors: np.ndarray, pooled_map: PooledMap, rows: np.ndarray | None = None
    ) -> np.ndarray: ...
    def score_senses(
        self,
        parts: Sequence[tuple[float, np.ndarray | Tensor]],
        weights: Tensor | None = None,
        rows: np.ndarray | None = None,
        pooled_map: PooledMap | None = None,
    ) -> np.ndarray: ...


class CachedScores:
    """Use this to score the same pairs under many views, such as the alphas of a sweep.

    >>> from pathlib import Path
    >>> rows = Pairs.from_run(candidates, collection)  # doctest: +SKIP
    >>> cached = CachedScores(scorer, rows, SenseCache(Path("senses")))  # doctest: +SKIP
    >>> cached.scores(View())  # doctest: +SKIP
    array([2.41], dtype=float32)

    What the cache lacks is computed and put into it. Every method gives None where it has no room.

    Args:
        scorer: computes what is not there yet.
        pairs: of a collection.
        cache: of arrays, by keys that say all that they depend on.
    """

    def __init__(self, scorer: Computing, pairs: Pairs, cache: SenseCache) -> None:
        self.scorer = scorer
        self.pairs = pairs
        self.cache = cache

    def scores(self, view: View) -> np.ndarray | None:
        """Scores of all rows; None also where the cache is of no use to the view. [N] float32"""
        ranker = self.scorer.ranker
        if ranker.has_senses:
            return self._of_senses(view)
        is_mapped = view.pooled_map is not None
        if is_mapped and not ranker.scores_stored_vectors:
            return None
        if view.pooled_map is not None and view.token_shift is None:
            return self._mapped(view.pooled_map)
        # What does not split into senses is of use for the unchanged ranker alone.
        if view.sense_weights is not None or view.token_shift is not None:
            return None

        def fill(out: np.ndarray) -> None:
            out[:] = self.scorer.scores_of_rows(self.pairs, view)

        return self.cache.get(self._key("scores"), (len(self.pairs),), "float32", fill)

    def vectors(self, shape: tuple[int, int], starts: np.ndarray) -> np.ndarray | None:
        """The pooled vectors of the chunks of all rows, which begin at ``starts`` [N]. [S, d]"""

        def fill(out: np.ndarray) -> None:
            self.scorer.fill_vectors(self.pairs, out, starts)

        return self.cache.get(self._key("vectors"), shape, "float32", fill)

    def _of_senses(self, view: View) -> np.ndarray | None:
        """Scores from sense vectors, of which those of all alphas are made."""
        places = self._places()
        if places is None:
            return None
        starts, number = places
        parts = []
        has_room = True
        for factor, shift in linear_components(view.token_shift):
            senses = self._senses(shift, starts, number)
            if senses is None:
                has_room = False
            else:
                parts.append((factor, senses))
        if not has_room:
            return None
        scored = self.scorer.score_senses
        if not self.scorer.long_documents.in_chunks:
            return scored(parts, view.sense_weights, pooled_map=view.pooled_map)
        return best_scores(
            starts, number, lambda rows: scored(parts, view.sense_weights, rows, view.pooled_map)
        )

    def _mapped(self, pooled_map: PooledMap) -> np.ndarray | None:
        """Scores under a map, from pooled vectors."""
        places = self._places()
        if places is None:
            return None
        starts, number = places
        vectors = self.vectors((number, pooled_map.size), starts)
        if vectors is None:
            return None
        return best_scores(
            starts, number, lambda rows: self.scorer.score_vectors(vectors, pooled_map, rows)
        )

    def _places(self) -> tuple[np.ndarray, int] | None:
        """Where the chunks of each row begin [N], and how many all have."""
        if not self.scorer.long_documents.in_chunks:
            return np.arange(len(self.pairs)), len(self.pairs)

        def fill(out: np.ndarray) -> None:
            out[0] = 0
            tokenizer = self.scorer.pair_tokenizer
            portions = ChunkPortions(self.pairs, tokenizer, 1, self.scorer.long_documents)
            row = 0
            for portion in range(len(portions)):
                counts = portions.chunk_counts(portion)
                out[row + 1 : row + 1 + len(counts)] = counts
                row += len(counts)
            np.cumsum(out, out=out)

        ends = self.cache.get(self._key("chunks"), (len(self.pairs) + 1,), "int64", fill)
        if ends is None:
            return None
        return ends[:-1], int(ends[-1])

    def _senses(
        self, shift: TokenShift | None, starts: np.ndarray, number: int
    ) -> np.ndarray | None:
        """The sense vectors of all chunks. [S, k, d]"""
        # Documents that are cut are read as such: their one chunk is their beginning.
        places = starts if self.scorer.long_documents.in_chunks else None

        def fill(out: np.ndarray) -> None:
            self.scorer.fill_senses(self.pairs, out, shift, places)

        # numpy has no bfloat16.
        dtype = "float16" if self.scorer.settings.dtype == "float16" else "float32"
        key = self._key(dtype if shift is None else f"{shift.key}-{dtype}")
        return self.cache.get(key, self.scorer.shape_of_senses(number), dtype, fill)

    def _key(self, what: str) -> str:
        # The configuration is part of the key, because it decides what the same weights do (scales,
        # heads).
        configuration = self.scorer.ranker.config.to_json_string()
        settings = repr((self.scorer.pair_tokenizer.fingerprint, configuration))
        if self.scorer.long_documents.in_chunks:
            settings += repr(self.scorer.long_documents)
        texts = digest(chain([settings], with_lengths(self.pairs.texts())))
        return f"{self.scorer.weights_key}-{texts}-{what}"
