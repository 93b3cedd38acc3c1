"""First word vectors from files, from pretrained models and at random."""

import gzip
import logging

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from backpack_rank.models.word_embeddings import (
    pretrained_vectors,
    read_vectors,
    with_random_others,
    word_vectors,
)

LINES = "the 0.5 -1 2e-1\nof 1 2 3\nward -0.25 0 4\nthe 9 9 9\nNurse 7 7 7\n"


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(LINES)
    return path


def test_only_the_words_in_use_are_kept_and_the_first_line_of_a_word_counts(glove):
    words, vectors = read_vectors(glove, ["ward", "nurse", "the"])
    assert words.tolist() == [0, 2]
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[-0.25, 0, 4], [0.5, -1, pytest.approx(0.2)]]


def test_compressed_files_and_word2vecs_header_are_read(glove, tmp_path):
    packed = tmp_path / "vectors.txt.gz"
    packed.write_bytes(
        gzip.compress(("5 3\n" + LINES.replace("\n", " \n")).encode())
    )  # word2vec ends lines in a space
    expected = read_vectors(glove, ["ward", "the"])
    words, vectors = read_vectors(packed, ["ward", "the"])
    assert words.tolist() == expected[0].tolist()
    assert np.array_equal(vectors, expected[1])


def test_a_word_with_spaces_is_no_error_and_hides_no_other_word(tmp_path):
    path = tmp_path / "glove.840B.txt"
    path.write_text("the 1 2 3\nat name@domain.com 4 5 6\n. . . 7 8 9\nat 1 1 1\n")
    words, vectors = read_vectors(path, ["at", "the"])
    assert words.tolist() == [0, 1]
    assert vectors.tolist() == [[1, 1, 1], [1, 2, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2 3\nof 1 2\n", r"line 2: expected a word and 3 numbers, got 2"),
        ("the 1 2 3\n\nof 1 2 3 4\n", r"line 3: expected a word and 3 numbers, got 4"),
        ("2 3\nthe 1 2 3\nof 1\n", r"line 3: expected a word and 3 numbers, got 1"),
        ("the 1 2 3\nof 1 x 3\n", r"line 2: expected finite numbers behind the word, got '1 x 3'"),
        ("the 1 2 nan\n", r"line 1: expected finite numbers behind the word"),
        ("the\n", r"line 1: expected a word and at least 1 numbers, got 0"),
        ("", r"holds no word vectors"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"bad\.txt.*{message}"):
        word_vectors(["the", "of"], str(path))


def test_a_cut_gzip_file_is_named(tmp_path):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(LINES.encode() * 1000)[:-20])
    with pytest.raises(ValueError, match=r"cut\.gz: damaged or incomplete gzip file"):
        read_vectors(path, ["the"])


def test_a_file_that_is_not_there_is_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"glove\.6B\.300d\.txt"):
        word_vectors(["the"], str(tmp_path / "glove.6B.300d.txt"))


def test_words_that_the_file_lacks_are_drawn_like_the_others(glove, caplog):
    torch.manual_seed(0)
    words = ["ward", "the", *(f"word{number}" for number in range(3998))]
    with caplog.at_level(logging.INFO):
        vectors = word_vectors(words, str(glove), others=2000)
    assert "2 of 4000 words" in caplog.text
    assert vectors.shape == (6000, 3)
    assert vectors[1].tolist() == [0.5, -1, pytest.approx(0.2)]
    drawn = vectors[2:]
    # Of (-0.25, 0.5), (0, -1) and (4, 0.2): mean and half the distance, as the deviation of two
    # numbers is.
    assert drawn.mean(0).tolist() == pytest.approx([0.125, -0.5, 2.1], abs=0.1)
    assert drawn.std(0).tolist() == pytest.approx([0.375, 0.5, 1.9], rel=0.05)
    assert len(drawn.unique(dim=0)) == 5998


def test_the_seed_decides_what_is_random(glove):
    def drawn(seed):
        torch.manual_seed(seed)
        return word_vectors(["a", "b"], "random", 4), with_random_others(
            3, np.array([1]), np.ones((1, 4))
        )

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert first[1].tolist() == [[1, 1, 1, 1]] * 3, "one vector has no deviation"


def test_random_vectors_have_a_length_of_about_one():
    vectors = word_vectors([f"w{number}" for number in range(200)])
    assert vectors.shape == (200, 300)
    assert vectors.norm(dim=1).mean().item() == pytest.approx(1, abs=0.02)


def test_a_size_other_than_the_files_and_a_file_without_the_words_are_refused(glove):
    with pytest.raises(
        ValueError, match=r"embedding_size=300, but .*glove\.txt has vectors of 3 numbers"
    ):
        word_vectors(["the"], str(glove), 300)
    with pytest.raises(
        ValueError, match=r"glove\.txt has a vector for none of the vocabulary's 2 words"
    ):
        word_vectors(["zork", "xyzzy"], str(glove))
    assert word_vectors(["the"], str(glove), 3).shape == (1, 3)


@pytest.fixture
def bert(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "nurse", "##s", "wa", "##rd"]
    engine = Tokenizer(
        WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    engine.normalizer, engine.pre_tokenizer = Lowercase(), Whitespace()
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            vocab_size=9,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
        )
    )
    model.save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=engine, **special).save_pretrained(tmp_path)
    return tmp_path, model.embeddings.word_embeddings.weight.detach()


def test_a_word_has_the_mean_of_its_pieces_in_a_pretrained_model(bert):
    folder, table = bert
    words, vectors = pretrained_vectors(str(folder), ["nurses", "zork", "the", "ward"])
    assert words.tolist() == [0, 2, 3], "a word that cannot be spelled is left out"
    expected = torch.stack([(table[5] + table[6]) / 2, table[4], (table[7] + table[8]) / 2])
    assert np.abs(vectors - expected.numpy()).max() < 1e-6
    assert word_vectors(["the", "zork"], str(folder), others=1).shape == (3, 8)


def test_pieces_of_many_words_stay_with_their_words(bert, monkeypatch):
    folder, table = bert
    monkeypatch.setattr(
        "backpack_rank.models.word_embeddings._parts",
        lambda count: (slice(at, at + 2) for at in range(0, count, 2)),
    )
    words = ["the", "nurses", "ward", "nurse", "wards"]
    _, vectors = pretrained_vectors(str(folder), words)
    pieces = [[4], [5, 6], [7, 8], [5], [7, 8, 6]]
    expected = torch.stack([table[ids].mean(0) for ids in pieces])
    assert np.abs(vectors - expected.numpy()).max() < 1e-6
