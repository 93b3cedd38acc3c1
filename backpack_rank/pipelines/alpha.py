"""``alpha=auto``: the smallest change that keeps measures within a budget on the dev split."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from backpack_rank.evaluation.alpha_search import (
    EXAMPLES,
    check_budgets,
    largest_change,
    mean_values,
    parse_budgets,
    smallest_change,
)
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import Policy

log = logging.getLogger(__name__)
AUTO = "auto"
"""Value of ``alpha`` that has it chosen."""


def choose_alpha(
    budget: str | Sequence[str] | None,
    policy: Policy,
    reranker: PointwiseReranker,
    dev: EvaluationData,
    metrics: MetricSuite,
) -> tuple[float, list[str]]:
    """The alpha, and sentences about how it was found.

    Args:
        budget: what measures must keep within.
        policy: what alpha acts by.
        reranker: at any alpha.
        dev: what the search ranks.
        metrics: measures to take.

    Raises:
        ValueError: no budget or one that cannot be read; or no alpha is within it, with the best
            that can be reached.
    """
    if budget is None:
        raise ValueError(f"alpha=auto needs budget=..., for example one of {EXAMPLES}")
    budgets = parse_budgets(budget)
    metrics = metrics.for_labels_of(dev)
    try:
        check_budgets(budgets, metrics.measure_names(dev))
    except ValueError as error:
        raise ValueError(f"{error}. {_how_to_measure_more(dev)}") from error

    def measure_at(alpha: float) -> dict[str, float]:
        (system,) = metrics.evaluate([reranker.with_policy(policy, alpha)], dev).systems
        log.info("alpha=%g measured on %s", alpha, dev.test.name)
        return mean_values(*system.values.values())

    # Budgets of losses alone allow some change, of which the largest is wanted; others ask for one.
    if all(budget.kind == "loss" for budget in budgets):
        which = "largest"
        choice = largest_change(measure_at, budgets)
    else:
        which = "smallest"
        choice = smallest_change(measure_at, budgets)
    unchanged = choice.tried[1.0]
    values = []
    for limit in budgets:
        values.append(f"{limit} ({limit.value(choice.values, unchanged):.4g})")
    note = (
        f"alpha=auto: {choice.alpha:g} is the {which} change within {', '.join(values)} on "
        f"{dev.test.name}; alphas tried: {len(choice.tried)}; "
        "everything else here is of the test split"
    )
    return choice.alpha, [note]


def _how_to_measure_more(dev: EvaluationData) -> str:
    more = ["others by measures=[nDCG@20] and bias.extra=['RaB(tf)@7']"]
    if dev.variants is None:
        more.append("score gaps by variants=grep_biasir")
    if dev.swapped is None:
        more.append("changes under swaps by swap=true")
    return f"More can be measured: {', '.join(more)}"
