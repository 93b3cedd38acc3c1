"""Words and pieces of words in three kinds of vocabularies."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backpack_rank.models.word_boundaries import WordBoundaries


def whole_words(tokenizer, pieces):
    ids = torch.tensor(tokenizer.convert_tokens_to_ids(pieces))
    assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in ids
    return WordBoundaries.of(tokenizer).whole_words(ids).tolist()


def tokenizer_of(model, words, splitter=None):
    inner = Tokenizer(model({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = splitter or pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", sep_token="[SEP]")


def test_word_pieces_begin_with_two_signs():
    tokenizer = tokenizer_of(
        models.WordPiece, ["[UNK]", "[SEP]", "she", "##ets", "he", "(", "the", "##he"]
    )
    assert whole_words(tokenizer, ["she", "##ets", "she", "(", "he", "[SEP]", "he"]) == [
        False, False, True, True, True, True, True,
    ]  # fmt: skip
    assert whole_words(tokenizer, ["the", "##he", "the"]) == [False, False, True]


def test_whole_words_are_all_words():
    assert (
        whole_words(
            tokenizer_of(models.WordLevel, ["[UNK]", "[SEP]", "she", "he"]),
            ["she", "he", "[SEP]", "he"],
        )
        == [True] * 4
    )


def test_byte_level_words_begin_with_a_space(tokenizer):
    """The repository's own byte-level vocabulary; it is trained on text with "he" and "see"."""
    pieces = ["Ġhe", "Ġhe", "e", "Ġa", ".", "e", tokenizer.sep_token, "e", "Ġthe"]
    assert whole_words(tokenizer, pieces) == [
        True,
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        True,
    ]
