"""Options of this part that no constructor takes, with what each takes."""

from __future__ import annotations

from typing import Annotated

from backpack_rank.constructors import (
    AllDocuments,
    Called,
    Count,
    Note,
    OneOf,
    Options,
    Range,
    Seed,
)
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.lists.base import ListwiseRanker
from backpack_rank.position.lists.calibration import ContentFreeCalibration
from backpack_rank.position.lists.prompt import Prompt
from backpack_rank.position.lists.reranker import ORDERS


class WindowOptions(Options):
    """``listwise.window``."""

    size: Annotated[int, Range(least=2, most=100_000)] | Annotated[None, Note("for the whole list")]
    stride: Count | None


class InputOptions(Options):
    """``listwise.input``."""

    order: Annotated[str, OneOf(ORDERS)]
    seed: Seed


class ListwiseOptions(Options):
    """``listwise``."""

    ranker: ListwiseRanker
    depth: Count | Annotated[None, Note("for all candidates")]
    window: WindowOptions
    input: InputOptions
    lists_per_call: Count


class EvaluationOptions(Options):
    """What this part adds to ``conf/evaluate.yaml``."""

    aggregate: Aggregator | None
    aggregate_depth: Count | AllDocuments
    listwise: ListwiseOptions | None
    pairwise: Annotated[ListwiseRanker, Called("one of list=pairwise")] | None
    permutation: Annotated[ListwiseRanker, Called("one of list=permutation")] | None
    calibration: Annotated[ContentFreeCalibration, Called("one of list=calibration")] | None


class ModelOptions(Options):
    """``model``, of a list ranker."""

    prompt: Prompt | None


class TrainingOptions(Options):
    """What this part adds to ``conf/train.yaml``."""

    model: ModelOptions
