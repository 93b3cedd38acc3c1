"""Long texts are cut before they are tokenised, and no token that is read changes by that."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_tokenizers import KINDS

from backpack_rank.data.batching import join_pairs
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.vocabulary import WordPairTokenizer, word_tokenizer
from backpack_rank.models.sequence_classifier import TemplatePairTokenizer

LENGTH = 8
PIECES = [
    "her",
    " his ",
    "He said: ",
    "nurse,",
    "x",
    "-",
    " ",
    "\n",
    "\t \u00a0",
    "\x00",
    "\u200b",
    "e\u0301",
    "\u0301",
    "漢字",
    "🙂",
    "Ⅷ",
]
TEXTS = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from([1, 1, 1, 2, 5, 40, 200, 1500])),
    min_size=1,
    max_size=12,
).map(lambda parts: "".join(piece * times for piece, times in parts))


class Counting(PairTokenizer):
    """Counts the characters that it is asked to encode."""

    characters = 0

    def encode(self, texts):
        Counting.characters += sum(map(len, texts))
        return super().encode(texts)


@pytest.fixture(scope="module", params=[*KINDS, "template", "vocabulary"])
def pair_tokenizer(request):
    if request.param == "template":
        return TemplatePairTokenizer(KINDS["bert"](), LENGTH + 5, None, (2,), (4,), (3,))
    if request.param == "vocabulary":
        return WordPairTokenizer(word_tokenizer(["her", "his", "nurse"], 0), LENGTH)
    return PairTokenizer(KINDS[request.param](), LENGTH)


@settings(max_examples=40, deadline=None)
@example(["\u0301" * 1500 + " " + "\u0301" * 200])  # two words without a letter
@example(["\u0301" * 1500 + "\u200b" + "\u0301" * 200])
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_cut_text_is_read_as_the_whole_one(pair_tokenizer, texts):
    query = pair_tokenizer.encode_query("her")
    joined = join_pairs(pair_tokenizer, [("her", text) for text in texts])
    uncut = pair_tokenizer.encode(texts)
    room = pair_tokenizer.room(query)
    for beginning, cut, ids in zip(joined.sequences, joined.is_cut, uncut, strict=True):
        assert beginning.tolist() == pair_tokenizer.join(query, ids).tolist()
        assert cut == (len(ids) > room)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "xlm-roberta"])
@pytest.mark.parametrize(
    "unit", ["her his him ", "e", " ", "\x00", "\u0301", "漢", "e " + 100 * " ", "x" * 2000 + " "]
)
def test_the_work_does_not_grow_with_the_length_of_a_text(kind, unit):
    pair_tokenizer = Counting(KINDS[kind](), LENGTH)
    text = "the nurse said " + unit * (3_000_000 // len(unit)) + " his"
    Counting.characters = 0
    (beginning,) = pair_tokenizer.beginnings([text])
    assert Counting.characters < 500_000
    (expected,) = pair_tokenizer.encode([text[:300_000]])
    # Behind stretches of blanks more is read than in a plain beginning.
    assert beginning.ids[: len(expected[:LENGTH])].tolist() == expected[:LENGTH].tolist()


def test_only_blanks_are_left_out_of_a_text_that_is_complete():
    pair_tokenizer = PairTokenizer(KINDS["bert"](), LENGTH)
    (beginning,) = pair_tokenizer.beginnings(["the nurse" + 2_000_000 * " " + "said"])
    assert beginning.is_complete
    assert beginning.ids.tolist() == pair_tokenizer.encode(["the nurse said"])[0].tolist()


def test_a_query_of_megabytes_is_refused_without_being_counted():
    pair_tokenizer = PairTokenizer(KINDS["gpt2"](), LENGTH)
    with pytest.raises(
        ValueError, match=r"the query has more than \d+ tokens and max_length=8 leaves no room"
    ):
        pair_tokenizer.encode_query("nurse " * 1_000_000)


def test_two_wordings_of_a_long_text_are_read_alike_after_cutting():
    pair_tokenizer = PairTokenizer(KINDS["bert"](), LENGTH)
    tail = "the sheets " * 100_000
    first, second = ("the man " + tail, "the man " + "the sheets " * 5_000)
    assert pair_tokenizer.cut(first) != first
    assert (
        pair_tokenizer.reading(first)
        == pair_tokenizer.reading(second)
        == pair_tokenizer.reading(pair_tokenizer.cut(first))
    )
    assert pair_tokenizer.reading("the woman " + tail) != pair_tokenizer.reading(first)
