"""Progress of long work: a bar on a terminal, otherwise a line at most every ten seconds."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

INTERVAL = 10.0
"""Seconds between two lines where there is no terminal."""
_LINE = "{desc}: {n_fmt}/{total_fmt} {unit} ({rate_fmt}, {remaining} left)"


class Progress(tqdm):
    """tqdm on a terminal; where its output goes to a file or a pipe, lines in place of a bar that is drawn over."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        file = options.get("file") or sys.stderr
        self.lines = not file.isatty()
        options = {"leave": False, **options}
        if self.lines:
            options |= {"mininterval": INTERVAL, "maxinterval": INTERVAL, "bar_format": _LINE}
        super().__init__(*arguments, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if not self.lines:
            return bool(super().display(msg, pos))
        if msg != "" and self.n > self.initial:  # neither before the first step nor to wipe a bar out at the end
            self.fp.write(f"{msg or self}\n")
            self.fp.flush()
        return True
