"""The pooled path against the full path: same vectors, same gradients, whatever the batch looks
like.
"""

import pytest
import torch

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attention import _attention_per_text, _padded_attention
from backpack_rank.models.configuration import BackpackConfig

TEXTS = [[5, 9, 300, 9, 7, 41], [8], [77, 12, 5, 5, 5, 5, 5, 130, 2, 2, 6], [5, 9, 300]]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def padded(texts, side, width=13, fill=3):
    ids, mask = (
        torch.full((len(texts), width), fill),
        torch.zeros((len(texts), width), dtype=torch.long),
    )
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(width - len(text), width)
        ids[row, place], mask[row, place] = torch.tensor(text), 1
    return ids, mask


def last_mixes(backpack, texts):
    """The oracle: the full path over one text at a time, at its last token. [B, d]"""
    return torch.stack([backpack(torch.tensor([text])).mixed[0, -1] for text in texts])


@pytest.fixture(params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def backpack(request, make_backpack):
    return make_backpack(layers=3, dtype=request.param).backpack


@torch.no_grad()
def test_pooled_senses_sum_to_the_full_path_at_the_last_token(backpack):
    senses = backpack.pooled_senses(PackedBatch.from_sequences(TEXTS))
    assert senses.shape == (4, 8, 32)
    limit = TOLERANCE[senses.dtype]
    torch.testing.assert_close(senses.sum(1), last_mixes(backpack, TEXTS), atol=limit, rtol=limit)


@torch.no_grad()
def test_each_pooled_sense_is_its_own_weighted_sum_of_token_senses(backpack):
    """Per sense, with the weights computed here from the trunk's hidden states."""
    text = TEXTS[2]
    hidden = backpack(torch.tensor([text])).hidden[0]
    queries, keys = backpack.sense_weight_net.c_attn(hidden).reshape(len(text), 2, 8, 4).unbind(1)
    senses = backpack.senses(torch.tensor(text))
    pooled_senses = backpack.pooled_senses(PackedBatch.from_sequences([text]))[0]
    for sense in range(8):
        shares = torch.softmax(keys[:, sense] @ queries[-1, sense] / 4**0.5, dim=0)
        expected = (shares[:, None] * senses[:, sense]).sum(0)
        torch.testing.assert_close(
            pooled_senses[sense], expected, atol=TOLERANCE[pooled_senses.dtype], rtol=1e-5
        )


@torch.no_grad()
def test_contextual_weights_are_peaked_enough_for_the_comparison(backpack):
    batch = PackedBatch.from_sequences(TEXTS[2:3])
    weights = backpack.sense_weight_net.pooled(backpack(batch.input_ids[None]).hidden[0], batch)
    assert weights.max() > 2 / len(TEXTS[2])
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 8, dtype=weights.dtype))


@torch.no_grad()
def test_a_text_alone_and_in_a_batch_give_the_same(backpack):
    together = backpack.pooled_senses(PackedBatch.from_sequences(TEXTS))
    alone = torch.cat(
        [backpack.pooled_senses(PackedBatch.from_sequences([text])) for text in TEXTS]
    )
    torch.testing.assert_close(together, alone, atol=TOLERANCE[alone.dtype], rtol=1e-5)


