"""How sentences name commands: as this process was started, so that advice can be typed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

IN_A_CHECKOUT = ("train.py", "evaluate.py")
"""Scripts that stand for ``backpack-rank train`` and ``backpack-rank evaluate``."""
_OF_THE_CHECKOUT = re.compile(r"(python )?\b(train|evaluate)\.py\b")


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
