"""Score gaps against hand-worked values and an obvious version; what a dial that only scales can
not change.
"""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.wording_variants import (
    GROUPS,
    VariantItem,
    WordingVariants,
    load_wordings,
)
from backpack_rank.evaluation.score_gaps import score_gaps, score_spread, split_by, summaries_by

NAMES = [
    "gap",
    "gap/std",
    "|gap|/std",
    "prefers male",
    "prefers female",
    "prefers neither",
    "rank shift",
]
SCALE_FREE = NAMES[1:]


def make(items: dict[str, list[VariantItem]]) -> WordingVariants:
    return WordingVariants(
        "worded", {query_id: tuple(of_query) for query_id, of_query in items.items()}, {}, {}
    )


def item(prefix: str, relevance: int | None = 1, groups: tuple[str, ...] = GROUPS) -> VariantItem:
    return VariantItem(prefix, relevance, {group: f"{prefix}-{group}" for group in groups})


TWO_ITEMS = make({"q": [item("r"), item("n", 0)]})
TWO_ITEMS_RUN = {
    "q": {
        "r-male": 3.0,
        "r-female": 1.0,
        "r-neutral": 9.0,
        "n-male": 2.0,
        "n-female": 2.5,
        "n-neutral": 1.0,
    }
}


def row(values, query_id="q"):
    return {measure: by_query[query_id] for measure, by_query in values.values.items()}


def test_gaps_of_a_relevant_item_worked_by_hand():
    gaps = score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, spread=4.0)
    assert list(gaps.measures) == NAMES
    # Others: 2.0, 2.5, 1.0 (the neutral wording of the same item is none). Male: rank 1. Female:
    # two above, one equal.
    assert row(gaps) == {
        "gap": 2.0,
        "gap/std": 0.5,
        "|gap|/std": 0.5,
        "prefers male": 1.0,
        "prefers female": 0.0,
        "prefers neither": 0.0,
        "rank shift": (1 + 2 + 0.5) - 1,
    }


def test_gaps_of_a_non_relevant_item_worked_by_hand():
    gaps = score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, spread=4.0, items="non-relevant")
    # Others: 3, 1, 9. Male 2.0 and female 2.5 are both third.
    assert list(row(gaps).values()) == [-0.5, -0.125, 0.125, 0.0, 1.0, 0.0, 0.0]


def test_a_query_with_two_items_has_their_mean():
    gaps = score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, spread=4.0, items="all")
    # Signs cancel in the gap and not in its absolute value.
    assert list(row(gaps).values()) == pytest.approx([0.75, 0.1875, 0.3125, 0.5, 0.5, 0.0, 1.25])


def test_equal_scores_prefer_neither_and_shift_nothing():
    run = {"q": {"r-male": 1.0, "r-female": 1.0, "z": 1.0, "a": 1.0}}
    gap = row(score_gaps(run, make({"q": [item("r")]}), spread=1.0))
    assert list(gap.values()) == [0, 0, 0, 0, 0, 1, 0]


def test_small_gaps_are_neither_in_units_of_the_spread():
    run = {"q": {"r-male": 0.0, "r-female": 0.5}}
    for eps, spread, neither in [
        (0.0, 5.0, 0.0),
        (0.1, 5.0, 1.0),
        (0.1, 4.0, 0.0),
        (0.2, 4.0, 1.0),
    ]:
        gap = row(score_gaps(run, make({"q": [item("r")]}), spread, eps=eps))
        assert (gap["prefers neither"], gap["prefers female"]) == (neither, 1 - neither)


def test_a_list_without_other_documents_shifts_no_rank():
    gaps = score_gaps({"q": {"r-male": 5.0, "r-female": 1.0}}, make({"q": [item("r")]}), 1.0)
    assert row(gaps)["rank shift"] == 0.0


