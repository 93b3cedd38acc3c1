"""Tokens and words of a joined text, as a person reads them."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer, train_bpe
from backpack_rank.senses.alignment import BLANK, align_tokens, whole_word_ids

TEXTS = (
    "The doctor said: she's late.",
    "señora 漢字 — ok",
    "a  b\n\nc",
    "",
    "   ",
    "<|separator|> he",
)


def spelled(pieces, segment):
    return [word.text for word in pieces.words if word.segment == segment]


@pytest.mark.parametrize("document", TEXTS)
def test_ids_are_those_that_are_scored_and_every_token_is_in_one_word(pair_tokenizer, document):
    pieces = align_tokens(pair_tokenizer, "doctor in the ward", document)
    assert list(pieces.ids) == pair_tokenizer.pairs("doctor in the ward", [document])[0].tolist()
    assert len(pieces.ids) == len(pieces.tokens) == len(pieces.segments)
    places = []
    for word in pieces.words:
        places += range(word.start, word.end)
    assert places == list(range(len(pieces.ids)))
    for word in pieces.words:
        assert set(pieces.segments[word.start : word.end]) == {word.segment}
    assert pieces.segments.count("separator") == pieces.segments.count("end") == 1
    assert pieces.segments[-1] == "end"
    assert pieces.cut == 0


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="ab zé漢's-.,\n\tN", max_size=12))
def test_words_put_together_spell_the_text(pair_tokenizer, document):
    pieces = align_tokens(pair_tokenizer, "doctor", document)
    shown = "".join(spelled(pieces, "document")).replace(BLANK, "")
    assert shown == "".join(document.split())


def test_word_pieces_are_merged_and_punctuation_stands_apart(tokenizer, pair_tokenizer):
    assert len(tokenizer(" stepmother")["input_ids"]) > 1
    pieces = align_tokens(pair_tokenizer, "doctor", "Her stepmother, she said.")
    words = [word for word in pieces.words if word.segment == "document"]
    assert [word.text for word in words] == ["Her", "stepmother", ",", "she", "said", "."]
    assert [word.space for word in words] == [True, True, False, True, True, False]


def test_a_character_of_several_tokens_is_one_word(pair_tokenizer):
    pieces = align_tokens(pair_tokenizer, "doctor", "漢 x")
    first = next(word for word in pieces.words if word.segment == "document")
    assert first.text == "漢"
    assert first.end - first.start >= 3
    assert set(pieces.tokens[first.start : first.end]) <= {"漢", BLANK}


def test_a_document_that_does_not_fit_is_cut_and_counted(tokenizer):
    pair_tokenizer = PairTokenizer(tokenizer, 10)
    document = "she said that she would see him"
    (ids,) = pair_tokenizer.encode([document])
    (query,) = pair_tokenizer.encode(["doctor"])
    pieces = align_tokens(pair_tokenizer, "doctor", document)
    assert len(pieces.ids) == 10
    assert pieces.cut == len(ids) - (10 - len(query) - 2) > 0
    assert document.startswith(" ".join(spelled(pieces, "document")))


def test_whole_words_are_tokens_that_are_no_part_of_a_word(pair_tokenizer):
    pieces = align_tokens(pair_tokenizer, "she", "he stepmother he")
    words = [pieces.tokens[i] for i in pieces.whole_words().nonzero()[0]]
    assert words == ["he", "he"]
    assert [pieces.tokens[i] for i in pieces.whole_words("query").nonzero()[0]] == ["she"]
    he = pair_tokenizer.encode(["he"])[0].tolist()
    assert whole_word_ids(pair_tokenizer, "he stepmother he").tolist() == he * 2
    assert whole_word_ids(pair_tokenizer, "").tolist() == []


def test_a_word_that_is_cut_is_no_whole_word(tokenizer):
    # " he" is the first token of " hex" here, and what follows it is cut.
    tokens = tokenizer(" hex")["input_ids"]
    assert tokens[0] == tokenizer(" he")["input_ids"][0]
    (query,) = PairTokenizer(tokenizer, 48).encode(["doctor"])
    pieces = align_tokens(PairTokenizer(tokenizer, len(query) + 3), "doctor", "hex")
    assert pieces.tokens[-2] == "he"
    assert not pieces.whole_words().any()
    pieces = align_tokens(PairTokenizer(tokenizer, len(query) + 3), "doctor", "he")
    assert pieces.whole_words().sum() == 1


def test_tokenizers_that_do_not_split_at_spaces_first_give_words_all_the_same():
    names = ["[END]", "a", "b", " a", " b", " "]
    pieces = models.BPE({name: i for i, name in enumerate(names)}, [(" ", "a"), (" ", "b")])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(pieces), eos_token="[END]", pad_token="[END]"
    )
    aligned = align_tokens(PairTokenizer(tokenizer, 20), "a", "ab b  a")
    assert spelled(aligned, "document") == ["ab", "b", "a"]


def word_pieces(names, **special):
    vocabulary = {name: place for place, name in enumerate(names)}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", **special)


def test_words_of_a_word_piece_tokenizer_keep_their_spelling():
    names = ["[UNK]", "[END]", "step", "##mother", "she", ","]
    tokenizer = word_pieces(names, eos_token="[END]", pad_token="[END]")
    aligned = align_tokens(PairTokenizer(tokenizer, 20), "she", "stepmother, she")
    assert spelled(aligned, "document") == ["stepmother", ",", "she"]
    assert aligned.tokens == ("she", "[END]", "step", "mother", ",", "she", "[END]")


def test_the_start_token_of_an_encoder_is_a_part_of_its_own():
    names = ["[UNK]", "[CLS]", "[SEP]", "nurse", "she", "he"]
    tokenizer = word_pieces(names, cls_token="[CLS]", sep_token="[SEP]")
    pair_tokenizer = PairTokenizer(tokenizer, 6, tokenizer.cls_token_id)
    aligned = align_tokens(pair_tokenizer, "nurse", "she he she")
    assert list(aligned.ids) == pair_tokenizer.pairs("nurse", ["she he she"])[0].tolist()
    assert aligned.tokens == ("[CLS]", "nurse", "[SEP]", "she", "he", "[SEP]")
    assert aligned.segments == ("start", "query", "separator", "document", "document", "end")
    assert [(word.start, word.end) for word in aligned.words] == [(i, i + 1) for i in range(6)]
    assert aligned.cut == 1


def test_an_empty_query_is_refused(pair_tokenizer):
    with pytest.raises(ValueError, match="query is empty"):
        align_tokens(pair_tokenizer, " ", "text")


def test_the_real_gpt2_tokenizer_gives_the_words_of_a_text(real_data):
    tokenizer = load_tokenizer(real_data / "gpt2_tokenizer")
    pair_tokenizer = PairTokenizer(tokenizer, 64)
    query, text = "is a nurse kind", "The señora's stepsister (a nurse), 漢字."
    aligned = align_tokens(pair_tokenizer, query, text)
    assert list(aligned.ids) == pair_tokenizer.pairs(query, [text])[0].tolist()
    document = ["The", "señora", "'s", "stepsister", "(", "a", "nurse", "),", "漢字", "."]
    assert spelled(aligned, "document") == document


def test_training_texts_do_not_matter_for_the_words():
    pair_tokenizer = PairTokenizer(train_bpe(["aaa bbb"], vocab_size=300), 64)
    assert spelled(align_tokens(pair_tokenizer, "q", "zebra crossing"), "document") == [
        "zebra",
        "crossing",
    ]


@pytest.mark.slow
def test_a_word_of_many_tokens_is_not_kept_once_for_each(pair_tokenizer):
    tracemalloc.start()
    alignment = align_tokens(pair_tokenizer, "q", "x" * 30_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert alignment.cut > 10_000
    # A prefix of the word for each of its tokens would be 450 MB.
    assert peak < 60e6