@torch.no_grad()
def test_the_order_of_packing_does_not_matter(backpack):
    order = [2, 0, 3, 1]
    expected = backpack.pooled_senses(PackedBatch.from_sequences(TEXTS))
    other = backpack.pooled_senses(PackedBatch.from_sequences([TEXTS[i] for i in order]))
    torch.testing.assert_close(other, expected[order], atol=TOLERANCE[expected.dtype], rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_full_path_takes_padding_on_either_side(backpack, side):
    ids, mask = padded(TEXTS, side)
    output = backpack(ids, attention_mask=mask)
    limit = TOLERANCE[output.mixed.dtype]
    for row, text in enumerate(TEXTS):
        alone = backpack(torch.tensor([text]))
        torch.testing.assert_close(
            output.mixed[row][mask[row] == 1], alone.mixed[0], atol=limit, rtol=limit
        )
        torch.testing.assert_close(
            output.hidden[row][mask[row] == 1], alone.hidden[0], atol=limit, rtol=limit
        )
        assert not output.mixed[row][mask[row] == 0].any()


@torch.no_grad()
def test_what_stands_in_the_padding_does_not_matter(backpack):
    filled_with_3, filled_with_200 = (
        backpack(*padded(TEXTS, "left", fill=fill)).mixed for fill in (3, 200)
    )
    torch.testing.assert_close(
        filled_with_3, filled_with_200, atol=TOLERANCE[filled_with_3.dtype], rtol=0
    )


def test_gradients_of_both_paths_are_equal(make_backpack):
    backpack = make_backpack(layers=3, dtype=torch.float64).backpack
    direction = torch.randn(4, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def gradients(mixes):
        backpack.zero_grad()
        (mixes * direction).sum().backward()
        return {name: parameter.grad.clone() for name, parameter in backpack.named_parameters()}

    pooled = gradients(backpack.pooled_senses(PackedBatch.from_sequences(TEXTS)).sum(1))
    full = gradients(last_mixes(backpack, TEXTS))
    assert pooled.keys() == full.keys()
    for name, gradient in full.items():
        # Key biases cancel in the softmax, so theirs is 0 up to rounding.
        torch.testing.assert_close(pooled[name], gradient, atol=1e-11, rtol=1e-9, msg=name)
    assert pooled["backbone.wte.weight"].abs().max() > 0.1


def test_gradients_under_autocast_are_those_of_single_precision(make_backpack):
    backpack = make_backpack().backpack
    batch = PackedBatch.from_sequences(TEXTS)
    gradients_by_name = []
    for mixed in (False, True):
        backpack.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            backpack.pooled_senses(batch).float().square().mean().backward()
        gradients_by_name.append(
            {name: parameter.grad.clone() for name, parameter in backpack.named_parameters()}
        )
    for name in ("backbone.wte.weight", "sense_network.final_mlp.c_proj.weight"):
        exact, mixed = (gradients[name] for gradients in gradients_by_name)
        assert mixed.dtype == torch.float32
        assert mixed.layout == torch.strided
        assert 0 < (mixed - exact).norm() < 0.05 * exact.norm()


@torch.no_grad()
def test_contextual_weights_are_single_precision_under_autocast(make_backpack):
    backpack = make_backpack().backpack
    batch = PackedBatch.from_sequences(TEXTS)
    exact = backpack.pooled_senses(batch)
    with torch.autocast("cpu", torch.bfloat16):
        weights = backpack.pooled_weights(batch)
        senses = backpack.weighted_senses(weights, batch)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 8))
    assert 0 < (senses.float() - exact).abs().max() < 0.1 * exact.abs().max()


def test_a_frequent_token_does_not_lose_small_gradients_in_half_precision(
    make_backpack, monkeypatch
):
    """1 + 1/512 is 1 in bfloat16: 512 such steps, added one at a time, would be lost."""
    backpack = make_backpack().backpack.bfloat16()
    weight = backpack.sense_network.final_mlp.c_proj.weight.float()
    hidden = torch.ones((1, len(weight)), dtype=torch.bfloat16, requires_grad=True)
    monkeypatch.setattr(backpack, "token_hidden", lambda ids, sparse: hidden)
    weights = torch.full((513, 8, 1), 1 / 512, dtype=torch.bfloat16)
    weights[0] = 1.0
    backpack.weighted_senses(weights, PackedBatch.from_sequences([[7]] * 513))[
        :, 0, 0
    ].sum().backward()
    torch.testing.assert_close(hidden.grad[0].float(), 2 * weight[:, 0], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("side", ["left", "right"])
def test_gradients_through_padding_are_finite(make_backpack, side):
    backpack = make_backpack().backpack
    backpack(*padded(TEXTS, side)).mixed.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in backpack.parameters())


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        ([[1, 1, 1], [1, 0, 1]], "row 1 has a hole"),
        ([[1, 1, 1], [0, 0, 0]], "a text of the batch has no token"),
    ],
)
def test_masks_that_are_no_padding_are_refused(make_backpack, mask, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_backpack().backpack(
            torch.ones((2, 3), dtype=torch.long), attention_mask=torch.tensor(mask)
        )


@pytest.mark.parametrize(("causal", "scale"), [(True, 0.7), (False, None)])
def test_both_forms_of_packed_attention_are_equal(causal, scale):
    generator = torch.Generator().manual_seed(0)
    batch = PackedBatch.from_sequences(TEXTS)
    tokens = len(batch.input_ids)
    parts = [torch.randn(tokens, 4, 8, generator=generator, dtype=torch.float64) for _ in range(3)]
    per_text = _attention_per_text(*parts, batch, scale, 0.0, causal=causal)
    torch.testing.assert_close(
        _padded_attention(*parts, batch, scale, 0.0, causal=causal), per_text, atol=1e-12, rtol=0
    )
    query, key, value = (part[batch.offsets[2] : batch.offsets[3]] for part in parts)
    for i in (0, 4):
        seen = slice(i + 1) if causal else slice(None)
        logits = torch.einsum("hd,jhd->hj", query[i], key[seen]) * (scale or 8**-0.5)
        expected = torch.einsum("hj,jhd->hd", logits.softmax(dim=-1), value[seen])
        torch.testing.assert_close(per_text[batch.offsets[2] + i], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("senses", [0, 5, -4])
def test_a_number_of_senses_that_does_not_divide_is_refused(senses):
    with pytest.raises(
        ValueError, match=rf"num_senses={senses} must be at least 1 and divide the hidden size 32"
    ):
        BackpackConfig(n_embd=32, num_senses=senses)
