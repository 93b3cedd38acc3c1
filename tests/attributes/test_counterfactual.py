"""The counterfactual swap: pronouns by the next word, case and everything else kept."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.counterfactual import LexiconSwap, Swapped
from backpack_rank.attributes.lexicon import Lexicon, WordPairs, load_one_way, load_pairs

PAIRS = load_pairs("gender_swap_pairs")
ONE_WAY = load_one_way("gender_one_way")
swap = LexiconSwap(PAIRS, one_way=ONE_WAY)
PRONOUNS = {"her", "his", "him", "hers"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I saw her.", "I saw him."),
        ("I saw her", "I saw him"),
        ("her book", "his book"),
        ("her own book and her other books", "his own book and his other books"),
        ("saw her and left", "saw him and left"),
        ("told her that he", "told him that she"),
        ("gave her the book, gave her a book", "gave him the book, gave him a book"),
        ("took her to her mother", "took him to his father"),
        ("looked at her, smiling", "looked at him, smiling"),
        ("her in-laws and her on-screen son", "his in-laws and his on-screen daughter"),
        ('her "friend" and her (late) husband', 'his "friend" and his (late) wife'),
        ("her 1998 album earned her $4", "his 1998 album earned his $4"),
        ("gave her one of them; her one wish", "gave him one of them; his one wish"),
        ("HER BOOK, saw HER!", "HIS BOOK, saw HIM!"),
        ("Her life.\nHer\nhusband", "His life.\nHis\nwife"),
        ("his book", "her book"),
        ("a friend of his.", "a friend of hers."),
        ("The idea was his, not ours", "The idea was hers, not ours"),
        ("a friend of his who", "a friend of hers who"),
        ("his will; his then girlfriend", "her will; her then boyfriend"),
        ("his or her age, his/her age", "her or his age, her/his age"),
        ("in his The Time Machine", "in her The Time Machine"),
        ("A Friend Of His And Mine", "A Friend Of Her And Mine"),
        ("his-and-hers towels", "hers-and-his towels"),
        ("with him; hers is older", "with her; his is older"),
        ("He himself", "She herself"),
    ],
)
def test_pronouns_follow_the_next_word(text: str, expected: str) -> None:
    assert swap(text).text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Man, the MAN and the man", "The Woman, the WOMAN and the woman"),
        ("the mAn", "the woman"),
        (
            "women's clothes, WOMEN\u2019S, Mother\u2019s",
            "men's clothes, MEN\u2019S, Father\u2019s",
        ),
        ("He's here, she'll come", "She's here, he'll come"),
        ("Mother-in-law's", "Father-in-law's"),
        ("mankind, human, the, sheriff, manly_man", "mankind, human, the, sheriff, womanly_woman"),
        ("Mr. Smith and Mrs Jones, Ms. Lee, Ms Ray", "Mrs. Smith and Mr Jones, Mr. Lee, Mr Ray"),
        ("Miss Marple would miss it in 5 ms, MS DOS", "Mr Marple would miss it in 5 ms, MS DOS"),
        ("the lord and the lady", "the lady and the gentleman"),
        ("his fiancé met a princess", "her fiancée met a prince"),
        ("", ""),
        ("  two  spaces\t\r\n", "  two  spaces\t\r\n"),
    ],
)
def test_case_possessives_compounds_and_titles(text: str, expected: str) -> None:
    assert swap(text).text == expected


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKD"])
def test_accents_as_characters_of_their_own_make_no_difference(form: str) -> None:
    text = unicodedata.normalize(form, "Her FIANCÉ, the naïve fiancée's and José's wife")
    assert swap(text) == Swapped("His FIANCÉE, the naïve fiancé's and José's husband", 4, 0)
    assert swap(swap(text).text).text == unicodedata.normalize("NFC", text)


def test_a_decomposed_text_without_words_of_the_lists_stays_as_it_is() -> None:
    text = unicodedata.normalize("NFD", "José, naïve \u212b")
    assert swap(text) == Swapped(text, 0, 0)
    with_names = LexiconSwap(PAIRS, Lexicon("names", {"f": ("renée",), "m": ("rené",)}))
    renée = unicodedata.normalize("NFD", "Renée naïve")
    assert with_names(renée) == Swapped(renée, 0, 1)


def test_words_are_counted() -> None:
    assert swap("He and she met a doctor") == Swapped("She and he met a doctor", 2, 0)


def test_capitalised_names_are_left_alone_and_counted() -> None:
    names = Lexicon("names", {"f": ("mary", "rose"), "m": ("john", "king")})
    with_names = LexiconSwap(PAIRS, names, ONE_WAY)
    swapped = with_names("Mary rose when King met a king; JOHN's son")
    assert swapped == Swapped("Mary rose when King met a queen; JOHN's daughter", 2, 3)
    assert swap("Mary met King").names == 0


def test_pairs_of_other_attributes_follow_no_pronoun_rules() -> None:
    religion = LexiconSwap(
        load_pairs("religion_pairs", sides=None), one_way=load_one_way("religion_one_way")
    )
    assert (
        religion("Her mosque, an Islamic school; the Quran").text
        == "Her church, an Christian school; the Bible"
    )
    plain = LexiconSwap(WordPairs("p", ("f", "m"), (("her", "his"),)))
    assert not plain.pronouns
    assert plain("saw her").text == "saw his"


def test_a_word_in_pairs_and_among_one_way_words_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'she' is in the word pairs 'gender_swap_pairs' and again"
    ):
        LexiconSwap(PAIRS, one_way={"she": "it"})


NEITHER = (
    "doctor",
    "Said",
    "2019",
    "naïve",
    "ship",
    "the",
    "ever-green",
    "don't",
    "”",
    "…",
    "_x",
    "Ω",
)
PAIRED = sorted({word for pair in PAIRS.pairs for word in pair} - PRONOUNS)
SPACES = st.sampled_from(
    [" ", "  ", "\n", ", ", ". ", "-", "/", " (", ") ", "'s ", "\u2019s ", "\u00a0", "\u200b"]
)


def texts(words: list[str]) -> st.SearchStrategy[str]:
    cased = st.sampled_from(words).flatmap(
        lambda word: st.sampled_from([word, word.capitalize(), word.upper()])
    )
    piece = st.tuples(cased, SPACES).map("".join)
    return st.lists(piece, max_size=12).map("".join)


@settings(max_examples=100, deadline=None)
@given(texts([*PAIRED, *NEITHER]))
def test_swapping_twice_gives_the_text_back(text: str) -> None:
    once = swap(text)
    assert swap(once.text) == Swapped(text, once.swaps, 0)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_a_text_without_a_word_of_the_lists_is_unchanged(text: str) -> None:
    known = {word for pair in PAIRS.pairs for word in pair} | ONE_WAY.keys()
    swapped = swap(text)
    if not known & {word.lower() for word in re.findall(r"[^\W_]+", text)}:
        assert swapped == Swapped(text, 0, 0)


@settings(max_examples=100, deadline=None)
@given(texts([*PAIRED, *sorted(PRONOUNS), *NEITHER]))
def test_nothing_but_words_of_the_lists_changes(text: str) -> None:
    word = re.compile(r"[^\W_]+")
    swapped = swap(text)
    assert word.sub("", swapped.text) == word.sub("", text)
    before, after = word.findall(text), word.findall(swapped.text)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == swapped.swaps
    assert all(old.lower() in PAIRED or old.lower() in PRONOUNS for old, _ in changed)
    assert all(
        old.isupper() == new.isupper() and old.istitle() == new.istitle() for old, new in changed
    )


def test_human_swaps_of_wikipedia_sentences_are_mostly_met(real_data: Path) -> None:
    lines = (
        (real_data / "gender_sentences" / "mt_geneval_pairs.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    pairs = [json.loads(line) for line in lines]
    to_female = sum(swap(pair["masculine"]).text == pair["feminine"] for pair in pairs) / len(pairs)
    to_male = sum(swap(pair["feminine"]).text == pair["masculine"] for pair in pairs) / len(pairs)
    # Measured: .839 and .830. Most others use a word of another list (lord for lady, priestess for
    # priest).
    assert to_female > 0.82
    assert to_male > 0.81
