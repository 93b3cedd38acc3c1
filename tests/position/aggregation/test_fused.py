"""A first stage made of several runs."""

import pytest

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.trec import write_run
from backpack_rank.position.aggregation.aggregate import Borda
from backpack_rank.position.aggregation.fused import FusedRuns


@pytest.fixture
def collection():
    return Collection(
        "c",
        MemoryStore({name: f"text {name}" for name in "abcd"}),
        {"q": "query", "r": "other"},
        {},
    )


@pytest.fixture
def runs(tmp_path):
    first, second = tmp_path / "first.trec", tmp_path / "second.trec"
    write_run(first, {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, "first")
    write_run(second, {"q": {"c": 9.0, "b": 8.0, "d": 7.0}, "r": {"d": 1.0}}, "second")
    return [first, second]


def test_scores_are_sums_of_reciprocal_ranks(collection, runs):
    candidates = FusedRuns(runs).candidates(collection)
    # By hand: a 1/61, b 2/62, c 1/63 + 1/61, d 1/63.
    assert candidates["q"] == pytest.approx(
        {"b": 2 / 62, "c": 1 / 63 + 1 / 61, "a": 1 / 61, "d": 1 / 63}
    )
    assert list(candidates["q"]) == ["c", "b", "a", "d"]
    assert list(candidates["r"]) == ["d"]


def test_depth_counts_for_what_is_read_and_for_what_comes_out(collection, runs):
    fused_runs = FusedRuns(runs, depth=2, aggregator=Borda(absent="ignored"), name="Borda")
    assert fused_runs.name == "Borda"
    # Of each run the first two, a b and c b: mean ranks a 1, c 1, b 2; equal ones by id.
    assert list(fused_runs.candidates(collection)["q"]) == ["a", "c"]


def test_bad_runs_are_refused(collection, runs, tmp_path):
    with pytest.raises(ValueError, match="give two run files or more"):
        FusedRuns(runs[:1])
    with pytest.raises(ValueError, match="give two run files or more"):
        FusedRuns(str(runs[0]))
    with pytest.raises(FileNotFoundError, match=r"none\.trec"):
        FusedRuns([runs[0], tmp_path / "none.trec"]).candidates(collection)
