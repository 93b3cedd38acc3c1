"""Hydra composes the configuration and runs the jobs; a mistake in the options is one sentence.

``hydra.main`` reads ``sys.argv`` in place of arguments, prints errors by itself, and exits with 1.
:func:`run` makes the same calls without it. Sweepers, launchers, callbacks, folders and the log are
Hydra's.
"""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, SearchPathException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from backpack_rank._gc import resume_gc, without_gc
from backpack_rank.checks import UsageError
from backpack_rank.commands import program
from backpack_rank.data.public.names import named_data_folder
from backpack_rank.files import resource_folder
from backpack_rank.pipelines import unfinished
from backpack_rank.pipelines.errors import (
    composition_sentence,
    errors_to_stderr,
    set_up_log,
    wants_traceback,
)

log = logging.getLogger(__name__)


def run(script: str, arguments: Sequence[str], job: Callable[[DictConfig], Any]) -> None:
    """Do what a command line asks of Hydra: run one job or several (``-m``), or print (``--cfg``).

    Args:
        script: file of conf/ without its ending, such as ``train``.
        arguments: of the command line, flags before options.
        job: called with the configuration, in a folder that Hydra has made.

    Raises:
        UsageError: the options cannot be composed, or Hydra cannot write to the folder.
            ``HYDRA_FULL_ERROR=1`` lets Hydra's own error through.
    """
    parser = get_args_parser()
    parser.prog = program(script)
    asked = parser.parse_args(list(arguments))
    started_as = sys.argv[0]
    failures: list[Exception] = []

    def run_job(config: DictConfig) -> Any:
        # Hydra has configured the log anew, and a launcher may have started another process.
        resume_gc()
        errors_to_stderr()
        set_up_log()
        _set_command_of_further_processes(started_as, script, arguments)
        try:
            return job(config)
        except Exception as error:
            failures.append(error)
            raise

    try:
        # Hydra imports what its callbacks need; the job has the collector again.
        with without_gc(), named_data_folder():
            _answer(script, asked, parser, run_job)
    except (HydraException, OmegaConfBaseException, OSError) as error:
        # What a job raises is a defect with a traceback: `friendly_errors` has let it through.
        if error in failures or wants_traceback():
            raise
        raise UsageError(composition_sentence(error, script, unfinished.held())) from error


def _answer(
    script: str, asked: Namespace, parser: ArgumentParser, job: Callable[[DictConfig], Any]
) -> None:
    """What ``hydra.main`` does with parsed arguments."""
    if asked.experimental_rerun is not None:
        raise UsageError(
            "--experimental-rerun would run what a pickle says: give the options of that run again"
        )
    name = asked.config_name or script
    version.setbase("1.3")
    search_path = create_config_search_path(asked.config_path or str(resource_folder("conf")))
    if asked.config_dir is not None:
        folder = Path(asked.config_dir).absolute()
        if not folder.is_dir():
            raise SearchPathException(f"Additional config directory '{folder}' not found")
        search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    hydra = Hydra.create_main_hydra2(script, search_path)
    try:
        if asked.hydra_help:
            hydra.hydra_help(name, parser, asked)
        elif asked.cfg is not None:
            hydra.show_cfg(name, asked.overrides, asked.cfg, asked.package, asked.resolve)
        elif asked.info is not None:
            hydra.show_info(asked.info, name, asked.overrides)
        elif asked.shell_completion:
            hydra.shell_completion(name, asked.overrides)
        else:
            _run_jobs(hydra, name, asked, job)
    finally:
        GlobalHydra.instance().clear()


def _run_jobs(hydra: Hydra, name: str, asked: Namespace, job: Callable[[DictConfig], Any]) -> None:
    options = asked.overrides
    mode = hydra.get_mode(name, options)
    if mode is None or asked.multirun:
        mode = RunMode.MULTIRUN if asked.multirun else RunMode.RUN
        options = [*options, f"hydra.mode={mode.name}"]
    if mode == RunMode.MULTIRUN:
        hydra.multirun(name, job, options)
    else:
        hydra.run(name, job, options)


def _set_command_of_further_processes(
    started_as: str, script: str, arguments: Sequence[str]
) -> None:
    """Let ``sys.argv`` be ``train.py OPTIONS`` or ``backpack-rank train OPTIONS`` of this job.

    Lightning starts the further processes of a distributed training by ``sys.argv``, and cannot be
    told otherwise. Options may be other than those that were typed: ``resume=true`` has become the
    folder to go on in. The report and its metadata say this command, too.
    """
    is_script = Path(started_as).name == f"{script}.py"
    verb = [] if is_script else [script]
    sys.argv = [started_as, *verb, *arguments]
