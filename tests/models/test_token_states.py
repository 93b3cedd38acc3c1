"""h(x) of tokens is computed once for weights that do not change, and the same bit for bit."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models import sense_network
from backpack_rank.models.sense_network import TOKENS_AT_A_TIME, TokenStateCache
from backpack_rank.reranking.scorer import Scorer

IDS = torch.tensor([5, 9, 300, 41, 7])


@pytest.fixture
def backpack(make_backpack):
    """One that counts the tokens of which h(x) is computed, in ``backpack.computed``."""
    backpack = make_backpack().backpack
    backpack.computed = []
    backpack.sense_network.ln.register_forward_hook(
        lambda _, inputs, __: backpack.computed.append(inputs[0].shape[0])
    )
    return backpack


@torch.inference_mode()
def test_only_new_tokens_are_computed(backpack):
    expected = backpack.token_hidden(IDS)
    backpack.computed.clear()
    states = TokenStateCache(backpack)
    torch.testing.assert_close(states(IDS[[3, 1, 3]]), expected[[3, 1, 3]], atol=1e-6, rtol=1e-5)
    assert backpack.computed == [TOKENS_AT_A_TIME]
    torch.testing.assert_close(states(IDS[:4].view(2, 2)), expected[:4].view(2, 2, -1))
    assert backpack.computed == [TOKENS_AT_A_TIME] * 2
    assert states(IDS[[0, 3]]).shape == (2, expected.shape[1])
    assert backpack.computed == [TOKENS_AT_A_TIME] * 2
    assert states(IDS[:0]).shape == (0, expected.shape[1])
    assert states.filled_bytes == 4 * expected[0].nbytes


@torch.inference_mode()
def test_more_new_tokens_than_are_computed_at_a_time(backpack):
    ids = torch.arange(2 * TOKENS_AT_A_TIME + 3)
    states = TokenStateCache(backpack)
    torch.testing.assert_close(states(ids), backpack.token_hidden(ids), atol=1e-6, rtol=1e-5)
    assert backpack.computed[:-1] == [TOKENS_AT_A_TIME] * 3


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_do_not_depend_on_what_came_before_or_along(make_backpack, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    draw = torch.Generator().manual_seed(0)
    # Wide enough for the ways that libraries multiply large matrices in.
    backpack = make_backpack(hidden_size=192, senses=6).backpack
    vocabulary = len(backpack.get_input_embeddings().weight)
    expected = TokenStateCache(backpack)
    try:
        with torch.inference_mode():
            of_all = expected(torch.arange(vocabulary))
            for _ in range(5):
                states = TokenStateCache(backpack)
                for count in (1, 3, 70, 20):
                    ids = torch.randperm(vocabulary, generator=draw)[:count]
                    assert torch.equal(states(ids), of_all[ids])
    finally:
        torch.set_num_threads(before)


def test_a_text_has_the_same_score_whatever_was_scored_before(make_backpack, pair_tokenizer):
    ranker = make_backpack()
    documents = ["the nurse in the ward said so", "he saw a bridge and bread", "a ward"]
    alone = Scorer(ranker, pair_tokenizer).score("who saw it?", documents)
    scorer = Scorer(ranker, pair_tokenizer)
    scorer.score("doctor in a ward", ["bread", "she saw her mother in the ward, and a bridge"])
    assert scorer.score("who saw it?", documents).tolist() == alone.tolist(), "bit for bit"
    assert scorer.score("who saw it?", documents).tolist() == alone.tolist()


@torch.inference_mode()
def test_scores_are_those_without_a_cache(make_backpack):
    ranker = make_backpack()
    states = TokenStateCache(ranker.backpack)
    for texts in ([[5, 6, 7, 5], [8]], [[7, 9, 8, 3], [5, 6]]):
        batch = PackedBatch.from_sequences(texts)
        scores = ranker(batch, token_states=states).scores
        torch.testing.assert_close(scores, ranker(batch).scores, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_too_many_states_of_a_backpack_with_forms_are_dropped_between_two_batches(
    make_backpack, pair_tokenizer, monkeypatch
):
    ranker = make_backpack(attribute_senses="gender")
    states = TokenStateCache(ranker.backpack)
    monkeypatch.setattr(sense_network, "MOST_BYTES", 1)
    weights = torch.zeros(ranker.config.total_senses)
    for documents in (["bread", "a bridge"], ["he saw bread", "she did"], ["a ward"]):
        batch = PackedBatch.from_sequences(pair_tokenizer.pairs("who saw it?", documents))
        for options in ({}, {"sense_weights": weights}):
            scores = ranker(batch, token_states=states, **options).scores
            torch.testing.assert_close(scores, ranker(batch, **options).scores)


@pytest.mark.parametrize("mode", ["training", "gradients", "made in inference mode"])
def test_nothing_is_kept_of_what_may_change(backpack, mode):
    states = TokenStateCache(backpack)
    if mode == "training":
        backpack.train()
    elif mode == "made in inference mode":
        with torch.inference_mode():
            layer = backpack.sense_network.final_mlp.c_fc
            layer.bias = torch.nn.Parameter(layer.bias.clone(), requires_grad=False)
    with torch.set_grad_enabled(mode == "gradients"):
        hidden = states(IDS)
    assert hidden.requires_grad == (mode == "gradients")
    assert states.filled_bytes == 0


def test_it_is_of_use_within_inference_mode_and_without(backpack):
    with torch.inference_mode():
        states = TokenStateCache(backpack)
        states(IDS[:2])
    with torch.no_grad():
        expected = backpack.token_hidden(IDS)
        torch.testing.assert_close(states(IDS), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("part", ["embeddings", "sense network", "number format"])
def test_changed_weights_are_read_anew(backpack, part):
    states = TokenStateCache(backpack)
    with torch.inference_mode():
        before = states(IDS).clone()
    with torch.no_grad():
        if part == "embeddings":
            backpack.get_input_embeddings().weight[9] *= 2
        elif part == "sense network":
            backpack.sense_network.final_mlp.c_fc.bias += 1
        else:
            backpack.bfloat16()
    with torch.inference_mode():
        after = states(IDS)
        expected = backpack.token_hidden(IDS)
    assert after.dtype == expected.dtype
    torch.testing.assert_close(after, expected, atol=1e-6, rtol=1e-5)
    assert not torch.equal(after.float(), before)


@torch.inference_mode()
def test_too_many_states_are_dropped(backpack, monkeypatch):
    states = TokenStateCache(backpack)
    row = states(IDS[:3])[0].nbytes
    monkeypatch.setattr(sense_network, "MOST_BYTES", 2 * row)
    states(IDS[3:])
    assert states.filled_bytes == 2 * row, "those of the batch alone"
    monkeypatch.setattr(sense_network, "MOST_BYTES", row)
    torch.testing.assert_close(states(IDS), backpack.token_hidden(IDS), atol=1e-6, rtol=1e-5)


def test_threads_share_it(backpack):
    ids = torch.arange(400)
    with torch.inference_mode():
        expected = TokenStateCache(backpack)(ids)
    states = TokenStateCache(backpack)

    def look(start: int) -> bool:
        with torch.inference_mode():
            return torch.equal(states(ids[start : start + 40]), expected[start : start + 40])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, [*range(0, 360, 7)] * 4))


def test_a_copy_begins_anew_with_its_own_backpack(make_backpack):
    states = TokenStateCache(make_backpack().backpack)
    with torch.inference_mode():
        states(IDS)
        copied = copy.deepcopy(states)
        assert copied.filled_bytes == 0
        assert torch.equal(copied(IDS), states(IDS))
    assert copied._backpack is not states._backpack
