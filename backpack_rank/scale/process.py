"""Where a process of ``backpack-rank rerank`` begins: it imports nothing until the collector is
off.
"""

from __future__ import annotations

from typing import Any

from backpack_rank._gc import exit_without_gc, without_gc


def begin(*given: Any) -> None:
    """Be a worker; arguments as of :func:`backpack_rank.scale.workers.work`."""
    exit_without_gc()
    with without_gc():
        from backpack_rank.scale.workers import work

    work(*given)
