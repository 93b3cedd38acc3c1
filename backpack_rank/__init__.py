"""Neural ranking with a dial for gender bias: train, rank, turn alpha, measure.

>>> import backpack_rank
>>> reranker = backpack_rank.load("outputs/train/DATE/ranker")  # doctest: +SKIP
>>> reranker.rank("who can rewire a house?", documents, alpha=0.0)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from backpack_rank._gc import without_gc as _without_gc

if TYPE_CHECKING:
    from backpack_rank.data.collection import Collection as Collection
    from backpack_rank.evaluation.result_table import ResultTable as ResultTable
    from backpack_rank.integrations.hub import push_to_hub as push_to_hub
    from backpack_rank.integrations.hub import save_pretrained as save_pretrained
    from backpack_rank.pipelines.compare import evaluate as evaluate
    from backpack_rank.reranking.load import load as load
    from backpack_rank.reranking.rerankers import Reranker as Reranker

__version__ = "0.3.0"
_PUBLIC = {
    "Collection": "data.collection",
    "Reranker": "reranking.rerankers",
    "ResultTable": "evaluation.result_table",
    "evaluate": "pipelines.compare",
    "load": "reranking.load",
    "push_to_hub": "integrations.hub",
    "save_pretrained": "integrations.hub",
}
"""Public names and their modules, imported when a name is asked for: torch takes seconds."""
__all__ = [
    "Collection",
    "Reranker",
    "ResultTable",
    "__version__",
    "evaluate",
    "load",
    "push_to_hub",
    "save_pretrained",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'backpack_rank' has no attribute {name!r}")
    with _without_gc():
        module = import_module(f"backpack_rank.{_PUBLIC[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
