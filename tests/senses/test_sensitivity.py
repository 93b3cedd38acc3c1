"""Sensitivity of senses, against a slow loop over words and tokens."""

import math

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.factory import new_backpack
from backpack_rank.senses.sensitivity import sensitivity


def word_tokenizer(*words):
    """One token per word of the list, [UNK] for every other word; case is kept."""
    names = ["[UNK]", "[END]", *words]
    tokenizer = Tokenizer(
        models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[END]", pad_token="[END]"
    )


def small_backpack(tokenizer):
    torch.manual_seed(2)
    options = {"layers": 1, "hidden_size": 16, "heads": 2, "senses": 4, "positions": 16}
    return new_backpack(tokenizer, initializer_range=0.2, **options).backpack.eval()


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def slow(backpack, variants):
    """Mean over pairs of token lists of the cosine of their mean senses, by hand."""

    def mean_senses(ids):
        """The mean sense vectors of a word's tokens. [senses][dimensions]"""
        with torch.no_grad():
            of_tokens = [backpack.senses(torch.tensor(token)).double() for token in ids]
        return (sum(of_tokens) / len(of_tokens)).tolist()

    cosines_by_pair = []
    for ids, other_ids in variants:
        senses_of_words = zip(mean_senses(ids), mean_senses(other_ids), strict=True)
        cosines_by_pair.append([cosine(sense, other) for sense, other in senses_of_words])
    return [sum(cosines) / len(variants) for cosines in zip(*cosines_by_pair, strict=True)]


def test_every_variant_that_is_one_token_for_both_words_is_a_pair():
    tokenizer = word_tokenizer("he", "she", "He", "She", "man", "woman", "Man")
    backpack = small_backpack(tokenizer)
    result = sensitivity(backpack, tokenizer, [("she", "he"), ("woman", "man")])
    # A space makes no difference to this tokenizer; "Woman" it does not know.
    ids = tokenizer.get_vocab()
    pairs = [("she", "he"), ("She", "He"), ("woman", "man")]
    expected = slow(backpack, [([ids[a]], [ids[b]]) for a, b in pairs])
    assert result.values.tolist() == pytest.approx(expected, abs=1e-5)
    assert result.pairs == 3
    assert result.in_parts == ()
    assert result.unknown == ()
    assert max(result.values.tolist()) < 0.95
    values = ", ".join(f"{value:.3f}" for value in result.values.tolist())
    assert repr(result) == f"Sensitivity(s_l=[{values}], pairs=3)"


def test_byte_level_variants_with_and_without_space_are_pairs(tokenizer, make_backpack):
    backpack = make_backpack().backpack
    one_token = [
        (a, b)
        for a, b in ((" she", " he"), ("she", "he"), (" She", " He"), ("She", "He"))
        if len(tokenizer(a)["input_ids"]) == len(tokenizer(b)["input_ids"]) == 1
    ]
    assert one_token, "the fixture's vocabulary must hold at least ' she' and ' he'"
    result = sensitivity(backpack, tokenizer, [("she", "he")])
    expected = slow(
        backpack, [(tokenizer(a)["input_ids"], tokenizer(b)["input_ids"]) for a, b in one_token]
    )
    assert result.values.tolist() == pytest.approx(expected, abs=1e-5)
    assert result.pairs == len(one_token)


def test_words_of_several_tokens_use_the_mean_of_their_tokens_and_are_named(
    tokenizer, make_backpack
):
    backpack = make_backpack().backpack
    ids = [tokenizer(f" {word}")["input_ids"] for word in ("stepmother", "stepfather")]
    assert min(map(len, ids)) > 1
    result = sensitivity(backpack, tokenizer, [("stepmother", "stepfather")])
    assert result.values.tolist() == pytest.approx(slow(backpack, [tuple(ids)]), abs=1e-5)
    assert result.in_parts == ("stepmother", "stepfather")
    assert result.pairs == 1


def test_every_pair_of_variants_weighs_the_same(tokenizer, make_backpack):
    backpack = make_backpack().backpack
    first, second = (
        sensitivity(backpack, tokenizer, [pair])
        for pair in (("she", "he"), ("stepmother", "stepfather"))
    )
    both = sensitivity(backpack, tokenizer, [("she", "he"), ("stepmother", "stepfather")])
    expected = (first.values * first.pairs + second.values * second.pairs) / both.pairs
    torch.testing.assert_close(both.values, expected)


def test_unknown_words_are_left_out_and_named(caplog):
    tokenizer = word_tokenizer("he", "she", "man")
    backpack = small_backpack(tokenizer)
    result = sensitivity(backpack, tokenizer, [("she", "he"), ("woman", "man")])
    assert result.unknown == (("woman", "man"),)
    assert torch.equal(result.values, sensitivity(backpack, tokenizer, [("she", "he")]).values)
    assert "woman" in caplog.text


def test_no_known_pair_at_all_is_refused():
    tokenizer = word_tokenizer("tree")
    with pytest.raises(ValueError, match=r"knows none of the 2 word pairs.*'she', 'he'"):
        sensitivity(small_backpack(tokenizer), tokenizer, [("she", "he"), ("woman", "man")])


def test_equal_words_are_not_sensitive(tokenizer, make_backpack):
    values = sensitivity(make_backpack().backpack, tokenizer, [("doctor", "doctor")]).values
    assert values.tolist() == pytest.approx([1.0] * 8, abs=1e-6)


def test_dropout_plays_no_part_and_the_mode_is_kept(tokenizer, make_backpack):
    backpack = make_backpack(dropout=0.4).backpack
    expected = sensitivity(backpack, tokenizer, [("she", "he")]).values
    backpack.train()
    assert torch.equal(sensitivity(backpack, tokenizer, [("she", "he")]).values, expected)
    assert backpack.training


def test_gpt2s_unknown_token_makes_no_word_unknown(tokenizer, make_backpack, tmp_path):
    """Loaded as GPT-2's, a byte-level tokenizer says that its unknown token is its end of text."""
    tokenizer.save_pretrained(tmp_path)
    same = load_tokenizer(tmp_path)
    same.unk_token = same.eos_token
    assert same.unk_token_id == same.eos_token_id
    backpack = make_backpack().backpack
    pairs = [("she", "he"), ("stepmother", "stepfather"), ("señora", "señor")]
    result = sensitivity(backpack, same, pairs)
    assert result.unknown == ()
    assert torch.equal(result.values, sensitivity(backpack, tokenizer, pairs).values)


def test_the_real_gpt2_tokenizer_knows_every_word(real_data):
    tokenizer = load_tokenizer(real_data / "gpt2_tokenizer")
    assert tokenizer.unk_token_id == tokenizer.eos_token_id == 50256
    torch.manual_seed(0)
    backpack = new_backpack(
        tokenizer, layers=1, hidden_size=8, heads=1, senses=2, positions=8
    ).backpack
    result = sensitivity(
        backpack,
        tokenizer,
        [("she", "he"), ("grandmother", "grandfather"), ("stewardess", "steward")],
    )
    assert result.unknown == ()
    assert result.in_parts == ("stewardess", "steward")
    # she/he: four variants of one token each; "grandmother": with a space, lower case, only.
    assert result.pairs >= 6
