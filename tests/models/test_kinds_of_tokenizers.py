"""Words of a class behind a space, a sign or a new line, with every kind of tokenizer: moved, or
named.
"""

import copy
import re

import pytest
import torch
from small_tokenizers import KINDS, SIGNS, byte_level
from transformers import BertJapaneseTokenizer, PreTrainedTokenizer

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.models.factory import new_backpack, new_gpt2
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.policies import LowestSenses, PolicyContext
from backpack_rank.senses.views import View

CLASSES = WordClasses(
    "test",
    (
        WordClass("subject", ("he", "she")),
        WordClass("his", ("his", "her")),
        WordClass("adult", ("man", "woman")),
    ),
)
SHAPE = {
    "layers": 2,
    "hidden_size": 32,
    "heads": 4,
    "positions": 64,
    "dropout": 0.0,
    "initializer_range": 0.3,
}


USUAL = {"gpt2", "llama 2", "llama 3", "deberta-v3", "bert"}
"""One of each algorithm; the others take long."""


@pytest.fixture(
    scope="module",
    params=[
        kind if kind in USUAL else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS
    ],
)
def tokenizer(request):
    return KINDS[request.param]()


@pytest.fixture(scope="module")
def rankers(tokenizer):
    torch.manual_seed(0)
    return new_backpack(tokenizer, senses=8, **SHAPE).eval(), new_gpt2(tokenizer, **SHAPE).eval()


@pytest.fixture(scope="module")
def token_classes(tokenizer):
    """The classes in the tokenizer's tokens, for which its whole vocabulary is looked through."""
    return TokenClasses.of(tokenizer, CLASSES)


@pytest.fixture(scope="module")
def with_attribute_senses(tokenizer, rankers):
    """A Backpack like the first one, with attribute senses, and its view at alpha = 0."""
    ranker, gender = copy.deepcopy(rankers[0]), Attribute.named("gender")
    separator = PairTokenizer(tokenizer, 64).separator_id
    add_attribute_senses(ranker.backpack, tokenizer, gender, separator_id=separator)
    (view,) = LowestSenses().views(PolicyContext.of(ranker, tokenizer, gender), 0.0)
    return ranker, view


def in_a_sentence(sign, word):
    return f"nurse said{sign}{word} is here"


@pytest.mark.parametrize("case", [str.lower, str.capitalize, str.upper])
@pytest.mark.parametrize("sign", SIGNS)
def test_a_word_is_moved_whatever_it_stands_behind(tokenizer, token_classes, rankers, sign, case):
    for ranker, scope in zip(rankers, ("both", "weights"), strict=True):
        scorer = Scorer(ranker, PairTokenizer(tokenizer, 64))
        at_zero = View(token_shift=token_shift(ranker, token_classes, scope, 0.0))
        for first, second in (("he", "she"), ("his", "her"), ("man", "woman")):
            texts = [in_a_sentence(sign, case(word)) for word in (first, second)]
            plain = [scorer.score("the doctor", [text]) for text in texts]
            assert abs(plain[0] - plain[1]) > 1e-4, texts
            scores_by_text = [scorer.score("the doctor", [text], at_zero) for text in texts]
            assert scores_by_text[0].tobytes() == scores_by_text[1].tobytes(), texts


