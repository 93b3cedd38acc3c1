"""Another system's run, recalibrated by what the dial changes about the ranker's scores (paper 004, appendix D)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.collection import Run
from backpack_rank.evaluation.recalibration import deltas, recalibrate
from backpack_rank.pipelines.runs import run_systems
from backpack_rank.pipelines.turned import System, TurnedRanker
from backpack_rank.pipelines.workload import Workload, only


def recalibrated_systems(config: DictConfig, turned: TurnedRanker, work: Workload, alpha: float) -> list[System]:
    """The run of ``recalibrate.run`` as it is, and with ``recalibrate.weight`` times the standardised changes.

    The ranker scores the documents of that run at alpha = 1 and at this alpha; nothing without such a run.

    Raises:
        ValueError: alpha is 1, so nothing changes; or as :func:`~backpack_rank.pipelines.runs.run_systems`.
    """
    if config.recalibrate.run is None:
        return []
    if alpha == 1:
        raise ValueError("recalibrate.run needs an alpha other than 1: at 1 no score changes")
    (system,) = run_systems(str(config.recalibrate.run), work)
    weight = float(config.recalibrate.weight)
    own = replace(
        work, candidates=system.test_run, bias_candidates=only(system.bias_run, work.bias), swapped=None, worded=None
    )
    before, after = turned.systems(own, [1.0, alpha])

    def changed(run: Run, first: Run, second: Run) -> Run:
        return recalibrate(run, deltas(first, second), weight)

    label = f"{Path(system.label).name} + {weight:g} x change at {turned.label(alpha)}"
    test = changed(system.test_run, before.test_run, after.test_run)
    bias = changed(system.bias_run, before.bias_run, after.bias_run) if work.separate else only(test, work.bias)
    return [system, System(label, None, test, bias)]
