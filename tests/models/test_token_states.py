"""What the sense network says of tokens that were seen before is not computed again, and scores stay the same."""

import torch

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.token_states import TokenStateCache


def test_only_new_tokens_are_computed():
    asked = []

    def double(ids):
        asked.append(ids.tolist())
        return torch.stack([2.0 * ids, -1.0 * ids], dim=-1)

    states = TokenStateCache(10)
    assert states(torch.tensor([3, 1, 3]), double).tolist() == [[6, -3], [2, -1], [6, -3]]
    assert states(torch.tensor([[1, 4]]), double).tolist() == [[[2, -1], [8, -4]]]
    assert states(torch.tensor([4, 3]), double).tolist() == [[8, -4], [6, -3]]
    assert asked == [[1, 3], [4]]


@torch.no_grad()
def test_scores_are_those_without_a_cache_and_the_sense_network_sees_each_token_once(make_backpack):
    ranker = make_backpack()
    batches = [PackedBatch.from_sequences(texts) for texts in ([[5, 6, 7, 5], [8]], [[7, 9, 8, 3], [5, 6]])]
    expected = [ranker(batch).scores for batch in batches]
    seen = []
    ranker.backpack.sense_network.ln.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    states = TokenStateCache(ranker.config.vocab_size)
    found = [ranker(batch, token_states=states).scores for batch in batches]
    assert seen == [4, 2]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
