"""Word lists and word pairs: what is shipped, and what the loaders refuse."""

import csv
import os
import pickle
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from backpack_rank.attributes.lexicon import (
    Lexicon,
    WordPairs,
    count_groups,
    find_lexicon,
    load_lexicon,
    load_pairs,
)
from backpack_rank.data.words import whitespace_tokens, word_tokens


def write(folder: Path, text: str, name: str = "list.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_groups_and_words_keep_the_order_of_the_file_and_are_lower_cased(tmp_path):
    path = write(tmp_path, "group,word\nold,Elder\nyoung,kid\nold,aged\n\n")
    lexicon = load_lexicon(path)
    assert lexicon.name == "list"
    assert lexicon.path == path
    assert lexicon.group_names == ("old", "young")
    assert dict(lexicon.groups) == {"old": ("elder", "aged"), "young": ("kid",)}
    assert lexicon.words == {"elder", "aged", "kid"}


def test_a_cell_that_is_no_word_is_refused_whatever_other_readers_allow(tmp_path):
    path = write(tmp_path, f"group,word\nold,{'y' * 200_000}\n")
    before = csv.field_size_limit()
    try:
        for limit in (before, 10**9):
            csv.field_size_limit(limit)
            with pytest.raises(ValueError, match=r"list\.csv, line 2: "):
                load_lexicon(path)
    finally:
        csv.field_size_limit(before)


def test_a_file_that_a_spreadsheet_saved_with_a_byte_order_mark_is_read(tmp_path):
    assert dict(load_lexicon(write(tmp_path, "\ufeffword,group\nshe,f\nhe,m\n")).groups) == {
        "f": ("she",),
        "m": ("he",),
    }
    assert load_pairs(write(tmp_path, "\ufefff,m\nshe,he\n"), None).sides == ("f", "m")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_may_be_characters_of_their_own_in_lists_and_texts(tmp_path, form):
    pairs, groups = (
        unicodedata.normalize(form, text)
        for text in ("f,m\nfiancée,fiancé\n", "word,group\nrené,m\nva,f\n")
    )
    assert load_pairs(write(tmp_path, pairs), None).pairs == (("fiancée", "fiancé"),)
    lexicon = load_lexicon(write(tmp_path, groups))
    assert lexicon.groups["m"] == ("rené",)
    text = unicodedata.normalize(form, "va René et rené va")
    for tokenizer in (word_tokens, whitespace_tokens):
        assert count_groups([text], lexicon, tokenizer).tolist() == [[2, 2]]


def test_a_decomposed_word_of_a_list_in_memory_is_refused():
    with pytest.raises(ValueError, match=r"accents as characters of their own \(NFD\)"):
        WordPairs("p", ("f", "m"), (("fiancée", unicodedata.normalize("NFD", "fiancé")),))


def test_a_lexicon_survives_pickling(tmp_path):
    lexicon = load_lexicon("gender_words")
    assert pickle.loads(pickle.dumps(lexicon)) == lexicon


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,group\nshe,f\nhe,m\nShe,f\n", r"line 4: 'she' occurs twice \(first on line 2\)"),
        (
            "word,group\nshe,f\nshe,m\n",
            r"line 3: 'she' is in two groups, 'f' and 'm' \(first on line 2\)",
        ),
        ("word,group\nshe,f\n,m\n", r"line 3: the cell of column 'word' is empty"),
        ("word,group\nshe,f\nhe,  \n", r"line 3: the cell of column 'group' is empty"),
        ("word\nshe\n", r"line 1: .*missing: group"),
        ("she,f\nhe,m\n", r"line 1: .*missing: word, group; unknown: she, f"),
        ("word,group,weight\nshe,f,1\n", r"line 1: .*unknown: weight"),
        ("word,word,group\nshe,she,f\n", r"line 1: the header must be word,group"),
        ("", r"line 1: .*missing: word, group"),
        ("word,group\nshe,f\nhe\n", r"line 3: 2 cells expected, found 1"),
        ("word,group\nshe,f\nhe,m,x\n", r"line 3: 2 cells expected, found 3"),
        ("word,group\nshe,f\nyoung man,m\n", r"line 3: 'young man' is no single word"),
        ("word,group\nshe,f\nher,f\n", r"fewer than two groups in column 'group' \(found: f\)"),
        ("word,group\n", r"fewer than two groups in column 'group' \(found: none\)"),
    ],
)
def test_a_bad_word_list_is_refused_with_file_and_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        load_lexicon(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("female,male\nshe,he\nShe,him\n", r"line 3: 'she' occurs twice \(first on line 2\)"),
        ("female,male\nshe,he\nhe,she\n", r"line 3: 'he' occurs twice \(first on line 2\)"),
        ("female,male\ndoctor,Doctor\n", r"line 2: both sides of the pair are 'doctor'"),
        ("female,male\nshe,\n", r"line 2: the cell of column 'male' is empty"),
        ("female\nshe\n", r"line 1: .*missing: male"),
        ("she,he\n", r"line 1: .*missing: female, male"),
        ("female,male,note\nshe,he,x\n", r"line 1: .*unknown: note"),
        ("female,male\n", r"there is no pair below the header"),
    ],
)
def test_bad_word_pairs_are_refused_with_file_and_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        load_pairs(path)
    assert str(path) in str(caught.value)


