"""Pooling of token vectors, and each sense's own product: values and gradients against loops over single numbers."""

from __future__ import annotations

import pytest
import torch

from backpack_rank.models import pooling
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.pooling import per_sense, pooled_tokens, token_logits

SENSES, WIDTH, SIZE = 3, 4, 2


@pytest.fixture(params=["own", "plain"], autouse=True)
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of every product, at a size of which only one would be taken."""
    monkeypatch.setattr(pooling, "_LARGE", 0 if request.param == "own" else 1 << 62)
    return str(request.param)


@pytest.fixture
def batch() -> PackedBatch:
    """Texts of 3, 0, 1 and 4 tokens; tokens come back within a text and in others."""
    whole = PackedBatch.from_sequences([[5, 7, 5], [8], [7], [9, 7, 5, 5]])
    return whole.select(whole.input_ids != 8)


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype).requires_grad_()


def weights_of(batch: PackedBatch, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    values = drawn(len(batch), SENSES, batch.max_length, dtype=dtype).detach()
    return (values * batch.padding_mask()[:, None]).requires_grad_()


def slow_pooling(weights, hidden, rows, batch):
    """Token by token: sum_j a[l, j] h(x_j)."""
    texts = [[torch.zeros(WIDTH, dtype=hidden.dtype)] * SENSES for _ in range(len(batch))]
    for row, text, position in zip(rows.tolist(), batch.text_ids.tolist(), batch.position_ids.tolist(), strict=True):
        texts[text] = [texts[text][sense] + weights[text, sense, position] * hidden[row] for sense in range(SENSES)]
    return torch.stack([torch.stack(senses) for senses in texts])


def test_pooling_and_its_gradients_are_those_of_the_sum_over_tokens(batch) -> None:
    weights, hidden = weights_of(batch), drawn(3, WIDTH)
    rows = batch.input_ids.unique(return_inverse=True)[1]
    fast, slow = (pool(weights, hidden, rows, batch) for pool in (pooled_tokens, slow_pooling))
    torch.testing.assert_close(fast, slow)
    assert not fast[1].any()  # the text without a token
    upstream = torch.arange(fast.numel(), dtype=torch.float64).view_as(fast)
    of_weights, of_hidden = torch.autograd.grad(fast, (weights, hidden), upstream)
    wanted_weights, wanted_hidden = torch.autograd.grad(slow, (weights, hidden), upstream)
    torch.testing.assert_close(of_hidden, wanted_hidden)
    torch.testing.assert_close(of_weights * batch.padding_mask()[:, None], wanted_weights)


def test_logits_and_their_gradients_are_those_of_single_inner_products() -> None:
    batch = PackedBatch.from_sequences([[5, 7, 5], [7], [9, 7, 5, 5]])
    probes, hidden = drawn(3, SENSES, WIDTH), drawn(8, WIDTH)
    fast = token_logits(probes, hidden, batch)
    there = batch.padding_mask()[:, None].expand_as(fast)
    assert torch.equal(fast == float("-inf"), ~there)
    first = batch.offsets.tolist()
    slow = [
        (probes[text, sense] * hidden[first[text] + token]).sum()
        for text, length in enumerate(batch.lengths)
        for sense in range(SENSES)
        for token in range(length)
    ]
    torch.testing.assert_close(fast[there], torch.stack(slow))
    upstream = torch.arange(len(slow), dtype=torch.float64)
    found = torch.autograd.grad(fast[there], (probes, hidden), upstream)
    wanted = torch.autograd.grad(torch.stack(slow), (probes, hidden), upstream)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_logits_of_half_precision_are_single_ones() -> None:
    batch = PackedBatch.from_sequences([[1, 2], [3]])
    hidden = drawn(3, WIDTH, dtype=torch.float32)
    half = token_logits(drawn(2, SENSES, WIDTH, dtype=torch.float32).bfloat16(), hidden.bfloat16(), batch)
    assert half.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        cast = token_logits(drawn(2, SENSES, WIDTH, dtype=torch.float32), hidden, batch)
    torch.testing.assert_close(cast, half, rtol=0, atol=0)


def test_each_sense_is_multiplied_by_its_own_part_of_the_weight(batch) -> None:
    pooled, weight = drawn(5, SENSES, WIDTH), drawn(WIDTH, SENSES * SIZE)
    columns = [weight[:, sense * SIZE : (sense + 1) * SIZE] for sense in range(SENSES)]
    slow = torch.stack([torch.stack([text[sense] @ columns[sense] for sense in range(SENSES)]) for text in pooled])
    torch.testing.assert_close(per_sense(pooled, weight), slow)
    with torch.no_grad():
        torch.testing.assert_close(per_sense(pooled, weight), slow)
    assert torch.autograd.gradcheck(per_sense, (pooled, weight))


def test_autocast_multiplies_in_half_precision_and_sums_gradients_in_single(batch) -> None:
    weights, hidden = weights_of(batch, torch.float32), drawn(3, WIDTH, dtype=torch.float32)
    weight = drawn(WIDTH, SENSES * SIZE, dtype=torch.float32)
    rows = batch.input_ids.unique(return_inverse=True)[1]
    with torch.autocast("cpu", torch.bfloat16):
        pooled = pooled_tokens(weights, hidden, rows, batch)
        product = per_sense(pooled, weight)
    assert pooled.dtype == product.dtype == torch.bfloat16
    found = torch.autograd.grad(product.float().square().sum(), (weights, hidden, weight))
    exact = per_sense(pooled_tokens(weights, hidden, rows, batch), weight)
    torch.testing.assert_close(product.float(), exact, rtol=0.03, atol=0.03)
    for half, single in zip(found, torch.autograd.grad(exact.square().sum(), (weights, hidden, weight)), strict=True):
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, single, rtol=0.05, atol=0.05 * float(single.abs().max()))


def test_a_frequent_token_does_not_lose_small_gradients_in_half_precision(passes) -> None:
    if passes == "plain":
        pytest.skip("torch sums the gradient of an embedding in the embedding's own format on CPUs")
    # 1 + 1/512 is 1 in bfloat16: 512 such steps, added one at a time, would be lost.
    batch = PackedBatch.from_sequences([[1]] * 513)
    weights = torch.full((513, 1, 1), 1 / 512, dtype=torch.bfloat16)
    weights[0] = 1.0
    hidden = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    pooled_tokens(weights, hidden, torch.zeros(513, dtype=torch.long), batch).sum().backward()
    assert hidden.grad is not None
    assert float(hidden.grad) == 2.0
