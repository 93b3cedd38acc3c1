"""Folders of results: new, or those of interrupted runs to go on in, and links to the last ones."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from backpack_rank.checks import UsageError
from backpack_rank.digests import digest
from backpack_rank.files import LATEST, UNFINISHED
from backpack_rank.pipelines import begun, unfinished
from backpack_rank.pipelines.errors import composition_sentence
from backpack_rank.pipelines.run_folder import OVERRIDES, comparable, safe_options, saved_overrides
from backpack_rank.pipelines.unfinished import Unfinished

_LEFT_OUT = ("checkpoint", "output", "run", "objective")
"""Options that the folder of a job is not named after, unless they tell jobs apart."""
_LONGEST = 200
"""Bytes of a folder's name before the digest that cuts it off; file systems take 255."""
_NO = ("false", "no", "off", "null", "0", "")


@dataclass(frozen=True)
class Command:
    """What is to run.

    Attributes:
        options: of the command line for Hydra, without ``-m``.
        multirun: with ``-m``.
        resumed: folder to go on in, or None.
    """

    options: tuple[str, ...]
    multirun: bool = False
    resumed: Path | None = None


class NewFolders:
    """Answers ``${new_folder:path}``: makes a folder that no other process has.

    Where ``path`` exists, a number stands behind it: ``path_2``, ``path_3`` ... A command that goes
    on has its folder already.
    """

    def __init__(self, command: Command) -> None:
        """``command``: what this process runs, and in which folder it goes on."""
        self.command = command
        # Hydra asks for the same path several times; once made, it is the folder of this process.
        self._made: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """The folder for a path.

        Raises:
            UsageError: it cannot be made.
        """
        if self.command.resumed is not None:
            return str(self.command.resumed)
        if path not in self._made:
            try:
                self._made[path] = _new(path)
                unfinished.claim(self._made[path], self.command.options, self.command.multirun)
            except OSError as error:  # OmegaConf would keep its words alone
                error.filename = error.filename or path
                raise UsageError(composition_sentence(error)) from error
        return self._made[path]


# One for the process, as OmegaConf's resolvers are. Hydra makes the callback of a sweep and hands
# it no command, so it asks here.
_folders = NewFolders(Command(()))


def resumed_folder() -> Path | None:
    """The folder that the command of this process goes on in; None where it begins one."""
    return _folders.command.resumed