def test_pairs_follow_the_named_sides_and_not_the_order_of_columns(tmp_path):
    path = write(tmp_path, "male,female\nhe,She\n")
    assert load_pairs(path).pairs == (("she", "he"),)
    ages = write(tmp_path, "old,young\nelder,kid\n", "ages.csv")
    expected = WordPairs("ages", ("young", "old"), (("kid", "elder"),), ages)
    assert load_pairs(ages, sides=("young", "old")) == expected


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"f": ("she",)}, "fewer than two groups"),
        ({"f": ("she",), "m": ()}, "group 'm' has no words"),
        ({"f": ("she",), "m": ("she",)}, "'she' is in 'f' and again in 'm'"),
        ({"f": ("she", "she"), "m": ("he",)}, "'she' is in 'f' and again in 'f'"),
        ({"f": ("She",), "m": ("he",)}, "'She' is not lower-cased"),
    ],
)
def test_a_lexicon_made_in_memory_is_checked_too(groups, message):
    with pytest.raises(ValueError, match=message):
        Lexicon("mine", groups)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ((), "there is no pair"),
        ((("she", "she"),), "both sides of a pair are 'she'"),
        ((("she", "he"), ("her", "he")), "'he' is in two pairs"),
    ],
)
def test_pairs_made_in_memory_are_checked_too(pairs, message):
    with pytest.raises(ValueError, match=message):
        WordPairs("mine", ("female", "male"), pairs)


def test_a_name_is_found_in_the_repositorys_folder_from_any_working_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert find_lexicon("gender_words") == find_lexicon("gender_words.csv")
    assert find_lexicon("gender_words").parent.name == "lexicons"


def test_a_name_is_found_in_the_working_directorys_lexicons_folder(tmp_path, monkeypatch):
    (tmp_path / "lexicons").mkdir()
    mine = write(tmp_path / "lexicons", "word,group\na,x\nb,y\n", "mine.csv")
    monkeypatch.chdir(tmp_path)
    assert find_lexicon("mine") == mine


def test_a_path_as_given_comes_before_the_folders(tmp_path, monkeypatch):
    path = write(tmp_path, "word,group\na,x\nb,y\n", "gender_words.csv")
    monkeypatch.chdir(tmp_path)
    assert load_lexicon("gender_words.csv").words == {"a", "b"}
    assert find_lexicon(path) == path


def test_a_list_that_is_nowhere_names_the_places_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"'no_such_list' was not found") as caught:
        load_lexicon("no_such_list")
    assert str(tmp_path / "lexicons" / "no_such_list.csv") in str(caught.value)
    assert str(find_lexicon("gender_words").parent / "no_such_list.csv") in str(caught.value)


@pytest.mark.parametrize(("name", "size"), [("gender_words", 32), ("gender_words_163", 163)])
def test_shipped_word_lists_have_the_published_sizes(name, size):
    lexicon = load_lexicon(name)
    assert lexicon.group_names == ("female", "male")
    assert [len(words) for words in lexicon.groups.values()] == [size, size]


def test_the_short_shipped_list_is_part_of_the_long_one():
    short, long = load_lexicon("gender_words"), load_lexicon("gender_words_163")
    for group in short.group_names:
        assert set(short.groups[group]) < set(long.groups[group])