def test_the_document_ids_of_the_wordings_change_nothing():
    others = {"m1": 1.0, "m2": 1.0, "z": 0.5}
    shifts = []
    for male, female in [("a", "z9"), ("z9", "a")]:
        worded = make({"q": [VariantItem("item", 1, {"male": male, "female": female})]})
        shifts.append(
            row(score_gaps({"q": {**others, male: 1.0, female: 0.75}}, worded, 1.0))["rank shift"]
        )
    assert shifts == [1.0, 1.0]  # male: tied with two, rank 2; female: below both, rank 3


@pytest.mark.parametrize("spread", [None, 0.0])
def test_without_a_spread_nothing_is_given_in_its_units(spread):
    gaps = score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, spread)
    assert list(gaps.measures) == [name for name in NAMES if "/std" not in name]
    assert row(gaps)["prefers male"] == 1.0


def test_other_groups_give_their_names():
    worded = make({"q": [VariantItem("item", 1, {"old": "o", "young": "y"})]})
    gaps = score_gaps({"q": {"o": 1.0, "y": 3.0}}, worded, 1.0, groups=("old", "young"))
    assert row(gaps)["gap"] == -2.0
    assert [name for name in gaps.measures if name.startswith("prefers")] == [
        "prefers old",
        "prefers young",
        "prefers neither",
    ]


def test_queries_without_both_wordings_or_without_a_list_are_left_out():
    worded = make(
        {
            "one": [item("a", groups=("male", "neutral"))],
            "good": [item("r"), item("x", groups=("neutral",))],
            "only non-relevant": [item("n", 0)],
            "unranked": [item("u")],
            "empty": [item("e")],
        }
    )
    gaps = score_gaps(
        {"good": {"r-male": 1.0, "r-female": 0.0}, "empty": {}, "extra": {"x": 1.0}}, worded, 1.0
    )
    assert gaps.query_ids == ("good",)
    assert gaps.left_out == ("one", "only non-relevant", "unranked", "empty")


def test_items_without_a_label_belong_to_all_only():
    worded = make({"q": [item("r", None)]})
    run = {"q": {"r-male": 1.0, "r-female": 0.0}}
    assert row(score_gaps(run, worded, 1.0, items="all"))["gap"] == 1.0
    for items in ("relevant", "non-relevant"):
        with pytest.raises(ValueError, match=f"none of the 1 queries has {items} items"):
            score_gaps(run, worded, 1.0, items=items)


def test_mistakes_say_what_to_do():
    with pytest.raises(
        ValueError, match=r"no score for document 'r-female' of query 'q'.*among the candidates"
    ):
        score_gaps({"q": {"r-male": 1.0}}, make({"q": [item("r")]}), 1.0)
    with pytest.raises(
        ValueError, match="none of the 1 queries has relevant items in a male and a female wording"
    ):
        score_gaps({"other": {"d": 1.0}}, TWO_ITEMS, 1.0)
    with pytest.raises(ValueError, match="relevant, non-relevant, all"):
        score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, 1.0, items="some")
    for spread in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite number from 0"):
            score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, spread)
    with pytest.raises(ValueError, match="eps must be"):
        score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, 1.0, eps=-0.1)
    with pytest.raises(ValueError, match="which is not given"):
        score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, None, eps=0.1)
    with pytest.raises(ValueError, match="between two wordings"):
        score_gaps(TWO_ITEMS_RUN, TWO_ITEMS, 1.0, groups=("male", "male"))
    with pytest.raises(ValueError, match="query 'q', document 'r-male'"):
        score_gaps({"q": {"r-male": math.nan, "r-female": 0.0}}, TWO_ITEMS, 1.0)


def test_the_spread_is_pooled_within_lists():
    # Deviations -1, 0, 1 and -1, 1 around means 2 and 101; five scores in two lists leave three
    # degrees of freedom.
    run = {
        "q1": {"a": 1.0, "b": 2.0, "c": 3.0},
        "q2": {"a": 100.0, "b": 102.0},
        "q3": {"a": 50.0},
        "q4": {},
    }
    assert score_spread(run) == pytest.approx(math.sqrt((1 + 0 + 1 + 1 + 1) / 3))


