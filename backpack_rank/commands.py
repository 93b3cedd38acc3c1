"""How sentences name commands: as this process was started, so that advice can be typed."""

from __future__ import annotations

import sys
from pathlib import Path

IN_A_CHECKOUT = ("train.py", "evaluate.py")
"""Scripts that stand for ``backpack-rank train`` and ``backpack-rank evaluate``."""


def called(verb: str) -> str:
    """The command of a verb, for sentences that advise one.

    It is ``python train.py`` where a script of the checkout runs, else ``backpack-rank train``.
    """
    started = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "").name
    script = f"{verb}.py"
    if started in IN_A_CHECKOUT and script in IN_A_CHECKOUT:
        return f"python {script}"
    return f"backpack-rank {verb}"


def program(verb: str) -> str:
    """The same as the subject of a sentence: ``train.py``, or ``backpack-rank train``."""
    return called(verb).removeprefix("python ")


def install(extra: str) -> str:
    """What installs the packages of an extra; the project is on no package index.

    >>> install("serve")
    "pip install '.[serve]' in the checkout"
    """
    return f"pip install '.[{extra}]' in the checkout"