def test_shipped_pairs_agree_with_the_shipped_word_list_about_sides():
    pairs, lexicon = load_pairs("gender_pairs"), load_lexicon("gender_words")
    assert pairs.sides == ("female", "male")
    assert 30 <= len(pairs.pairs) <= 40
    assert {("she", "he"), ("her", "him"), ("hers", "his"), ("woman", "man")} <= set(pairs.pairs)
    for female, male in pairs.pairs:
        assert female not in lexicon.groups["male"]
        assert male not in lexicon.groups["female"]


@pytest.mark.parametrize("name", ["gender_words", "gender_words_163"])
def test_every_shipped_word_is_one_word_for_the_tokenizer(name):
    assert all(word_tokens(word) == [word] for word in load_lexicon(name).words)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gender_words", "wordlist_genderspecific.txt"),
        ("gender_words_163", "wordlist_gender_representative.txt"),
    ],
)
def test_shipped_word_lists_equal_the_published_ones(name, published):
    folder = os.environ.get("BACKPACK_RANK_DATA")
    if not folder:
        pytest.skip("set BACKPACK_RANK_DATA to the folder with gender_bias_ir")
    rows = (Path(folder) / "gender_bias_ir" / published).read_text(encoding="utf-8").split()
    expected = {"f": set(), "m": set()}
    for row in rows:
        word, group = row.split(",")
        expected[group].add(word.lower())
    lexicon = load_lexicon(name)
    assert set(lexicon.groups["female"]) == expected["f"]
    assert set(lexicon.groups["male"]) == expected["m"]


PRONOUNS = Lexicon("pronouns", {"female": ("she", "her"), "male": ("he", "him", "his")})


def test_whitespace_tokens_split_at_single_spaces_only():
    assert whitespace_tokens("She said,  he's\tHe, left.") == [
        "she",
        "said,",
        "",
        "he's\the,",
        "left.",
    ]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("he, HE. (he) he!", ["he"] * 4),
        ("she's", ["she", "s"]),
        ("she\u2019s", ["she", "s"]),
        ("father-in-law", ["father", "in", "law"]),
        ("_she_ gen3", ["she", "gen3"]),
        ("caf\u00e9 \u043e\u043d\u0430", ["caf\u00e9", "\u043e\u043d\u0430"]),
        ("fiance\u0301e", ["fianc\u00e9e"]),
        ("\u2026 -- '", []),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_in_lower_case(text, tokens):
    assert word_tokens(text) == tokens


def test_counts_are_per_group_in_the_lexicons_order():
    texts = ["She gave her book to him.", "nothing here", "he he HE", ""]
    expected = [[2, 1], [0, 0], [0, 3], [0, 0]]
    counts = count_groups(texts, PRONOUNS)
    assert counts.dtype == np.int64
    assert counts.tolist() == expected


def test_whitespace_counts_miss_words_with_punctuation():
    texts = ["she, he and him", "(he)"]
    assert count_groups(texts, PRONOUNS, whitespace_tokens).tolist() == [[0, 2], [0, 0]]
    assert count_groups(texts, PRONOUNS, word_tokens).tolist() == [[1, 2], [0, 1]]


def test_the_sentence_of_the_published_notebook():
    # step1 of GenderBias_IR counts "a war day and many boys , women and men": two male words, one
    # female.
    texts = ["a war day and many boys , women and men"]
    counts = count_groups(texts, load_lexicon("gender_words"), whitespace_tokens)
    assert counts.tolist() == [[1, 2]]


def test_no_texts_give_an_empty_array_with_a_column_per_group():
    assert count_groups([], PRONOUNS).shape == (0, 2)


def test_counts_take_an_iterator_and_agree_with_a_slow_count():
    rng = random.Random(0)
    vocabulary = ["she", "her", "he", "him", "his", "hers", "the", "they", "He,", "SHE."]
    texts = [" ".join(rng.choices(vocabulary, k=rng.randrange(30))) for _ in range(200)]
    slow = []
    for text in texts:
        words = re.sub(r"[^a-z]", " ", text.lower()).split()
        slow.append(
            [sum(map(words.count, group)) for group in (["she", "her"], ["he", "him", "his"])]
        )
    assert count_groups(iter(texts), PRONOUNS).tolist() == slow


def test_a_lexicon_word_that_the_tokenizer_splits_is_refused():
    lexicon = Lexicon("kin", {"female": ("step-mother",), "male": ("he",)})
    with pytest.raises(ValueError, match=r"kin.*'step-mother'.*never be counted"):
        count_groups(["a"], lexicon)
    assert count_groups(["a step-mother"], lexicon, whitespace_tokens).tolist() == [[1, 0]]
