"""Policies that are fitted to a ranker before it is measured: ``policy=erase``."""

from __future__ import annotations

import logging
from pathlib import Path

from backpack_rank.data.batching import Pairs
from backpack_rank.data.dataset import Dataset
from backpack_rank.models.pooled_map import MAP_FILE
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.policies import Policy

log = logging.getLogger(__name__)


def fitted_policy(policy: Policy, unchanged: PointwiseReranker, dataset: Dataset) -> Policy:
    """The policy as it is measured: one that must be fitted is fitted on dev.

    Args:
        policy: any; none but ``erase`` without a file is changed.
        unchanged: the ranker.
        dataset: has the dev split.

    Raises:
        ValueError: there is no dev split, or too few of its candidates have words of the attribute.
    """
    if not isinstance(policy, Erase):
        return policy
    scorer = unchanged.local_scorer
    try:
        _ = scorer.ranker.pooled_head
    except TypeError as error:
        raise ValueError(f"policy {policy.name}: {error}") from error
    if policy.file is not None:
        return policy.with_map_for(scorer.ranker)
    if not dataset.has("dev"):
        raise ValueError(
            f"policy {policy.name} is fitted on dev candidates, and data={dataset.name} has no dev "
            f"split: set data.dev, or give policy.file={MAP_FILE} of an earlier evaluation"
        )
    dev = dataset.split("dev")
    _, candidates = dataset.candidates("dev", dev)
    log.info("fitting policy %s on the candidates of %s", policy.name, dev.name)
    return policy.fitted(unchanged, Pairs.from_run(candidates, dev))


def write_fitted_policy(folder: Path, policy: Policy) -> list[str]:
    """Write the map of a fitted policy, and give sentences below the tables; none of any other."""
    if not isinstance(policy, Erase) or policy.fitted_map is None:
        return []
    policy.save(folder / MAP_FILE)
    mean, directions = policy.fitted_map.left.shape
    note = (
        f"Policy {policy.name}: {directions} of {mean} directions of the pooled vector, fitted on "
        f"{policy.fitted_on} texts written for each group ({MAP_FILE}). It certifies nothing: no "
        "score of a single text is certain to stay"
    )
    if policy.fitted_on < mean:
        note += ". There are fewer texts than directions: the fit may not hold for others"
    return [note]
