"""Words and pieces of words in three kinds of vocabularies, and words that the contextual network reads as one."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.factory import load_ranker, save_ranker
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.word_boundaries import MergedEmbeddings, WordBoundaries


def whole(tokenizer, pieces):
    ids = torch.tensor(tokenizer.convert_tokens_to_ids(pieces))
    assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in ids
    return WordBoundaries.of(tokenizer).whole_words(ids).tolist()


def tokenizer_of(model, words, splitter=None):
    inner = Tokenizer(model({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = splitter or pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", sep_token="[SEP]")


def test_word_pieces_begin_with_two_signs():
    tokenizer = tokenizer_of(models.WordPiece, ["[UNK]", "[SEP]", "she", "##ets", "he", "(", "the", "##he"])
    assert whole(tokenizer, ["she", "##ets", "she", "(", "he", "[SEP]", "he"]) == [
        False, False, True, True, True, True, True,
    ]  # fmt: skip
    assert whole(tokenizer, ["the", "##he", "the"]) == [False, False, True]


def test_whole_words_are_all_words():
    assert (
        whole(tokenizer_of(models.WordLevel, ["[UNK]", "[SEP]", "she", "he"]), ["she", "he", "[SEP]", "he"])
        == [True] * 4
    )


def test_byte_level_words_begin_with_a_space(tokenizer):
    """The repository's own byte-level vocabulary; it is trained on text with "he" and "see"."""
    pieces = ["Ġhe", "Ġhe", "e", "Ġa", ".", "e", tokenizer.sep_token, "e", "Ġthe"]
    assert whole(tokenizer, pieces) == [True, False, False, True, True, True, True, True, True]


def test_whole_words_of_a_class_get_its_mean():
    # Token 5 goes on with the word before it; all end in a letter.
    boundaries = WordBoundaries(torch.tensor([False] * 5 + [True]), torch.ones(6, dtype=torch.bool))
    merged = MergedEmbeddings(6)
    merged.set_classes([(1, 3), (2, 4)], boundaries)
    table = torch.arange(12.0).reshape(6, 2)
    ids = torch.tensor([[0, 1, 4, 3, 5]])
    means = merged.means(table.__getitem__)
    assert means.tolist() == [[4, 5], [6, 7]]
    # The 3 before 5 is a piece of a word.
    assert merged(table[ids], ids, means).tolist() == [[[0, 1], [4, 5], [6, 7], [6, 7], [10, 11]]]


@pytest.fixture
def ranker(make_backpack):
    ranker = make_backpack().eval()
    nowhere = torch.zeros(ranker.config.vocab_size, dtype=torch.bool)
    ranker.backpack.merge_word_classes([(10, 11, 12)], WordBoundaries(nowhere, nowhere))
    return ranker


BATCH = PackedBatch.from_sequences([[3, 10, 4, 5], [3, 11, 4, 5], [3, 13, 4, 5]])


@torch.inference_mode()
def test_merged_words_have_one_weight_and_senses_of_their_own(ranker):
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


@torch.inference_mode()
@pytest.mark.parametrize("version", ["0.1", "now"])
def test_merged_words_are_part_of_the_saved_ranker(ranker, pair_tokenizer, tmp_path, version):
    save_ranker(tmp_path, ranker, pair_tokenizer)
    if version == "0.1":
        as_in_version_0_1(tmp_path)
    loaded, _ = load_ranker(tmp_path)
    assert isinstance(loaded, BackpackForRanking)
    assert loaded.config.merged_embeddings
    state = loaded.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in ranker.state_dict().items())
    torch.testing.assert_close(loaded.eval()(BATCH).scores, ranker(BATCH).scores)


def as_in_version_0_1(folder):
    """The same folder under the names that a ranker was saved with before."""
    weights = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("merged_embeddings.ends_inside_word", "alike_words.open_end").replace(
            "merged_embeddings", "alike_words"
        ): value
        for name, value in weights.items()
    }
    assert len(renamed.keys() - weights.keys()) == 3
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["alike_words"] = config.pop("merged_embeddings")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "checksums.json").unlink()  # as in a folder of version 0.1


@torch.inference_mode()
def test_merging_can_be_undone_and_copied(make_backpack, ranker, pair_tokenizer, tmp_path):
    plain = make_backpack().eval()
    copied = copy.deepcopy(ranker)
    assert torch.equal(copied(BATCH).scores, ranker(BATCH).scores)
    copied.backpack.split_word_classes()
    assert torch.equal(copied(BATCH).scores, plain(BATCH).scores)
    assert not torch.equal(ranker(BATCH).scores, plain(BATCH).scores)
    save_ranker(tmp_path / "ranker", copied, pair_tokenizer)
    assert not load_ranker(tmp_path / "ranker")[0].config.merged_embeddings