def register_resolvers(command: Command | None = None) -> None:
    """Make what conf/ looks up known, before Hydra composes, in every process that does.

    ``${new_folder:path}`` makes a folder, and ``${job_folder:overrides}`` names that of a job of a
    multirun; ``${default_senses:}`` is the one number of Python, and
    ``${default_senses:vectors}`` that of a Backpack that gives vectors.
    """
    global _folders
    _folders = NewFolders(command or Command(()))
    OmegaConf.register_new_resolver("new_folder", _folders, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("job_folder", job_folder, replace=True)
    OmegaConf.register_new_resolver("default_senses", _default_senses, replace=True)


def job_folder(overrides: Sequence[str]) -> str:
    """Name the folder of a job of a multirun after what the job was given.

    >>> job_folder(["alpha=0.5", "policy=uniform", "data=dl19"])
    'alpha-0.5_data-dl19_policy-uniform'

    What may be long and is the same for all jobs is left out: a ranker, a run, the output. A path
    is its last part with a digest, so that no two jobs have one folder, and none lies in another.
    """
    parts = []
    for override in sorted(map(str, overrides)):
        key, _, value = override.partition("=")
        if key.lstrip("+") in _LEFT_OUT and _is_of_all_jobs(override):
            continue
        if "/" in value:
            last = re.sub(r"[^\w.-]", "", Path(value).name)
            value = f"{last}-{digest(value, size=4)}"
        parts.append(f"{key}-{value}" if value else key)
    # No "=": Hydra would read it in run=FILE.
    name = "_".join(parts).replace("=", "-").replace("/", "-")
    if len(name.encode()) > _LONGEST:
        name = f"{name.encode()[:_LONGEST].decode(errors='ignore')}-{digest(name, size=4)}"
    return name or "job"


def _is_of_all_jobs(override: str) -> bool:
    """Whether the command line says this very option; of a sweep it says several values."""
    typed = {_without_quotes(option) for option in _folders.command.options}
    return _without_quotes(override) in typed


def _without_quotes(option: str) -> str:
    return re.sub(r"['\"\\]", "", option)


def _default_senses(kind: str = "") -> int:
    # Imported here, because help and completion read conf/ without torch.
    from backpack_rank.models import configuration

    return configuration.ENCODER_SENSES if kind == "vectors" else configuration.SENSES


def _new(path: str) -> str:
    number = 1
    while True:
        folder = path if number == 1 else f"{path}_{number}"
        try:
            os.makedirs(folder)
        except FileExistsError:
            number += 1
        else:
            return folder


def command_of(script: str, arguments: Sequence[str], output: str) -> Command:
    """The command of a command line.

    ``resume`` becomes the folder to go on in, with the options that it was begun with.

    Args:
        script: ``train`` or ``evaluate``.
        arguments: of the command line.
        output: where results go unless ``output=`` says otherwise.

    Raises:
        FileNotFoundError: there is nothing to resume.
        ValueError: a process is at work on it, it was begun with other options or by somebody else,
            or holds a link.
    """
    multirun = any(argument in ("-m", "--multirun") for argument in arguments)
    options = [argument for argument in arguments if argument not in ("-m", "--multirun")]
    given = _values("resume", options)
    if not given or given[-1].lower() in _NO or int(os.environ.get("LOCAL_RANK") or 0) > 0:
        # Further processes of a distributed run have their folder.
        begun.remember(options)
        return Command(tuple(options), multirun)
    options = [option for option in options if not option.startswith("resume=")]
    begun.remember(options)
    output = [output, *_values("output", options)][-1]
    interrupted = _interrupted(script, given[-1], Path(output), options, multirun)
    if interrupted.options is None:
        # Killed while it was marked: it is begun with the options given now.
        if not comparable(options):
            raise ValueError(
                f"resume: {interrupted.folder / UNFINISHED} cannot be read; give the options again"
            )
        interrupted = Unfinished(interrupted.folder, tuple(options), multirun)
    unfinished.refuse_links(interrupted.folder)
    alone = (
        script == "train"
        and not interrupted.multirun
        and (interrupted.folder / OVERRIDES).is_file()
    )
    begun_with: list[str] = []
    if alone:
        begun_with = saved_overrides(interrupted.folder)
    elif not comparable(options):
        begun_with = _begun_with(interrupted, options)
    begun.check_begun(interrupted.folder, begun_with, options)
    unfinished.claim(interrupted.folder, interrupted.options or options, interrupted.multirun)
    if alone:
        return Command((*options, f"resume='{interrupted.folder}'"), False, interrupted.folder)
    return Command((*options, *begun_with), interrupted.multirun, interrupted.folder)


def _values(name: str, options: Sequence[str]) -> list[str]:
    """Values of an option in the order of the command line, of which the last one counts."""
    values = []
    for option in options:
        if option.startswith(f"{name}="):
            values.append(option.partition("=")[2].strip("'\""))
    return values


def _interrupted(
    script: str, given: str, output: Path, options: Sequence[str], multirun: bool
) -> Unfinished:
    if given.lower() in ("true", "yes", "on", "1"):
        roots = [output / "train"] if script == "train" else [output / "evaluate", output / "sweep"]
        return unfinished.find(roots, comparable(options), multirun)
    if (interrupted := Unfinished.read(Path(given))) is None:
        what = "is finished" if Path(given).is_dir() else "is no folder"
        raise FileNotFoundError(f"resume={given}: it {what}, so there is nothing to resume")
    # A training run refuses other options than those that stand here by itself.
    known = interrupted.folder / OVERRIDES
    if (
        interrupted.options is not None
        and comparable(options) not in ([], comparable(interrupted.options))
        and not known.is_file()
    ):
        raise ValueError(
            f"resume={interrupted} was begun with other options than "
            f"{' '.join(comparable(options))}"
        )
    return interrupted


def _begun_with(interrupted: Unfinished, options: Sequence[str]) -> list[str]:
    """Options of an unfinished folder, which only choose files of conf/ and plain values."""
    begun_with = []
    for option in interrupted.options or ():
        # Options that are given now are then output=... alone, and win over that of the folder.
        if not (option.startswith("output=") and options):
            begun_with.append(option)
    where = (
        f"resume={interrupted.folder}: give the options again that it was begun with, because in "
        f"its {UNFINISHED}"
    )
    return safe_options(begun_with, where)


def link_latest(output: str | Path, kind: str, folder: str | Path) -> None:
    """Let ``OUTPUT/latest/KIND`` point to a folder, where the system has such links."""
    link = Path(output) / LATEST / kind
    temporary = link.with_name(f".{kind}.{os.getpid()}")
    with suppress(OSError):
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary.symlink_to(os.path.relpath(folder, link.parent))
        os.replace(temporary, link)
