"""Tokens of a text and counts of lexicon words."""

import random
import re

import numpy as np
import pytest

from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.attributes.words import count_groups
from backpack_rank.data.words import whitespace_tokens, word_tokens

PRONOUNS = Lexicon("pronouns", {"female": ("she", "her"), "male": ("he", "him", "his")})


def test_whitespace_tokens_split_at_single_spaces_only():
    assert whitespace_tokens("She said,  he's\tHe, left.") == ["she", "said,", "", "he's\the,", "left."]


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
def test_word_tokens(text, tokens):
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
    # step1 of GenderBias_IR counts "a war day and many boys , women and men": two male words, one female.
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
        slow.append([sum(map(words.count, group)) for group in (["she", "her"], ["he", "him", "his"])])
    assert count_groups(iter(texts), PRONOUNS).tolist() == slow


def test_a_lexicon_word_that_the_tokenizer_splits_is_refused():
    lexicon = Lexicon("kin", {"female": ("step-mother",), "male": ("he",)})
    with pytest.raises(ValueError, match=r"kin.*'step-mother'.*never be counted"):
        count_groups(["a"], lexicon)
    assert count_groups(["a step-mother"], lexicon, whitespace_tokens).tolist() == [[1, 0]]