@torch.no_grad()
@pytest.mark.parametrize("sign", SIGNS)
def test_a_ranker_with_attribute_senses_reads_words_as_one_whatever_they_stand_behind(
    tokenizer, rankers, with_attribute_senses, sign
):
    unchanged, pair_tokenizer = rankers[0], PairTokenizer(tokenizer, 64)
    ranker, view = with_attribute_senses
    batch = PackedBatch.from_sequences(
        pair_tokenizer.pairs("the doctor", [in_a_sentence(sign, "he"), in_a_sentence(sign, "she")])
    )
    plain, score = unchanged.backpack.pooled_weights(batch), unchanged(batch).scores
    merged = ranker.backpack.pooled_weights(ranker.backpack.read(batch))
    at_zero = ranker(batch, sense_weights=view.sense_weights).scores
    # Rows of one batch differ by rounding.
    torch.testing.assert_close(merged[0], merged[1])
    assert not torch.allclose(plain[0], plain[1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(at_zero[0], at_zero[1], rtol=1e-4, atol=1e-4)
    assert abs(score[0] - score[1]) > 1e-3


def test_words_are_told_from_pieces_as_the_text_has_them(tokenizer):
    """Offsets say where a token stands in the text: it is a word where no letter is next to it."""
    text = 'the sheets "she (bridge) HER-he said hesheher [woman soup'
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    expected = []
    for start, end in encoded["offset_mapping"]:
        core = re.search(r"[A-Za-z]+", text[start:end])
        if core is None:
            expected.append(None)
            continue
        around = f" {text} "[start + core.start()], f" {text} "[start + core.end() + 1]
        expected.append(not any(sign.isalpha() for sign in around))
    whole_words = (
        WordBoundaries.of(tokenizer).whole_words(torch.tensor(encoded["input_ids"])).tolist()
    )
    known = [token != tokenizer.unk_token_id for token in encoded["input_ids"]]
    words = [
        answer if known and is_word is not None else is_word
        for answer, is_word, known in zip(whole_words, expected, known, strict=True)
    ]
    assert words == expected
    assert expected.count(True) >= 8


def test_pieces_of_longer_words_are_in_no_moved_place(tokenizer, rankers):
    scorer = Scorer(rankers[1], PairTokenizer(tokenizer, 64))
    classes = TokenClasses.of(tokenizer, CLASSES)
    at_zero = View(token_shift=token_shift(rankers[1], classes, "weights", 0.0))
    documents = ["the sheets", '"sheets and (bridge) here']
    assert (
        scorer.score("doctor", documents).tobytes()
        == scorer.score("doctor", documents, at_zero).tobytes()
    )


def test_words_that_move_behind_a_space_alone_are_named(tokenizer):
    assert TokenClasses.of(tokenizer, CLASSES).behind_space_alone == ()
    spaced = byte_level(signs=(" ",))
    pieces = [spaced.tokenize(f'"{word}') for word in ("he", "she", "man", "woman")]
    assert pieces == [['"', "he"], ['"', "s", "he"], ['"', "man"], ['"', "woman"]]
    classes = TokenClasses.of(spaced, CLASSES)
    assert classes.behind_space_alone == (
        "he",
        "she",
        "his",
        "her",
    )  # "he" and "his" have no partner there
    assert classes.several_tokens == classes.unpaired == ()


class SpacedWords(PreTrainedTokenizer):
    """A tokenizer in Python: pieces as SentencePiece writes them, words cut at spaces."""

    vocab = ["<unk>", "</s>", "▁he", "▁she", "he", "she", "▁(", "ets", "Ġhe", "##he"]

    def __init__(self, **options):
        super().__init__(unk_token="<unk>", eos_token="</s>", **options)

    vocab_size = property(lambda self: len(self.vocab))

    def get_vocab(self):
        return {piece: index for index, piece in enumerate(self.vocab)}

    def _tokenize(self, text, **_):
        return [f"▁{word}" for word in text.split()]

    def _convert_token_to_id(self, token):
        return self.get_vocab().get(token, 0)

    def _convert_id_to_token(self, index):
        return self.vocab[index]

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens).replace("▁", " ").strip()


def test_tokenizers_that_are_not_fast_are_read_by_the_mark_that_most_pieces_have(tmp_path):
    spaced = SpacedWords()
    assert TokenClasses.of(spaced, CLASSES).members == ((2, 3), (4, 5))
    assert WordBoundaries.of(spaced).whole_words(torch.tensor([6, 5, 3, 7, 2])).tolist() == [
        True,
        True,
        False,
        False,
        True,
    ]
    pieces = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[PAD]",
        "he",
        "she",
        "##ets",
        "##s",
        "##he",
        "Ġ",
        "▁",
        "(",
        '"',
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    japanese = BertJapaneseTokenizer(
        str(tmp_path / "vocab.txt"), word_tokenizer_type="basic", subword_tokenizer_type="wordpiece"
    )
    assert not hasattr(japanese, "backend_tokenizer")
    ids = torch.tensor(japanese('she sheets "he', add_special_tokens=False)["input_ids"])
    assert WordBoundaries.of(japanese).whole_words(ids).tolist() == [True, False, False, True, True]
    assert TokenClasses.of(japanese, CLASSES).members == ((4, 5),)
