"""What a command line runs: Hydra composes conf/ and calls a job, alone or several times (``-m``).

Hydra reads options, sweeps, folders and the log; this module gives it the arguments, and makes a
mistake in them one sentence.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from backpack_rank._gc import resume_gc, without_gc
from backpack_rank.checks import UsageError
from backpack_rank.commands import program
from backpack_rank.data.public.names import named_data_folder
from backpack_rank.files import RANKER, UNFINISHED, resource_folder
from backpack_rank.options import own_options
from backpack_rank.parts import imported
from backpack_rank.pipelines import given, unfinished
from backpack_rank.pipelines.begun import check_begun, remember
from backpack_rank.pipelines.errors import (
    MISTAKES,
    TRACEBACK,
    composition_sentence,
    errors_to_stderr,
    friendly_errors,
    run_safely,
    set_up_log,
    wants_traceback,
)
from backpack_rank.pipelines.output_folder import (
    Command,
    command_of,
    link_latest,
    register_resolvers,
)
from backpack_rank.pipelines.run_folder import OVERRIDES, saved_overrides
from backpack_rank.progress import is_first_process

log = logging.getLogger(__name__)
JOBS = {
    "train": "backpack_rank.pipelines.train:train",
    "evaluate": "backpack_rank.pipelines.evaluate:evaluate",
    "rerank": "backpack_rank.scale.rerank:rerank",
    "retrieve": "backpack_rank.pipelines.retrieve:retrieve",
    "calibrate": "backpack_rank.pipelines.calibrate:calibrate",
    "vectors": "backpack_rank.pipelines.export_vectors:export_vectors",
}
"""What each verb does with its options. It is imported once they are composed: it needs torch."""
MEASURES = "measures.json"
IN_FOLDERS = ("train", "evaluate")
"""Verbs whose jobs have a folder each, marked as unfinished until its results are complete."""
Job = Callable[[DictConfig], Any]


def run(script: str, arguments: Sequence[str]) -> None:
    """Do what a command line asks for.

    Args:
        script: one of :data:`JOBS`, named as its file of conf/ is.
        arguments: of the command line.

    Raises:
        UsageError: the options cannot be composed, or would do nothing.
    """
    set_up_log()
    arguments = given.check(script, arguments)
    if script not in IN_FOLDERS:
        compose_and_run(script, arguments, _plain_job(script))
        return
    with friendly_errors():
        command = command_of(script, arguments, str(own_options(script)["output"]))
    register_resolvers(command)
    flags = ["-m"] if command.multirun else []
    compose_and_run(script, [*flags, *command.options], _job_in_folder(script, command))
    # Jobs take the marks of their folders away; that of a multirun goes when all have ended well.
    for folder in unfinished.held():
        unfinished.finish(folder)


class OptionsFirst(Callback):
    """Refuses a value of a wrong type before a folder is made for the results.

    Hydra calls it, as the callback that ``conf/train.yaml`` and ``conf/evaluate.yaml`` name.
    """

    def __init__(self, script: str) -> None:
        self._check = {
            "train": "backpack_rank.pipelines.training_settings:check_training",
            "evaluate": "backpack_rank.pipelines.evaluate:check",
        }[script]

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Raise :class:`RefusedOptions` for a wrong option; those of a multirun are of its jobs."""
        # Says which folders of --config-dir there are; Hydra sets it for the job, too.
        HydraConfig.instance().set_config(config)
        options = config.copy()
        OmegaConf.set_readonly(options, False)
        OmegaConf.set_struct(options, False)
        del options["hydra"]
        with without_gc():
            check = imported(self._check)
        try:
            check(options)
        except MISTAKES as error:
            raise RefusedOptions(error) from error


class RefusedOptions(SystemExit):
    """A mistake in options on its way through Hydra, which lets no other error of a callback by."""

    def __init__(self, error: Exception) -> None:
        super().__init__(2)
        self.error = error


