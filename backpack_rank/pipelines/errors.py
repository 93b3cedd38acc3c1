"""Mistakes of a user end a script with one sentence instead of a traceback."""

from __future__ import annotations

import copy
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from hydra.errors import HydraException, InstantiationException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from backpack_rank.commands import called, program
from backpack_rank.data.pretrained import no_panic
from backpack_rank.files import DiskFullError, no_space
from backpack_rank.progress import printable

log = logging.getLogger(__name__)
TRACEBACK = "HYDRA_FULL_ERROR"
MISTAKES = (
    ValueError,
    TypeError,
    KeyError,
    OSError,
    OmegaConfBaseException,
    InstantiationException,
)
_UNKNOWN = re.compile(r"(\w+)(?:\.__init__|\.of)?\(\) got an unexpected keyword argument '(\w+)'")


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Log a mistake as one sentence and exit with status 2.

    ``HYDRA_FULL_ERROR=1`` shows the traceback.
    """
    try:
        with no_panic("the tokenizer's folder"):
            yield
    except MISTAKES as error:
        if wants_traceback() or not is_mistake(error):
            raise
        log.error("%s (HYDRA_FULL_ERROR=1 shows where)", sentence_of(error))
        raise SystemExit(2) from error


def run_safely(job: Callable[[], object]) -> bool:
    """Whether a job of a multirun ends well; what ends it is logged, and the other jobs go on."""
    try:
        job()
    except Exception as error:
        # Whatever it is: the measures of the other jobs must not be lost with it.
        if wants_traceback() or not is_mistake(error):
            log.exception("this job failed, the others go on")
        else:
            log.error("%s (HYDRA_FULL_ERROR=1 shows where)", sentence_of(error))
        return False
    return True


class LogFile(logging.FileHandler):
    """The log of a run: a link in place of its file is an error, as lines would land elsewhere."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(self.baseFilename, flags, 0o666)
        return TextIOWrapper(
            open(handle, "ab"), encoding=self.encoding or "utf-8", errors=self.errors
        )


