"""RaB and ARaB against hand-worked values and against an obvious version in nested loops."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.data.collection import MemoryStore
from backpack_rank.data.words import whitespace_tokens, word_tokens
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import KINDS, FairnessMeasures
from backpack_rank.evaluation.magnitudes import GroupMagnitudes, parse_sign
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.evaluation.ranked_documents import top_documents
from backpack_rank.evaluation.results import PerQuery, RunInfo

WORDS = Lexicon("small", {"female": ("she", "her", "woman"), "male": ("he", "his")})
LOG2, LOG3, LOG4 = math.log(2), math.log(3), math.log(4)


def magnitudes_of(
    texts: dict[str, str], lexicon: Lexicon = WORDS, tokenizer=word_tokens
) -> GroupMagnitudes:
    return GroupMagnitudes.of(texts, MemoryStore(texts), lexicon, tokenizer)


def rank_bias(
    run,
    magnitudes: GroupMagnitudes,
    cutoffs=(5, 10),
    sign="male_minus_female",
    kinds=KINDS,
    query_ids=None,
) -> PerQuery:
    """RaB and ARaB alone."""
    names = [
        f"{name}({kind})@{cutoff}"
        for cutoff in cutoffs
        for kind in kinds
        for name in ("RaB", "ARaB")
    ]
    return FairnessContext(magnitudes, sign, query_ids=query_ids).measure(
        run, parse_measures(names)
    )


def slow_magnitude(kind: str, tokens: list[str], words: tuple[str, ...]) -> float:
    counts = {word: tokens.count(word) for word in words}
    total = sum(counts.values())
    if kind == "bool":
        return 1.0 if total > 0 else 0.0
    if kind == "tf":
        return math.log(total + 1)
    if kind == "tc":
        return float(total)
    return sum(math.log(count) for count in counts.values() if count > 0)


def slow_rab(differences: list[float], cutoff: int) -> float:
    used = differences[:cutoff]
    return sum(used) / len(used)


def slow_arab(differences: list[float], cutoff: int) -> float:
    values = [slow_rab(differences, x) for x in range(1, cutoff + 1) if x <= len(differences)]
    return sum(values) / len(values)


def test_magnitudes_of_one_document_worked_by_hand():
    magnitudes = magnitudes_of({"d": "She saw her mother. He: his, his and her book; her."})
    # female: she 1, her 3; male: he 1, his 2
    assert magnitudes.groups == ("female", "male")
    assert magnitudes.values["tc"].tolist() == [[4.0, 3.0]]
    assert magnitudes.values["bool"].tolist() == [[1.0, 1.0]]
    assert magnitudes.values["tf"][0] == pytest.approx([math.log(5), LOG4])
    assert magnitudes.values["tf-paper"][0] == pytest.approx([LOG3, LOG2])


def test_a_word_that_occurs_once_adds_nothing_in_equation_6_but_does_in_the_published_code():
    magnitudes = magnitudes_of({"once": "she and a woman", "twice": "she she"})
    assert magnitudes.values["tf-paper"][:, 0] == pytest.approx([0.0, LOG2])
    assert magnitudes.values["tf"][:, 0] == pytest.approx([LOG3, LOG3])


def test_a_document_without_words_has_magnitude_zero():
    magnitudes = magnitudes_of({"empty": "", "plain": "no such word here"})
    assert all((values == 0).all() for values in magnitudes.values.values())


def test_the_example_sentence_of_the_published_code():
    # boys, men are male; women is female
    text = {"d": "a war day and many boys , women and men"}
    for tokenizer in (whitespace_tokens, word_tokens):
        magnitudes = magnitudes_of(text, load_lexicon("gender_words"), tokenizer)
        assert magnitudes.values["tc"].tolist() == [[1.0, 2.0]]
        assert magnitudes.values["bool"].tolist() == [[1.0, 1.0]]
        assert magnitudes.values["tf"][0] == pytest.approx([LOG2, LOG3])
        assert magnitudes.values["tf-paper"].tolist() == [[0.0, 0.0]]


def test_whitespace_tokens_miss_a_word_before_a_comma():
    text = {"d": "he, and his"}
    assert magnitudes_of(text, tokenizer=whitespace_tokens).values["tc"].tolist() == [[0.0, 1.0]]
    assert magnitudes_of(text, tokenizer=word_tokens).values["tc"].tolist() == [[0.0, 2.0]]


def test_bias_of_a_list_of_three_worked_by_hand():
    texts = {"a": "he", "b": "she her her", "c": "nothing"}
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    values = rank_bias(
        run, magnitudes_of(texts), cutoffs=[1, 2, 3, 10], kinds=["tf", "bool", "tf-paper"]
    ).values
    first, second = LOG2, -LOG4  # male minus female, place by place; the third document adds 0
    assert values["RaB(tf)@1"]["q"] == pytest.approx(first)
    assert values["RaB(tf)@2"]["q"] == pytest.approx((first + second) / 2)
    assert values["RaB(tf)@3"]["q"] == pytest.approx((first + second) / 3)
    assert values["ARaB(tf)@2"]["q"] == pytest.approx((first + (first + second) / 2) / 2)
    at_three = (first + (first + second) / 2 + (first + second) / 3) / 3
    assert values["ARaB(tf)@3"]["q"] == pytest.approx(at_three)
    assert values["RaB(bool)@2"]["q"] == 0.0
    assert values["ARaB(bool)@2"]["q"] == pytest.approx((1 + 0) / 2)
    assert values["RaB(tf-paper)@3"]["q"] == pytest.approx(-LOG2 / 3)
    # Only three documents: cut-off 10 is measured at 3.
    assert values["RaB(tf)@10"]["q"] == pytest.approx((first + second) / 3)
    assert values["ARaB(tf)@10"]["q"] == pytest.approx(at_three)


def test_the_example_list_of_the_published_code():
    # Ten documents; the second has 3 female words, the eighth 5 male ones, the tenth 2 male ones.
    texts = {f"d{place:02}": "" for place in range(1, 11)} | {
        "d02": "she she her",
        "d08": "he " * 5,
        "d10": "his his",
    }
    run = {"q": {doc_id: -float(doc_id[1:]) for doc_id in texts}}
    of_lists = {
        "RaB(tc)@10": (3 - 5 - 2) / 10,
        "RaB(tc,female)@10": 3 / 10,
        "RaB(tc,male)@10": (5 + 2) / 10,
    }
    at_each_place = [0, 3 / 2, 3 / 3, 3 / 4, 3 / 5, 3 / 6, 3 / 7, -2 / 8, -2 / 9, -4 / 10]
    over_places = {
        "ARaB(tc)@10": sum(at_each_place) / 10,
        "ARaB(tc,female)@10": sum(3 / place for place in range(2, 11)) / 10,
        "ARaB(tc,male)@10": (5 / 8 + 5 / 9 + 7 / 10) / 10,
    }
    expected = of_lists | over_places
    context = FairnessContext(magnitudes_of(texts), "female_minus_male")
    values = context.measure(run, parse_measures(list(expected)))
    assert {name: values.mean(name) for name in expected} == pytest.approx(expected)


def test_measures_come_cutoff_by_cutoff():
    settings = FairnessMeasures(families=["RaB", "ARaB"], cutoffs=[5, 10], kinds=["tf", "bool"])
    names = settings.measure({"q": {"a": 1.0}}, magnitudes_of({"a": "he"})).measures
    assert names == (
        *("RaB(tf)@5", "ARaB(tf)@5", "RaB(bool)@5", "ARaB(bool)@5"),
        *("RaB(tf)@10", "ARaB(tf)@10", "RaB(bool)@10", "ARaB(bool)@10"),
    )


def test_the_other_sign_gives_the_negative_values():
    texts = {"a": "he he", "b": "she"}
    run = {"q": {"a": 2.0, "b": 1.0}, "p": {"b": 2.0}}
    magnitudes = magnitudes_of(texts)
    male = rank_bias(run, magnitudes, sign="male_minus_female")
    female = rank_bias(run, magnitudes, sign="female_minus_male")
    assert male.mean("RaB(tf)@5") != 0
    for measure in male.measures:
        assert female.values[measure] == {
            query: -value for query, value in male.values[measure].items()
        }


def test_a_text_with_male_words_is_positive_by_default():
    assert rank_bias({"q": {"a": 1.0}}, magnitudes_of({"a": "his"})).mean("RaB(bool)@10") == 1.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from(["male_minus_female", "female_minus_male"]))
def test_random_runs_agree_with_nested_loops(seed, sign):
    source = random.Random(seed)
    vocabulary = ["she", "her", "woman", "he", "his", "tree", "house"]
    texts = {
        f"d{n}": " ".join(source.choices(vocabulary, k=source.choice([0, 1, 5, 30])))
        for n in range(20)
    }
    run = {
        f"q{n}": {
            d: float(source.randint(0, 5))
            for d in source.sample(sorted(texts), source.randint(0, 20))
        }
        for n in range(4)
    } | {"certain": {"d0": 1.0}}
    kinds, cutoffs = ["tf", "tf-paper", "bool", "tc"], [1, 3, 10, 40]
    result = rank_bias(run, magnitudes_of(texts), cutoffs, sign, kinds)
    assert set(result.left_out) == {query_id for query_id, scores in run.items() if not scores}
    plus, minus = sign.split("_minus_")
    for query_id in result.query_ids:
        ranked = sorted(run[query_id], key=lambda doc_id: (-run[query_id][doc_id], doc_id))
        for kind in kinds:
            differences = [
                slow_magnitude(kind, texts[d].split(), WORDS.groups[plus])
                - slow_magnitude(kind, texts[d].split(), WORDS.groups[minus])
                for d in ranked
            ]
            for cutoff in cutoffs:
                rab, arab = slow_rab(differences, cutoff), slow_arab(differences, cutoff)
                assert abs(result.values[f"RaB({kind})@{cutoff}"][query_id] - rab) < 1e-12
                assert abs(result.values[f"ARaB({kind})@{cutoff}"][query_id] - arab) < 1e-12


def test_empty_lists_and_queries_without_a_list_are_left_out_and_not_zero():
    run = {"q": {"a": 1.0}, "empty": {}, "other": {"a": 1.0}}
    result = rank_bias(run, magnitudes_of({"a": "he"}), query_ids=["q", "empty", "absent"])
    assert result.query_ids == ("q",)
    assert result.left_out == ("empty", "absent")
    assert result.mean("RaB(bool)@5") == 1.0


def test_averages_of_the_sign_do_not_hide_opposite_queries():
    texts = {"a": "he", "b": "she"}
    result = rank_bias({"q": {"a": 1.0}, "p": {"b": 1.0}}, magnitudes_of(texts), kinds=["bool"])
    figure = result.summary().figures["RaB(bool)@10"]
    assert (figure.mean, figure.absolute_mean, figure.mean_absolute) == (0.0, 0.0, 1.0)


def test_documents_without_a_magnitude_are_named():
    with pytest.raises(KeyError, match="1 documents of the run have no magnitude: 'b'"):
        rank_bias({"q": {"a": 2.0, "b": 1.0}}, magnitudes_of({"a": "he"}))


def test_documents_below_the_largest_cutoff_need_no_magnitude():
    run = {"q": {"a": 2.0, "b": 1.0}}
    assert rank_bias(run, magnitudes_of({"a": "he"}), cutoffs=[1]).mean("RaB(bool)@1") == 1.0
    assert top_documents([run], 1) == ["a"]
    assert top_documents([run, {"p": {"c": 1.0, "a": 0.5}}], 2) == ["a", "b", "c"]


def test_documents_that_are_not_in_the_collection_are_named():
    with pytest.raises(KeyError, match="'unknown'"):
        GroupMagnitudes.of(["unknown"], MemoryStore({"a": "he"}), WORDS)


def test_magnitudes_do_not_depend_on_the_portions_they_are_computed_in(monkeypatch):
    texts = {f"d{n}": "he " * (n % 5) + "she " * (n % 3) for n in range(23)}
    at_once = magnitudes_of(texts)
    monkeypatch.setattr("backpack_rank.evaluation.magnitudes._CHUNK", 4)
    parts = magnitudes_of(texts)
    assert at_once.rows == parts.rows
    for kind, values in at_once.values.items():
        assert values.shape == (23, 2)
        assert np.array_equal(values, parts.values[kind])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sign": "male"}, "male_minus_female or female_minus_male"),
        ({"query_ids": ["absent"]}, "none of the 1 queries of the bias set has a ranked document"),
    ],
)
def test_wrong_options_are_errors_that_say_what_is_possible(options, message):
    with pytest.raises(ValueError, match=message):
        rank_bias({"q": {"a": 1.0}}, magnitudes_of({"a": "he"}), **options)


def test_scores_that_are_no_numbers_are_errors():
    with pytest.raises(ValueError, match="'q', document 'a' is inf"):
        rank_bias({"q": {"a": math.inf}}, magnitudes_of({"a": "he"}))


def test_groups_of_any_name_give_their_own_signs():
    magnitudes = magnitudes_of({"d": "a a b"}, Lexicon("ages", {"young": ("a",), "old": ("b",)}))
    assert (
        rank_bias({"q": {"d": 1.0}}, magnitudes, [5], "young_minus_old", ["tc"]).mean("RaB(tc)@5")
        == 1.0
    )
    assert parse_sign("old_minus_young", ("young", "old")) == ("old", "young")
    with pytest.raises(ValueError, match="old_minus_young or young_minus_old"):
        rank_bias({"q": {"d": 1.0}}, magnitudes)


def test_the_preset_is_described_in_words():
    about = FairnessMeasures(preset="rekabsaz2020", tokenizer="whitespace").describe(
        RunInfo(bias_set="wikiqa/test")
    )
    assert about.bias_set == "wikiqa/test"
    assert (about.preset, about.tokenizer, about.sign) == (
        "rekabsaz2020",
        "whitespace",
        "male_minus_female",
    )
    assert about.lexicon == "gender_words (32 female + 32 male words)"
    assert about.sign_in_words.startswith(
        "male minus female: positive values lean towards male words"
    )


def test_the_measures_of_a_preset_use_its_tokenizer_and_its_word_list():
    documents = MemoryStore({"a": "he, she"})
    run = {"q": {"a": 1.0}}
    word = FairnessMeasures(families=["RaB"], kinds=["tc"], cutoffs=[5])
    assert word.measure(run, word.magnitudes(["a"], documents)).mean("RaB(tc)@5") == 0.0
    spaces = FairnessMeasures(families=["RaB"], tokenizer="whitespace", kinds=["tc"], cutoffs=[5])
    assert spaces.measure(run, spaces.magnitudes(["a"], documents)).mean("RaB(tc)@5") == -1.0


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer": "bpe"},
        {"kinds": ["x"]},
        {"kinds": []},
        {"sign": "x"},
        {"cutoffs": [0]},
        {"cutoffs": []},
        {"fairr_cutoffs": [0]},
        {"families": ["MRR"]},
        {"families": "RaB"},
        {"extra": ["nDCG@10"]},
        {"extra": ["RaB(tf,young)@10"]},
        {"extra": ["Exposure(young)@10"]},
        {"threshold": -1},
        {"background_depth": 0},
    ],
)
def test_a_preset_with_a_wrong_option_is_an_error_at_once(options):
    with pytest.raises(
        ValueError,
        match=r"choose from|are of|unknown sign|no measure of fairness|use one of|is not empty|whole number",
    ):
        FairnessMeasures(**options)
