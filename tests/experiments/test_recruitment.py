"""The score table against numbers worked by hand."""

import math

import pytest

from backpack_rank.data.sources.inline import load_inline
from backpack_rank.experiments.recruitment import bm25_scores, score_rows
from backpack_rank.reporting.score_table import changes_by_group

COLLECTION = load_inline(
    "demo", {"q": "senior engineer"}, {"a": "she codes", "b": "senior engineer he", "c": "engineer she"}, None,
    {"a": "female", "b": "male", "c": "female"},
)  # fmt: skip
RUNS = {1.0: {"q": {"a": 1.0, "b": 3.0, "c": 2.0}}, 0.0: {"q": {"a": 2.0, "b": 1.0, "c": 2.5}}}
OTHER = {"q": {"a": 0.0, "b": 2.0, "c": 1.0}}


def test_ranks_changes_and_recalibrated_scores_are_those_by_hand():
    rows = score_rows(COLLECTION, RUNS, OTHER, weight=1.0)
    assert [row.doc_id for row in rows] == ["b", "c", "a"], "best at alpha = 1 first"
    by_id = {row.doc_id: row for row in rows}
    assert by_id["b"].ranks == {1.0: 1, 0.0: 3}
    assert by_id["c"].ranks == {1.0: 2, 0.0: 1}
    assert by_id["b"].change(0.0) == -2.0
    assert changes_by_group(rows, 0.0) == pytest.approx({"male": -2.0, "female": 0.75})
    # z of (0, 2, 1) is (-1.2247, 1.2247, 0); the changes (1, -2, .5) have mean -1/6 and deviation
    # 1.3123.
    deviation = math.sqrt((1 + 4 + 0.25) / 3 - 1 / 36)
    sums = {
        d: z + (c + 1 / 6) / deviation
        for d, z, c in (("a", -1.2247, 1), ("b", 1.2247, -2), ("c", 0, 0.5))
    }
    order = sorted(sums, key=lambda doc_id: -sums[doc_id])
    assert [by_id[doc_id].recalibrated[0.0] for doc_id in order] == [1, 2, 3]
    assert by_id["b"].other == 1
    assert order != ["b", "c", "a"]


def test_bm25_gives_every_document_a_score():
    scores = bm25_scores(COLLECTION)["q"]
    assert set(scores) == {"a", "b", "c"}
    assert scores["a"] == 0 < scores["c"] < scores["b"]
