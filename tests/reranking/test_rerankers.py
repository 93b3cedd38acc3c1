"""Rankings that need no ranker of ours: first stages, run files."""

import math

import pytest

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.trec import write_run
from backpack_rank.reranking.rerankers import FirstStageOrder, RecalibratedRun, SavedRun

COLLECTION = Collection("c", MemoryStore({name: name for name in "abc"}), {"q": "query"}, {})
FIRST = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
OTHER = {"q": {"b": 9.0, "a": 8.0, "c": 7.0}}


def test_candidates_and_saved_runs_are_given_back(tmp_path):
    assert FirstStageOrder("BM25").rerank(FIRST, COLLECTION) is FIRST
    write_run(tmp_path / "other.trec", {**OTHER, "elsewhere": {"a": 1.0}}, "tag")
    saved = SavedRun.read(tmp_path / "other.trec")
    assert (saved.name, saved.alpha, saved.compares_texts) == ("other.trec", None, False)
    assert saved.rerank(FIRST, COLLECTION) == OTHER, "queries of the collection alone"


def test_a_run_file_that_ranks_nothing_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run=.*none\.trec: there is no such file"):
        SavedRun.read(tmp_path / "none.trec")
    (tmp_path / "empty.trec").write_text("")
    with pytest.raises(ValueError, match="is empty: it ranks nothing"):
        SavedRun.read(tmp_path / "empty.trec")


def test_another_systems_run_is_moved_by_what_alpha_changes():
    changed = SavedRun(
        "alpha=0", {"q": {"a": 3.0, "b": 2.0, "c": 4.0}}
    )  # against FIRST by 0, 0 and 3
    reranker = RecalibratedRun(
        SavedRun("folder/other.trec", OTHER), SavedRun("alpha=1", FIRST), changed, 0.5
    )
    # Of the run: 9, 8, 7, so z is +-root(3/2) and 0; of the changes -1/root(2) twice and root(2).
    recalibrated = reranker.rerank(FIRST, COLLECTION)["q"]
    z, change = math.sqrt(1.5), 1 / math.sqrt(2)
    assert recalibrated == pytest.approx({"b": z - change / 2, "a": -change / 2, "c": -z + change})
    assert reranker.name == "other.trec + 0.5 x change at alpha=0"
