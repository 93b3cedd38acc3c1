"""``alpha=auto``: the smallest change that keeps measures within a budget, found on the dev split."""

from __future__ import annotations

import logging

from omegaconf import DictConfig

from backpack_rank.evaluation.budget import (
    EXAMPLES,
    check_budgets,
    largest_change,
    mean_values,
    parse_budgets,
    smallest_change,
)
from backpack_rank.pipelines.turned import TurnedRanker
from backpack_rank.pipelines.workload import Workload
from backpack_rank.pipelines.yardstick import Yardstick

log = logging.getLogger(__name__)


def chosen_alpha(
    config: DictConfig, turned: TurnedRanker, dev: Workload, yardstick: Yardstick
) -> tuple[float, list[str]]:
    """The alpha, and sentences about how it was found.

    Raises:
        ValueError: no budget or one that cannot be read; or no alpha is within it, with the best that can be reached.
    """
    if config.budget is None:
        raise ValueError(f"alpha=auto needs budget=..., for example one of {EXAMPLES}")
    budgets = parse_budgets(config.budget if isinstance(config.budget, str) else list(config.budget))
    try:
        check_budgets(budgets, yardstick.names(dev))
    except ValueError as error:
        raise ValueError(f"{error}. {_how_to_measure_more(config)}") from error

    def measure_at(alpha: float) -> dict[str, float]:
        (result,) = yardstick.measure(turned.systems(dev, [alpha]), dev)
        log.info("alpha=%g measured on %s", alpha, dev.test.name)
        return mean_values(*result.kinds.values())

    losses = all(budget.kind == "loss" for budget in budgets)
    found = largest_change(measure_at, budgets) if losses else smallest_change(measure_at, budgets)
    met = ", ".join(f"{budget} ({budget.value(found.values, found.tried[1.0]):.4g})" for budget in budgets)
    which = "largest" if losses else "smallest"
    note = f"alpha=auto: {found.alpha:g} is the {which} change within {met} on {dev.test.name}"
    return found.alpha, [note + f"; alphas tried: {len(found.tried)}; everything else here is of the test split"]


def _how_to_measure_more(config: DictConfig) -> str:
    more = ["others by measures=[nDCG@20] and bias.extra=['RaB(tf)@7']"]
    if config.get("wordings") is None:
        more.append("score gaps by wordings=grep_biasir")
    if not config.swap:
        more.append("changes under swaps by swap=true")
    return f"More can be measured: {', '.join(more)}"
