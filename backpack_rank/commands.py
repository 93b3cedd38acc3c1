"""How commands start, and how sentences name them: as this process was started, to be typed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

IN_A_CHECKOUT = ("train.py", "evaluate.py")
"""Scripts that stand for ``backpack-rank train`` and ``backpack-rank evaluate``."""
_OF_THE_CHECKOUT = re.compile(r"(python )?\b(train|evaluate)\.py\b")


def entry_point(name: str) -> Callable[[], None]:
    """Use it in a script: the function of the command line with that name.

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
            "or install the package (docs/install.md)"
        ) from error
    function: Callable[[], None] = getattr(command_line, name)
    return function


def called(verb: str) -> str:
    """The command of a verb, for sentences that advise one.

    It is ``python train.py`` where a script of the checkout runs, ``python -m backpack_rank train``
    where the package does, else ``backpack-rank train``.
    """
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
