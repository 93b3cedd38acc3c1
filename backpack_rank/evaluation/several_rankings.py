"""Several rankings of the same queries as one system: seeds, folds, sampled permutations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backpack_rank.evaluation.results import PerQuery


def mean_over_rankings(rankings: Sequence[PerQuery]) -> PerQuery:
    """One value per query of a system that ranked every query several times.

    >>> first = PerQuery({"nDCG@10": {"q1": 0.5, "q2": 1.0}})
    >>> second = PerQuery({"nDCG@10": {"q1": 0.7}})
    >>> mean_over_rankings([first, second]).values
    {'nDCG@10': {'q1': 0.6, 'q2': 1.0}}

    A query's value is the mean over the rankings that have one. A query that one ranking misses and
    counts as 0 is named in ``missing``; one that no ranking has a value of, in ``left_out``.

    Args:
        rankings: values of the same measures; one or more.
    """
    values: dict[str, dict[str, float]] = {}
    for measure in rankings[0].measures:
        found: dict[str, list[float]] = {}
        for ranking in rankings:
            for query_id, value in ranking.values[measure].items():
                found.setdefault(query_id, []).append(value)
        values[measure] = {query_id: float(np.mean(given)) for query_id, given in found.items()}
    together = PerQuery(values)
    known = set(together.query_ids)
    left_out: dict[str, None] = {}
    missing: dict[str, None] = {}
    for ranking in rankings:
        missing.update(dict.fromkeys(ranking.missing))
        for query_id in ranking.left_out:
            if query_id not in known:
                left_out[query_id] = None
    return PerQuery(values, tuple(left_out), tuple(missing))
