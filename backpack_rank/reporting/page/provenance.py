"""Where a report comes from: versions, commit, date, command line, data."""

from __future__ import annotations

import datetime
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from backpack_rank.evaluation.results import RunInfo

_PACKAGES = ("backpack-rank", "torch", "transformers")


def provenance(
    about: RunInfo,
    data: Sequence[str] = (),
    date: datetime.datetime | None = None,
    command: Sequence[str] | None = None,
) -> tuple[tuple[str, str], ...]:
    """What a reader needs to get the same numbers again, as (name, value).

    Args:
        about: data sets, word list, tokenizer and sign of the measures.
        data: further names of data, such as the collection that the model was trained on.
        date: when the report was made; None for now.
        command: arguments of the program; None for those of this process.
    """
    date = date or datetime.datetime.now(datetime.timezone.utc)
    names = dict.fromkeys([about.effectiveness_set, about.bias_set, *data])
    facts = [
        ("date", date.strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("command", shlex.join(sys.argv if command is None else command)),
        ("data", "; ".join(name for name in names if name)),
        ("preset of bias measures", about.preset),
        ("word list", about.lexicon),
        ("tokenizer of bias measures", about.tokenizer),
        ("sign", about.sign_in_words or about.sign),
    ]
    for package in _PACKAGES:
        facts.append((package, installed_version(package)))
    machine = f"{platform.system()} {platform.machine()}"
    facts.append(("Python", f"{platform.python_version()} on {machine}"))
    facts.append(("git commit", git_commit(Path(__file__).parent)))
    return tuple((name, value) for name, value in facts if value)


def git_commit(folder: Path) -> str:
    """The commit that files of a folder belong to, with ``(changed)`` where they differ from it.

    Empty when the folder is not under git's control (an installed package inside somebody's
    repository is not), or when there is no git.
    """
    if not _git(folder, "ls-files", "--", "."):
        return ""
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit} (changed)" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def installed_version(package: str) -> str:
    """The version of an installed package; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
