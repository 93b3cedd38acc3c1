"""Checks: each raises ``ValueError`` with a sentence that names the option, its value and what may be given.

at_least("task.size", 1, 2)  # task.size=1 must be at least 2
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager


def one_of(option: str, value: object, known: Collection[object], hint: str = "") -> None:
    """The value is one of those known; ``hint`` ends the sentence where it is not."""
    if value not in known:
        raise ValueError(f"{option}={value}: use one of {', '.join(map(str, known))}{hint}")


def at_least(option: str, value: float | None, least: float, hint: str = "", *, null: str | None = None) -> None:
    """The value is ``least`` or more; infinity passes, nan does not.

    Args:
        hint: ends the sentence where it is not.
        null: what None stands for, where it may be given ("for all queries").
    """
    if value is None and null is not None:
        return
    if value is None or not value >= least:
        other = "" if null is None else f", or null {null}".rstrip()
        raise ValueError(f"{option}={value} must be at least {least}{other}{hint}")


def above(option: str, value: float | None, bound: float, hint: str = "", *, null: str | None = None) -> None:
    """The value is more than ``bound``; see :func:`at_least`."""
    if value is None and null is not None:
        return
    if value is None or not value > bound:
        other = "" if null is None else f", or null {null}".rstrip()
        raise ValueError(f"{option}={value} must be above {bound}{other}{hint}")


def finite(option: str, value: float, least: float = -math.inf, hint: str = "") -> None:
    """The value is a finite number, and ``least`` or more."""
    if not (math.isfinite(value) and value >= least):
        bound = "" if least == -math.inf else f" of at least {least:g}"
        raise ValueError(f"{option}={value} must be a finite number{bound}{hint}")


def fraction(option: str, value: float, hint: str = "", *, ends: str = "[]") -> None:
    """The value is a number from 0 to 1; a round bracket in ``ends`` leaves that end out, as in "[)"."""
    if not (0 <= value <= 1) or (value == 0 and ends[0] == "(") or (value == 1 and ends[1] == ")"):
        raise ValueError(f"{option}={value} must lie in {ends[0]}0, 1{ends[1]}{hint}")


def whole(option: str, value: object, least: int, hint: str = "") -> None:
    """The value is a whole number, ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{option}={value!r} must be a whole number of at least {least}{hint}")


@contextmanager
def located(where: object) -> Iterator[None]:
    """A ``ValueError`` of the block says where it happened, in front: a file and a line, a query, an entry."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
