"""``alpha=auto``: the smallest change that keeps measures within a budget, found on the dev split."""

from __future__ import annotations

import logging

from omegaconf import DictConfig

from backpack_rank.evaluation.budget import mean_values, parse_budgets, smallest_change
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
        raise ValueError("alpha=auto needs budget=..., for example budget='|gap|/std<=0.02'")
    budgets = parse_budgets(config.budget if isinstance(config.budget, str) else list(config.budget))

    def measure_at(alpha: float) -> dict[str, float]:
        (result,) = yardstick.measure(turned.systems(dev, [alpha]), dev)
        log.info("alpha=%g measured on %s", alpha, dev.test.name)
        return mean_values(*result.kinds.values())

    found = smallest_change(measure_at, budgets)
    met = ", ".join(f"{budget} ({budget.value(found.values, found.tried[1.0]):.4g})" for budget in budgets)
    note = f"alpha=auto: {found.alpha:g} is the smallest change within {met} on {dev.test.name}"
    return found.alpha, [note + f"; {len(found.tried)} alphas tried, everything else here is of the test split"]
