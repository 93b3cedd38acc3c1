"""Target orders of training lists: grades first, then a teacher, ties where neither tells."""

from __future__ import annotations

import numpy as np
import pytest

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.position.lists.passages import ListwiseExample, PassageList, collection_lists

CANDIDATES = {
    "q": {"a": 5.0, "b": 4.0, "c": 3.0, "d": 2.0, "gone": 1.5, "e": 1.0},
    "alone": {"a": 1.0},
}


def collection(**qrels: dict[str, int]) -> Collection:
    documents = {name: f"text {name}" for name in "abcde"}
    return Collection("small", MemoryStore(documents), {"q": "the query", "alone": "x"}, qrels)


def test_grades_come_first_and_equal_grades_are_tied_in_first_stage_order() -> None:
    listed = collection_lists(collection(q={"b": 1, "d": 2, "c": -1, "e": 1}), CANDIDATES)
    (item,) = listed.lists
    assert item.passages == PassageList(
        "the query", tuple(f"text {n}" for n in "abcde"), tuple("abcde"), "q"
    )
    assert item.order.tolist() == [3, 1, 4, 0, 2]
    assert item.ranks.tolist() == [3, 1, 4, 0, 2]
    assert item.relevance_levels.tolist() == [2, 1, 2, 0, 1]
    assert item.grades.tolist() == [0, 1, 0, 2, 1]
    assert (listed.without_candidates, listed.without_relevant) == (1, 0)


def test_a_teacher_orders_passages_of_the_same_grade_and_those_without_a_score_come_last() -> None:
    teacher = {"q": {"a": 0.1, "c": 0.9, "e": 0.5}}
    (item,) = collection_lists(collection(q={"d": 1}), CANDIDATES, teacher=teacher).lists
    assert "".join("abcde"[place] for place in item.order) == "dceab"
    assert item.relevance_levels.tolist() == [3, 4, 1, 0, 2]


def test_lists_are_cut_to_size_and_need_two_levels() -> None:
    (item,) = collection_lists(collection(q={"b": 1}), CANDIDATES, size=2).lists
    assert item.passages.ids == ("a", "b")
    with pytest.raises(
        ValueError,
        match="none of its 2 queries has a list: 1 have fewer than two candidates, and amo",
    ):
        collection_lists(collection(q={"e": 1}), CANDIDATES, size=3)
    with pytest.raises(ValueError, match=r"task\.size=30 must be from 2 to 20"):
        collection_lists(collection(q={"e": 1}), CANDIDATES, size=30)


def test_a_list_in_another_order_wants_the_same_passages() -> None:
    (item,) = collection_lists(collection(q={"b": 1, "d": 2, "e": 1}), CANDIDATES).lists
    wanted = [item.passages.ids[place] for place in item.order]
    for seed in range(5):
        other = item.permute(np.random.default_rng(seed).permutation(5))
        assert [other.passages.ids[place] for place in other.order] == wanted
        relevance = dict(
            zip(
                item.passages.ids, zip(item.relevance_levels, item.grades, strict=True), strict=True
            )
        )
        for doc_id, level, grade in zip(
            other.passages.ids, other.relevance_levels, other.grades, strict=True
        ):
            assert relevance[doc_id] == (level, grade)


def test_targets_that_contradict_themselves_are_refused() -> None:
    passages = PassageList("q", ("x", "y"), query_id="q7")
    zeros = np.zeros(2, dtype=int)
    with pytest.raises(ValueError, match=r"'q7': target ranks .* are no permutation"):
        ListwiseExample(passages, zeros, zeros, zeros)
    with pytest.raises(ValueError, match="'q7': a better level stands behind"):
        ListwiseExample(passages, np.array([0, 1]), np.array([1, 0]), zeros)
    with pytest.raises(ValueError, match="2 passages need 2 levels"):
        ListwiseExample(passages, np.array([0, 1]), np.array([0]), zeros)
