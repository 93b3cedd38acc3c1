"""Do senses tell similar words as people do? Spearman's correlation with judged word pairs (Hewitt et al. 2023)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import ConstantInputWarning, spearmanr
from torch import Tensor

from backpack_rank.data.similarity import SimilarityList
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.modes import evaluating
from backpack_rank.reporting.sense_quality import Correlation, ListQuality

_WORDS = 512
"""Words whose sense vectors are computed at once."""


@dataclass(frozen=True)
class _Vectors:
    """Sense vectors [W, k, d] and embeddings [W, d] of words, the row of each word, and how many tokens it has."""

    senses: Tensor
    embeddings: Tensor
    rows: dict[str, int]
    tokens: dict[str, int]


@torch.no_grad()
def similarity_quality(backpack: BackpackModel, encoder: PairEncoder, judged: SimilarityList) -> ListQuality:
    """Correlations of cosines with the judgements of a list.

    Words are read as they stand in running text, behind a space. One of several tokens stands for the mean of its
    tokens' vectors.

    Raises:
        ValueError: the tokenizer knows fewer than three of the pairs.
    """
    vectors = _vectors(backpack, encoder, sorted({word for pair in judged.pairs for word in (pair.first, pair.second)}))
    known = [pair for pair in judged.pairs if pair.first in vectors.rows and pair.second in vectors.rows]
    if len(known) < 3:
        raise ValueError(f"{judged.name}: the tokenizer knows {len(known)} of the {len(judged.pairs)} word pairs")
    first, second = ([vectors.rows[getattr(pair, side)] for pair in known] for side in ("first", "second"))
    scores = np.array([pair.score for pair in known])
    cosines = F.cosine_similarity(vectors.senses[first], vectors.senses[second], dim=-1)  # [P, k]
    means, embeddings = (
        F.cosine_similarity(part[first], part[second], dim=-1)
        for part in (vectors.senses.mean(dim=1), vectors.embeddings)
    )
    single = [vectors.tokens[pair.first] == vectors.tokens[pair.second] == 1 for pair in known]
    return ListQuality(
        name=judged.name,
        pairs=len(known),
        unknown=tuple((pair.first, pair.second) for pair in judged.pairs if pair not in known),
        one_token=sum(single) / len(single),
        embeddings=spearman(scores, embeddings.numpy()),
        mean=spearman(scores, means.numpy()),
        highest=spearman(scores, cosines.amax(dim=1).numpy()),
        lowest=spearman(scores, cosines.amin(dim=1).numpy()),
        per_sense=tuple(spearman(scores, column) for column in cosines.T.numpy()),
    )


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> Correlation:
    """Spearman's rank correlation of n values, ties at their mean rank.

    The interval is Fisher's with the standard error sqrt((1 + r^2 / 2) / (n - 3)) of Bonett and Wright (2000).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        value = float(spearmanr(first, second).statistic)
    if not math.isfinite(value):
        return Correlation(None)
    if len(first) <= 3:
        return Correlation(value)
    # An exact correlation has no finite transform; the interval is then the value itself, nearly.
    middle = math.atanh(min(max(value, -1 + 1e-12), 1 - 1e-12))
    reach = 1.959964 * math.sqrt((1 + value**2 / 2) / (len(first) - 3))
    return Correlation(value, math.tanh(middle - reach), math.tanh(middle + reach))


def _vectors(backpack: BackpackModel, encoder: PairEncoder, words: Sequence[str]) -> _Vectors:
    """Vectors of the words that the tokenizer knows, on the CPU."""
    unknown = encoder.tokenizer.unk_token_id
    encoded = dict(zip(words, encoder.encode(words), strict=True))
    known = {word: ids for word, ids in encoded.items() if len(ids) and (unknown is None or unknown not in ids)}
    senses, embeddings = [], []
    parts = list(known.values())
    for start in range(0, len(parts), _WORDS):
        chunk = parts[start : start + _WORDS]
        ids = torch.from_numpy(np.concatenate(chunk)).long().to(backpack.device)
        lengths = [len(part) for part in chunk]
        with evaluating(backpack):
            senses.append(_means(backpack.senses(ids), lengths))
        embeddings.append(_means(F.embedding(ids, backpack.get_input_embeddings().weight), lengths))
    if not senses:
        return _Vectors(torch.empty(0), torch.empty(0), {}, {})
    rows = {word: row for row, word in enumerate(known)}
    return _Vectors(torch.cat(senses), torch.cat(embeddings), rows, {word: len(ids) for word, ids in known.items()})


def _means(values: Tensor, lengths: list[int]) -> Tensor:
    """Mean over the tokens of each word. [T, ...] -> [W, ...]"""
    return torch.stack([part.float().mean(dim=0) for part in values.split(lengths)]).cpu()
