"""A teacher's scores: read from runs, looked up for lists, the pairs that need them, and how many
have one.
"""

import numpy as np
import pytest

from backpack_rank.data.teacher_scores import (
    Coverage,
    TeacherRun,
    drawn_pairs,
    read_runs,
    training_pairs,
)
from backpack_rank.data.training_lists import TrainingLists

CANDIDATES = {"q1": {"d3": 3.0, "d0": 2.0, "d2": 1.0}, "q2": {"d1": 1.0}}


@pytest.fixture
def lists(tiny_collection):
    return TrainingLists(tiny_collection, CANDIDATES, size=3, max_relevant=1, seed=1)


def run_file(path, *rows):
    path.write_text("".join(f"{query} Q0 {doc} 1 {score} teacher\n" for query, doc, score in rows))
    return path


def test_scores_are_looked_up_in_the_lists_order_and_unknown_pairs_are_nan():
    teacher = TeacherRun({"q1": {"d0": 0.5, "d1": -2.0}})
    scores = teacher.scores("q1", ["d1", "d9", "d0"])
    assert scores.dtype == np.float32
    assert scores.tolist()[::2] == [-2.0, 0.5]
    assert np.isnan(scores[1])
    assert np.isnan(teacher.scores("q7", ["d0", "d1"])).all()


def test_several_runs_are_one_and_other_queries_are_left_out(tmp_path):
    first = run_file(tmp_path / "a.trec", ("q1", "d0", 3.0), ("other", "d0", 1.0))
    second = run_file(tmp_path / "b.trec", ("q1", "d1", -1.5), ("q2", "d0", 2.0))
    assert read_runs([first, second], ["q1", "q2", "q3"]) == {
        "q1": {"d0": 3.0, "d1": -1.5},
        "q2": {"d0": 2.0},
        "q3": {},
    }


def test_a_pair_with_two_scores_and_a_broken_line_are_named(tmp_path):
    first = run_file(tmp_path / "a.trec", ("q1", "d0", 3.0))
    second = run_file(tmp_path / "b.trec", ("q1", "d1", 1.0), ("q2", "d0", 1.0), ("q1", "d0", 2.0))
    with pytest.raises(
        ValueError, match=r"b\.trec, line 3: document 'd0' of query 'q1' has a score in an earlier"
    ):
        read_runs([first, second], ["q1", "q2"])
    second.write_text("q1 Q0 d1 1 1.0 t\nq1 Q0 d2 2 high t\n")
    with pytest.raises(ValueError, match=r"b\.trec, line 2: score of query 'q1'"):
        read_runs([second], ["q1"])


def test_training_pairs_are_relevant_documents_and_candidates_once_each(tiny_collection, lists):
    tiny_collection.qrels["q1"]["gone"] = 1  # judged, but not in the collection
    assert training_pairs(lists, tiny_collection, CANDIDATES) == {
        "q1": ["d0", "d1", "d3", "d2"],
        "q2": ["d4", "d5", "d1"],
        "q3": ["d6"],
    }


def test_drawn_pairs_are_those_of_the_lists_up_to_the_limit(tiny_collection, lists):
    candidates = {"q1": {f"d{i}": float(i) for i in range(7)}, "q2": {"d1": 1.0}}
    lists = TrainingLists(tiny_collection, candidates, size=3, max_relevant=1, seed=1)
    pairs = training_pairs(lists, tiny_collection, candidates)
    for epochs in (1, 2, 8):
        for limit in (1, 2, 3, 9):
            drawn = drawn_pairs(pairs, lists, epochs, limit)
            for query_id in lists.query_ids:
                # The slow way: every document of every list in order, then the first of each kind.
                seen = [
                    doc_id
                    for epoch in range(epochs)
                    for doc_id in lists.sample(query_id, epoch).doc_ids
                ]
                seen = [doc_id for doc_id in dict.fromkeys(seen) if doc_id in pairs[query_id]]
                relevant = {
                    doc_id for doc_id, label in tiny_collection.qrels[query_id].items() if label > 0
                }
                others = [doc_id for doc_id in seen if doc_id not in relevant]
                assert set(drawn[query_id]) == {*(set(seen) & relevant), *others[:limit]}
                assert len(drawn[query_id]) == len(set(drawn[query_id]))
    all_drawn = drawn_pairs(pairs, lists, 100, 9)
    assert {query_id: sorted(doc_ids) for query_id, doc_ids in all_drawn.items()} == {
        query_id: sorted(doc_ids) for query_id, doc_ids in pairs.items()
    }


def test_only_the_queries_of_the_epochs_are_drawn(tiny_collection):
    lists = TrainingLists(tiny_collection, CANDIDATES, size=3, per_epoch=1, seed=1)
    pairs = training_pairs(lists, tiny_collection, CANDIDATES)
    assert list(drawn_pairs(pairs, lists, 1, 5)) == lists.order(0)


def test_coverage_counts_pairs_and_what_can_be_compared(tiny_collection, lists):
    pairs = training_pairs(lists, tiny_collection, CANDIDATES)
    # q1: a relevant and another one; q2: two relevant ones; q3: none; d9 and q9 are nobody's.
    run = {"q1": {"d0": 1.0, "d3": 2.0, "d9": 0.0}, "q2": {"d4": 1.0, "d5": 1.0}, "q9": {"d0": 1.0}}
    coverage = Coverage.of(run, pairs, tiny_collection)
    assert coverage == Coverage(pairs=8, scored=4, queries=3, several=2, comparable=1)
    assert str(coverage).startswith(
        "4 of 8 training pairs have a teacher's score, 4 have none; 1 of 3 queries"
    )
