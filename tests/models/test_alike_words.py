"""Words that the contextual network reads alike."""

import copy

import pytest
import torch

from backpack_rank.models.alike_words import AlikeWords
from backpack_rank.models.build import load_ranker, save_ranker
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.models.word_edges import WordEdges

# Token 5 goes on with the word before it; all end in a letter.
EDGES = WordEdges(torch.tensor([False] * 5 + [True]), torch.ones(6, dtype=torch.bool))


def alike(table):
    words = AlikeWords(len(table))
    words.take([(1, 3), (2, 4)], EDGES)
    return words


def test_whole_words_of_a_class_get_its_mean():
    table = torch.arange(12.0).reshape(6, 2)
    ids = torch.tensor([[0, 1, 4, 3, 5]])
    found = alike(table)(table[ids], ids, table)
    # Classes (1, 3) and (2, 4) have means (4, 5) and (6, 7); the 3 before 5 is a piece of a word.
    assert found.tolist() == [[[0, 1], [4, 5], [6, 7], [6, 7], [10, 11]]]


@pytest.fixture
def ranker(make_backpack):
    ranker = make_backpack().eval()
    vocabulary = ranker.config.vocab_size
    edges = WordEdges(torch.zeros(vocabulary, dtype=torch.bool), torch.zeros(vocabulary, dtype=torch.bool))
    ranker.backpack.read_alike([(10, 11, 12)], edges)
    return ranker


BATCH = PackedBatch.from_sequences([[3, 10, 4, 5], [3, 11, 4, 5], [3, 13, 4, 5]])


def test_words_alike_have_one_weight_and_senses_of_their_own(ranker):
    with torch.inference_mode():
        weights = ranker.backpack.pooled_weights(BATCH)
        senses = ranker.backpack.senses(torch.tensor([10, 11]))
        scores = ranker(BATCH).scores
    assert torch.equal(weights[0], weights[1])
    assert not torch.allclose(weights[0], weights[2])
    assert not torch.allclose(senses[0], senses[1])
    assert scores[0] != scores[1]


def test_gradients_reach_every_word_of_the_class(ranker):
    ranker.backpack.pooled_weights(PackedBatch.from_sequences([[3, 10, 4, 5]]))[0, 0, 1].backward()
    gradient = ranker.get_input_embeddings().weight.grad
    assert torch.equal(gradient[10], gradient[11])
    assert torch.equal(gradient[10], gradient[12])
    assert gradient[10].abs().sum() > 0


def test_it_is_part_of_the_saved_ranker(ranker, encoder, tmp_path):
    save_ranker(tmp_path / "ranker", ranker, encoder)
    loaded, _ = load_ranker(tmp_path / "ranker")
    assert isinstance(loaded, BackpackForRanking)
    assert loaded.config.alike_words
    assert torch.equal(loaded.backpack.alike_words.class_of, ranker.backpack.alike_words.class_of)
    with torch.inference_mode():
        torch.testing.assert_close(loaded.eval()(BATCH).scores, ranker(BATCH).scores)


def test_it_can_be_undone_and_copied(make_backpack, ranker, encoder, tmp_path):
    plain = make_backpack().eval()
    with torch.inference_mode():
        copied = copy.deepcopy(ranker)
        assert torch.equal(copied(BATCH).scores, ranker(BATCH).scores)
        copied.backpack.read_apart()
        assert torch.equal(copied(BATCH).scores, plain(BATCH).scores)
        assert not torch.equal(ranker(BATCH).scores, plain(BATCH).scores)
    save_ranker(tmp_path / "ranker", copied, encoder)
    assert not load_ranker(tmp_path / "ranker")[0].config.alike_words
