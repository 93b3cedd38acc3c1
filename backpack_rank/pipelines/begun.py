"""Options that this user has given before: a folder of somebody else adds none to them.

An option can reach other machines: ``logger=wandb`` sends, ``data=msmarco`` downloads,
``listwise=openai`` hands over a key. Those of a folder that is resumed are therefore taken only
where this user has given the same ones before: a digest of them stands in the user's cache folder,
where no archive can put one. All others are asked for on the command line.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from backpack_rank.digests import digest
from backpack_rank.files import cache_dir
from backpack_rank.pipelines.run_folder import comparable

FOLDER = "begun"


def remember(options: Sequence[str]) -> None:
    """Keep that these options were given here."""
    # Where nothing can be kept, the options are asked for again.
    with suppress(OSError):
        file = _file(options)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def check_begun(folder: Path, options: Sequence[str], given: Sequence[str]) -> None:
    """Refuse options of a folder that this user has not given, now or before.

    Args:
        folder: which is resumed.
        options: that it was begun with, by its own account.
        given: on the command line.

    Raises:
        ValueError: with the options, to be given on the command line.
    """
    needed = comparable(options)
    if not needed or needed == comparable(given):
        return
    if _is_remembered(options):
        return
    shown = shlex.join(needed)
    raise ValueError(
        f"resume={folder} was not begun by you on this machine (or the cache was emptied since). "
        f"By its own account it was begun with: {shown}. If you want these options, give them on "
        "the command line too"
    )


def _is_remembered(options: Sequence[str]) -> bool:
    try:
        return _file(options).is_file()
    except OSError:
        return False


def _file(options: Sequence[str]) -> Path:
    """The file that is there if these options were given."""
    text = json.dumps(comparable(options))
    return cache_dir() / FOLDER / digest(text)
