"""Rows of texts without padding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.packing import PackedBatch, behind_separator, joined

some_texts = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=5)


def test_a_batch_worked_by_hand():
    batch = PackedBatch.from_sequences([[7, 8, 9], np.array([5], dtype=np.int32), [4, 4]])
    assert len(batch) == 3
    assert batch.input_ids.tolist() == [7, 8, 9, 5, 4, 4]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.text_ids.tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.offsets.tolist() == [0, 3, 4, 6]
    assert batch.offsets.dtype == torch.int32
    assert batch.lengths == [3, 1, 2]
    assert batch.max_length == 3
    assert batch.last_positions.tolist() == [2, 3, 5]
    assert batch.padding_mask().tolist() == [
        [True, True, True],
        [True, False, False],
        [True, True, False],
    ]
    assert batch.pad(batch.input_ids).tolist() == [[7, 8, 9], [5, 0, 0], [4, 4, 0]]


@settings(max_examples=40, deadline=None)
@given(some_texts)
def test_texts_come_back_from_their_padded_batch(texts):
    packed = PackedBatch.from_sequences(texts)
    padded = packed.pad(packed.input_ids)
    assert [
        row[keep].tolist() for row, keep in zip(padded, packed.padding_mask(), strict=True)
    ] == texts
    assert torch.equal(padded.flatten()[packed.padded_rows], packed.input_ids)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [([], "at least one text"), ([[1], [], [2]], "text 1 of the batch has no token")],
)
def test_nothing_to_read_is_refused(texts, sentence):
    with pytest.raises(ValueError, match=sentence):
        PackedBatch.from_sequences(texts)


@settings(max_examples=40, deadline=None)
@given(some_texts, st.randoms(use_true_random=False))
def test_selected_tokens_are_a_batch_of_their_own(texts, random):
    kept = [[random.random() < 0.7 for _ in text] for text in texts]
    batch = PackedBatch.from_sequences(texts).select(
        torch.tensor([keep for row in kept for keep in row])
    )
    expected = [
        [token for token, keep in zip(*pair, strict=True) if keep]
        for pair in zip(texts, kept, strict=True)
    ]
    assert batch.lengths == [len(text) for text in expected]
    assert batch.max_length == max(map(len, expected))
    tokens = []
    positions = []
    rows = []
    for row, text in enumerate(expected):
        tokens += text
        positions += range(len(text))
        rows += [row] * len(text)
    assert batch.input_ids.tolist() == tokens
    assert batch.position_ids.tolist() == positions
    assert batch.text_ids.tolist() == rows


def test_document_tokens_are_those_behind_the_first_separator():
    batch = PackedBatch.from_sequences([[7, 0, 8, 0], [0, 5], [6]])
    assert behind_separator(batch, 0).tolist() == [False, False, True, True, False, True, False]


@given(some_texts, some_texts)
def test_two_batches_are_joined(first, second):
    expected = PackedBatch.from_sequences(first + second)
    found = joined(PackedBatch.from_sequences(first), PackedBatch.from_sequences(second))
    for name in ("input_ids", "position_ids", "text_ids", "offsets"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert getattr(found, name).dtype == getattr(expected, name).dtype
    assert found.max_length == expected.max_length
