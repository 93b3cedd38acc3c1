"""Progress of long work: a bar on a terminal, otherwise a line at most every ten seconds."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from tqdm import tqdm

INTERVAL = 10.0
"""Seconds between two lines where there is no terminal."""
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LINE = "{desc}: {n_fmt}/{total_fmt} {unit} ({rate_fmt}, {remaining} left)"


def printable(text: str) -> str:
    """Before a text of somebody else is printed: control characters are spelt out.

        >>> printable("a\\x1b[2Jb")
        'a\\\\x1b[2Jb'

    An escape sequence could otherwise clear the screen, or a title of the window stand for another;
    line breaks and tabs stay.
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def is_first_process() -> bool:
    """Whether this is the first process of a run, by torch's, Lightning's or SLURM's variables."""
    if int(os.environ.get("LOCAL_RANK") or 0) != 0:
        return False
    # A shell in an allocation has a number too, which says nothing where there is one task.
    tasks = int(os.environ.get("SLURM_NTASKS") or 1)
    return tasks <= 1 or int(os.environ.get("SLURM_PROCID") or 0) <= 0


class Progress(tqdm):
    """In place of tqdm: a bar on a terminal, lines for a file or a pipe.

    with Progress(total=len(pairs), desc="scoring", unit="pair") as bar:
        ...
        bar.update(len(batch))
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        file = options.get("file") or sys.stderr
        self.lines = not file.isatty()
        options = {"leave": False, **options, "desc": printable(options.get("desc") or "")}
        if self.lines:
            options |= {"mininterval": INTERVAL, "maxinterval": INTERVAL, "bar_format": _LINE}
        super().__init__(*arguments, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if not self.lines:
            return bool(super().display(msg, pos))
        # Neither before the first step, nor to wipe a bar out at the end.
        if msg != "" and self.n > self.initial:
            self.fp.write(f"{msg or self}\n")
            self.fp.flush()
        return True
