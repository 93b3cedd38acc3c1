"""Mistakes of a user end a script with one sentence instead of a traceback."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hydra.errors import InstantiationException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from backpack_rank.files import DiskFullError, no_space

log = logging.getLogger(__name__)
MISTAKES = (ValueError, TypeError, KeyError, OSError, OmegaConfBaseException, InstantiationException)


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Log a mistake as one sentence and exit with status 1; ``HYDRA_FULL_ERROR=1`` shows the traceback."""
    try:
        yield
    except MISTAKES as error:
        if _wants_traceback() or not _is_mistake(error):
            raise
        log.error("%s (HYDRA_FULL_ERROR=1 shows where)", _sentence(error))
        raise SystemExit(1) from error


def run_safely(job: Callable[[], object]) -> bool:
    """Whether a job of a multirun ends well; what ends it is logged, and the other jobs go on."""
    try:
        job()
    except Exception as error:  # whatever it is: the measures of the other jobs must not be lost with it
        if _wants_traceback() or not _is_mistake(error):
            log.exception("this job failed, the others go on")
        else:
            log.error("%s (HYDRA_FULL_ERROR=1 shows where)", _sentence(error))
        return False
    return True


def _wants_traceback() -> bool:
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def _is_mistake(error: BaseException | None) -> bool:
    """Hydra wraps what a constructor raises, a mistake or not; a KeyError that is no sentence is a defect of ours."""
    if isinstance(error, InstantiationException):
        return error.__cause__ is None or _is_mistake(error.__cause__)
    if isinstance(error, KeyError):
        return " " in str(error.args[0] if error.args else "")
    return isinstance(error, MISTAKES)


def _sentence(error: BaseException) -> str:
    if no_space(error) is not None and not isinstance(error, DiskFullError):
        return _sentence_of_full_disk(error)
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        return _sentence(error.__cause__)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value: give {error.full_key}=..."
    if isinstance(error, OmegaConfBaseException):
        # The lines after the first are about OmegaConf's own nodes, as is what it says before its cause.
        first = str(error).splitlines()[0].partition("resolving interpolation: ")[2] or str(error).splitlines()[0]
        if found := re.search(r"Environment variable '(\w+)' not found", first):
            first = f"the environment variable {found[1]} is not set: set it, or give options that do without it"
        return f"{error.full_key}: {first}" if error.full_key else first
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])  # str() of a KeyError is its argument in quotes
    return str(error)


def _sentence_of_full_disk(error: BaseException) -> str:
    file = getattr(error, "filename", None) or "a file"
    return (
        f"{file} could not be written: {getattr(error, 'strerror', None) or error}; free some space, or give "
        "output=FOLDER or cache.folder=FOLDER on another disk"
    )
