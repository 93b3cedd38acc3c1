"""Folders of runs: a new one for every run, and that of an interrupted run to go on with."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from backpack_rank.files import LAST, RANKER


def register_resolvers() -> None:
    """Make ``${new_folder:path}`` and ``${run_folder:path,resume}`` known; call it before ``@hydra.main`` composes."""
    for name, resolver in (("new_folder", new_folder), ("run_folder", run_folder)):
        OmegaConf.register_new_resolver(name, resolver, use_cache=True, replace=True)


@cache  # once made, it is the folder of this process
def new_folder(path: str) -> str:
    """Make a folder that no other process has; where it exists, with a number behind it: ``path_2``, ``path_3`` ..."""
    number = 1
    while True:
        folder = path if number == 1 else f"{path}_{number}"
        try:
            os.makedirs(folder)
        except FileExistsError:
            number += 1
        else:
            return folder


def run_folder(path: str, resume: bool | str) -> str:
    """The folder of a training run: a new one, or that of the run to continue.

    Args:
        path: of a new folder, ``OUTPUT/train/NAME``.
        resume: False, True (the last interrupted run below ``OUTPUT/train``), or the folder of a run.

    Raises:
        FileNotFoundError: there is no interrupted run to continue.
    """
    if not resume:
        return new_folder(path)
    runs = Path(path).parent
    if isinstance(resume, str) and resume.lower() != "true":
        if not (Path(resume) / LAST).is_file():
            raise FileNotFoundError(f"resume={resume}: {Path(resume) / LAST} is missing, so nothing can be continued")
        return resume
    interrupted = [path.parent.parent for path in runs.glob(f"**/{LAST}") if not (path.parent.parent / RANKER).is_dir()]
    if not interrupted:
        raise FileNotFoundError(
            f"resume=true: no interrupted run with a {LAST} lies below {runs}; "
            "finished runs are not continued, and a run writes its first checkpoint after its first epoch"
        )
    return str(max(interrupted, key=lambda folder: (folder / LAST).stat().st_mtime))