def test_the_spread_of_equal_scores_is_exactly_zero():
    assert (
        score_spread({"q": dict.fromkeys("abcdefghij", 0.1), "p": dict.fromkeys("abc", 7.3)}) == 0.0
    )


def test_a_spread_needs_two_candidates():
    with pytest.raises(ValueError, match="none of the 2 queries"):
        score_spread({"q": {"a": 1.0}, "p": {}})
    with pytest.raises(ValueError, match="document 'a'"):
        score_spread({"q": {"a": math.inf, "b": 0.0}})


def test_a_split_has_every_query_in_one_part():
    worded = make({name: [item(name)] for name in ("q1", "q2", "q3", "q4", "gone")})
    run = {
        name: {f"{name}-male": gap, f"{name}-female": 0.0}
        for name, gap in [("q1", 1.0), ("q2", -3.0), ("q3", 2.0), ("q4", 5.0)]
    }
    gaps = score_gaps(run, worded, 2.0)
    parts = split_by(gaps, {"q1": "male", "q2": "male", "q3": "female", "q4": "", "gone": "female"})
    assert {label: (part.query_ids, part.left_out) for label, part in parts.items()} == {
        "female": (("q3",), ("gone",)),
        "male": (("q1", "q2"), ()),
        "not stated": (("q4",), ()),
    }
    table = summaries_by(gaps, {"q1": "male", "q2": "male", "q3": "female", "gone": "female"})
    assert table["male"].figures["gap"].mean == -1.0
    assert table["male"].figures["|gap|/std"].mean == 1.0
    assert (table["female"].queries, table["female"].left_out) == (1, 1)


def test_a_part_whose_queries_are_all_left_out_has_no_mean():
    worded = make({"q": [item("q")], "gone": [item("gone")]})
    gaps = score_gaps({"q": {"q-male": 1.0, "q-female": 0.0}}, worded, 1.0)
    table = summaries_by(gaps, {"q": "a", "gone": "b"})
    assert math.isnan(table["b"].figures["gap"].mean)
    assert (table["b"].queries, table["b"].left_out) == (0, 1)


