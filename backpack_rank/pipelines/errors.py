"""Mistakes of a user end a script with one sentence instead of a traceback."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Log a mistake as one sentence and exit with status 1; ``HYDRA_FULL_ERROR=1`` shows the traceback."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OSError) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        # str() of a KeyError is its argument in quotes.
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        log.error("%s (HYDRA_FULL_ERROR=1 shows where)", message)
        raise SystemExit(1) from error
