"""Swap stability against hand-worked lists and obvious versions of tau, overlap and shift."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.counterfactual import LexiconSwap, Swapped
from backpack_rank.attributes.lexicon import WordPairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.evaluation.swap_stability import swap_stability, swapped_collection
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer


def he_to_she(text: str) -> Swapped:
    """A swap that can be checked by eye."""
    words = text.split(" ")
    return Swapped(
        " ".join({"he": "she", "she": "he"}.get(word, word) for word in words),
        sum(word in ("he", "she") for word in words),
        words.count("Mary"),
    )


def test_the_swapped_collection_has_the_candidates_with_other_words():
    texts = {
        "a": "he knows she and he",
        "b": "nobody",
        "c": "Mary knows",
        "d": "not a candidate, he",
        "e": "",
    }
    collection = Collection(
        "c", MemoryStore(texts), {"q": "who"}, {"q": {"a": 1}}, {"q": {"a": 1.0}}, {"a": "male"}
    )
    swapped, counts = swapped_collection(collection, he_to_she, ["a", "b", "c", "e", "a"])
    assert dict(swapped.documents) == {
        "a": "she knows he and she",
        "b": "nobody",
        "c": "Mary knows",
        "e": "",
    }
    assert (counts.documents, counts.changed, counts.words, counts.names) == (
        4,
        frozenset({"a"}),
        3,
        1,
    )
    assert (swapped.queries, swapped.qrels, swapped.candidates) == (
        collection.queries,
        collection.qrels,
        collection.candidates,
    )
    assert swapped.groups == {}
    assert swapped.name != collection.name
    assert swapped.documents.fingerprint != collection.documents.fingerprint
    assert dict(collection.documents) == texts
    with pytest.raises(KeyError, match="'nowhere'"):
        swapped_collection(collection, he_to_she, ["a", "nowhere"])
    with pytest.raises(ValueError, match="no document of c"):
        swapped_collection(collection, he_to_she, [])


def test_of_a_long_text_what_is_read_is_swapped_and_counted():
    texts = {"a": "he knows he", "b": "nobody knows he"}
    collection = Collection("c", MemoryStore(texts), {"q": "who"}, {})
    swapped, counts = swapped_collection(collection, he_to_she, texts, cut=lambda text: text[:8])
    assert dict(swapped.documents) == {"a": "she knows", "b": "nobody k"}
    assert (counts.changed, counts.words) == ({"a"}, 1)


def test_a_ranker_before_and_after_the_swap_of_word_pairs(
    tiny_collection, make_gpt2, pair_tokenizer
):
    pairs = WordPairs("small", ("female", "male"), (("she", "he"), ("woman", "man")))
    candidates = {
        query_id: {f"d{number}": 0.0 for number in range(7)} for query_id in tiny_collection.queries
    }
    swapped, counts = swapped_collection(tiny_collection, LexiconSwap(pairs), candidates["q1"])
    assert dict(swapped.documents)["d0"] == dict(tiny_collection.documents)["d0"].replace(
        "he would", "she would"
    )
    assert counts.changed == {"d0", "d1", "d2", "d5"}
    assert counts.words == 5  # d2 has a man and a woman
    reranker = PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))
    before, after = (reranker.rerank(candidates, part) for part in (tiny_collection, swapped))
    stability = swap_stability(before, after, counts.changed)
    assert (stability.candidates, stability.changed) == (21, 12)
    # The three unchanged documents of each list keep their scores up to rounding.
    changed = stability.swapped.array("swap change (swapped)")
    assert changed.min() > 1e-3
    assert stability.every.array("swap change").tolist() == pytest.approx(
        (changed * 4 / 7).tolist(), abs=1e-5
    )


BEFORE = {"q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}, "q2": {"x": 2.0, "y": 1.0}}
AFTER = {"q1": {"a": 1.5, "b": 3.0, "c": 2.0, "d": 1.5}, "q2": {"y": 1.0, "x": 2.0}}


def test_stability_of_two_lists_worked_by_hand():
    stability = swap_stability(BEFORE, AFTER, {"a", "d", "unranked"}, spread=2.0, depth=2)
    # q1: a falls from 1st to 3rd (equal to d, smaller id), b and c rise by one, d stays. Pairs: ab,
    # ac discordant, ad tied after, bc, bd, cd concordant: (3 - 2) / sqrt(6 * 5).
    assert stability.every.values == {
        "swap change": {"q1": 0.75, "q2": 0.0},
        "swap change/std": {"q1": 0.375, "q2": 0.0},
        "swap tau": {"q1": pytest.approx(1 / math.sqrt(30)), "q2": 1.0},
        "swap overlap@2": {"q1": 0.5, "q2": 1.0},
        "swap max shift": {"q1": 2.0, "q2": 0.0},
    }
    # The changed documents of q1 are a (2.5) and d (0.5).
    assert stability.swapped.values == {
        "swap change (swapped)": {"q1": 1.5},
        "swap change/std (swapped)": {"q1": 0.75},
        "swap tau (swapped)": {"q1": pytest.approx(1 / math.sqrt(30))},
        "swap overlap@2 (swapped)": {"q1": 0.5},
        "swap max shift (swapped)": {"q1": 2.0},
    }
    assert stability.swapped.left_out == ("q2",)
    assert (stability.candidates, stability.changed) == (6, 2)


def test_the_largest_shift_of_changed_documents_does_not_count_those_they_push():
    before = {"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}
    after = {"q": {"a": 0.0, "b": 3.0, "c": 2.1, "d": 1.0}}
    stability = swap_stability(before, after, {"c"})
    assert stability.every.values["swap max shift"]["q"] == 3.0
    assert stability.swapped.values["swap max shift (swapped)"]["q"] == 1.0


def test_the_spread_is_that_of_the_originals_unless_given():
    stability = swap_stability({"q": {"a": 1.0, "b": 3.0}}, {"q": {"a": 1.0, "b": 103.0}}, {"b"})
    assert stability.every.values["swap change/std"]["q"] == pytest.approx(50 / math.sqrt(2))


def test_lists_of_equal_scores_have_a_stated_tau():
    before = {
        "both": {"a": 1.0, "b": 1.0},
        "after": {"a": 1.0, "b": 2.0},
        "before": {"a": 1.0, "b": 1.0},
        "one": {"a": 5.0},
    }
    after = {
        "both": {"a": 2.0, "b": 2.0},
        "after": {"a": 0.0, "b": 0.0},
        "before": {"a": 1.0, "b": 2.0},
        "one": {"a": 4.0},
    }
    stability = swap_stability(before, after, {"a"})
    assert stability.every.values["swap tau"] == {
        "both": 1.0,
        "after": 0.0,
        "before": 0.0,
        "one": 1.0,
    }


def test_a_spread_of_zero_leaves_out_what_is_in_its_units():
    constant = {"q": {"a": 1.0, "b": 1.0}}
    stability = swap_stability(constant, constant, {"a"})
    assert list(stability.every.measures) == [
        "swap change",
        "swap tau",
        "swap overlap@10",
        "swap max shift",
    ]


def test_a_collection_without_changed_documents_has_no_values_over_them():
    stability = swap_stability(BEFORE, BEFORE, set())
    assert stability.swapped.query_ids == ()
    assert stability.swapped.left_out == ("q1", "q2")
    assert math.isnan(stability.swapped.mean("swap change (swapped)"))
    assert stability.every.mean("swap tau") == 1.0


def test_queries_with_an_empty_list_are_left_out():
    stability = swap_stability({**BEFORE, "none": {}}, {**AFTER, "none": {}}, {"x"})
    assert stability.every.left_out == ("none",)
    assert set(stability.swapped.left_out) == {"q1", "none"}


def test_mistakes_name_query_and_document():
    with pytest.raises(ValueError, match="swapped documents lacks query 'q2'"):
        swap_stability(BEFORE, {"q1": AFTER["q1"]}, set())
    with pytest.raises(ValueError, match="original documents lacks query 'q2'"):
        swap_stability({"q1": BEFORE["q1"]}, AFTER, set())
    with pytest.raises(ValueError, match=r"query 'q2': 1 documents .* such as 'y'"):
        swap_stability(BEFORE, {**AFTER, "q2": {"x": 1.0}}, set())
    with pytest.raises(ValueError, match="none of the 1 queries has a candidate"):
        swap_stability({"q": {}}, {"q": {}}, set(), spread=1.0)
    with pytest.raises(ValueError, match="must be finite"):
        swap_stability(BEFORE, {**AFTER, "q2": {"x": math.nan, "y": 1.0}}, set())
    with pytest.raises(ValueError, match="finite number from 0"):
        swap_stability(BEFORE, AFTER, set(), spread=-1.0)
    for depth in (0, 2.5, True):
        with pytest.raises(ValueError, match="depth of the overlap"):
            swap_stability(BEFORE, AFTER, set(), depth=depth)


def slow_tau(before: list[float], after: list[float]) -> float:
    both = tied_before = tied_after = total = 0
    for first, second in combinations(range(len(before)), 2):
        total += 1
        left, right = before[first] - before[second], after[first] - after[second]
        tied_before += left == 0
        tied_after += right == 0
        both += (left * right > 0) - (left * right < 0)
    if tied_before == total or tied_after == total:
        return 1.0 if tied_before == tied_after == total else 0.0
    return both / math.sqrt((total - tied_before) * (total - tied_after))


def slow_order(scores: dict[str, float]) -> list[str]:
    return [doc_id for _, doc_id in sorted((-score, doc_id) for doc_id, score in scores.items())]


few = st.integers(-3, 3).map(float)
lists = st.dictionaries(
    st.sampled_from("abcdefghijklmno"), st.tuples(few, few, st.booleans()), min_size=1
)


@given(lists, st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_equal_to_the_obvious_version(pairs, depth):
    before = {doc_id: pair[0] for doc_id, pair in pairs.items()}
    after = {doc_id: pair[1] for doc_id, pair in reversed(pairs.items())}
    changed = {doc_id for doc_id, pair in pairs.items() if pair[2]}
    stability = swap_stability({"q": before}, {"q": after}, changed, spread=0.5, depth=depth)
    order_before, order_after = slow_order(before), slow_order(after)
    top = min(depth, len(order_before))
    shifts = {
        doc_id: abs(order_before.index(doc_id) - order_after.index(doc_id)) for doc_id in before
    }
    changes = {doc_id: abs(before[doc_id] - after[doc_id]) for doc_id in before}
    tau = slow_tau(list(before.values()), [after[doc_id] for doc_id in before])
    overlap = len(set(order_before[:top]) & set(order_after[:top])) / top
    for part, doc_ids in ((stability.every, set(before)), (stability.swapped, changed)):
        if not doc_ids:
            assert part.query_ids == ()
            continue
        mean = sum(changes[doc_id] for doc_id in doc_ids) / len(doc_ids)
        expected = [mean, mean / 0.5, tau, overlap, max(shifts[doc_id] for doc_id in doc_ids)]
        assert [by_query["q"] for by_query in part.values.values()] == pytest.approx(expected)
    assert (stability.candidates, stability.changed) == (len(before), len(changed))


@given(lists, st.sampled_from([0.25, 8.0]))
@settings(max_examples=40, deadline=None)
def test_scaling_all_scores_changes_only_the_raw_change(pairs, factor):
    before = {doc_id: pair[0] for doc_id, pair in pairs.items()} | {"p": 9.0}
    after = {doc_id: pair[1] for doc_id, pair in pairs.items()} | {"p": 9.0}
    unscaled = swap_stability({"q": before}, {"q": after}, {"p"}).every
    other = swap_stability(
        {"q": {doc_id: factor * score for doc_id, score in before.items()}},
        {"q": {doc_id: factor * score for doc_id, score in after.items()}},
        {"p"},
    ).every
    assert other.measures == unscaled.measures
    assert other.mean("swap change") == pytest.approx(factor * unscaled.mean("swap change"))
    for measure in unscaled.measures[1:]:
        assert other.mean(measure) == pytest.approx(unscaled.mean(measure))