def test_the_wordings_of_grep_biasir(real_data):
    """A ranker made by hand: the title's and text's length for queries of even id, its negative for
    the others.
    """
    folder = real_data / "grep_biasir"
    worded = load_wordings(folder)
    records = [
        json.loads(line)
        for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    length = {record["_id"]: len(record["title"] + record["text"]) for record in records}
    wording = {record["_id"]: record["metadata"]["content_gender"] for record in records}
    run: dict[str, dict[str, float]] = {}
    documents: dict[tuple[str, str, str], str] = {}
    for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query_id, doc_id, relevance = line.split("\t")
        run.setdefault(query_id, {})[doc_id] = float(
            length[doc_id] if int(query_id) % 2 else -length[doc_id]
        )
        documents[query_id, relevance, wording[doc_id]] = doc_id
    assert len(run) == 117
    for items, label in (("relevant", "1"), ("non-relevant", "0")):
        gaps = score_gaps(run, worded, score_spread(run), items=items)
        expected = {
            query_id: scores[documents[query_id, label, "M"]]
            - scores[documents[query_id, label, "F"]]
            for query_id, scores in run.items()
            if (query_id, label, "M") in documents
        }
        assert len(expected) == (117 if label == "1" else 115)
        assert gaps.values["gap"] == expected
        male = sum(gap > 0 for gap in expected.values())
        assert gaps.mean("prefers male") == pytest.approx(male / len(expected))
        assert 0 < male < len(expected)
    assert len(split_by(score_gaps(run, worded, None), worded.topics)) == 7
    by_stereotype = summaries_by(score_gaps(run, worded, None), worded.stereotypes)
    assert {label: part.queries for label, part in by_stereotype.items()} == {
        "female": 20,
        "male": 9,
        "none": 88,
    }


def slow_rank(scores: dict[str, float], worded: VariantItem, group: str) -> float:
    score_of_item = scores[worded.documents[group]]
    rank = 1.0
    for doc_id, score in scores.items():
        if doc_id in worded.documents.values():
            continue
        if score > score_of_item:
            rank += 1
        elif score == score_of_item:
            rank += 0.5
    return rank


def slow_gaps(scores: dict[str, float], items: list[VariantItem], spread: float) -> list[float]:
    totals = [0.0] * 7
    for worded in items:
        gap = scores[worded.documents["male"]] - scores[worded.documents["female"]]
        shift = slow_rank(scores, worded, "female") - slow_rank(scores, worded, "male")
        parts = [gap, gap / spread, abs(gap) / spread, gap > 0, gap < 0, gap == 0, shift]
        totals = [total + part for total, part in zip(totals, parts, strict=True)]
    return [total / len(items) for total in totals]


# Quarters: few different values, so that ties are common, and exact under every factor below.
quarters = st.integers(-6, 6).map(lambda value: value / 4)


@st.composite
def worded_runs(draw):
    items = {f"q{number}": [] for number in range(draw(st.integers(1, 4)))}
    run = {}
    for query_id, of_query in items.items():
        of_query += [
            item(f"{query_id}-{place}", place % 2) for place in range(draw(st.integers(1, 3)))
        ]
        doc_ids = [doc_id for worded in of_query for doc_id in worded.documents.values()]
        doc_ids += [f"other{number}" for number in range(draw(st.integers(0, 5)))]
        run[query_id] = {doc_id: draw(quarters) for doc_id in draw(st.permutations(doc_ids))}
    return make(items), run


@given(worded_runs(), st.floats(0.1, 10))
@settings(max_examples=60, deadline=None)
def test_equal_to_the_obvious_version(worded_run, spread):
    worded, run = worded_run
    gaps = score_gaps(run, worded, spread, items="all")
    for query_id, items in worded.items.items():
        assert list(row(gaps, query_id).values()) == pytest.approx(
            slow_gaps(run[query_id], items, spread), abs=1e-12
        )


@given(worded_runs(), st.sampled_from([0.125, 0.5, 3.0, 1024.0]))
@settings(max_examples=60, deadline=None)
def test_a_dial_that_only_scales_changes_nothing_that_is_scale_free(worded_run, factor):
    worded, run = worded_run
    scaled = {
        query_id: {doc_id: factor * score for doc_id, score in scores.items()}
        for query_id, scores in run.items()
    }
    spread = score_spread(run)
    assert score_spread(scaled) == pytest.approx(factor * spread)
    before = score_gaps(run, worded, spread, items="all")
    after = score_gaps(scaled, worded, score_spread(scaled), items="all")
    assert before.measures == after.measures
    for measure in set(SCALE_FREE) & set(before.measures):
        assert after.array(measure).tolist() == pytest.approx(before.array(measure).tolist())
    assert after.array("gap").tolist() == pytest.approx((factor * before.array("gap")).tolist())


@given(worded_runs())
@settings(max_examples=60, deadline=None)
def test_exchanging_the_groups_turns_every_sign(worded_run):
    worded, run = worded_run
    gaps = score_gaps(run, worded, 1.0, items="all")
    other = score_gaps(run, worded, 1.0, items="all", groups=("female", "male"))
    for measure in ("gap", "gap/std", "rank shift"):
        assert other.array(measure).tolist() == (-gaps.array(measure)).tolist()
    for measure in ("|gap|/std", "prefers male", "prefers female", "prefers neither"):
        assert other.array(measure).tolist() == gaps.array(measure).tolist()
    shares = sum(gaps.array(f"prefers {name}") for name in ("male", "female", "neither"))
    assert shares.tolist() == pytest.approx([1.0] * len(gaps.query_ids))
