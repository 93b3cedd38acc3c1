"""Words of a collection as ids: which are kept, what becomes of the others, and how pairs are
joined.
"""

import logging
import re
from collections import Counter

import numpy as np
import pytest

from backpack_rank.data.sources.beir import load_beir
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.data.vocabulary import WordPairTokenizer, WordVocabulary, word_tokenizer, words

TEXTS = ["The ward, the WARD!", "a nurse in the ward", "nurse's note: vitamin D_3, 2019", ""]


def pair_tokenizer(unknown="hash", buckets=50, max_length=20, **options):
    vocabulary = WordVocabulary(1, None, unknown, buckets, **options)
    return WordPairTokenizer(vocabulary.build(TEXTS), max_length)


def names(tokenizer):
    return tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))


def test_frequent_words_come_first_and_equally_frequent_ones_by_spelling():
    tokenizer = WordVocabulary(min_count=1).build(TEXTS)
    #           3      3       2        1 each
    expected = ["the", "ward", "nurse", "2019", "a", "d_3", "in", "note", "s", "vitamin"]
    assert names(tokenizer) == ["[PAD]", "[UNK]", "[SEP]", *expected]


def test_minimum_count_and_maximum_size_cut_the_vocabulary():
    assert names(WordVocabulary(min_count=2).build(TEXTS))[3:] == ["the", "ward", "nurse"]
    four = names(WordVocabulary(min_count=1, max_words=4).build(TEXTS))[3:]
    assert four == ["the", "ward", "nurse", "2019"]


def test_the_order_of_the_texts_does_not_matter():
    reverse = WordVocabulary(1).build(TEXTS[::-1])
    assert names(reverse) == names(WordVocabulary(1).build(iter(TEXTS)))


def test_words_that_are_left_out_are_counted(caplog):
    with caplog.at_level(logging.INFO):
        WordVocabulary(min_count=2).build(TEXTS)
    # 8 of the 15 running words are the, ward or nurse.
    assert "46.67%" in caplog.text


def test_the_saved_tokenizer_splits_texts_as_the_encoder_does():
    """Every assigned character between two letters; tables of newer Unicode versions know more of
    them.
    """
    tokenizer = word_tokenizer(["a"])
    normalise = tokenizer.backend_tokenizer.normalizer.normalize_str
    split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
    for code in range(0x1C80):
        text = f"a{chr(code)}B"
        assert [word for word, _ in split(normalise(text))] == words(text), hex(code)


def test_words_are_those_of_the_first_stages_pattern():
    text = "Vitamin D isn't naïve: x_1 ÉCOLE 北京 ½ ² e\u0301"
    assert words(text) == re.findall(r"(?u)\b\w+\b", text.lower())
    assert words("a B") == ["a", "b"]


def test_a_pair_is_query_separator_document():
    joining = pair_tokenizer()
    ids = {word: number for number, word in enumerate(names(joining.tokenizer))}
    pairs = joining.pairs("the Nurse", ["A ward", ""])
    assert [pair.tolist() for pair in pairs] == [
        [ids["the"], ids["nurse"], ids["[SEP]"], ids["a"], ids["ward"]],
        [ids["the"], ids["nurse"], ids["[SEP]"]],
    ]
    assert {pair.dtype for pair in pairs} == {np.dtype(np.int32)}


def test_only_the_document_is_cut_and_a_query_without_room_is_refused():
    short_pairs = pair_tokenizer(max_length=6)
    (ids,) = short_pairs.pairs("the ward in", ["a a nurse note"])
    assert ids[4:].tolist() == short_pairs.encode(["a a"])[0].tolist()
    assert len(short_pairs.pairs("the ward in the", ["a a"])[0]) == 6
    with pytest.raises(ValueError, match=r"the query has 5 words and max_length=6 leaves no room"):
        short_pairs.pairs("the ward in the ward", ["a"])


@pytest.mark.parametrize("query", ["", " \n"])
def test_a_blank_query_is_refused(query):
    with pytest.raises(ValueError, match="the query is empty"):
        pair_tokenizer().pairs(query, ["a"])


