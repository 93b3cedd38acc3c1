"""Imports, and the end of a process, without the garbage collector.

Importing torch and transformers makes about a million objects that stay. The collector would walk
over all that are there again and again while they come in, a sixth of the time, and once more when
the process ends, over a second.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Collect nothing within the block, or until :func:`resume_gc`; one that was off stays off."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on and not gc.isenabled():
            resume_gc()


def resume_gc() -> None:
    """Switch the collector on; what is there counts as old, and is not walked over at once."""
    if gc.get_freeze_count() == 0:  # what somebody else has frozen stays so
        gc.freeze()
        gc.unfreeze()
    gc.enable()


def exit_without_gc() -> None:
    """End this process without a last collection: for commands whose files are all written."""
    atexit.register(gc.freeze)
