"""Senses of tokens that were seen before are not computed again, and scores stay as they are."""

import pytest
import torch

from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.token_memory import TokenMemory, remembering


def test_only_new_tokens_are_computed():
    asked = []

    def double(ids):
        asked.append(ids.tolist())
        return torch.stack([2.0 * ids, -1.0 * ids], dim=-1)

    memory = TokenMemory(10)
    assert memory(torch.tensor([3, 1, 3]), double).tolist() == [[6, -3], [2, -1], [6, -3]]
    assert memory(torch.tensor([[1, 4]]), double).tolist() == [[[2, -1], [8, -4]]]
    assert memory(torch.tensor([4, 3]), double).tolist() == [[8, -4], [6, -3]]
    assert asked == [[1, 3], [4]]


@torch.no_grad()
def test_scores_are_those_without_a_memory_and_the_sense_network_sees_each_token_once(make_backpack):
    ranker = make_backpack()
    batches = [PackedBatch.from_sequences(texts) for texts in ([[5, 6, 7, 5], [8]], [[7, 9, 8, 3], [5, 6]])]
    expected = [ranker(batch).scores for batch in batches]
    seen = []
    handle = ranker.backpack.sense_network.ln.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    with remembering(ranker.backpack):
        found = [ranker(batch).scores for batch in batches]
    handle.remove()
    assert seen == [4, 2]
    for scores, others in zip(found, expected, strict=True):
        torch.testing.assert_close(scores, others, atol=1e-5, rtol=1e-5)
    assert ranker.backpack.token_memory is None


def test_nothing_is_kept_in_training_or_after_an_error(make_backpack):
    ranker = make_backpack().train()
    with remembering(ranker.backpack):
        assert ranker.backpack.token_memory is None
    ranker.eval()
    empty = torch.empty(0, 3)
    with pytest.raises(IndexError), remembering(ranker.backpack):
        empty[5]
    assert ranker.backpack.token_memory is None
    with remembering(ranker.backpack):
        assert ranker.backpack.token_memory is not None


@torch.no_grad()
def test_changed_weights_are_seen_by_the_next_block(make_backpack):
    ranker = make_backpack()
    batch = PackedBatch.from_sequences([[5, 6, 7]])
    with remembering(ranker.backpack):
        before = ranker(batch).scores
    ranker.backpack.sense_network.ln.weight.mul_(-1)
    with remembering(ranker.backpack):
        after = ranker(batch).scores
    torch.testing.assert_close(after, ranker(batch).scores, atol=1e-5, rtol=1e-5)
    assert (after - before).abs().max() > 1e-3