def test_no_text_can_set_a_separator():
    dropping = pair_tokenizer(unknown="drop")
    assert dropping.encode(["[SEP] [PAD] [UNK]"])[0].tolist() == []


def test_hashed_words_keep_their_identity_and_stay_out_of_the_vocabulary():
    hashing = pair_tokenizer(buckets=1000)
    first, second, third = hashing.encode(["zork the", "The ZORK", "xyzzy"])
    assert first[0] == second[1] != third[0]
    for number in (first[0], third[0]):
        assert len(hashing.tokenizer) <= number < len(hashing.tokenizer) + 1000
    unknown = [f"word{number}" for number in range(3000)]
    used = Counter(ids[0] for ids in hashing.encode(unknown))
    assert len(used) > 900, "the hash must reach nearly all buckets"
    assert max(used.values()) < 15


def crc32_by_hand(data):
    """CRC-32 bit by bit, which no seed of a process changes."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize("word", ["zork", "naïve", "x"])
def test_the_bucket_of_a_word_is_the_same_in_every_process(word):
    hashing = WordPairTokenizer(word_tokenizer(["a"], 1000), 9)
    assert hashing.encode([word])[0].tolist() == [4 + crc32_by_hand(word.encode()) % 1000]


def test_dropped_words_are_left_out_of_both_texts():
    dropping = pair_tokenizer(unknown="drop")
    (ids,) = dropping.pairs("zork nurse", ["the xyzzy ward"])
    assert ids.tolist() == dropping.pairs("nurse", ["the ward"])[0].tolist()
    the = dropping.encode(["the"])[0][0]
    assert dropping.pairs("zork", ["the"])[0].tolist() == [dropping.separator_id, the]


def test_a_saved_vocabulary_gives_the_same_ids_and_fingerprint(tmp_path):
    texts = ["zork the ward", "xyzzy"]
    prints = set()
    for number, options in enumerate(({"buckets": 50}, {"buckets": 60}, {"unknown": "drop"})):
        saved = pair_tokenizer(**options)
        saved.tokenizer.save_pretrained(tmp_path / str(number))
        again = WordPairTokenizer(load_tokenizer(tmp_path / str(number)), saved.max_length)
        for ids, ids_before in zip(again.encode(texts), saved.encode(texts), strict=True):
            assert ids.tolist() == ids_before.tolist()
        assert again.fingerprint == saved.fingerprint
        prints.add(saved.fingerprint)
    assert len(prints) == 3


def test_impossible_options_are_refused():
    for options, message in (
        ({"min_count": 0}, "min_count=0"),
        ({"max_words": 0}, "max_words=0"),
        ({"unknown": "keep"}, "unknown=keep: use one of hash, drop"),
        ({"buckets": 0}, "buckets=0"),
    ):
        with pytest.raises(ValueError, match=rf"model\.tokenizer\.{message}"):
            WordVocabulary(**options)
    message = "no word occurs 9 times in the collection's 15 words: lower"
    with pytest.raises(ValueError, match=message):
        WordVocabulary(min_count=9).build(TEXTS)


def test_another_tokenizer_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"is no vocabulary of whole words.*model\.tokenizer"):
        WordPairTokenizer(tokenizer, 20).encode(["the"])


def test_the_vocabulary_of_a_real_collection_is_the_counted_one(real_data):
    collection = load_beir(real_data / "nq_open_oracle", split="dev")
    texts = [text for _, text in collection.documents]
    tokenizer = WordVocabulary(min_count=5, max_words=2000).build(texts)
    counts = Counter(word for text in texts for word in re.findall(r"(?u)\b\w+\b", text.lower()))
    expected = sorted(
        (word for word in counts if counts[word] >= 5), key=lambda word: (-counts[word], word)
    )[:2000]
    assert names(tokenizer)[3:] == expected
    pairs_of_words = WordPairTokenizer(tokenizer, 100)
    # The engine's own splitting gives the same ids wherever a word is known.
    for text in texts[:200]:
        known = [number for number in pairs_of_words.encode([text])[0] if number < len(tokenizer)]
        engine = tokenizer.backend_tokenizer.encode(text).ids
        assert [number for number in engine if number != tokenizer.unk_token_id] == known
