"""What this part adds to the core."""

from __future__ import annotations

from backpack_rank.parts import FolderKind

_LISTS = "backpack_rank.position.lists.evaluate:ListEvaluation"
EVALUATIONS = {
    "listwise": _LISTS,
    "pairwise": _LISTS,
    "permutation": _LISTS,
    "calibration": _LISTS,
    "aggregate": "backpack_rank.position.aggregation.evaluate:AggregatedEvaluation",
}
OPTION_TYPES = {
    "evaluate": ["backpack_rank.position.option_types:EvaluationOptions"],
    "train": ["backpack_rank.position.option_types:TrainingOptions"],
}
FOLDERS = (
    FolderKind(
        name="listwise",
        marker="listwise.json",
        advice="listwise=trained",
        loader="backpack_rank.position.lists.reranker:load_list_reranker",
    ),
)
SERVED = {"ListwiseReranker": "backpack_rank.position.lists.served:ServedListwise"}
