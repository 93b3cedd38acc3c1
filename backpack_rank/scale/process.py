"""Where a process of ``backpack-rank rerank`` begins.

It imports nothing until the collector is off.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from backpack_rank._gc import exit_without_gc, without_gc


def begin(function: str, *arguments: Any) -> None:
    """The target of a process that starts by importing torch and transformers.

        context.Process(target=begin, args=("backpack_rank.scale.workers:work", options, 0))

    Args:
        function: module and name, such as ``backpack_rank.scale.workers:work``. A name, because a
            function would be imported to be unpickled, before this is called.
        arguments: of the function.
    """
    exit_without_gc()
    with without_gc():
        call = pkgutil.resolve_name(function)
    call(*arguments)
