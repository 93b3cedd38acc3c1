"""What the command line runs: a training or an evaluation, alone or as a job of several.

Its folder is marked as unfinished until all results are there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from backpack_rank._gc import without_gc
from backpack_rank.files import RANKER, UNFINISHED
from backpack_rank.pipelines import unfinished
from backpack_rank.pipelines.begun import check_begun, remember
from backpack_rank.pipelines.errors import friendly_errors, run_safely
from backpack_rank.pipelines.output_folder import Command, link_latest
from backpack_rank.pipelines.run_folder import OVERRIDES, saved_overrides
from backpack_rank.progress import is_first_process

log = logging.getLogger(__name__)


def alone(script: str, config: DictConfig, folder: Path, options: Sequence[str]) -> Any:
    """Train or evaluate in a folder that stays marked as unfinished when that fails.

    Args:
        script: ``train`` or ``evaluate``.
        config: as Hydra has composed it.
        folder: that Hydra has made.
        options: of the command line.

    Returns:
        Of a training the best nDCG@10 on dev, for a Hydra sweeper.
    """
    remember(options)
    with friendly_errors():
        result = _train_or_evaluate(script, config, folder, options)
    # The processes of a distributed run share the folder: the first one sets the link.
    # An estimate leaves no ranker that a later command could take.
    has_results = not (script == "train" and config.get("estimate"))
    if unfinished.finish(folder) and is_first_process() and has_results:
        link_latest(config.output, script, folder)
    return result


def one_of_several(
    script: str, config: DictConfig, folder: Path, options: Sequence[str], command: Command
) -> Any:
    """Train or evaluate as a job of a multirun; one that has its results is kept on resuming.

    Args:
        script: ``train`` or ``evaluate``.
        config: as Hydra has composed it.
        folder: that Hydra has made.
        options: of this job.
        command: of the multirun.

    Returns:
        Of a training the best nDCG@10 on dev, of an evaluation whether it went well.
    """
    if command.resumed is not None and _has_results(script, config, folder):
        log.info("%s has its results and is kept", folder)
        return True
    with friendly_errors():
        was_begun = script == "train" and (folder / OVERRIDES).is_file()
        if was_begun:
            check_begun(folder, saved_overrides(folder), options)
        unfinished.claim(folder, options)
    remember(options)
    if was_begun:
        # The options are those of the folder, and none is given anew.
        resumed = config.copy()
        resumed.resume = str(folder)
        return alone(script, resumed, folder, options=())
    if script == "train":
        return alone(script, config, folder, options)
    went_well = run_safely(lambda: _train_or_evaluate(script, config, folder, options, quiet=True))
    if went_well:
        unfinished.finish(folder)
    else:
        unfinished.release(folder)
    return went_well


def _train_or_evaluate(
    script: str, config: DictConfig, folder: Path, options: Sequence[str], quiet: bool = False
) -> Any:
    # Imported here: `python evaluate.py` needs nothing of training.
    if script == "train":
        with without_gc():
            from backpack_rank.pipelines.train import train

        return train(config, folder, options)
    with without_gc():
        from backpack_rank.pipelines.evaluate import evaluate

    evaluate(config, folder, quiet)
    return True


def _has_results(script: str, config: DictConfig, folder: Path) -> bool:
    """Whether a job has its results, under these options and of the ranker in its present state."""
    if (folder / UNFINISHED).exists():
        return False
    if script == "train":
        return (folder / RANKER).is_dir()
    from backpack_rank.pipelines.evaluate import has_results

    return has_results(config, folder)
