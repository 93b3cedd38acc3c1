"""Questions by the place of their answers in characters, and how far a ranker depends on it.

They are SQuAD-PosQ and the position sensitivity index (PSI) of Zeng et al. 2025 (arXiv 2505.13950).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.data.answers import Answers

EDGES = (0, 100, 200, 300, 400, 500)
"""First characters of the buckets of SQuAD-PosQ; the last one is open."""
_SHUFFLES = 1000


@dataclass(frozen=True)
class BucketMeans:
    """A measure by the place of the answer.

    Attributes:
        means: of each bucket; nan for one without a question.
        queries: number of questions of each bucket.
        psi: :func:`position_sensitivity` of the means.
        chance: what PSI is exceeded by in 1 of 20 shuffles of the questions over the buckets: means
            of few questions differ without any bias.
    """

    means: tuple[float, ...]
    queries: tuple[int, ...]
    psi: float
    chance: float


def answer_starts(answers: Answers) -> dict[str, int]:
    """The first character of every question's first answer that has a place."""
    starts: dict[str, int] = {}
    for row in answers.rows:
        if row.start is not None:
            starts.setdefault(row.query_id, row.start)
    return starts


def position_sensitivity(means: Sequence[float]) -> float:
    """PSI: the largest relative loss, 1 - smallest mean / largest mean; 0 is insensitive.

    >>> position_sensitivity([1.0, 0.75, 0.8])
    0.25

    Buckets without a question (nan) are left out; nan without a bucket, or where all means are 0.
    """
    of_questions = [mean for mean in means if not math.isnan(mean)]
    if not of_questions or max(of_questions) == 0:
        return math.nan
    return 1 - min(of_questions) / max(of_questions)


def bucket_means(
    values: Mapping[str, float], starts: Mapping[str, int], edges: Sequence[int] = EDGES
) -> BucketMeans:
    """A measure's mean in each bucket, and its PSI.

        bucket_means(values.values["nDCG@10"], answer_starts(answers)).psi

    Args:
        values: of a measure by question; questions without a start are left out.
        starts: first characters of answers.
        edges: first characters of the buckets, ascending.
    """
    bucket_of_question = []
    value_of_question = []
    for query_id, value in values.items():
        start = starts.get(query_id, -1)
        if start >= edges[0]:
            # The last bucket that begins at this character or before it.
            bucket_of_question.append(bisect_right(edges, start) - 1)
            value_of_question.append(value)
    buckets = np.array(bucket_of_question, dtype=int)
    amounts = np.array(value_of_question, dtype=float)
    means = _means(buckets, amounts, len(edges))
    # What the same values give when they do not depend on the bucket.
    rng = np.random.default_rng(0)
    shuffled = []
    for _ in range(_SHUFFLES):
        shuffled.append(position_sensitivity(_means(buckets, rng.permutation(amounts), len(edges))))
    counts = np.bincount(buckets, minlength=len(edges))
    return BucketMeans(
        means=tuple(means),
        queries=tuple(counts.tolist()),
        psi=position_sensitivity(means),
        chance=float(np.quantile(shuffled, 0.95)),
    )


def _means(buckets: np.ndarray, amounts: np.ndarray, number: int) -> list[float]:
    counts = np.bincount(buckets, minlength=number)
    sums = np.bincount(buckets, weights=amounts, minlength=number)
    means = np.divide(sums, counts, out=np.full(number, math.nan), where=counts > 0)
    return means.tolist()
