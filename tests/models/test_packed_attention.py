"""Attention within packed texts against the formula, each text alone in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attention import packed_attention

LENGTHS = (1, 7, 40, 3, 19)
HEADS, WIDTH = 3, 16
DEVICES = [
    pytest.param("cpu", torch.float32, 1e-5, id="cpu"),
    pytest.param("cuda", torch.float32, 1e-4, id="gpu-fp32", marks=pytest.mark.cuda),
    pytest.param("cuda", torch.bfloat16, 2e-2, id="gpu-flash", marks=pytest.mark.cuda),
]


class _Layer(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal


def by_the_formula(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool, window: int | None
) -> Tensor:
    """softmax(scale q k') v over the tokens that are seen, of one text. [n, heads, width]"""
    length = query.shape[0]
    logits = scale * torch.einsum("qhd,khd->hqk", query, key)
    for i in range(length):
        for j in range(length):
            too_far = window is not None and abs(i - j) >= window
            if too_far or (causal and j > i):
                logits[:, i, j] = -math.inf
    return torch.einsum("hqk,khd->qhd", logits.softmax(dim=-1), value)


@pytest.mark.parametrize(("device", "dtype", "tolerance"), DEVICES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 6])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_each_text_attends_to_itself(device, dtype, tolerance, causal, window, scale):
    torch.manual_seed(0)
    packed = PackedBatch.from_sequences([[1] * length for length in LENGTHS])
    # Rounded to the number format first, so that the inputs of both are equal.
    query, key, value = torch.randn(3, sum(LENGTHS), HEADS, WIDTH).to(dtype).double()
    expected = []
    for q, k, v in zip(*(part.split(LENGTHS) for part in (query, key, value)), strict=True):
        expected.append(by_the_formula(q, k, v, scale or WIDTH**-0.5, causal, window))

    in_layout = (part.transpose(0, 1)[None].to(device, dtype) for part in (query, key, value))
    mixed, _ = packed_attention(
        _Layer(causal),
        *in_layout,
        attention_mask=None,
        scaling=scale,
        packed=packed.to(device),
        sliding_window=window,
    )

    difference = (mixed[0].double().cpu() - torch.cat(expected)).abs().max()
    assert difference < tolerance
