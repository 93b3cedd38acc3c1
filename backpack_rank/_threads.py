"""How long a waiting thread of torch stays awake.

On Linux torch shares its work out by libgomp. A thread that has done its part looks for the others
300,000 times, some milliseconds, before it sleeps. Where another process wants the core, that time
is lost to both, at each of the thousands of small kernels of a step: beside two busy processes a
training became thirty times slower. After 3,000 looks, some 60 microseconds, nearly all waits
between two kernels of a machine with nothing else to do are over too. Fewer cost a quiet machine
speed, more cost a busy one (``python -m benchmarks.busy``).
"""

from __future__ import annotations

import os
import sys

LOOKS = "3000"
"""Of a waiting thread before it sleeps."""
_CHOSEN: list[str] = []
"""What was chosen, once it is."""


def sleep_early() -> None:
    """Call this before torch is imported, which reads the environment once.

    A user's own ``GOMP_SPINCOUNT`` or ``OMP_WAIT_POLICY`` stays. Threads are as many as before:
    with another number a training has other last bits.
    """
    own = [name for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY") if os.environ.get(name)]
    if own or "torch" in sys.modules:
        return
    os.environ["GOMP_SPINCOUNT"] = LOOKS
    _CHOSEN.append(LOOKS)


def choice() -> str:
    """A sentence for the log, of what threads do while they wait, and why."""
    if _CHOSEN:
        return f"waiting threads sleep early, for other processes' sake: GOMP_SPINCOUNT={LOOKS}"
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        if os.environ.get(name):
            return f"waiting threads do as the environment says: {name}={os.environ[name]}"
    return "waiting threads do as libgomp has it: torch was imported before"
