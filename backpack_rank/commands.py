"""How commands start, and how sentences name them: as this process was started, to be typed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

IN_A_CHECKOUT = ("train.py", "evaluate.py")
"""Scripts that stand for ``backpack-rank train`` and ``backpack-rank evaluate``."""
_TWO_WORDS = {"vectors": "export vectors"}
"""Verbs of two words, by the file of conf/ that has their options."""
_OF_THE_CHECKOUT = re.compile(r"(python )?\b(train|evaluate)\.py\b")


def entry_point(name: str) -> Callable[[], None]:
    """In a script: the function of the command line with that name.

        entry_point("evaluate")()

    Raises:
        SystemExit: the packages are not installed in this Python; one line says what to do.
    """
    try:
        command_line = import_module("backpack_rank.cli")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("backpack_rank"):
            raise
        raise SystemExit(
            f"{error}: activate the virtual environment, . .venv/bin/activate after `make run`, "
            "or install the package (docs/begin.md)"
        ) from error
    function: Callable[[], None] = getattr(command_line, name)
    return function


def called(verb: str) -> str:
    """The command of a verb, for sentences that advise one.

    It is ``python train.py`` where a script of the checkout runs, ``python -m backpack_rank train``
    where the package does, else ``backpack-rank train``.
    """
    verb = _TWO_WORDS.get(verb, verb)
    started = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    script = f"{verb}.py"
    if started.name in IN_A_CHECKOUT and script in IN_A_CHECKOUT:
        return f"python {script}"
    if started.name == "__main__.py" and started.parent.name == "backpack_rank":
        return f"python -m backpack_rank {verb}"
    return f"backpack-rank {verb}"


def program(verb: str) -> str:
    """The same as the subject of a sentence: ``train.py``, or ``backpack-rank train``."""
    return re.sub(r"^python (?=\w+\.py)", "", called(verb))


def as_called(text: str) -> str:
    """A text that names scripts of the checkout, such as a comment of conf/, with :func:`called`.

    >>> as_called("first python train.py -m seed=0,1, then evaluate.py")
    'first backpack-rank train -m seed=0,1, then backpack-rank evaluate'
    """
    return _OF_THE_CHECKOUT.sub(
        lambda found: called(found[2]) if found[1] else program(found[2]), text
    )


def install(extra: str) -> str:
    """What installs the packages of an extra; the project is on no package index.

    >>> install("serve")
    "pip install '.[serve]' in the checkout"
    """
    return f"pip install '.[{extra}]' in the checkout"


_TYPED_FUNCTIONS: set[str] = set()
"""Functions that this command line names: no file may name one."""


def allow_function(name: str) -> None:
    """Let :func:`typed_function` import what somebody typed; never called with words of a file."""
    _TYPED_FUNCTIONS.add(name)


def allowed_functions() -> list[str]:
    """Names of :func:`allow_function`, for a process of the same command to allow them too."""
    return sorted(_TYPED_FUNCTIONS)


def typed_function(option: str, name: str) -> Callable[..., Any]:
    """The function ``module:function`` that the command line names.

    Raises:
        ValueError: it was not typed, but read from a file, whose author must not run code here; or
            there is no such function, or its module cannot be imported.
    """
    if name not in _TYPED_FUNCTIONS:
        raise ValueError(
            f"{option}={name} is taken from the command line or from Python alone, and not from a "
            f"folder or a file of options: type {option}={name}; to go on with an interrupted "
            "command, give all its options again, with resume=true"
        )
    module, colon, function = name.partition(":")
    # A module that begins with a dot is relative to a package, and there is none.
    if not colon or not module or not function or module.startswith("."):
        raise ValueError(f"{option}={name}: write module:function, such as mywords:write")
    # As of a script: modules of the working folder are found.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(import_module(module), function, None)
    except Exception as error:
        # Importing runs the user's module, which may raise anything.
        raise ValueError(f"{option}={name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"{option}={name}: {module} has no function {function}")
    return found
