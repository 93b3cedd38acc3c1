"""From pairs of texts to token ids."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backpack_rank.data.tokenisation import (
    END,
    SEPARATOR,
    PairTokenizer,
    PretrainedTokenizer,
    TrainedTokenizer,
    load_tokenizer,
    train_bpe,
)


def word_tokenizer(**special):
    vocabulary = {"[UNK]": 0, "[SEP]": 1, "a": 2, "b": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def test_a_pair_is_query_separator_document_end(pair_tokenizer):
    tokenizer = pair_tokenizer.tokenizer
    (ids,) = pair_tokenizer.pairs("doctor", ["The ward."])
    query, document = tokenizer([" doctor", " The ward."], add_special_tokens=False)["input_ids"]
    separator, end = tokenizer.convert_tokens_to_ids([SEPARATOR, END])
    assert separator != end
    assert ids.tolist() == [*query, separator, *document, end]
    assert ids.dtype == np.int32


def test_equal_words_of_query_and_document_are_equal_tokens(pair_tokenizer):
    query, document = pair_tokenizer.encode(["doctor", "the doctor"])
    assert document[-len(query) :].tolist() == query.tolist()


def test_white_space_around_a_text_carries_nothing(pair_tokenizer):
    first, second = pair_tokenizer.encode(["the ward", "\n  the ward \t"])
    assert first.tolist() == second.tolist()
    assert [len(ids) for ids in pair_tokenizer.encode(["", "  \n"])] == [0, 0]
    assert pair_tokenizer.encode([]) == []


def test_only_the_document_is_cut(pair_tokenizer, sentences):
    text = " ".join(sentences)
    query = pair_tokenizer.encode_query("doctor in the ward")
    uncut = pair_tokenizer.encode([text])[0]
    (ids,) = pair_tokenizer.pairs("doctor in the ward", [text])
    assert len(uncut) > pair_tokenizer.max_length
    assert len(ids) == pair_tokenizer.max_length
    assert ids[: len(query)].tolist() == query.tolist()
    room = pair_tokenizer.max_length - len(query) - 2
    assert ids[len(query) + 1 : -1].tolist() == uncut[:room].tolist()
    assert ids[-1] == pair_tokenizer.end_id


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_documents_are_cut_exactly_at_the_limit(pair_tokenizer, spare):
    query = np.arange(5, dtype=np.int32)
    room = pair_tokenizer.max_length - len(query) - 2
    document = np.arange(100, 100 + room + spare, dtype=np.int32)
    ids = pair_tokenizer.join(query, document)
    assert len(ids) == min(pair_tokenizer.max_length, len(document) + 7)
    assert (len(document) + 7 - len(ids)) == max(spare, 0)


def test_an_empty_document_is_query_separator_end(pair_tokenizer):
    query = pair_tokenizer.encode_query("doctor")
    ends = [pair_tokenizer.separator_id, pair_tokenizer.end_id]
    assert pair_tokenizer.pairs("doctor", [""])[0].tolist() == [*query, *ends]


@pytest.mark.parametrize("query", ["", "   ", "\n"])
def test_an_empty_query_is_refused(pair_tokenizer, query):
    with pytest.raises(ValueError, match="the query is empty"):
        pair_tokenizer.pairs(query, ["text"])


def test_a_query_that_leaves_no_room_is_refused(tokenizer):
    query = "doctor ward patient"
    length = len(tokenizer(f" {query}", add_special_tokens=False)["input_ids"])
    assert len(PairTokenizer(tokenizer, length + 3).pairs(query, ["a b c d"])[0]) == length + 3
    message = rf"the query has {length} tokens and max_length={length + 2}.*doctor ward"
    with pytest.raises(ValueError, match=message):
        PairTokenizer(tokenizer, length + 2).pairs(query, ["a b c d"])


def test_a_text_that_spells_a_special_token_does_not_get_one(pair_tokenizer):
    text = f"first {SEPARATOR} second {END}"
    (ids,) = pair_tokenizer.encode([text])
    assert pair_tokenizer.separator_id not in ids
    assert pair_tokenizer.end_id not in ids
    assert pair_tokenizer.tokenizer.decode(ids.tolist()) == f" {text}"


def test_text_comes_back_from_a_trained_tokenizer(pair_tokenizer):
    for text in ("The nurse explains.", "naïve señora 東京 🙂", "tabs\tand\nlines"):
        (ids,) = pair_tokenizer.encode([text])
        assert pair_tokenizer.tokenizer.decode(ids.tolist()) == f" {text}"


def test_training_a_tokenizer_is_deterministic_and_learns_frequent_words(sentences):
    first, second = train_bpe(sentences * 2, 420), train_bpe(iter(sentences * 2), 420)
    assert first.get_vocab() == second.get_vocab()
    assert len(first) == 420
    assert "Ġthe" in first.get_vocab()
    assert first.convert_ids_to_tokens([0, 1]) == [END, SEPARATOR]


def test_too_small_a_vocabulary_is_refused(sentences):
    message = "vocab_size=299 must be at least 300 for a byte-level vocabulary"
    with pytest.raises(ValueError, match=message):
        train_bpe(sentences, 299)


def test_a_trained_tokenizer_looks_at_no_more_texts_than_asked_for(sentences):
    settings = TrainedTokenizer(vocab_size=420, max_texts=2)
    unread = iter(sentences)
    tokenizer = settings.build(unread)
    assert tokenizer.get_vocab() == train_bpe(sentences[:2], 420).get_vocab()
    assert len(list(unread)) >= len(sentences) - 3


def test_the_fingerprint_changes_with_vocabulary_and_limit(tokenizer, sentences, tmp_path):
    pair_tokenizer = PairTokenizer(tokenizer, 48)
    tokenizer.save_pretrained(tmp_path)
    assert PairTokenizer(load_tokenizer(tmp_path), 48).fingerprint == pair_tokenizer.fingerprint
    others = [PairTokenizer(tokenizer, 49), PairTokenizer(train_bpe(sentences, 400), 48)]
    assert len({pair_tokenizer.fingerprint, *(other.fingerprint for other in others)}) == 3


def test_a_tokenizer_with_one_special_token_uses_it_for_both():
    pair_tokenizer = PairTokenizer(word_tokenizer(sep_token="[SEP]", unk_token="[UNK]"), 10)
    assert pair_tokenizer.pairs("a", ["b c"])[0].tolist() == [2, 1, 3, 0, 1]


def test_a_tokenizer_without_end_and_separator_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the tokenizer has none of sep_token_id, eos_token_id"):
        PairTokenizer(word_tokenizer(unk_token="[UNK]"), 10).pairs("a", ["b"])
    word_tokenizer(unk_token="[UNK]").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="add one with add_special_tokens"):
        load_tokenizer(tmp_path)


def test_a_loaded_tokenizer_has_a_padding_token(tmp_path):
    word_tokenizer(eos_token="[SEP]", unk_token="[UNK]").save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).pad_token == "[SEP]"


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no tokenizer: save the one"):
        load_tokenizer(tmp_path)
    word_tokenizer(eos_token="[SEP]", unk_token="[UNK]").save_pretrained(tmp_path / "ranker")
    message = f"{tmp_path} has no tokenizer: give {tmp_path / 'ranker'}, which"
    with pytest.raises(FileNotFoundError, match=message):
        load_tokenizer(tmp_path)


def test_a_name_that_the_hub_does_not_give_is_named(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"^no tokenizer of somebody/has-not-uploaded-it: "):
        load_tokenizer("somebody/has-not-uploaded-it")


def test_the_real_gpt2_tokenizer_gives_the_published_ids(real_data):
    """Ids as published for GPT-2: "Hello world" is 15496 995, with a leading space 18435 995."""
    tokenizer = PretrainedTokenizer(str(real_data / "gpt2_tokenizer")).build()
    pair_tokenizer = PairTokenizer(tokenizer, 512)
    assert len(pair_tokenizer.tokenizer) == 50257
    assert pair_tokenizer.tokenizer("Hello world")["input_ids"] == [15496, 995]
    assert pair_tokenizer.encode(["Hello world"])[0].tolist() == [18435, 995]
    (ids, _) = pair_tokenizer.pairs("Hello", ["Hello world", ""])
    assert ids.tolist() == [18435, 50256, 18435, 995, 50256]
