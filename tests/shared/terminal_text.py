"""What a terminal shows, as text."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console


def terminal_text(show: Callable[[Console], object], width: int = 100, **options) -> str:
    """What a function writes to a terminal of a width, without colours if none are asked for."""
    console = Console(file=io.StringIO(), width=width, **({"color_system": None} | options))
    show(console)
    return console.file.getvalue()


def lines_with(text: str, *words: str) -> list[str]:
    """The lines that have all of these words."""
    lines = text.splitlines()
    for word in words:
        lines = [line for line in lines if word in line]
    return lines
