"""What the command line runs: one training or evaluation, alone or as a job of several; marked until it is finished."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

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
    """Train, which gives the best nDCG@10 on dev (for a Hydra sweeper), or evaluate, in a folder that stays marked as
    unfinished when that fails."""
    remember(options)
    with friendly_errors():
        found = _work(script, config, folder, options)
    if unfinished.finish(folder) and is_first_process():  # of a distributed run
        link_latest(config.output, script, folder)
    return found


def one_of_several(script: str, config: DictConfig, folder: Path, options: Sequence[str], command: Command) -> Any:
    """The same as a job of a multirun; when the multirun goes on, one that has its results is kept.

    Returns:
        Of a training the best nDCG@10 on dev, of an evaluation whether it went well.
    """
    if command.resumed is not None and _is_whole(script, config, folder):
        log.info("%s has its results and is kept", folder)
        return True
    with friendly_errors():
        if script == "train" and (folder / OVERRIDES).is_file():
            check_begun(folder, saved_overrides(folder), options)
        unfinished.claim(folder, options)
    remember(options)
    if script == "train":
        if (folder / OVERRIDES).is_file():
            resumed = OmegaConf.merge(config, {"resume": str(folder)})
            assert isinstance(resumed, DictConfig)
            return alone(script, resumed, folder, ())
        return alone(script, config, folder, options)
    well = run_safely(lambda: _work(script, config, folder, options, quiet=True))
    if well:
        unfinished.finish(folder)
    else:
        unfinished.release(folder)
    return well


def _work(script: str, config: DictConfig, folder: Path, options: Sequence[str], quiet: bool = False) -> Any:
    # Imported here: `python evaluate.py` needs nothing of training.
    if script == "train":
        with without_gc():
            from backpack_rank.pipelines.train import train

        return train(config, folder, options)
    with without_gc():
        from backpack_rank.pipelines.evaluate import evaluate

    evaluate(config, folder, quiet)
    return True


def _is_whole(script: str, config: DictConfig, folder: Path) -> bool:
    """Whether a job of a multirun that goes on has its results, under these options and of the ranker as it is now."""
    if (folder / UNFINISHED).exists():
        return False
    if script == "train":
        return (folder / RANKER).is_dir()
    from backpack_rank.pipelines.evaluate import has_results

    return has_results(config, folder)