class PrintableLines(logging.Formatter):
    """Lines of another formatter, without escape sequences of documents, ids and names of files.

    They are written out, and so are line breaks: no text of a file begins a line of the log.
    """

    def __init__(self, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._formatter = formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        if isinstance(record.args, Mapping):
            shown.args = {name: _on_one_line(value) for name, value in record.args.items()}
        elif record.args:
            shown.args = tuple(map(_on_one_line, record.args))
        return printable(self._formatter.format(shown))


def _on_one_line(value: object) -> object:
    """A value of a line of the log, with its line breaks written out."""
    text = str(value)
    is_one_line = len(text.splitlines()) < 2 and not text.endswith("\n")
    # A value that needs no change stays what it is: %d takes no text.
    return value if is_one_line else text.replace("\n", "\\n")


def set_up_log() -> None:
    """Let no handler of the log write escape sequences, or tracebacks of its own.

    For the start of a command, and again where Hydra has configured the log.
    """
    # On a full disk a handler cannot write, and every line of the log would become a traceback.
    logging.raiseExceptions = False
    # The last resort writes where there is no handler.
    for handler in (logging.lastResort, *logging.getLogger().handlers):
        if handler is not None and not isinstance(handler.formatter, PrintableLines):
            handler.setFormatter(PrintableLines(handler.formatter))


def errors_to_stderr() -> None:
    """Let the log's errors go to standard error, as bare sentences.

    Hydra's handler writes all to standard output, behind the time and the module's name. The file
    of a run's log keeps these.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler and handler.stream is sys.stdout:
            handler.addFilter(lambda record: record.levelno < logging.ERROR)
            errors = logging.StreamHandler(sys.stderr)
            errors.setLevel(logging.ERROR)
            errors.setFormatter(PrintableLines(None))
            root.addHandler(errors)


def composition_sentence(
    error: BaseException, script: str = "", folders: Sequence[Path] = ()
) -> str:
    """What Hydra says of options that it cannot compose, or of a folder, in one sentence.

    Args:
        error: of Hydra, OmegaConf or the system.
        script: whose options they are.
        folders: which Hydra writes to, where an error of the system names none.
    """
    # Of Hydra's errors one is an OSError as well: there is no such file of conf/.
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        if error.filename is None and folders:
            error = OSError(error.errno, error.strerror, ", ".join(map(str, folders)))
        return sentence_of(error)
    if isinstance(error, OmegaConfBaseException):
        return sentence_of(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first_line = lines[0] if lines else type(error).__name__
    unknown = re.match(
        r"Could not (?:override|append to config|delete from config)[^']*'([^']+)'", first_line
    )
    if unknown:
        return (
            f"{unknown[1]}: {program(script)} has no such option, or not with this value; "
            "see --help"
        )
    if first_line.startswith("Ambiguous value"):
        return (
            f"{first_line}: key=[a,b] is a list, -m sweeps over the values, "
            "and \"key='a,b'\" is one text"
        )
    return f"{first_line.rstrip('.')}; see --help"


def wants_traceback() -> bool:
    """Whether ``HYDRA_FULL_ERROR=1`` is set."""
    return os.environ.get(TRACEBACK) == "1"


def is_mistake(error: BaseException | None) -> bool:
    """Whether an error is a mistake of the user: one sentence, and no traceback."""
    # Hydra wraps what a constructor raises, a mistake or not.
    if isinstance(error, InstantiationException):
        return error.__cause__ is None or is_mistake(error.__cause__)
    # A KeyError with a key alone is a defect of this package; with a sentence it is for the user.
    if isinstance(error, KeyError):
        return " " in str(error.args[0] if error.args else "")
    return isinstance(error, MISTAKES)


def sentence_of(error: BaseException) -> str:
    """What a mistake is, in one sentence."""
    if no_space(error) is not None and not isinstance(error, DiskFullError):
        return _sentence_of_full_disk(error)
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        node = re.search(r"full_key: (\S+)", str(error))
        unknown = _UNKNOWN.search(str(error.__cause__))
        # The first line names what was called: another call below it may have raised the same.
        if node and unknown and unknown[1] in str(error).partition("\n")[0]:
            return f"{node[1]}.{unknown[2]}: {unknown[1]} has no such option"
        return sentence_of(error.__cause__)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value: give {error.full_key}=..."
    if isinstance(error, OmegaConfBaseException):
        return _sentence_of_omegaconf(error)
    if isinstance(error, TypeError) and (unknown := _UNKNOWN.search(str(error))):
        return f"{unknown[1]} has no option {unknown[2]!r}: leave it out, or look at its name"
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])  # str() of a KeyError is its argument in quotes
    return str(error)


def _sentence_of_omegaconf(error: OmegaConfBaseException) -> str:
    # Lines after the first are about OmegaConf's own nodes, and so is what stands before a cause.
    first_line = str(error).splitlines()[0]
    cause = first_line.partition("resolving interpolation: ")[2] or first_line
    if missing := re.fullmatch(r"Missing mandatory value: (\S+)", cause):
        return f"{missing[1]} has no value: give {missing[1]}=..."
    if variable := re.search(r"Environment variable '(\w+)' not found", cause):
        cause = (
            f"the environment variable {variable[1]} is not set: set it, or give options that do "
            "without it"
        )
        if variable[1] == "BACKPACK_RANK_DATA":
            cause += f"; `{called('data')} list` shows what its folder can have and how to get it"
    return f"{error.full_key}: {cause}" if error.full_key else cause


def _sentence_of_full_disk(error: BaseException) -> str:
    file = getattr(error, "filename", None) or "a file"
    why = getattr(error, "strerror", None) or error
    return (
        f"{file} could not be written: {why}; free some space, or give output=FOLDER or "
        "cache.folder=FOLDER on another disk"
    )