def compose_and_run(script: str, arguments: Sequence[str], job: Job) -> None:
    """Let Hydra compose the options of a command line and call the job, or print (``--cfg``).

    Raises:
        UsageError: the options cannot be composed, or Hydra cannot write to the folder.
            ``HYDRA_FULL_ERROR=1`` lets Hydra's own error through.
    """
    if any(argument.startswith("--experimental-rerun") for argument in arguments):
        raise UsageError(
            "--experimental-rerun would run what a pickle says: give the options of that run again"
        )
    typed, asked = sys.argv, os.environ.get(TRACEBACK)
    is_script = Path(typed[0]).name == f"{script}.py"
    again = [typed[0], *([] if is_script else [script]), *arguments]
    failures: list[Exception] = []

    def run_job(config: DictConfig) -> Any:
        # Hydra has configured the log anew, and a launcher may have started another process.
        resume_gc()
        errors_to_stderr()
        set_up_log()
        # Lightning starts the further processes of a training by sys.argv, with the folder to go
        # on in; the report says this command, too.
        with _process(again, asked):
            try:
                return job(config)
            except Exception as error:
                failures.append(error)
                raise

    try:
        # Where this is set, hydra.main raises what it would print. It also imports what callbacks
        # need, and the job has the collector again.
        with without_gc(), named_data_folder(), _process([program(script), *arguments], "1"):
            hydra.main(str(resource_folder("conf")), script, version_base="1.3")(run_job)()
    except RefusedOptions as refused:
        HydraConfig.instance().cfg = None
        errors_to_stderr()
        with friendly_errors():
            raise refused.error from None
    except (HydraException, OmegaConfBaseException, OSError, ValueError) as error:
        # What a job raises is a defect with a traceback: `friendly_errors` has let it through.
        if error in failures or wants_traceback():
            raise
        given.check_names(script, arguments)
        raise UsageError(composition_sentence(error, script, unfinished.held())) from error


@contextmanager
def _process(argv: Sequence[str], traceback: str | None) -> Iterator[None]:
    """For a while: what the process was started with, and whether it shows tracebacks."""
    before = sys.argv, os.environ.get(TRACEBACK)
    try:
        _set_process(list(argv), traceback)
        yield
    finally:
        _set_process(*before)


def _set_process(argv: list[str], traceback: str | None) -> None:
    sys.argv = argv
    os.environ.pop(TRACEBACK, None)
    if traceback is not None:
        os.environ[TRACEBACK] = traceback


def _function_of(script: str) -> Callable[..., Any]:
    # Imported here: the options are composed, or refused, before torch is loaded.
    with without_gc():
        function: Callable[..., Any] = imported(JOBS[script])
    return function


def _plain_job(script: str) -> Job:
    def job(config: DictConfig) -> None:
        function = _function_of(script)
        with friendly_errors():
            function(config)

    return job


def _job_in_folder(script: str, command: Command) -> Job:
    def job(config: DictConfig) -> Any:
        hydra_config = HydraConfig.get()
        # Reading the options may fail: one may name another that is not there.
        with friendly_errors():
            folder = Path(hydra_config.runtime.output_dir)
            options = list(hydra_config.overrides.task)
        several = hydra_config.mode == RunMode.MULTIRUN
        if several and command.resumed is not None and _has_results(script, config, folder):
            log.info("%s has its results and is kept", folder)
            from backpack_rank.reporting.measure_files import read_json

            return _objective(config, [read_json(folder / MEASURES)])
        was_begun = several and script == "train" and (folder / OVERRIDES).is_file()
        with friendly_errors():
            if was_begun:
                check_begun(folder, saved_overrides(folder), options)
            if several:
                unfinished.claim(folder, options)
        remember(options)
        if was_begun:
            # The options are those of the folder, and none is given anew.
            config, options = config.copy(), []
            config.resume = str(folder)
        if several and script == "evaluate":
            reports: list[Any] = []
            went_well = run_safely(
                lambda: reports.append(_function_of(script)(config, folder, quiet=True))
            )
            end = unfinished.finish if went_well else unfinished.release
            end(folder)
            return _objective(config, reports)
        with friendly_errors():
            more = [options] if script == "train" else []
            result = _function_of(script)(config, folder, *more)
        # The processes of a distributed run share the folder: the first one sets the link.
        if unfinished.finish(folder) and is_first_process():
            link_latest(config.output, script, folder)
        # Of a training the best nDCG@10 on dev, for a Hydra sweeper.
        return result if script == "train" else True

    return job


def _objective(config: DictConfig, reports: Sequence[Any]) -> Any:
    """What a job of a multirun gives Hydra's sweeper: ``objective``, or whether it went well.

    Args:
        config: of the job.
        reports: the measures; none where it failed.
    """
    wanted = config.get("objective")
    if wanted is None:
        return bool(reports)
    # Imported here: the options are looked at before numpy and the like are loaded.
    from backpack_rank.pipelines.objective import no_objective, objective_of

    names = wanted if isinstance(wanted, str) else list(wanted)
    values: list[Any] = []
    # Results that lack the measure are whole all the same.
    if reports and run_safely(lambda: values.append(objective_of(reports[0], names))):
        return values[0]
    return no_objective(names)


def _has_results(script: str, config: DictConfig, folder: Path) -> bool:
    """Whether a job has its results, under these options and of the ranker in its present state."""
    if (folder / UNFINISHED).exists():
        return False
    if script == "train":
        return (folder / RANKER).is_dir()
    from backpack_rank.pipelines.evaluate import has_results

    return has_results(config, folder)
