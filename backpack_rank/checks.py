"""Checks of options: each raises ``ValueError`` with the option, its value and what may be given.

    >>> at_least("task.size", 1, 2)
    Traceback (most recent call last):
    ValueError: task.size=1 must be at least 2

A truth value is no number: ``policy.count=true`` is a mistake, although Python counts with it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import TypeGuard

_LONGEST = 40
"""Characters of a whole number that is looked at."""


def is_missing_path(name: str) -> bool:
    """Whether a value that may also name something else is written as a path, and nothing is there.

    >>> is_missing_path("./no-such-folder"), is_missing_path("cross-encoder/no-such-model")
    (True, False)
    """
    return name.startswith(("/", "./", "../", "~")) and not Path(name).expanduser().exists()


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a whole or decimal number.

    >>> is_number(1.5), is_number(float("nan")), is_number(True)
    (True, True, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def one_of(option: str, value: object, known: Collection[object], hint: str = "") -> None:
    """The value is one of those known; ``hint`` ends the sentence where it is not."""
    # In a list, because a value such as a list has no hash.
    if value not in list(known):
        raise ValueError(f"{option}={value}: use one of {', '.join(map(str, known))}{hint}")


def at_least(
    option: str, value: float | None, least: float, hint: str = "", *, null: str | None = None
) -> None:
    """The value is ``least`` or more; infinity passes, nan does not.

    Args:
        hint: ends the sentence where it is not.
        null: what None stands for, where it may be given ("for all queries").
    """
    if value is None and null is not None:
        return
    if not is_number(value) or not value >= least:
        other = "" if null is None else f", or null {null}".rstrip()
        raise ValueError(f"{option}={value} must be at least {least}{other}{hint}")


def above(
    option: str, value: float | None, bound: float, hint: str = "", *, null: str | None = None
) -> None:
    """The value is more than ``bound``; see :func:`at_least`."""
    if value is None and null is not None:
        return
    if not is_number(value) or not value > bound:
        other = "" if null is None else f", or null {null}".rstrip()
        raise ValueError(f"{option}={value} must be above {bound}{other}{hint}")


def finite(option: str, value: float, least: float = -math.inf, hint: str = "") -> None:
    """The value is a finite number, and ``least`` or more."""
    # A whole number may be too large for a float.
    if not is_number(value) or not abs(value) <= sys.float_info.max or not value >= least:
        bound = "" if least == -math.inf else f" of at least {least:g}"
        raise ValueError(f"{option}={value} must be a finite number{bound}{hint}")


def fraction(option: str, value: float, hint: str = "", *, ends: str = "[]") -> None:
    """The value is a number from 0 to 1; a round bracket in ``ends`` leaves an end out: "[)"."""
    left_out = []
    if ends[0] == "(":
        left_out.append(0)
    if ends[1] == ")":
        left_out.append(1)
    if not is_number(value) or not 0 <= value <= 1 or value in left_out:
        raise ValueError(f"{option}={value} must lie in {ends[0]}0, 1{ends[1]}{hint}")


def whole_number(
    option: str,
    value: object,
    least: int,
    hint: str = "",
    *,
    most: int | None = None,
    null: str | None = None,
) -> None:
    """The value is a whole number from ``least`` to ``most``; see :func:`at_least`."""
    if value is None and null is not None:
        return
    if not isinstance(value, Integral) or isinstance(value, bool):
        other = "" if null is None else f", or null {null}".rstrip()
        raise ValueError(
            f"{option}={value!r} must be a whole number of at least {least}{other}{hint}"
        )
    at_least(option, int(value), least, hint, null=null)
    if most is not None and int(value) > most:
        raise ValueError(f"{option}={value} must be at most {most}{hint}")


def flag(option: str, value: object) -> None:
    """The value is true or false; a text such as "no" is not, although Python takes it for true."""
    if not isinstance(value, bool):
        raise ValueError(f"{option}={value} must be true or false")


def decimal(text: str) -> float:
    """A decimal number as every tool reads it: ASCII digits, no ``1_0``, no nan, no infinity.

    Raises:
        ValueError: the text is none, or more than a float holds.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or not text.isascii() or "_" in text:
        raise ValueError(f"{text[:40]!r} is no number")
    return number


def integer(text: str) -> int:
    """A whole number of 64 bits in ASCII digits. Raises ``ValueError`` for any other text."""
    try:
        # Cut, because int() takes a time that grows with the square of the digits.
        number = int(text[:_LONGEST])
    except ValueError:
        number = 2**63
    if abs(number) >= 2**63 or len(text) >= _LONGEST or not text.isascii() or "_" in text:
        raise ValueError(f"{text[:40]!r} is no integer")
    return number


class UsageError(SystemExit):
    """A mistake on the command line: one sentence for standard error, and exit status 2."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.code = 2


@contextmanager
def located(where: object) -> Iterator[None]:
    """Put where it happened in front of an error: file and line, query, option.

    >>> with located("queries.tsv, line 3"):
    ...     decimal("one")
    Traceback (most recent call last):
    ValueError: queries.tsv, line 3: 'one' is no number
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
