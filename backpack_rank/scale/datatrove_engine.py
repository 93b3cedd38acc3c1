"""``engine=datatrove``: its executors call the workers, on this machine, by SLURM or by Ray.

A task is a shard. datatrove's own marks of finished tasks know nothing of a plan, so they are not
used: a task whose shard is scored ends at once.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch

from backpack_rank.commands import install
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.settings import RerankSettings
from backpack_rank.scale.shard_plan import Plan
from backpack_rank.scale.workers import score_and_put


def score_by_datatrove(settings: RerankSettings, plan: Plan) -> None:
    """Use this to let an executor of datatrove score every shard.

        score_by_datatrove(settings, Plan.read(settings.folder))

    Logs go to ``datatrove/`` in the folder of the plan.

    Raises:
        ValueError: datatrove is not installed, or the executor does not take an option.
    """
    try:
        from datatrove import executor as executors
    except ModuleNotFoundError as error:
        raise ValueError(f"engine=datatrove needs datatrove: {install('scale')}") from error
    names = {
        "local": "LocalPipelineExecutor",
        "slurm": "SlurmPipelineExecutor",
        "ray": "RayPipelineExecutor",
    }
    name = names[settings.executor]
    # -1: the other executors run all tasks at once, unless a number is given.
    workers = settings.workers
    if settings.executor != "local":
        workers = settings.options["workers"] or -1
    options: dict[str, Any] = {
        "pipeline": [ShardTask(json.dumps(settings.options))],
        "tasks": len(plan),
        "workers": workers,
        "logging_dir": str(plan.folder / "datatrove"),
        "skip_completed": False,
        **settings.executor_options,
    }
    try:
        executor = getattr(executors, name)(**options)
    except TypeError as error:
        raise ValueError(f"executor_options: {error}; see datatrove's {name}") from error
    executor.run()


class ShardTask:
    """Use it as a step of a pipeline of datatrove: it scores the shard with the task's number.

        LocalPipelineExecutor(pipeline=[ShardTask(json.dumps(options))], tasks=len(plan))

    It holds nothing but text, so that every executor can send it to its tasks.
    """

    def __init__(self, options: str) -> None:
        """``options``: those of the re-ranking, as JSON."""
        self.options = options

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Score shard ``rank``; ``data`` is what an earlier step gives, and there is none."""
        settings, plan, sweep = _opened(self.options)
        score_and_put(settings, plan, rank, sweep)


# One ranker for each process, whichever shards it gets.
@cache
def _opened(options: str) -> tuple[RerankSettings, Plan, AlphaSweep]:
    settings = RerankSettings.of(json.loads(options))
    torch.set_num_threads(settings.threads)
    if settings.store is not None:
        settings.store.get_plan(settings.folder)
    plan = Plan.read(settings.folder)
    sweep = settings.sweep()
    # The data or the ranker may have changed since the plan was made.
    plan.check(sweep.fingerprint(settings.collection))
    return settings, plan, sweep
