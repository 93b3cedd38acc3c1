"""Token streams on disk, the rows cut from them, and the order in which training sees them."""

import copy
import pickle

import numpy as np
import pytest
import torch

from backpack_rank.data.text_data import TextData, by_size, padded
from backpack_rank.data.texts import is_held_out
from backpack_rank.data.token_rows import RowSampler, TokenCorpus, TokenRows, read_corpus, write_corpus
from backpack_rank.data.tokenisation import PairEncoder


def corpus_of(folder, train, held_out=(0, 5, 0), end_id=0):
    """A corpus of these streams."""
    for name, stream in (("train", train), ("held_out", held_out)):
        np.array(stream, dtype=np.uint16).tofile(folder / f"{name}.tokens")
    return TokenCorpus(folder, "uint16", end_id, len(train) - 1, 1, len(held_out) - 1, 1)


def test_documents_become_two_streams_with_end_tokens(tmp_path, encoder, sentences):
    corpus = write_corpus(tmp_path / "corpus", (text for text in [*sentences, "", " "]), encoder, 0.3, 0)
    sides = {side: [text for text in sentences if is_held_out(text, 0.3, 0) == side] for side in (False, True)}
    assert all(sides.values())
    for stream, texts in ((corpus.train, sides[False]), (corpus.held_out, sides[True])):
        expected = [encoder.end_id]
        for text in texts:
            expected += [*encoder.tokenizer(f" {text}", add_special_tokens=False)["input_ids"], encoder.end_id]
        assert stream.tolist() == expected
        assert stream.dtype == np.uint16
    assert corpus.train_documents == len(sides[False])
    assert corpus.held_out_documents == len(sides[True])
    assert corpus.train_tokens == len(corpus.train) - 1
    again = read_corpus(tmp_path / "corpus")
    assert again == corpus
    assert again.train.tolist() == corpus.train.tolist()


def test_a_corpus_is_complete_or_absent(tmp_path, encoder, sentences):
    def broken():
        yield from sentences
        raise ValueError("x.txt, line 9: damaged")

    with pytest.raises(ValueError, match="line 9"):
        write_corpus(tmp_path / "corpus", broken(), encoder, 0.3, 0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"of 8 documents none is left to train on: task\.held_out=0\.999"):
        write_corpus(tmp_path / "corpus", sentences, encoder, 0.999, 0)
    with pytest.raises(ValueError, match="of 0 documents none is left"):
        write_corpus(tmp_path / "corpus", [], encoder, 0.5, 0)
    with pytest.raises(ValueError, match="none is left to measure perplexity on"):
        write_corpus(tmp_path / "corpus", sentences, encoder, 1e-9, 0)


def test_ids_of_a_large_vocabulary_are_kept(tmp_path, tokenizer):
    large = copy.deepcopy(tokenizer)
    large.add_tokens([f"zz{number:05}" for number in range(2**16 - len(large) + 5)])
    last = f"zz{2**16 - len(tokenizer) + 4:05}"
    corpus = write_corpus(tmp_path / "corpus", ["he", last], PairEncoder(large, 8), 0.5, 0)
    assert corpus.dtype == "uint32"
    ids = {*corpus.train.tolist(), *corpus.held_out.tolist()}
    assert len(large) - 1 in ids


def test_a_process_that_gets_a_copy_maps_the_files_itself(tmp_path):
    corpus = corpus_of(tmp_path, range(50_000))
    rows = TokenRows(corpus, 100)
    first = rows[3]
    sent = pickle.dumps(rows)
    assert len(sent) < 2000
    assert torch.equal(pickle.loads(sent)[3], first)


def test_rows_predict_every_token_and_the_last_is_filled_up(tmp_path):
    rows = TokenRows(corpus_of(tmp_path, range(11)), 4)
    assert [row.tolist() for row in (rows[i] for i in range(len(rows)))] == [
        [0, 1, 2, 3, 4],
        [4, 5, 6, 7, 8],
        [6, 7, 8, 9, 10],
    ]
    assert rows[0].dtype == torch.int64
    assert len(TokenRows(corpus_of(tmp_path, range(9)), 4)) == 2
    with pytest.raises(ValueError, match=r"3 tokens of text are less than task\.sequence_length=4"):
        TokenRows(corpus_of(tmp_path, range(4)), 4)


def test_held_out_documents_stand_alone_and_long_ones_are_cut(tmp_path):
    corpus = corpus_of(tmp_path, range(9), [0, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 0])
    windows = [window.tolist() for window in corpus.held_out_windows(3)]
    assert windows == [[0, 5, 6, 0], [0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 0], [0, 9, 0]]
    assert sum(len(window) - 1 for window in windows) == corpus.held_out_tokens


def test_batches_are_padded_behind_the_pieces_and_never_too_large():
    windows = [np.array(window) for window in ([0, 5, 6, 7], [0, 8, 9], [0, 3], [0, 4], [0, 2])]
    batches = [[window.tolist() for window in batch] for batch in by_size(windows, 5)]
    assert batches == [[[0, 5, 6, 7]], [[0, 8, 9], [0, 3]], [[0, 4], [0, 2]]]
    assert [len(batch) for batch in by_size(windows[:2], 1)] == [1, 1]
    batch = padded(windows[1:3])
    assert batch.ids.tolist() == [[0, 8, 9], [0, 3, 0]]
    assert batch.known.tolist() == [[True, True], [True, False]]


def test_processes_share_the_held_out_documents(tmp_path, monkeypatch):
    streams = [0]
    for document in range(1, 8):
        streams += [document] * document + [0]
    data = TextData(corpus_of(tmp_path, range(40), streams), 4, batch_size=2)
    targets = []
    for rank in range(2):
        monkeypatch.setattr(data, "_place", lambda rank=rank: (rank, 2))
        targets += [batch.ids[:, 1:][batch.known].tolist() for batch in data.val_dataloader()]
    assert sorted(token for part in targets for token in part) == sorted(streams[1:])


def test_epochs_go_through_all_rows_before_any_comes_again():
    def epoch(number, per_epoch=None, seed=0, place=(0, 1)):
        sampler = RowSampler(10, per_epoch, seed, *place)
        sampler.set_epoch(number)
        order = list(sampler)
        assert len(order) == len(sampler)
        return order

    assert sorted(epoch(0)) == sorted(epoch(1)) == list(range(10))
    assert epoch(0) != epoch(1)
    assert epoch(0) == epoch(0)
    assert epoch(0, seed=1) != epoch(0)
    parts = epoch(0, 4) + epoch(1, 4) + epoch(2, 4)
    assert parts == (epoch(0) + epoch(1))[:12]
    two = [epoch(0, 4, place=(rank, 2)) for rank in range(2)]
    assert [row for pair in zip(*two, strict=True) for row in pair] == epoch(0, 4)
    three = [epoch(0, None, place=(rank, 3)) for rank in range(3)]
    assert [len(part) for part in three] == [4, 4, 4]
    assert set().union(*three) == set(range(10))
