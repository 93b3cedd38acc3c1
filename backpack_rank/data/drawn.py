"""Texts as a ranker reads them, drawn from pairs of query and candidate, without labels."""

from __future__ import annotations

import numpy as np

from backpack_rank.data.batching import PairChunks, Pairs
from backpack_rank.data.tokenisation import PairTokenizer


def sample_texts(pairs: Pairs, pair_tokenizer: PairTokenizer, number: int, seed: int) -> list[np.ndarray]:
    """Token ids of ``number`` pairs, or of all where there are fewer, in an order drawn by ``seed``.

    Raises:
        ValueError: there is no pair.
    """
    if not len(pairs):
        raise ValueError(f"{pairs.collection.name} has no candidates to draw texts from")
    rows = np.random.default_rng(seed).permutation(len(pairs))[:number]
    own = Pairs(pairs.collection, *(tuple(ids[row] for row in rows) for ids in (pairs.query_ids, pairs.doc_ids)))
    chunks = PairChunks(own, pair_tokenizer)
    texts: dict[int, np.ndarray] = {}
    for chunk in range(len(chunks)):
        for places, batch in chunks[chunk]:
            parts = batch.input_ids.split(batch.lengths)
            texts.update((int(place), part.numpy()) for place, part in zip(places, parts, strict=True))
    return [texts[place] for place in range(len(own))]
