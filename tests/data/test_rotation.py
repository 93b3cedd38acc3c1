"""Rotation: eq. 7 on words, the way of spans, draws by seed and id, sentences, and documents of a
store.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.rotation import (
    RotatedStore,
    Rotation,
    rotate_at,
    sentence_starts,
    word_starts,
)

TEXT = "one two three four five"
WORDS = st.text(st.sampled_from("ab.é😀 \n\t\u3000"), max_size=8)
PASSAGES = st.lists(WORDS, max_size=12).map(" ".join)


def rotated(text: str, first: int) -> str:
    return rotate_at(text, word_starts(text), first).text


def by_hand(text: str, first: int) -> list[str]:
    """Eq. 7 on a list of words."""
    words = text.split()
    return words[first - 1 :] + words[: first - 1]


def test_word_r_stands_first_and_the_words_before_it_follow() -> None:
    assert rotated(TEXT, 1) == TEXT
    assert rotated(TEXT, 2) == "two three four five one"
    assert rotated(TEXT, 5) == "five one two three four"


def test_white_space_moves_with_the_words() -> None:
    # The tab before "c" comes between the last word and the first; line breaks inside a part stay.
    assert rotated(" a\nb\tc  d \n", 3) == " c  d\ta\nb \n"


@pytest.mark.parametrize("first", [0, 6])
def test_there_is_no_word_zero_and_none_behind_the_last(first: int) -> None:
    with pytest.raises(ValueError, match=f"a text of 5 units has no unit {first}"):
        rotated(TEXT, first)


@given(PASSAGES, st.integers(1, 20))
def test_the_words_are_those_of_eq_7_and_the_characters_are_the_same(text: str, first: int) -> None:
    count = len(text.split())
    first = min(first, max(count, 1))
    rotation = rotate_at(text, word_starts(text), first)
    assert rotation.units == count
    assert rotation.text.split() == by_hand(text, first)
    assert Counter(rotation.text) == Counter(text)


@given(PASSAGES, st.integers(1, 20), st.data())
def test_a_span_keeps_its_text_or_is_reported_as_cut(text: str, first: int, data: st.DataObject):
    words = text.split()
    if not words:
        return
    first = min(first, len(words))
    rotation = rotate_at(text, word_starts(text), first)
    last = data.draw(st.integers(1, len(words)))
    begin = data.draw(st.integers(1, last))  # words begin..last, counted from 1
    starts = word_starts(text)
    start, end = starts[begin - 1], starts[last - 1] + len(words[last - 1])
    moved = rotation.moved(start, end)
    is_cut = begin < first <= last
    assert (moved is None) is is_cut
    if moved is not None:
        assert rotation.text[slice(*moved)] == text[start:end]
        # and it is that occurrence, not another one: as many words stand before it as eq. 7 says
        assert len(rotation.text[: moved[0]].split()) == (begin - first) % len(words)


def test_a_part_of_a_word_moves_with_it_and_the_seam_is_no_place() -> None:
    rotation = rotate_at("alpha beta gamma", word_starts("alpha beta gamma"), 2)
    assert rotation.text == "beta gamma alpha"
    assert rotation.moved(1, 4) == (12, 15)  # "lph"
    assert rotation.moved(7, 9) == (1, 3)  # "et"
    assert rotation.moved(3, 8) is None  # "ha be": cut
    assert rotation.moved(0, 6) is None  # "alpha ": the space stands elsewhere
    assert rotation.moved(6, 16) == (0, 10)
    with pytest.raises(ValueError, match=r"\(4, 4\) is no span"):
        rotation.moved(4, 4)
    with pytest.raises(ValueError, match=r"\(4, 17\) is no span of a text of 16 characters"):
        rotation.moved(4, 17)


def test_a_text_that_is_not_rotated_keeps_every_span() -> None:
    rotation = rotate_at("a b ", word_starts("a b "), 1)
    assert rotation.moved(1, 4) == (1, 4)


@pytest.mark.parametrize("text", ["", " \n", "word", " word "])
def test_texts_of_at_most_one_word_stay(text: str) -> None:
    for number in range(20):
        assert Rotation(seed=number).rotate("d", text).text == text


def test_the_draw_is_uniform_and_depends_on_seed_and_id_alone() -> None:

    def drawn(seed: int, count: int) -> list[int]:
        return [Rotation(seed=seed).first(f"d{number}", 7) for number in range(count)]

    draws = np.array([drawn(0, 4000), drawn(1, 4000)])
    assert draws.min() == 1
    assert draws.max() == 7
    for counts in [np.bincount(row, minlength=8)[1:] for row in draws]:
        assert stats.chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(draws)[0, 1]) < 0.06
    assert draws[0][:50].tolist() == drawn(0, 50)
    # How a draw is made must not change: rotated collections could not be rebuilt.
    for number in range(8):
        digest = hashlib.blake2b(f"1 d{number}".encode(), digest_size=8).hexdigest()
        assert draws[1][number] == 1 + math.floor(7 * Fraction(int(digest, 16), 2**64))


def test_sentences_end_at_full_stops_before_capitals() -> None:
    text = 'Dr. Smith met J. R. Brown in the U.S. Senate. "Was it late?" he asked. It cost 3.5 million! 2008 was bad.'
    starts = sentence_starts(text)
    ends = [*starts[1:], len(text)]
    assert [text[start:end].strip() for start, end in zip(starts, ends, strict=True)] == [
        "Dr. Smith met J. R. Brown in the U.S. Senate.",
        '"Was it late?" he asked.',
        "It cost 3.5 million!",
        "2008 was bad.",
    ]
    assert sentence_starts("  no full stop\nanywhere here") == [2]
    assert sentence_starts(" ") == []


def test_rotation_by_sentences_cuts_between_sentences_only() -> None:
    text = "First one here.  Second one.\nThird."
    seen = {Rotation("sentence", seed).rotate("d", text).text for seed in range(40)}
    others = {"Second one.\nThird.  First one here.", "Third.\nFirst one here.  Second one."}
    assert seen == {text, *others}
    assert Rotation("sentence", 3).rotate("d", "one sentence without an end").first == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "page"}, "data.rotation_level=page: use one of word, sentence"),
        ({"seed": "x"}, "data.rotation_seed='x' must be a whole number"),
        ({"seed": True}, "data.rotation_seed=True must be a whole number"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rotation(**options)


@pytest.fixture
def store() -> MemoryStore:
    texts = [" ".join(f"w{number + word}" for word in range(12)) for number in range(30)]
    return MemoryStore({f"d{number}": text for number, text in enumerate(texts)})


def test_a_store_gives_the_same_rotated_texts_in_every_way(store: MemoryStore) -> None:
    rotation = Rotation(seed=5)
    rotated_store = RotatedStore(store, rotation)
    every = dict(rotated_store)
    assert every == {doc_id: rotation.rotate(doc_id, text).text for doc_id, text in store}
    assert sum(every[doc_id] != text for doc_id, text in store) > 20
    assert rotated_store.get_many(["d3", "d1"]) == {"d3": every["d3"], "d1": every["d1"]}
    assert len(rotated_store) == 30
    assert "d3" in rotated_store
    assert "x" not in rotated_store
    assert dict(pickle.loads(pickle.dumps(rotated_store))) == every
    with pytest.raises(KeyError, match="'x'"):
        rotated_store.get_many(["d1", "x"])


def test_fingerprints_differ_by_seed_level_and_documents(store: MemoryStore) -> None:
    other = MemoryStore({"d0": "other text"})
    prints = {store.fingerprint, RotatedStore(other, Rotation()).fingerprint}
    for level, seed in itertools.product(("word", "sentence"), (0, 1)):
        prints.add(RotatedStore(store, Rotation(level, seed)).fingerprint)
    assert len(prints) == 6


def test_bm25_scores_do_not_change(store: MemoryStore) -> None:
    queries = {"q": "w12 w13 w20"}
    stage, rotated_store = Bm25(depth=30, cache=False), RotatedStore(store, Rotation())
    run = stage.candidates(Collection("c", store, queries, {}))
    assert run == stage.candidates(Collection("c", rotated_store, queries, {}))
    assert len(run["q"]) > 5
