"""Renditions: texts that differ in listed words alone are written in the same way for each group."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.counterfactual import LexiconSwap
from backpack_rank.attributes.lexicon import Lexicon, WordPairs
from backpack_rank.attributes.renditions import RELATIONS, Renditions
from backpack_rank.attributes.word_classes import WordClass, WordClasses, load_classes

GENDER = Attribute.named("gender")
SWAP = GENDER.swap()
KEEP, MERGE = (GENDER.renditions(relations) for relations in RELATIONS)
FEMALE, MALE = 0, 1
# What a text may be made of: class words in every case, one-way words, titles, names, closed words,
# marks.
TEXT = """he She HIS her hers Him himself man WoMen Mr Mrs Ms Miss ms miss host hostess Earl countess count guy girls
lady dude Mary Sikawa Monday and of friend one The book in-laws told 's / . " ( é İ ß"""
WORDS = [*TEXT.split(), "\n"]
texts = st.lists(st.sampled_from(WORDS), max_size=14).flatmap(
    lambda words: st.lists(
        st.sampled_from(["", " ", "-"]), min_size=len(words), max_size=len(words)
    ).map(lambda gaps: "".join(word + gap for word, gap in zip(words, gaps, strict=True)))
)


@pytest.mark.parametrize(
    ("text", "as_female", "as_male"),
    [
        ("his wife", "her husband", "his wife"),
        ("Her husband told her.", "Her husband told her.", "His wife told him."),
        ("He saw him, and HIS son", "She saw her, and HER daughter", "He saw him, and HIS son"),
        ("Ms Sikawa, a hostess", "Mrs Sikawa, a host", "Mr Sikawa, a host"),
        ("I miss her; 3 ms", "I miss her; 3 ms", "I miss him; 3 ms"),
        ("his/her book", "her/his book", "his/her book"),
        ("A WoMan and John", "A woman and John", "A man and John"),
        ("the Earl", "the Count", "the Count"),
        ("no word of the lists", "no word of the lists", "no word of the lists"),
    ],
)
def test_who_is_who_is_kept(text: str, as_female: str, as_male: str) -> None:
    assert (KEEP(text, FEMALE), KEEP(text, MALE)) == (as_female, as_male)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, "fiancé", "Fiancée", "José", "Å"]), max_size=8).map(" ".join)
)
def test_decomposed_texts_have_the_renditions_and_swaps_of_composed_ones(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    forms = KEEP.canonical(composed), KEEP.canonical(decomposed)
    assert forms[0].moved == forms[1].moved
    if forms[0].moved:
        assert forms[0] == forms[1]
        assert [KEEP(composed, group) for group in (FEMALE, MALE)] == [
            KEEP(decomposed, group) for group in (FEMALE, MALE)
        ]
    else:
        assert (KEEP(decomposed, FEMALE), KEEP(decomposed, MALE)) == (decomposed, decomposed)
    assert SWAP(composed).swaps == SWAP(decomposed).swaps
    assert not SWAP(composed).swaps or SWAP(composed) == SWAP(decomposed)


def test_merged_texts_name_one_group() -> None:
    assert [MERGE("Men and women differ", group) for group in (FEMALE, MALE)] == [
        "Women and women differ",
        "Men and men differ",
    ]
    assert MERGE.canonical("his wife") == MERGE.canonical("her wife") != KEEP.canonical("his wife")
    assert KEEP.canonical("his wife") == KEEP.canonical("her husband") != KEEP.canonical("her wife")


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(texts)
def test_a_text_has_the_form_of_its_swap_and_of_its_renditions(text: str) -> None:
    for renditions in (KEEP, MERGE):
        form = renditions.canonical(text)
        assert renditions.canonical(SWAP(text).text) == form
        written = [renditions(text, group) for group in (FEMALE, MALE)]
        assert [renditions(SWAP(text).text, group) for group in (FEMALE, MALE)] == written
        assert [renditions.canonical(wording) for wording in written] == [form, form]
        assert bool(form.moved) == bool(SWAP(text).swaps)


def _real_texts(data: Path) -> Iterator[str]:
    for name in ("dl19", "wikiqa"):
        for line in (data / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["text"]
    for line in (
        (data / "gender_sentences" / "mt_geneval_pairs.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        yield from (value for value in json.loads(line).values() if isinstance(value, str))


@pytest.mark.slow
def test_every_real_text_has_the_form_of_its_swap(real_data: Path) -> None:
    swapped = [
        (text, other) for text in _real_texts(real_data) if (other := SWAP(text).text) != text
    ]
    assert len(swapped) > 5000
    for renditions in (KEEP, MERGE):
        assert [
            text
            for text, other in swapped
            if renditions.canonical(text) != renditions.canonical(other)
        ] == []


def test_wider_classes_join_synonyms() -> None:
    wide = GENDER.renditions(wide=True)
    assert wide.canonical("guys") == wide.canonical("girls")
    assert KEEP.canonical("guys") != KEEP.canonical("girls")
    assert (wide("Guys", FEMALE), wide("Guys", MALE)) == ("Girls", "Boys")
    assert (KEEP("Guys", FEMALE), KEEP("mum", FEMALE), KEEP("mum", MALE)) == ("Gals", "mom", "dad")


def test_a_word_that_nothing_replaces_is_left_in_every_rendition() -> None:
    with_names = LexiconSwap(
        WordPairs("p", ("f", "m"), (("gal", "guy"),)), Lexicon("n", {"f": ("amy",), "m": ("guy",)})
    )
    assert Renditions(with_names)("Guy and a guy", 0) == "Guy and a gal"


RELIGION = WordPairs(
    "pairs",
    ("muslim", "christian"),
    (("muslim", "christian"), ("mosque", "church"), ("islam", "rome")),
)
GROUPED = WordClasses(
    "three",
    (
        WordClass("faith", ("muslim", "christian", "jewish", "catholic")),
        WordClass("house", ("mosque", "church", "synagogue")),
        WordClass("place", ("islam", "rome")),
    ),
    groups=(
        *(
            ("muslim", "muslim"),
            ("christian", "christian"),
            ("jewish", "jewish"),
            ("catholic", "christian"),
        ),
        *(
            ("mosque", "muslim"),
            ("church", "christian"),
            ("synagogue", "jewish"),
            ("islam", "muslim"),
        ),
        ("rome", "christian"),
    ),
)


def test_several_groups_are_shifted_in_a_circle_and_any_swap_of_groups_has_one_form() -> None:
    renditions = Renditions(LexiconSwap(RELIGION), GROUPED)
    assert renditions.groups == ("muslim", "christian", "jewish")
    text = "a church of Christian and jewish people"
    assert [renditions(text, group) for group in range(3)] == [
        "a mosque of Muslim and christian people",
        "a church of Christian and jewish people",
        "a synagogue of Jewish and muslim people",
    ]
    for first, second in (
        ("church of Christian", "mosque of Muslim"),
        ("church of Christian", "synagogue of Jewish"),
    ):
        other = text.replace(first, second)
        if second.endswith("Jewish"):
            other = other.replace("jewish", "christian")
        assert renditions.canonical(other) == renditions.canonical(text)
    assert renditions.incomplete == {"islam": ("jewish",)}, (
        "a class without a word of a group stays as it is"
    )
    assert renditions("rome", 0) == "rome"
    assert renditions("catholic", 0) == "catholic", (
        "a word of a side that the swap leaves alone stays too"
    )


def test_a_third_group_beside_the_sides_of_the_swap(tmp_path: Path) -> None:
    (tmp_path / "three.csv").write_text(
        "class,word,group\nking,king,male\nking,monarch,neutral\n", encoding="utf-8"
    )
    renditions = Renditions(GENDER.swap(), load_classes(tmp_path / "three.csv"))
    assert renditions.groups == ("male", "neutral", "female")
    assert [renditions("the queen met her aunt", group) for group in range(3)] == [
        f"the {word} met her aunt" for word in ("king", "monarch", "queen")
    ]
    assert renditions.incomplete["her"] == ("neutral",), "no pronoun without a group"
    with_them = WordClasses(
        "them", (WordClass("her", ("her", "them")),), groups=(("her", "female"), ("them", "x"))
    )
    renditions = Renditions(GENDER.swap(), with_them)
    assert [renditions("he met his friend", group) for group in range(3)] == [
        f"he met {word} friend" for word in ("her", "them", "his")
    ]


def test_a_word_of_two_groups_is_refused() -> None:
    wrong = WordClasses(
        "list", (WordClass("faith", ("muslim", "christian")),), groups=(("muslim", "christian"),)
    )
    with pytest.raises(ValueError, match="'muslim' is christian in list and muslim in the swap"):
        Renditions(LexiconSwap(RELIGION), wrong)
    with pytest.raises(ValueError, match=r"policy\.relations=both: use one of keep, merge"):
        GENDER.renditions("both")


def test_a_file_of_classes_may_name_groups(tmp_path: Path) -> None:
    (tmp_path / "three.csv").write_text(
        "class,word,group\nfaith,Muslim,muslim\nfaith,jewish,jewish\n", encoding="utf-8"
    )
    classes = load_classes(tmp_path / "three.csv")
    assert classes.group_of == {"muslim": "muslim", "jewish": "jewish"}
    assert load_classes("gender_classes").group_of == {}


@cache
def _renditions_of(
    name: str, relations: str
) -> tuple[tuple[str, str], Renditions, LexiconSwap, list[str]]:
    """Sides, renditions, swap and words of an attribute; its files are read once for all examples."""
    attribute = Attribute.named(name)
    renditions, swap = attribute.renditions(relations, wide=True), attribute.swap()
    beyond = swap.words - renditions.words  # of a class that lacks a group
    words = sorted((attribute.classes(wide=True).words | attribute.lexicon().words) - beyond)
    return attribute.sides, renditions, swap, words


@pytest.mark.slow
@pytest.mark.parametrize("name", ["religion", "age", "ethnicity"])
@pytest.mark.parametrize("relations", RELATIONS)
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_texts_of_other_attributes_have_the_form_of_their_swap(
    name: str, relations: str, data: st.DataObject
) -> None:
    sides, renditions, swap, words = _renditions_of(name, relations)
    assert set(sides) <= set(renditions.groups)
    text = " ".join(data.draw(st.lists(st.sampled_from([*words, "and", "the"]), max_size=8)))
    assert renditions.canonical(swap(text).text) == renditions.canonical(text)
    for group in range(len(renditions.groups)):
        assert renditions.canonical(renditions(text, group)) == renditions.canonical(text)


def test_a_class_that_lacks_a_group_says_so() -> None:
    renditions = Attribute.named("ethnicity").renditions()
    assert renditions.groups == ("african", "asian", "european", "hispanic")
    assert renditions.incomplete == {"africa": ("hispanic",)}
    assert renditions("Africa", 2) == "Africa"
    assert [renditions("an Asian in Europe", group) for group in range(4)] == [
        f"an {people} in Europe" for people in ("African", "Asian", "European", "Hispanic")
    ]
