"""Processes that work beside a test and must end well."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def working(
    target: Callable[..., object], arguments: Sequence[tuple[Any, ...]], method: str = "fork"
) -> Iterator[None]:
    """Processes that call a function, one with each of the arguments, while the block runs."""
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=target, args=given) for given in arguments]
    for worker in workers:
        worker.start()
    yield
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
