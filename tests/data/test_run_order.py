"""Equal scores in a run: in the order of trec_eval, of the ids, or of the file; and runs that are
odd about it.
"""

import logging
import random

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

from backpack_rank.data.run_order import TIES, untied
from backpack_rank.data.trec import ranking, read_run
from backpack_rank.evaluation.effectiveness import effectiveness


def written(path, rows):
    path.write_text(
        "".join(f"{query} Q0 {doc} {rank} {score} tag\n" for query, doc, rank, score in rows)
    )
    return path


@pytest.fixture
def tied_run(tmp_path):
    """Scores of one decimal, so that many are equal, in shuffled lines."""
    rng = random.Random(4)
    rows = [
        (f"q{q}", f"d{d}", 0, round(rng.uniform(0, 2), 1)) for q in range(30) for d in range(60)
    ]
    rng.shuffle(rows)
    return written(tmp_path / "tied.trec", rows)


@pytest.fixture
def qrels():
    rng = random.Random(5)
    return {f"q{q}": {f"d{d}": rng.randrange(4) for d in range(0, 60, 2)} for q in range(30)}


def test_by_default_the_figures_are_those_of_trec_eval(tied_run, qrels):
    run = untied(read_run(tied_run, ties="trec_eval"))
    values = effectiveness(run, qrels, ["nDCG@10", "MRR@10", "R@20"])
    theirs = ir_measures.calc_aggregate(
        [nDCG @ 10, RR @ 10, R @ 20], qrels, list(ir_measures.read_trec_run(str(tied_run)))
    )
    for name, measure in (("nDCG@10", nDCG @ 10), ("R@20", R @ 20)):
        mean = sum(values.values[name].values()) / len(qrels)
        assert mean == pytest.approx(theirs[measure], abs=1e-12)
    by_id = effectiveness(read_run(tied_run, ties="id"), qrels, ["nDCG@10"])
    assert sum(by_id.values["nDCG@10"].values()) / len(qrels) != pytest.approx(
        theirs[nDCG @ 10], abs=1e-3
    )


def test_equal_scores_stand_in_the_order_that_was_asked_for(tmp_path):
    # 1 and 1.00000001 are one number in float32, which trec_eval computes in.
    path = written(
        tmp_path / "a.trec", [("q", "b", 1, 1.0), ("q", "c", 2, 1.00000001), ("q", "a", 3, 1.0)]
    )
    orders = {ties: list(read_run(path, ties=ties)["q"]) for ties in TIES}
    assert orders == {"trec_eval": ["c", "b", "a"], "id": ["c", "a", "b"], "file": ["c", "b", "a"]}
    path = written(
        tmp_path / "b.trec", [("q", "b", 1, 1.00000001), ("q", "c", 2, 1.0), ("q", "a", 3, 2.0)]
    )
    assert list(read_run(path, ties="trec_eval", depth=2)["q"]) == ["a", "c"]
    assert list(read_run(path, ties="file", depth=2)["q"]) == ["a", "b"]


def test_scores_set_apart_keep_the_order_of_the_run():
    run = {"q": {"b": 1.0, "c": 1.00000001, "a": 1.0, "d": -3.0, "e": -3.0}, "empty": {}}
    set_apart = untied(run)
    assert set_apart["empty"] == {}
    assert ranking(set_apart["q"]) == list(run["q"])
    assert len(set(set_apart["q"].values())) == 5
    assert set_apart["q"] == pytest.approx(run["q"], rel=1e-7)


def test_an_unknown_order_is_refused(tied_run):
    with pytest.raises(ValueError, match="ties=random"):
        read_run(tied_run, ties="random")


def test_a_run_of_ties_is_warned_about(tied_run, caplog):
    with caplog.at_level(logging.WARNING):
        read_run(tied_run, ties="trec_eval", warn=True)
    (message,) = caplog.messages
    assert "of 1800 documents have the same score as another one of their query" in message
    assert "ties=id|file" in message


def test_a_rank_column_against_the_scores_is_warned_about(tmp_path, caplog):
    distances = [("q1", "a", 1, 0.1), ("q1", "b", 2, 0.5), ("q2", "a", 1, 0.9), ("q2", "b", 2, 0.2)]
    with caplog.at_level(logging.WARNING):
        read_run(written(tmp_path / "a.trec", distances), warn=True)
    (message,) = caplog.messages
    assert (
        "in 1 of 2 queries, such as q1, the rank column is not the order of the scores" in message
    )


@pytest.mark.parametrize("ranks", [("1", "2", "3"), ("0", "0", "0"), ("3", "1", "x")])
def test_an_ordinary_run_gives_no_warning(tmp_path, caplog, ranks):
    rows = [("q", f"d{place}", rank, 3.0 - place) for place, rank in enumerate(ranks)]
    with caplog.at_level(logging.WARNING):
        read_run(written(tmp_path / "a.trec", rows), warn=True)
    assert not caplog.messages
