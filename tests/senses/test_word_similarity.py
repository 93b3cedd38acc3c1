"""Correlations with judged pairs, against ranks and cosines by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

from backpack_rank.data.similarity import SimilarityList, WordPair
from backpack_rank.senses import word_similarity
from backpack_rank.senses.word_similarity import similarity_quality, spearman

PAIRS = (
    WordPair("doctor", "nurse", 8.0),
    WordPair("he", "she", 7.0),
    WordPair("bridge", "river", 4.0),
    WordPair("soup", "carpenter", 0.5),
    WordPair("tools", "doctor", 2.0),
    WordPair("zebra", "horse", 6.0),
)


def test_spearman_is_the_correlation_of_ranks_with_ties_in_the_middle():
    first, second = [1.0, 2.0, 2.0, 5.0, 0.0], [0.3, 0.1, 0.9, 0.9, 0.2]
    ranks = np.array([[2, 3.5, 3.5, 5, 1], [3, 1, 4.5, 4.5, 2]])
    expected = np.corrcoef(ranks)[0, 1]
    found = spearman(first, second)
    assert found.value == pytest.approx(expected)
    assert found.value == pytest.approx(stats.spearmanr(first, second).statistic)
    reach = 1.96 * np.sqrt((1 + expected**2 / 2) / 2)
    ends = [np.arctanh(expected) - reach, np.arctanh(expected) + reach]
    assert np.arctanh([found.low, found.high]) == pytest.approx(ends, abs=1e-4)
    assert spearman([1, 2, 3], [2, 4, 9]).value == pytest.approx(1)
    assert spearman(range(9), range(9)).low == pytest.approx(1, abs=1e-6)
    assert spearman([1, 2, 3, 4], [5, 5, 5, 5]).value is None


@pytest.mark.parametrize("at_once", [1, 512])
@torch.no_grad()
def test_every_kind_of_cosine_is_correlated(make_backpack, encoder, monkeypatch, at_once):
    monkeypatch.setattr(word_similarity, "_WORDS", at_once)
    backpack = make_backpack().backpack
    found = similarity_quality(backpack, encoder, SimilarityList("six", PAIRS))
    table = backpack.get_input_embeddings().weight

    def parts(word):
        ids = torch.tensor(encoder.tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
        senses = [backpack.senses(token[None])[0] for token in ids]
        return sum(senses) / len(ids), table[ids].mean(0), len(ids)

    rows = []
    for pair in PAIRS:
        (a, e, m), (b, f, n) = parts(pair.first), parts(pair.second)
        cosines = [torch.cosine_similarity(a[sense], b[sense], dim=0).item() for sense in range(8)]
        mean = torch.cosine_similarity(a.mean(0), b.mean(0), dim=0).item()
        embedded = torch.cosine_similarity(e, f, dim=0).item()
        rows.append([embedded, mean, max(cosines), min(cosines), *cosines, m == n == 1])
    scores = [pair.score for pair in PAIRS]
    *columns, single = zip(*rows, strict=True)
    expected = [stats.spearmanr(scores, column).statistic for column in columns]
    values = [part.value for part in (found.embeddings, found.mean, found.highest, found.lowest, *found.per_sense)]
    assert values == pytest.approx(expected)
    assert len(set(np.round(expected, 6))) > 3
    assert 0 < found.one_token < 1
    assert found.one_token == pytest.approx(sum(single) / 6)
    assert (found.name, found.pairs, found.unknown) == ("six", 6, ())


def test_pairs_unknown_to_the_tokenizer_are_left_out_and_named(word_level):
    backpack, encoder = word_level
    pairs = (WordPair("he", "she", 3.0), WordPair("man", "soup", 1.0), WordPair("man", "woman", 2.0))
    found = similarity_quality(backpack, encoder, SimilarityList("some", (*pairs, WordPair("man", "zebra", 9.0))))
    assert (found.pairs, found.unknown, found.one_token) == (3, (("man", "zebra"),), 1.0)
    unknown = SimilarityList("none", (*pairs[:2], WordPair("a1", "b1", 9.0)))
    with pytest.raises(ValueError, match="none: the tokenizer knows 2 of the 3 word pairs"):
        similarity_quality(backpack, encoder, unknown)


@pytest.fixture
def word_level(make_backpack):
    """A Backpack whose tokenizer has a token for what it does not know."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from backpack_rank.data.tokenisation import PairEncoder
    from backpack_rank.models.build import new_backpack

    words = ["[UNK]", "[SEP]", "he", "she", "man", "woman", "soup"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", sep_token="[SEP]", pad_token="[SEP]")
    torch.manual_seed(0)
    ranker = new_backpack(fast, layers=1, hidden_size=16, heads=2, senses=4, positions=16, initializer_range=0.2)
    return ranker.backpack, PairEncoder(fast, 16)
